//! Mounts of an isolated session: its copy is the workspace, and the rest of the user's workspace is in layers.

use super::{Mount, MountPlan};
use quackd_protocol::isolate::{CopiedTree, OBJECTS_INSIDE};
use std::path::{Component, Path, PathBuf};

impl MountPlan {
    /// Prepares the private copy of an isolated session: shows the ignored directories of the workspace with layers in
    /// `layers`, and the objects of its repository.
    pub fn isolate(&mut self, copied: &CopiedTree, layers: PathBuf) {
        let is_hidden =
            |at: &Path, hidden: &[PathBuf]| hidden.iter().any(|hidden| at.starts_with(hidden));
        for output in &copied.outputs {
            let from = self.workspace.join(output);
            let is_inside = output.components().all(|part| matches!(part, Component::Normal(_)));
            if is_inside && !is_hidden(&from, &self.hidden) && !self.mounts.contains_key(&from) {
                self.add(from.clone(), Mount::Output { from });
            }
        }

        if let Some(objects) = &copied.objects {
            let mount = Mount::Bind {
                from: objects.clone(),
                writable: false,
                is_directory: true,
                required: true,
            };
            self.add(OBJECTS_INSIDE, mount);
        }
        self.outputs = Some(layers);
    }
}

//! Mounts of directories that keep the state of agents: at their usual places in the private home.

use super::{Mount, MountPlan};
use std::path::{Path, PathBuf};

impl MountPlan {
    /// Shows the directory `from` writable at the path `at`, which is relative to the home. Returns false and changes
    /// nothing if files of the user or of the policy are at that place, above it or inside it: a mount point for them
    /// would be in `from`, where commands could replace it by a link for the next worker.
    #[must_use]
    pub fn keep_agent(&mut self, at: &Path, from: PathBuf) -> bool {
        let at = self.home.join(at);
        let nearest = at.ancestors().find_map(|above| self.mounts.get(above));
        let is_private = matches!(nearest, Some(Mount::Private { .. } | Mount::Way));
        let is_hidden = self.hidden.iter().any(|hidden| at.starts_with(hidden));
        let is_free = !self.mounts.contains_key(&at) && !self.has_mounts_inside(&at);
        let holds_hidden = self.hidden.iter().any(|hidden| hidden.starts_with(&at));
        if !is_private || is_hidden || holds_hidden || !is_free || self.private_home().is_none() {
            return false;
        }

        // Without `required`, the worker starts if the user deletes the directory now.
        self.add(at, Mount::Bind { from, writable: true, is_directory: true, required: false });
        true
    }
}

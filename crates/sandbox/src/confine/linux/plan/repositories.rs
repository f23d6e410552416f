//! Mounts of repositories: their protection, those outside of the workspace, and linked worktrees that the session does not
//! see.

use super::{Mount, MountPlan, Pin};
use crate::confine::git_mounts::Protection;
use crate::git;
use std::io;
use std::path::Path;

/// Directories of the kernel's file systems.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

impl MountPlan {
    /// Adds the pins of the workspace's repositories and the mounts of repositories outside. Omits pins in
    /// directories that are hidden or not shown.
    ///
    /// # Errors
    /// fstat of a repository outside fails.
    pub fn protect(&mut self, protection: &Protection) -> io::Result<()> {
        for git::Main { handle, path } in &protection.repositories {
            if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
                continue;
            }
            self.verify(path, handle)?;
            let mount = Mount::Bind {
                from: path.clone(),
                writable: true,
                is_directory: true,
                required: true,
            };
            self.mounts.entry(path.clone()).or_insert(mount);
            for hidden in self.hidden.iter().filter(|hidden| hidden.starts_with(path)) {
                self.mounts.insert(hidden.clone(), Mount::Empty);
            }
        }

        for worktree in &protection.unseen_worktrees {
            self.stand_in(worktree);
        }
        if !protection.unseen_worktrees.is_empty() {
            let settings = self.home.join(git::SETTINGS_NAME);
            let file =
                self.mounts.entry(settings).or_insert(Mount::File { content: String::new() });
            if let Mount::File { content } = file {
                content.push_str(git::KEEP_WORKTREES);
            }
        }

        self.pins = protection.pins.iter().filter(|pin| self.shows(&pin.at)).cloned().collect();
        self.git = protection.layout.clone();
        let hidden: Vec<_> =
            self.git.directories.keys().filter(|at| !self.shows(at)).cloned().collect();
        for at in hidden {
            self.git.directories.remove(&at);
        }

        let is_in_git =
            |at: &Path| protection.git_directories.iter().any(|git| at.starts_with(git));
        let is_mount = |pin: &&Pin| {
            let is_top = self.git.directories.contains_key(&pin.at);
            is_top || !pin.read_only && is_in_git(&pin.at)
        };
        self.git_mounts = self.pins.iter().filter(is_mount).map(|pin| pin.at.clone()).collect();
        Ok(())
    }

    /// Adds an empty read-only directory with a `.git` file in place of a linked worktree that the session does not see. Git
    /// would otherwise take it for deleted, and delete its HEAD, index and logs.
    fn stand_in(&mut self, worktree: &Path) {
        let nearest = worktree.ancestors().find_map(|at| self.mounts.get(at));
        let is_free = matches!(nearest, None | Some(Mount::Private { .. } | Mount::Way));
        let is_of_kernel = KERNEL.iter().any(|kernel| worktree.starts_with(kernel));
        let is_hidden = self.hidden.iter().any(|hidden| worktree.starts_with(hidden));
        if is_free && !is_of_kernel && !is_hidden && !self.mounts.contains_key(worktree) {
            self.add(worktree, Mount::Way);
            self.add(worktree.join(".git"), Mount::File { content: String::new() });
        }
    }
}

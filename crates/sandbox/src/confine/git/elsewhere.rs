//! Where a `.git` file leads: linked worktrees and submodules keep their repository somewhere else. Called by
//! `protect`.
//!
//! A `.git` file is the workspace's word, and a hostile one can name any repository of the user. It is
//! believed only if that repository names the workspace too.

use super::beneath;
use super::config;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The repository of a `.git` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Beneath the workspace, at this path in it.
    Inside(PathBuf),
    /// Outside, at this canonical path, and it names the workspace.
    Outside(PathBuf),
    /// Nowhere, or in a repository that does not name the workspace.
    Nowhere,
}

/// Follows the `.git` file at `at` beneath `base`, whose canonical path is `base_path`.
pub(crate) fn follow(base: impl AsFd, base_path: &Path, at: &Path) -> Elsewhere {
    resolve(base, base_path, at).unwrap_or(Elsewhere::Nowhere)
}

fn resolve(base: impl AsFd, base_path: &Path, at: &Path) -> Option<Elsewhere> {
    let text = beneath::read(base, at).ok()?;
    let target = text.strip_prefix("gitdir:")?.trim();
    let file = base_path.join(at);
    let worktree = file.parent()?;
    let git = fs::canonicalize(worktree.join(target)).ok()?;
    if let Ok(inside) = git.strip_prefix(base_path) {
        return Some(Elsewhere::Inside(inside.to_path_buf()));
    }
    let directory = fs::File::open(&git).ok()?;
    let common = match beneath::read(&directory, Path::new("gitdir")) {
        Ok(back) => {
            let back = fs::canonicalize(git.join(back.trim())).ok()?;
            if back != file {
                return None;
            }
            let common = beneath::read(&directory, Path::new("commondir")).ok()?;
            fs::canonicalize(git.join(common.trim())).ok()?
        }
        Err(_) => {
            let config = beneath::read(&directory, Path::new("config")).ok()?;
            let entries = config::parse(&config);
            let back = entries.into_iter().rfind(|entry| entry.is("core", "worktree"))?;
            if fs::canonicalize(git.join(back.value?)).ok()? != worktree {
                return None;
            }
            git.clone()
        }
    };
    let is_repository = common.join("HEAD").is_file() && common.join("objects").is_dir();
    // A directory that holds the workspace would show what is beside it.
    let is_apart = !base_path.starts_with(&common) && git.starts_with(&common);
    (is_repository && is_apart).then_some(Elsewhere::Outside(common))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> (tempfile::TempDir, PathBuf) {
        let tree = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(tree.path()).unwrap();
        fs::create_dir_all(root.join("main/.git/worktrees/w")).unwrap();
        fs::create_dir_all(root.join("main/.git/objects")).unwrap();
        fs::create_dir_all(root.join("ws")).unwrap();
        fs::write(root.join("main/.git/HEAD"), "ref: refs/heads/m").unwrap();
        fs::write(root.join("main/.git/worktrees/w/commondir"), "../..\n").unwrap();
        let text = format!("gitdir: {}\n", root.join("main/.git/worktrees/w").display());
        fs::write(root.join("ws/.git"), text).unwrap();
        (tree, root)
    }

    fn look(root: &Path) -> Elsewhere {
        let ws = root.join("ws");
        follow(fs::File::open(&ws).unwrap(), &ws, Path::new(".git"))
    }

    #[test]
    fn a_worktree_is_followed_if_its_repository_points_back() {
        let (_tree, root) = world();
        assert_eq!(look(&root), Elsewhere::Nowhere);
        let back = root.join("main/.git/worktrees/w/gitdir");
        fs::write(&back, "/elsewhere/.git\n").unwrap();
        assert_eq!(look(&root), Elsewhere::Nowhere);
        fs::write(&back, format!("{}\n", root.join("ws/.git").display())).unwrap();
        assert_eq!(look(&root), Elsewhere::Outside(root.join("main/.git")));
    }

    #[test]
    fn somebody_elses_repository_is_not_had_by_naming_it() {
        let (_tree, root) = world();
        fs::write(root.join("ws/.git"), format!("gitdir: {}", root.join("main/.git").display()))
            .unwrap();
        assert_eq!(look(&root), Elsewhere::Nowhere);
        fs::write(root.join("main/.git/config"), "[core]\nworktree = ../../ws\n").unwrap();
        assert_eq!(look(&root), Elsewhere::Outside(root.join("main/.git")));
    }
}

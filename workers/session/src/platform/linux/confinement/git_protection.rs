//! Protection of the repositories in writable directories by mounts. Called by [`super`].

use crate::trees::{Tree, named_files, notes_of};
use quackd_protocol::tiers::GitProtection;
use quackd_sandbox::confine::{MountPlan, git_mounts};
use quackd_sandbox::{Pin, git};
use std::path::Path;
use std::time::Instant;

/// Adds the protection of repositories, and of the files that git's configuration names, to the plan. Returns the
/// result of [`protect`] and the named files.
pub(crate) fn protect_all(
    plan: &mut MountPlan,
    trees: &[Tree<'_>],
    registry: &Path,
    mode: GitProtection,
    until: Instant,
    user: &git::UserSettings,
    notes: &mut Vec<String>,
) -> (Option<(git_mounts::Placeholders, Vec<git::Main>)>, git::NamedFiles) {
    let visible: Vec<&Path> = trees.iter().map(|tree| tree.path).collect();
    let settings = git_mounts::ProtectionSettings { mode, until, visible: &visible };
    let (more, protected) = protect(plan, trees, registry, settings);
    notes.extend(more);

    let named = named_files(trees, user, until, notes);
    // A file that a mount hides cannot get a mount.
    let visible_pins = named.pins.iter().filter(|pin| plan.shows(&pin.at)).cloned().collect();
    plan.pin(visible_pins);
    (protected, named)
}

/// Adds the protection of repositories in writable directories to the plan. Returns notes on incomplete protection,
/// the placeholders, and the handles of repositories outside the workspace.
fn protect(
    plan: &mut MountPlan,
    trees: &[Tree<'_>],
    registry: &Path,
    settings: git_mounts::ProtectionSettings<'_>,
) -> (Vec<String>, Option<(git_mounts::Placeholders, Vec<git::Main>)>) {
    let protected =
        git_mounts::Placeholders::open_blocking(registry).and_then(|mut placeholders| {
            let mut all = git_mounts::Protection::default();
            for Tree { handle, path, repositories } in trees {
                let one = git_mounts::protect_blocking(
                    handle,
                    path,
                    repositories,
                    settings,
                    &mut placeholders,
                )?;
                all.pins.extend(one.pins);
                all.repositories.extend(one.repositories);
                all.git_directories.extend(one.git_directories);
                all.troubles.extend(one.troubles);
                all.unseen_worktrees.extend(one.unseen_worktrees);
                all.layout.extend(one.layout);
            }
            plan.protect(&all)?;
            Ok((all, placeholders))
        });

    match protected {
        Ok((protection, placeholders)) => {
            (notes_of(&protection.troubles), Some((placeholders, protection.repositories)))
        }
        // This fails, for example, if the disk is full. Then the repositories become read-only.
        Err(error) => {
            let repositories = trees.iter().flat_map(|tree| {
                git::git_directories_blocking(tree.handle, tree.path, &tree.repositories)
            });
            plan.pins = repositories.map(|at| Pin { at, read_only: true }).collect();
            (vec![format!("repositories are read-only as a whole: {error}")], None)
        }
    }
}

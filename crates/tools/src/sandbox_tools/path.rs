//! Explains the permissions for one path: by the policy, by the mounts, and, in a session without mounts, by
//! opening the path. Writes nothing.

use super::layers::head;
use super::mounts::{self, Mount, MountContent};
use crate::Confinement;
use quackd_protocol::client::{ExplainPath, ExplainReport, PathAccess};
use quackd_protocol::denial::writable_change;
use quackd_protocol::foreign_text::one_line_cut;
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use quackd_sandbox::{Root, protected_name};
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Maximum length of a path in the answer, in characters.
const MAX_SHOWN: usize = 1000;

/// Maximum number of components of a path: each may need a system call.
const MAX_COMPONENTS: usize = 256;

/// Reason why a path without a mount cannot be read.
const UNOPENED: &str = "it is outside of what the session may open; its name can be seen";

/// Path and context of an explanation.
#[derive(Debug)]
pub(super) struct PathQuery {
    pub(super) confinement: Arc<Confinement>,
    pub(super) tier: Option<Tier>,
    pub(super) run_dir: PathBuf,
    /// The path as the client sent it.
    pub(super) target: String,
}

/// A change by which the user allows more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remedy {
    /// Make the directory writable, if it holds no keys.
    Writable,
    /// In words.
    Words(&'static str),
}

/// Access, reason, and how the user can allow more.
type AccessVerdict = (PathAccess, String, Option<Remedy>);

impl PathQuery {
    /// Returns the answer.
    pub(super) fn answer_blocking(&self, root: &Root) -> ExplainPath {
        let path = normalise(&root.path().join(&self.target));
        let (real, exists) = real_blocking(&path);
        let (access, why, remedy) = self.judge_blocking(root, &path, &real, exists);

        let change = match remedy {
            // A directory, or that of a file.
            Some(Remedy::Writable) if self.confinement.is_far => None,
            Some(Remedy::Writable) => {
                let within = if real.is_dir() { real.join("x") } else { real.clone() };
                writable_change(&within.to_string_lossy(), &self.confinement.session)
            }
            Some(Remedy::Words(words)) => Some(words.to_owned()),
            None => None,
        };

        let shown = |path: &Path| one_line_cut(&path.to_string_lossy(), MAX_SHOWN);
        let leads_to = (real != path).then(|| shown(&real));
        ExplainPath { path: shown(&path), leads_to, access, why, change }
    }

    fn judge_blocking(&self, root: &Root, path: &Path, real: &Path, exists: bool) -> AccessVerdict {
        let policy = &self.confinement.policy;
        let in_workspace = real.strip_prefix(root.path()).ok();

        if !self.confinement.is_confined {
            return self.unconfined_blocking(in_workspace.is_some(), real, exists);
        }

        let is_beneath = |hidden: &PathBuf| path.starts_with(hidden) || real.starts_with(hidden);
        if let Some(hidden) = policy.hidden.iter().find(|hidden| is_beneath(hidden)) {
            let why = format!("the policy hides {}", shown(hidden));
            return verdict(
                PathAccess::Hidden,
                why,
                Some(Remedy::Words("quack sandbox show says where that is set")),
            );
        }

        if let Some(reason) = self.confinement.reason_in_original(real) {
            let why = format!("{reason}; file tools take this path for that of the copy");
            return verdict(PathAccess::NotReadable, why, None);
        }

        let profile = self.confinement.profile.as_ref();
        // The profile forbids secrets of the home also in the workspace.
        match profile.map(|profile| profile.may_read(real)) {
            Some(None) => {
                return verdict(
                    PathAccess::NotReadable,
                    UNOPENED.to_owned(),
                    Some(Remedy::Writable),
                );
            }
            Some(Some(false)) => {
                let why = "quackd or other programs keep secrets in it; the profile forbids it";
                let change = Remedy::Words("only quack sandbox set full-access");
                return verdict(PathAccess::NotReadable, why.to_owned(), Some(change));
            }
            Some(Some(true)) | None => {}
        }

        // Tiers D and M have no mounts.
        let has_mounts = self.tier != Some(Tier::D) && profile.is_none();
        let table = if has_mounts { mounts::table_blocking() } else { Vec::new() };
        let mount = mounts::of(&table, real);
        let is_pinned = mount.is_some_and(|mount| mount.is_read_only);

        if let Some(name) = in_workspace {
            return self.in_workspace(name, is_pinned);
        }
        if real.starts_with(&self.run_dir) {
            let why = "it is the session's own directory, which has its long outputs".to_owned();
            return verdict(PathAccess::ReadWrite, why, None);
        }

        if let Some(beside) = policy.writable_roots.iter().find(|beside| real.starts_with(beside)) {
            let why = format!("the policy names {} beside the workspace", shown(beside));
            return match policy.profile {
                Profile::ReadOnly => read_only(why),
                Profile::WorkspaceWrite | Profile::FullAccess => {
                    verdict(PathAccess::ReadWrite, why, None)
                }
            };
        }

        match mount {
            Some(mount) => elsewhere(mount, exists),
            None => alone_blocking(real, exists),
        }
    }

    fn in_workspace(&self, name: &Path, is_pinned: bool) -> AccessVerdict {
        if self.confinement.policy.profile == Profile::ReadOnly {
            return read_only("it is in the workspace".to_owned());
        }

        let rule = protected_name(name);
        match (rule, is_pinned) {
            (Some(rule), true) => verdict(
                PathAccess::ReadOnly,
                format!(
                    "it is a protected name, which {}, and is mounted read-only",
                    rule.reason()
                ),
                Some(Remedy::Words("write it by hand")),
            ),
            (None, true) if is_in_git(name) => verdict(
                PathAccess::ReadWrite,
                "git changes it; the worker's process 1 does so for commands".to_owned(),
                None,
            ),
            (None, true) => verdict(
                PathAccess::ReadOnly,
                "git's configuration names it, so that it is mounted read-only".to_owned(),
                Some(Remedy::Words("write it by hand")),
            ),
            (Some(rule), false) if self.tier == Some(Tier::D) && is_in_git(name) => verdict(
                PathAccess::ReadOnly,
                format!(
                    "it is a protected name, which {}; no repository that was there can be written in this session",
                    rule.reason()
                ),
                Some(Remedy::Words("write it by hand")),
            ),
            (Some(rule), false) if self.tier == Some(Tier::M) && name.starts_with(".git") => {
                verdict(
                    PathAccess::ReadOnly,
                    format!(
                        "it is a protected name, which {}; the profile forbids it",
                        rule.reason()
                    ),
                    Some(Remedy::Words("write it by hand")),
                )
            }
            (Some(rule), false) => verdict(
                PathAccess::Protected,
                format!(
                    "it is a protected name, which {}: the file tools refuse to write it; what commands write \
                     there is told and audited",
                    rule.reason()
                ),
                Some(Remedy::Words("write it by hand")),
            ),
            (None, false) if self.tier == Some(Tier::D) && is_in_git(name) => verdict(
                PathAccess::ReadOnly,
                "no repository that was there when the worker began can be written in this session"
                    .to_owned(),
                Some(Remedy::Words("a system with namespaces: quack doctor says what is missing")),
            ),
            (None, false) => {
                verdict(PathAccess::ReadWrite, "it is in the workspace".to_owned(), None)
            }
        }
    }

    fn unconfined_blocking(&self, in_workspace: bool, real: &Path, exists: bool) -> AccessVerdict {
        if self.confinement.has_limits() {
            let why = "there is no confinement on this system: commands and writing are refused";
            let access = if in_workspace { PathAccess::ReadOnly } else { PathAccess::NotReadable };
            return verdict(
                access,
                why.to_owned(),
                Some(Remedy::Words("quack sandbox set full-access")),
            );
        }

        let why = "the session may do whatever you may".to_owned();
        let may = |access| accessat(CWD, real, access, AtFlags::EACCESS).is_ok();

        let access = if !exists {
            PathAccess::Missing
        } else if may(Access::WRITE_OK) {
            PathAccess::ReadWrite
        } else if may(Access::READ_OK) {
            PathAccess::ReadOnly
        } else {
            PathAccess::NotReadable
        };
        verdict(access, why, None)
    }
}

/// Explains a path outside of all paths in the policy.
fn elsewhere(mount: &Mount, exists: bool) -> AccessVerdict {
    match (mount.shows, mount.is_read_only, exists) {
        (MountContent::Empty, ..) => verdict(
            PathAccess::Hidden,
            "it holds secrets of the machine; something empty is in its place".to_owned(),
            Some(Remedy::Words("only quack sandbox set full-access")),
        ),
        (MountContent::Own, false, true) => verdict(
            PathAccess::ReadWrite,
            format!(
                "{} is the worker's own, and goes with it; nothing of the machine is there",
                shown(&mount.at)
            ),
            None,
        ),
        (MountContent::Own | MountContent::Frame, _, false) => verdict(
            PathAccess::NotShown,
            "nothing of the machine is shown there, whether it exists or not".to_owned(),
            Some(Remedy::Writable),
        ),
        (MountContent::Own | MountContent::Frame, _, true) => verdict(
            PathAccess::NotShown,
            "it is only on the way to what is shown; nothing else is in it".to_owned(),
            Some(Remedy::Writable),
        ),
        (MountContent::Layer, ..) => verdict(
            PathAccess::ReadWrite,
            format!("{} is a cache: changes are private and go with the worker", shown(&mount.at)),
            None,
        ),
        (MountContent::Machine | MountContent::Kernel, _, false) => {
            verdict(PathAccess::Missing, "it would be shown, and is not there".to_owned(), None)
        }
        (MountContent::Kernel, ..) => {
            verdict(PathAccess::ReadOnly, "it is the kernel's own".to_owned(), None)
        }
        (MountContent::Machine, ..) => verdict(
            PathAccess::ReadOnly,
            format!("{} is shown for programs to work, and is not written", shown(&mount.at)),
            Some(Remedy::Writable),
        ),
    }
}

/// Explains a path in a session without namespaces. All names are visible there, so the explanation depends on
/// what the worker can open. The profile of tier M, which only its commands have, has allowed the path already.
fn alone_blocking(real: &Path, exists: bool) -> AccessVerdict {
    if !exists {
        return verdict(PathAccess::Missing, "it is not there".to_owned(), None);
    }

    // Opening any other file type may have side effects.
    let is_plain = std::fs::metadata(real).is_ok_and(|it| it.is_file() || it.is_dir());
    // A pipe may have replaced the file since the check. Without NONBLOCK, the open would wait for a writer.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0);
    let can_be_read =
        is_plain && OpenOptions::new().read(true).custom_flags(flags).open(real).is_ok();

    if can_be_read {
        let why = "it is shown for programs to work, and is not written".to_owned();
        return verdict(PathAccess::ReadOnly, why, Some(Remedy::Writable));
    }
    verdict(PathAccess::NotReadable, UNOPENED.to_owned(), Some(Remedy::Writable))
}

fn read_only(why: String) -> AccessVerdict {
    let change = "quack sandbox set workspace-write, and no safe mode";
    verdict(
        PathAccess::ReadOnly,
        format!("{why}, and the profile is read-only"),
        Some(Remedy::Words(change)),
    )
}

fn verdict(access: PathAccess, why: String, remedy: Option<Remedy>) -> AccessVerdict {
    (access, why, remedy)
}

fn shown(path: &Path) -> String {
    one_line_cut(&path.to_string_lossy(), MAX_SHOWN)
}

fn is_in_git(name: &Path) -> bool {
    name.components().any(|one| one.as_os_str() == ".git")
}

/// Removes `.` and `..` from the text of `path`.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components().take(MAX_COMPONENTS) {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Resolves a path and returns whether it exists. For a missing path, returns the path that it would have.
fn real_blocking(path: &Path) -> (PathBuf, bool) {
    for (n, ancestor) in path.ancestors().enumerate() {
        if let Ok(real) = std::fs::canonicalize(ancestor) {
            let rest = path.strip_prefix(ancestor).unwrap_or_else(|_| Path::new(""));
            // Joining an empty path would add a slash.
            return if n == 0 { (real, true) } else { (real.join(rest), false) };
        }
    }
    (path.to_path_buf(), false)
}

/// Returns the answer as text.
pub(super) fn text(report: &ExplainReport) -> String {
    let Some(answer) = &report.path else { return head(report) };
    let access = match answer.access {
        PathAccess::ReadWrite => "read and written",
        PathAccess::Protected => "read, and written by commands only",
        PathAccess::ReadOnly => "read only",
        PathAccess::Hidden => "hidden",
        PathAccess::NotShown => "not shown",
        PathAccess::NotReadable => "not readable",
        PathAccess::Missing => "not there",
    };

    let mut lines = vec![format!("{}: {access}", answer.path)];
    if let Some(leads_to) = &answer.leads_to {
        lines.push(format!("it leads to {leads_to}"));
    }
    lines.push(format!("why: {}", answer.why));
    if let Some(change) = &answer.change {
        lines.push(format!("to change it: {change}"));
    }
    lines.push(format!("({})", head(report)));
    lines.join("\n")
}

#[cfg(test)]
mod tests;

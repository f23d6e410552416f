//! The session's confinement for the tools: the refusals that the kernel cannot make, and the texts of denials.
//!
//! Owns the policy for the tools, and the texts of refusals. [`crate::denials`] detects the kernel's denials in
//! the output of commands. Called by the tools that write and by `bash`.

use crate::Output;
use quackd_protocol::denial::{Denial, DenialKind, RefusedHost, explain_network, one_line};
use quackd_protocol::policy::{NetworkMode, Policy, Profile};
use quackd_sandbox::{Rule, Seatbelt, protected_name};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Permissions of a session, and whether the kernel enforces them.
#[derive(Debug)]
pub struct Confinement {
    /// Permissions of the session when the worker started. [`Confinement::policy_now`] has its present network.
    pub(crate) policy: Policy,
    /// Whether the kernel enforces the policy for this process and its commands.
    pub(crate) is_confined: bool,
    /// Absolute paths in the workspace that mounts of the worker make read-only.
    read_only_mounts: Vec<PathBuf>,
    /// Label of the session, for the commands in texts.
    pub(crate) session: String,
    /// Whether the session is on another machine than the supervisor, which refuses some changes of such sessions.
    pub(crate) is_far: bool,
    /// Whether the network is limited to hosts, and not off. The user can change this while the worker runs: the proxy
    /// outside enforces it.
    has_hosts: AtomicBool,
    /// Profile of commands in tier M.
    pub(crate) profile: Option<Seatbelt>,
    /// See [`Confinement::with_copy`].
    copy: Option<CopyPaths>,
}

/// Paths of an isolated session whose commands see the copy at its own path.
#[derive(Debug)]
struct CopyPaths {
    copy: PathBuf,
    /// Workspace of the user.
    original: PathBuf,
}

impl Default for Confinement {
    /// Returns full access, without refusals and explanations.
    fn default() -> Self {
        let policy = Policy { profile: Profile::FullAccess, ..Policy::default() };
        Self::new(policy, false, String::new())
    }
}

impl Confinement {
    /// `is_confined` tells whether the kernel enforces the policy, `session` is the label of the session.
    #[must_use]
    pub fn new(policy: Policy, is_confined: bool, session: String) -> Self {
        let has_hosts = AtomicBool::new(policy.hosts.is_some());
        let read_only_mounts = Vec::new();
        Self {
            policy,
            is_confined,
            read_only_mounts,
            session,
            is_far: false,
            has_hosts,
            profile: None,
            copy: None,
        }
    }

    /// Sets whether the session is on another machine than the supervisor.
    #[must_use]
    pub fn with_far(self, is_far: bool) -> Self {
        Self { is_far, ..self }
    }

    /// Sets the profile of commands in tier M.
    #[must_use]
    pub fn with_profile(self, profile: Option<Seatbelt>) -> Self {
        Self { profile, ..self }
    }

    /// Sets the path of an isolated session's copy, if commands do not see it at the path of the workspace. `original` is
    /// the workspace of the user.
    #[must_use]
    pub fn with_copy(self, copy: Option<PathBuf>, original: PathBuf) -> Self {
        Self { copy: copy.map(|copy| CopyPaths { copy, original }), ..self }
    }

    /// Sets the absolute paths in the workspace that mounts of the worker make read-only.
    #[must_use]
    pub fn with_read_only_mounts(self, read_only_mounts: Vec<PathBuf>) -> Self {
        Self { read_only_mounts, ..self }
    }

    /// Whether a read-only file system at an absolute path in the workspace is one that the user has mounted, because no
    /// mount of the worker makes it read-only.
    pub(crate) fn is_read_only_outside(&self, path: &Path) -> bool {
        let mounts = self.read_only_mounts.iter().chain(&self.policy.hidden);
        self.policy.profile == Profile::WorkspaceWrite
            && !mounts.into_iter().any(|mount| path.starts_with(mount))
    }

    /// Returns the hidden paths that the tools must not open. Empty if the kernel hides them from the worker.
    pub(crate) fn hidden_from_tools(&self) -> &[PathBuf] {
        // The profile confines only commands.
        if self.profile.is_some() { &self.policy.hidden } else { &[] }
    }

    /// Returns the path of the user's file for a path in the copy of an isolated session. Other paths stay.
    pub(crate) fn path_of_user(&self, path: &Path) -> PathBuf {
        let in_original = self.copy.as_ref().and_then(|CopyPaths { copy, original }| {
            path.strip_prefix(copy).ok().map(|below| original.join(below))
        });
        in_original.unwrap_or_else(|| path.to_path_buf())
    }

    /// Returns why a path in the user's workspace is out of reach of an isolated session. `None` for other paths, and if
    /// the session sees its copy at the path of the workspace.
    pub(crate) fn reason_in_original(&self, path: &Path) -> Option<String> {
        let CopyPaths { copy, original } = self.copy.as_ref()?;
        path.starts_with(original).then(|| {
            let copy = one_line(&copy.to_string_lossy());
            format!("the session works in a copy of the workspace, which commands find at {copy}")
        })
    }

    /// Sets the mode of the network for later texts.
    pub fn set_network(&self, mode: NetworkMode) {
        self.has_hosts.store(mode == NetworkMode::Hosts, Ordering::Relaxed);
    }

    /// The permissions as they are now. The rules of hosts are not known here.
    pub(crate) fn policy_now(&self) -> Policy {
        let hosts = self.has_hosts.load(Ordering::Relaxed).then(Vec::new);
        Policy { hosts, ..self.policy.clone() }
    }

    /// Returns the line about a denial, with how the user can allow it.
    pub(crate) fn explain(&self, denial: &Denial) -> String {
        // No setting makes the workspace of the user writable for an isolated session.
        match denial.target.as_deref().and_then(|target| self.reason_in_original(Path::new(target)))
        {
            Some(reason) => {
                let was = if denial.likely { "was probably" } else { "was" };
                format!("[Sandbox: {denial} {was} denied: {reason}]")
            }
            None => denial.explain(&self.policy_now(), &self.session, self.is_far),
        }
    }

    /// Returns the lines about refused hosts, with how the user can allow them.
    pub(crate) fn explain_network(&self, hosts: &[RefusedHost], is_shared: bool) -> String {
        explain_network(hosts, is_shared, &self.policy_now(), &self.session, self.is_far)
    }

    /// Whether the tools refuse any call.
    pub(crate) fn has_limits(&self) -> bool {
        self.policy.profile != Profile::FullAccess
    }

    /// Whether a kernel error may be caused by the policy.
    pub(crate) fn is_enforced(&self) -> bool {
        self.is_confined && self.has_limits()
    }

    /// Returns the refusal of a tool that changes files or runs commands. Applies if this system has no
    /// confinement and the user has not allowed unconfined sessions.
    pub(crate) fn refuse_unconfined(&self, tool: &str) -> Option<Output> {
        if self.is_confined || !self.has_limits() {
            return None;
        }
        let why = format!("{tool} needs confinement, and there is none on this system");
        Some(self.output(why, Denial::new(DenialKind::Unconfined, None, false)))
    }

    /// Returns the refusal of a write under a read-only policy. `path` is unchanged from the request.
    pub(crate) fn refuse_read_only(&self, path: &str) -> Option<Output> {
        let is_read_only = self.policy.profile == Profile::ReadOnly;
        let denial = || Denial::new(DenialKind::Write, Some(path), false);
        is_read_only
            .then(|| self.output("Files cannot be written in the profile read-only", denial()))
    }

    /// Returns the rule that protects a name, which is relative to the workspace with every link resolved.
    pub(crate) fn protects(&self, real_name: &Path) -> Option<Rule> {
        if self.has_limits() { protected_name(real_name) } else { None }
    }

    /// Returns an error with its denial: the reason, then how the user can allow it.
    pub(crate) fn output(&self, reason: impl Display, denial: Denial) -> Output {
        let mut output = Output::error(format_args!("{reason}\n{}", self.explain(&denial)));
        output.report.denials.push(denial);
        output
    }

    /// Returns a system error, with its denial if the policy is the likely cause.
    ///
    /// `denial` is the possible denial. Without one, the error is not changed.
    pub(crate) fn failure(&self, reason: impl Display, denial: Option<Denial>) -> Output {
        match denial {
            Some(denial) if self.is_enforced() => self.output(reason, denial),
            _ => Output::error(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(profile: Profile, is_confined: bool) -> Confinement {
        Confinement::new(Policy { profile, ..Policy::default() }, is_confined, String::new())
    }

    #[test]
    fn what_changes_things_needs_confinement_or_a_persons_word() {
        assert_eq!(Confinement::default().refuse_unconfined("bash"), None);
        for profile in Profile::ALL {
            assert_eq!(of(profile, true).refuse_unconfined("bash"), None);
        }
        let refused = of(Profile::WorkspaceWrite, false).refuse_unconfined("bash").unwrap();
        assert_eq!(
            refused.text,
            "Error: bash needs confinement, and there is none on this system\n\
             [Sandbox: running unconfined was denied (workspace-write, network off). To \
             allow it, without any confinement: quack sandbox set full-access]"
        );
        assert!(refused.report.is_error);
        let denial = Denial::new(DenialKind::Unconfined, None, false);
        assert_eq!(refused.report.denials, [denial]);
        assert!(of(Profile::ReadOnly, false).refuse_unconfined("bash").is_some());
    }

    #[test]
    fn no_text_of_an_isolated_session_proposes_to_open_the_workspace_of_the_user() {
        let copy = Some(PathBuf::from("/state/isolated/s/tree"));
        let isolated = of(Profile::WorkspaceWrite, true).with_copy(copy, "/w/repo".into());
        let text = |path: &str| isolated.explain(&Denial::new(DenialKind::Write, Some(path), true));
        assert_eq!(
            text("/w/repo/a"),
            "[Sandbox: writing /w/repo/a was probably denied: the session works in a copy of the workspace, which commands find \
             at /state/isolated/s/tree]"
        );
        assert!(text("/w/other/a").contains("--writable /w/other"));
        let in_copy = Path::new("/state/isolated/s/tree/.env");
        assert_eq!(isolated.path_of_user(in_copy), Path::new("/w/repo/.env"));
        assert_eq!(isolated.path_of_user(Path::new("/w/x")), Path::new("/w/x"));
        let ordinary = of(Profile::WorkspaceWrite, true).with_copy(None, "/w/repo".into());
        assert_eq!(ordinary.reason_in_original(Path::new("/w/repo/a")), None);
    }

    #[test]
    fn a_file_system_is_read_only_outside_unless_a_mount_of_the_worker_makes_it_so() {
        let writes = of(Profile::WorkspaceWrite, true)
            .with_read_only_mounts(vec![PathBuf::from("/w/repo/.git")]);
        assert!(writes.is_read_only_outside(Path::new("/w/vendor/x")));
        assert!(!writes.is_read_only_outside(Path::new("/w/repo/.git/config")));
        assert!(!of(Profile::ReadOnly, true).is_read_only_outside(Path::new("/w/vendor/x")));
    }

    #[test]
    fn names_are_protected_in_every_profile_but_full_access() {
        let hook = Path::new(".git/hooks/pre-commit");
        for profile in [Profile::ReadOnly, Profile::WorkspaceWrite] {
            assert_eq!(of(profile, true).protects(hook), Some(Rule::Git));
            assert_eq!(of(profile, true).protects(Path::new("src/a")), None);
        }
        for is_confined in [false, true] {
            assert_eq!(of(Profile::FullAccess, is_confined).protects(hook), None);
        }
    }
}

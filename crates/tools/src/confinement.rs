//! What the tools do about the session's confinement: what they refuse themselves, because the kernel cannot
//! foresee it, and how a refusal is told.
//!
//! Owns: the policy as the tools know it, and the texts of refusals. What the kernel refuses to commands is read
//! from their output by [`crate::denied`]. Called by the tools that write and by `bash`.

use crate::Output;
use quackd_protocol::denial::{Denial, DenialKind};
use quackd_protocol::policy::{Policy, Profile};
use quackd_sandbox::{Rule, protected_name};
use std::fmt::Display;
use std::path::Path;

/// What a session may do, and whether the kernel sees to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// What the session may do.
    pub policy: Policy,
    /// True if the kernel holds this process and its commands to it.
    pub is_confined: bool,
}

impl Default for Confinement {
    /// Full access: nothing is refused and nothing is explained.
    fn default() -> Self {
        let policy = Policy { profile: Profile::FullAccess, ..Policy::default() };
        Self { policy, is_confined: false }
    }
}

impl Confinement {
    /// Whether the tools refuse anything at all.
    pub(crate) fn has_limits(&self) -> bool {
        self.policy.profile != Profile::FullAccess
    }

    /// True if what the kernel refuses may come from the policy.
    pub(crate) fn is_enforced(&self) -> bool {
        self.is_confined && self.has_limits()
    }

    /// The answer of `tool`, which changes things, where nothing would hold it: there is no confinement on this
    /// system, and nobody has allowed to do without.
    pub(crate) fn refuse_unconfined(&self, tool: &str) -> Option<Output> {
        if self.is_confined || !self.has_limits() {
            return None;
        }
        let why = format!("{tool} needs confinement, and there is none on this system");
        Some(self.output(why, Denial::new(DenialKind::Unconfined, None, false)))
    }

    /// The answer of a tool that writes where nothing may be written. `path` is as the caller gave it.
    pub(crate) fn refuse_read_only(&self, path: &str) -> Option<Output> {
        let is_read_only = self.policy.profile == Profile::ReadOnly;
        let denial = || Denial::new(DenialKind::Write, Some(path), false);
        is_read_only
            .then(|| self.output("Files cannot be written in the profile read-only", denial()))
    }

    /// The rule that forbids to write a name, which is relative to the workspace with every link resolved.
    pub(crate) fn protects(&self, real_name: &Path) -> Option<Rule> {
        if self.has_limits() { protected_name(real_name) } else { None }
    }

    /// An error with its denial: the reason, then how a person can allow it.
    pub(crate) fn output(&self, reason: impl Display, denial: Denial) -> Output {
        let mut output = Output::error(format_args!("{reason}\n{}", denial.explain(&self.policy)));
        output.report.denials.push(denial);
        output
    }

    /// An error of the system, with its denial if the policy is likely to be the cause.
    ///
    /// `denial` is what may have been denied. An error without one stays as it is.
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
        Confinement { policy: Policy { profile, ..Policy::default() }, is_confined }
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
             [Sandbox: running unconfined was denied (workspace-write, network off). A person can \
             allow it: quack sandbox set full-access, without any confinement]"
        );
        assert!(refused.report.is_error);
        let denial = Denial::new(DenialKind::Unconfined, None, false);
        assert_eq!(refused.report.denials, [denial]);
        assert!(of(Profile::ReadOnly, false).refuse_unconfined("bash").is_some());
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

//! Modes of a corpus run: the daemon's user, the tier, and the restriction of the read-only cases.

use super::corpus::{Case, TAKES_MEMORY};
use crate::harness::users::User;

/// Tier of a daemon without confinement.
pub(super) const UNCONFINED: &str = "unconfined";

/// The only tier whose limits apply to a session as a whole.
pub(super) const WITH_LIMITS: &str = "A";

/// The tier without namespaces.
pub(super) const ALONE: &str = "D";

/// The tier of macOS, with a stand-in for `sandbox-exec`.
pub(super) const MACOS: &str = "M";

/// The profile that allows everything.
pub(super) const FULL_ACCESS: &str = "full-access";

/// The profile that forbids every change.
const READ_ONLY: &str = "read-only";

/// Total memory in GiB from which a machine could satisfy the request of the memory case.
const ENOUGH_MEMORY_GB: u64 = 60;

/// The restriction of the read-only cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// The profile: commands run in a shell, and only the kernel restricts them.
    Profile,
    /// The session's safe mode, with a profile that allows writes: first the list of commands, then
    /// the kernel.
    SafeSession,
    /// Safe mode of each call: only the list of commands.
    SafeCalls,
}

/// Parameters of a corpus run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    pub(super) user: User,
    /// The tier that workers must report.
    pub(super) tier: &'static str,
    /// Profile for every case; `None` uses the profile of the case.
    pub(super) profile: Option<&'static str>,
    pub(super) reading: Reading,
    /// Whether the network is `hosts`, with a rule for a host.
    pub(super) has_hosts: bool,
}

impl Mode {
    /// Only quackd's own tools restrict the cases.
    pub(super) fn unconfined(user: User) -> Self {
        Self {
            user,
            tier: UNCONFINED,
            profile: Some(FULL_ACCESS),
            reading: Reading::Profile,
            has_hosts: false,
        }
    }

    /// Every case runs in its own profile.
    pub(super) fn confined(user: User, tier: &'static str) -> Self {
        Self { user, tier, profile: None, reading: Reading::Profile, has_hosts: false }
    }

    /// The profile of a case.
    fn profile<'a>(&self, case: &'a Case) -> &'a str {
        match self.reading {
            Reading::SafeSession => "workspace-write",
            _ => self.profile.unwrap_or(&case.profile),
        }
    }

    /// Returns true if only quackd's own tools restrict the cases.
    pub(super) fn is_unconfined(&self) -> bool {
        self.tier == UNCONFINED
    }

    /// The daemon's configuration for a case.
    pub(super) fn configuration(&self, case: &Case) -> String {
        let tier = if self.is_unconfined() { "auto" } else { self.tier };
        let profile = self.profile(case);
        let limits = case.limits();
        let hosts = "network = \"hosts\"\nhosts = [\"allowed.example\"]\n";
        let network = if self.has_hosts { hosts } else { "" };
        format!("[sandbox]\nprofile = \"{profile}\"\ntier = \"{tier}\"\n{network}{limits}")
    }

    /// Returns true if the session of a case is created in safe mode.
    pub(super) fn is_safe_session(&self, case: &Case) -> bool {
        self.reading == Reading::SafeSession && case.profile == READ_ONLY
    }

    /// Returns true if the calls of a case use safe mode.
    pub(super) fn has_safe_calls(&self, case: &Case) -> bool {
        self.reading == Reading::SafeCalls && case.profile == READ_ONLY
    }

    /// Reason why this machine cannot run a case.
    pub(super) fn lacks(case: &Case) -> Option<&'static str> {
        let is_unlimited = case.id == TAKES_MEMORY && !refuses_too_much_memory();
        is_unlimited.then_some("nothing here limits memory")
    }
}

/// Returns true if the kernel refuses the request of the memory case. quackd sets no such limit
/// here.
fn refuses_too_much_memory() -> bool {
    let read = |path| std::fs::read_to_string(path).expect("a file of the kernel");
    let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let sizes = read("/proc/meminfo");
    let is_size = |line: &&str| line.starts_with("MemTotal:") || line.starts_with("SwapTotal:");
    let kb: u64 = sizes.lines().filter(is_size).filter_map(number).sum();
    read("/proc/sys/vm/overcommit_memory").trim() != "1" && kb >> 20 < ENOUGH_MEMORY_GB
}

/// Reason why this machine has no tier without namespaces.
pub(super) fn no_landlock() -> Option<String> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let modules = read("/sys/kernel/security/lsm");
    let is_off = !modules.is_empty() && !modules.contains("landlock");
    (version < (6, 7) || is_off).then(|| format!("no Landlock of version 4: {release} {modules}"))
}

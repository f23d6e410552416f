//! Modes of a corpus run: the daemon's user, the tier, and the restriction of the read-only cases.

use super::corpus::{self, Case};
use super::world;
use super::{calls, world::World};
use std::path::Path;
use std::sync::OnceLock;

/// Tier of a daemon without confinement.
pub(super) const UNCONFINED: &str = "unconfined";

/// The only tier whose limits apply to a session as a whole.
const WITH_LIMITS: &str = "A";

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

/// The user who runs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Root; available only if the tests run as root.
    Root,
    /// The user who runs the tests, or an unprivileged user if the tests run as root.
    Ordinary,
}

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
        let limits = corpus::needs_limits(&case.id);
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

    /// Reason why a case is not run.
    pub(super) fn left_out(&self, case: &Case) -> Option<&'static str> {
        let confined = || corpus::only_confined(&case.id).filter(|_| self.is_unconfined());
        let limited = || corpus::only_with_limits(&case.id).filter(|_| self.tier != WITH_LIMITS);
        let memory = || {
            (case.id == corpus::TAKES_MEMORY && !refuses_too_much_memory())
                .then_some("nothing here limits memory")
        };
        corpus::not_applicable(&case.id).or_else(confined).or_else(limited).or_else(memory)
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

/// Returns the tier with namespaces that a daemon of this user reports, or the reason why there is
/// none. If namespaces work for an independent program, the daemon must report such a tier.
pub(crate) fn best_tier(user: User) -> Result<&'static str, String> {
    static BEST: [OnceLock<Result<&'static str, String>>; 2] = [const { OnceLock::new() }; 2];
    let is_root = user == User::Root;
    if is_root && !rustix::process::geteuid().is_root() {
        return Err("only root can run the daemon as root".to_owned());
    }
    BEST[usize::from(is_root)].get_or_init(|| as_user(user, find_tier)).clone()
}

fn find_tier(quack: &Path) -> Result<&'static str, String> {
    let namespaces = "unshare --user --mount --pid --net --ipc --map-root-user --fork true";
    let case = corpus::any();
    let world = World::new(&case, &[quack.display().to_string()], "");
    if world::shell(&world.workspace(), namespaces).is_err() {
        return Err("there are no namespaces here for this user".to_owned());
    }
    let wire = world.daemon().wire();
    let session = wire.attach(&world.workspace());
    match calls::tier(&wire, &session).as_deref() {
        Ok("A") => Ok("A"),
        Ok("B") => Ok("B"),
        other => panic!("namespaces work, and the daemon reports {other:?}"),
    }
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

/// Runs `work` in a thread with the rights of this user, with a program that the user can execute.
fn as_user<T: Send>(user: User, work: impl FnOnce(&Path) -> T + Send) -> T {
    let program = super::Program::new(user);
    let in_thread = || {
        if user == User::Ordinary {
            world::become_ordinary();
        }
        work(&program.path)
    };
    std::thread::scope(|scope| scope.spawn(in_thread).join().expect("a tier"))
}

//! How the corpus is run: who runs the daemon, in what tier, and what holds the cases that may only read.

use super::corpus::{self, Case};
use super::world;
use super::{calls, world::World};
use std::path::Path;
use std::sync::OnceLock;

/// The tier of a daemon that confines nothing.
pub(super) const UNCONFINED: &str = "unconfined";

/// The tier whose limits hold for a session as a whole.
const WITH_LIMITS: &str = "A";

/// The tier without namespaces.
pub(super) const ALONE: &str = "D";

/// The profile that allows everything.
pub(super) const FULL_ACCESS: &str = "full-access";

/// The profile that forbids every change.
const READ_ONLY: &str = "read-only";

/// More memory than this is more than the case that takes all of it asks for.
const ENOUGH_MEMORY_GB: u64 = 60;

/// Who runs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// The super-user; only if the tests are.
    Root,
    /// Whoever runs the tests, or a user without anything if that is root.
    Ordinary,
}

/// What holds the cases that may only read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// The profile: commands go to a shell, and nothing but the kernel holds them.
    Profile,
    /// The session's safe mode, over a profile that may write: the list of commands first, then the kernel.
    SafeSession,
    /// Safe mode of each call: the list of commands alone.
    SafeCalls,
}

/// How the corpus is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    pub(super) user: User,
    /// The tier that workers must report.
    pub(super) tier: &'static str,
    /// A profile for every case instead of its own.
    pub(super) profile: Option<&'static str>,
    pub(super) reading: Reading,
}

impl Mode {
    /// Nothing but our own tools holds anything.
    pub(super) fn unconfined(user: User) -> Self {
        Self { user, tier: UNCONFINED, profile: Some(FULL_ACCESS), reading: Reading::Profile }
    }

    /// Every case in the profile that it names.
    pub(super) fn confined(user: User, tier: &'static str) -> Self {
        Self { user, tier, profile: None, reading: Reading::Profile }
    }

    /// The profile of a case.
    fn profile<'a>(&self, case: &'a Case) -> &'a str {
        match self.reading {
            Reading::SafeSession => "workspace-write",
            _ => self.profile.unwrap_or(&case.profile),
        }
    }

    /// Whether nothing holds a case but our own tools.
    pub(super) fn is_unconfined(&self) -> bool {
        self.tier == UNCONFINED
    }

    /// The daemon's configuration for a case.
    pub(super) fn configuration(&self, case: &Case) -> String {
        let tier = if self.is_unconfined() { "auto" } else { self.tier };
        let profile = self.profile(case);
        let limits = corpus::needs_limits(&case.id);
        format!("[sandbox]\nprofile = \"{profile}\"\ntier = \"{tier}\"\n{limits}")
    }

    /// Whether the session of a case is made in safe mode.
    pub(super) fn is_safe_session(&self, case: &Case) -> bool {
        self.reading == Reading::SafeSession && case.profile == READ_ONLY
    }

    /// Whether the calls of a case are made in safe mode.
    pub(super) fn has_safe_calls(&self, case: &Case) -> bool {
        self.reading == Reading::SafeCalls && case.profile == READ_ONLY
    }

    /// Why a case is not run.
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

/// Whether the kernel refuses what the case that takes all memory asks for. Nothing of ours does.
fn refuses_too_much_memory() -> bool {
    let read = |path| std::fs::read_to_string(path).expect("a file of the kernel");
    let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let sizes = read("/proc/meminfo");
    let is_size = |line: &&str| line.starts_with("MemTotal:") || line.starts_with("SwapTotal:");
    let kb: u64 = sizes.lines().filter(is_size).filter_map(number).sum();
    read("/proc/sys/vm/overcommit_memory").trim() != "1" && kb >> 20 < ENOUGH_MEMORY_GB
}

/// The tier with namespaces that a daemon of this user has, or why there is none here. Asked of the daemon; but
/// where namespaces work for somebody else's program it must be one with namespaces.
pub(crate) fn best_tier(user: User) -> Result<&'static str, String> {
    static BEST: [OnceLock<Result<&'static str, String>>; 2] = [const { OnceLock::new() }; 2];
    let is_root = user == User::Root;
    if is_root && !rustix::process::geteuid().is_root() {
        return Err("nobody else can become root".to_owned());
    }
    BEST[usize::from(is_root)].get_or_init(|| as_user(user, find_tier)).clone()
}

fn find_tier(quack: &Path) -> Result<&'static str, String> {
    let namespaces = "unshare --user --mount --pid --net --ipc --map-root-user --fork true";
    let case = corpus::any();
    let world = World::new(&case, quack, "");
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

/// Why there is no tier without namespaces here.
pub(super) fn no_landlock() -> Option<String> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let modules = read("/sys/kernel/security/lsm");
    let is_off = !modules.is_empty() && !modules.contains("landlock");
    (version < (6, 7) || is_off).then(|| format!("no Landlock of version 4: {release} {modules}"))
}

/// Does something in a thread that has this user's rights, with a program that the user can execute.
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

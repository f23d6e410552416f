//! Enters confinement: the order of steps after the split, and tier D, which has no split. Called by stage 0, while
//! the process has one thread. After any error the process must exit.

use super::commands::CommandFilter;
use super::error::{ConfineError, StepContext};
use super::held::{self, HeldCalls, TopMount};
use super::landlock::{self, FileRights, FileRule, LandlockRules};
use super::limits::ConfinementLimits;
use super::loopback;
use super::mounts::{self, BuiltTree};
use super::plan::MountPlan;
use super::private_network::PrivateNetwork;
use super::privilege;
use super::seccomp::{self, Sockets};
use super::spawn::{self, Init};
use super::sys;
use nix::unistd::ForkResult;
use quackd_protocol::policy::Policy;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A worker after it entered confinement.
#[derive(Debug)]
pub struct ConfinedProcess {
    /// The worker's process id on the host. `None` without namespaces, where it has only one.
    pub host_pid: Option<u32>,
    /// The worker's `oom_score_adj`, open for reading and writing. A confined process cannot open it.
    pub oom_score: io::Result<OwnedFd>,
    /// Present if the worker has a separate network namespace.
    pub private_network: Option<PrivateNetwork>,
    /// Reason if the plan keeps package caches and some are in memory.
    pub caches_in_memory: Option<String>,
    /// Note on ignored directories of an isolated session that are missing or in memory.
    pub outputs_note: Option<String>,
    /// Filter of the commands.
    pub command_filter: CommandFilter,
}

impl Init {
    /// Builds the planned file system and confines this process permanently: identity, loopback, mounts, limits,
    /// capabilities, Landlock, system calls. Then forks, and returns in the child, which is the worker. Process 1
    /// reaps orphans and never returns from here.
    ///
    /// `extra` are files and directories that Landlock allows in addition to the plan's. The worker must have
    /// descriptors through which it reaches them.
    ///
    /// # Errors
    /// A step failed. Returned in process 1, which must then exit.
    pub fn enter(
        self,
        plan: &MountPlan,
        extra: Vec<FileRule>,
    ) -> Result<ConfinedProcess, ConfineError> {
        if self.network != plan.network {
            return Err(ConfineError::new("enter", "the plan is for another network"));
        }

        // Set the name before the fork. The worker sets its own name.
        rustix::thread::set_name(c"quack-init").ok();

        // A new session keeps signals of a terminal away from the processes inside.
        setsid().step("start a session")?;

        spawn::map_identity(plan.uid, plan.gid)?;
        if !self.network {
            loopback::bring_up()?;
            loopback::add_synthetic_addresses()?;
        }

        let filter = seccomp::build(Sockets::Usual)?;
        let requests = plan.is_read_only().then(seccomp::build_for_requests).transpose()?;

        // The new tree does not have the host's `/proc`, in which the worker later finds its number and its
        // `oom_score_adj`.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let outside = openat(CWD, "/proc", flags, Mode::empty()).step("hold the host's /proc")?;
        let private_network =
            (!self.network).then(|| PrivateNetwork::open(&outside, &plan.host_ports));

        let BuiltTree { caches_in_memory, outputs_note, git_tops } =
            mounts::build(plan, self.workspace)?;

        // All that needs capabilities is done. Without them, the kernel accepts Landlock rules and filters only after
        // `no_new_privs`.
        privilege::apply_limits(&plan.limits)?;
        privilege::drop_capabilities()?;
        privilege::forbid_new_rights()?;

        let mut files = rules_of(plan)?;
        files.extend(extra);
        for (at, top) in &git_tops {
            // This mount has no path, so no other rule holds for it.
            let what = top.try_clone().step_on("hold a repository", at)?;
            files.push(FileRule { what, rights: FileRights::Write });
        }

        let held = held_calls(plan, git_tops)?;

        // The worker opens its `oom_score_adj` there. This `/proc` is not mounted inside, so commands cannot reach
        // it.
        let what = outside.try_clone().step("hold the host's /proc")?;
        files.push(FileRule { what, rights: FileRights::Change });

        landlock::apply(LandlockRules { files, forbid_tcp: false })?;
        seccomp::apply(&filter)?;
        if let Some(requests) = requests {
            seccomp::apply(&requests)?;
        }

        match sys::fork_once().step("start the worker")? {
            ForkResult::Child => {
                // The monitor reads until the end of the pipe, so process 1 alone keeps this end.
                drop(self.status);
                let command_filter = match held {
                    Some(HeldParts { calls, worker_end, .. }) => {
                        CommandFilter::answered(worker_end, !calls.git.1.is_empty())
                    }
                    None => CommandFilter::default(),
                };
                let worker = become_worker(outside)?;
                Ok(ConfinedProcess {
                    private_network,
                    caches_in_memory,
                    outputs_note,
                    command_filter,
                    ..worker
                })
            }
            ForkResult::Parent { child } => {
                drop(outside);
                let held = held.map(|held| (held.calls, held.end));
                spawn::reap_until_end(child.as_raw(), &self.status, held)
            }
        }
    }
}

/// Parts of the answering of suspended calls, before the fork.
struct HeldParts {
    calls: HeldCalls,
    worker_end: OwnedFd,
    /// The end of process 1.
    end: OwnedFd,
}

/// Returns `None` if no call needs to be suspended, or process 1 cannot read the arguments of commands.
fn held_calls(
    plan: &MountPlan,
    git_tops: Vec<TopMount>,
) -> Result<Option<HeldParts>, ConfineError> {
    if plan.git_mounts.is_empty() || !CommandFilter::can_hold_calls() {
        return Ok(None);
    }
    let mount = |path: &PathBuf| {
        let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID);
        stat.map(|stat| stat.stx_mnt_id).step_on("find the mount of a repository", path)
    };
    let link_free = plan.git_mounts.iter().map(mount).collect::<Result<_, _>>()?;

    let (worker_end, end) = held::connection()?;
    let calls = HeldCalls { link_free, git: (plan.git.clone(), git_tops) };
    Ok(Some(HeldParts { calls, worker_end, end }))
}

/// Opens the `oom_score_adj` of this process in a `/proc`.
fn open_oom_score(proc: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(openat(proc, "self/oom_score_adj", flags, Mode::empty())?)
}

fn become_worker(outside: OwnedFd) -> Result<ConfinedProcess, ConfineError> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("ask to end with process 1")?;
    // Process 1 may have ended before the signal was set.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != 1) {
        return Err(ConfineError::new("look at process 1", "it ended"));
    }

    // The host's `/proc` resolves `self` to the process id on the host.
    let number = readlinkat(&outside, "self", Vec::new()).step("read the host's number")?;
    let host_pid = number.to_str().ok().and_then(|number| number.parse().ok());
    // The memory of this process is hidden, so its files in `/proc` belong to user 0.
    let oom_score = privilege::as_own_process(|| open_oom_score(&outside))?;

    Ok(ConfinedProcess {
        host_pid,
        oom_score,
        private_network: None,
        caches_in_memory: None,
        outputs_note: None,
        command_filter: CommandFilter::default(),
    })
}

/// Returns the Landlock rules of a plan. They allow reading everything, because hidden files are not mounted, and
/// writing where the plan allows it.
fn rules_of(plan: &MountPlan) -> Result<Vec<FileRule>, ConfineError> {
    let mut rules = Vec::new();
    let mut push = |path: &Path, rights| -> Result<(), ConfineError> {
        rules.extend(FileRule::open(path, rights)?);
        Ok(())
    };
    push(Path::new("/"), FileRights::Read)?;
    push(Path::new("/dev"), FileRights::Write)?;
    for writable in plan.writable() {
        push(writable, FileRights::Write)?;
    }
    Ok(rules)
}

/// Confines this process without namespaces (tier D): file rules, limits, system calls. With the network off, only
/// connected pairs of sockets are allowed. With it on, Unix sockets are allowed only as pairs, because Landlock does
/// not control which named sockets a process reaches. Not for user 0.
///
/// # Errors
/// A step failed, or this is user 0. The process must then exit.
pub fn enter_alone(
    limits: &ConfinementLimits,
    policy: &Policy,
    files: Vec<FileRule>,
) -> Result<ConfinedProcess, ConfineError> {
    let network = policy.network;
    sys::require_single_thread().step("enter")?;
    if rustix::process::geteuid().is_root() {
        return Err(ConfineError::new("enter", "Landlock alone does not hold user 0"));
    }
    let filter = seccomp::build(if network { Sockets::Internet } else { Sockets::PairsOnly })?;

    // A confined process cannot open these files.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = openat(CWD, "/proc", flags, Mode::empty()).step("hold /proc")?;
    let oom_score = open_oom_score(&proc);

    privilege::apply_limits(limits)?;
    privilege::drop_held()?;
    privilege::forbid_new_rights()?;
    landlock::apply(LandlockRules { files, forbid_tcp: !network })?;
    seccomp::apply(&filter)?;
    if !policy.may_write() {
        // Landlock controls content and names, but not attributes.
        seccomp::apply(&seccomp::build_for_attributes()?)?;
    }

    Ok(ConfinedProcess {
        host_pid: None,
        oom_score,
        private_network: None,
        caches_in_memory: None,
        outputs_note: None,
        command_filter: CommandFilter::default(),
    })
}

//! Confines this worker, while the process has one thread: chooses the tier and enters it. Called by
//! [`crate::stage0`], between the first frame and the runtime.
//!
//! In tiers A and B the process that the supervisor started becomes the monitor, and the worker is a child of process
//! 1 of new namespaces. In tier D the worker confines itself. If no tier works, the worker starts unconfined and its
//! tools refuse every operation that could do harm, unless the user has allowed `full-access`.

mod agents;
mod caches;
mod command_variables;
mod git_protection;
mod hidden;
mod host_ports;
mod watched_mounts;
mod wrapper;

use super::read_only::private_of_safe_mode;
use crate::confinement_result::ConfinementResult;
use crate::private_files::make_directory_blocking;
use crate::real_paths::HomeLink;
use crate::seatbelt_confinement::{self, NO_COPY};
use crate::ssh_agent;
use crate::start_error::WorkerStartError;
use crate::trees::{
    LOOK_LIMIT, Tree, cut_notes, hold_roots, known_without_limits, named_files, repositories,
    too_many_repositories, trees_of,
};
use crate::user_git::{of_user, user_settings, write_settings_blocking};
use command_variables::variables;
use git_protection::protect_all;
use hidden::pins_above_hidden;
use quackd_process::{
    ForkSide, Group, KeptTerminal, Limits, OomScore, SelfExe, SessionPaths, SpawnThread,
    split_off_monitor_by, split_off_monitor_of,
};
use quackd_protocol::credentials::Credentials;
use quackd_protocol::policy::{NetworkMode, Policy, Profile};
use quackd_protocol::tiers::{GitProtection, Tier};
use quackd_protocol::worker::{IsolatedStart, Start};
use quackd_sandbox::audit::Known;
use quackd_sandbox::confine::{
    self, ConfinedProcess, ConfinementLimits, FileRights, FileRule, HostFacts, Init,
    LANDLOCK_WITH_NAMESPACES, MountPlan, MountSources, SessionDirs, Side, SystemDirectory,
};
use quackd_sandbox::git;
use quackd_tools::UserGit;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;
use watched_mounts::{mounted, paths_to_watch};
use wrapper::ReadOnlyWrapper;

/// Notes for systems where process 1 cannot create the links of commands, or cannot carry out their changes of git
/// directories.
const LINKS_NOTE: &str = "kernel.yama.ptrace_scope is above 1: links in .git are removed when a command ends, not refused";
const NAMES_NOTE: &str = "this system cannot hold system calls (Linux 5.14, ptrace_scope up to 1, no other listener): while your own git or \
     editor replaces .git/config, a running command can write it";

/// Splits off the monitor and confines the worker. Returns in the worker; the monitor and process 1 never
/// return.
///
/// # Errors
/// A step failed, or the requested tier is not available. A retry does not help.
pub(crate) fn enter(
    start: &Start,
    home_links: &[HomeLink],
    cgroup: Option<&SessionPaths>,
    group: Option<&Group>,
) -> Result<ConfinementResult, WorkerStartError> {
    let order = &start.sandbox;
    if let (Some(Tier::M), Some(program)) = (order.tier, &order.sandbox_exec) {
        return seatbelt_confinement::enter(start, Path::new(program));
    }

    // Open the executable now. Inside the new root it has no path.
    let exe = SelfExe::open().map_err(WorkerStartError::at("cannot open our own executable"))?;

    if order.policy.profile == Profile::FullAccess {
        if order.isolated.is_some() {
            return Err(WorkerStartError::confinement("full-access cannot be isolated"));
        }

        // With an older Landlock, the kernel cannot keep a single call from writing.
        let read_only = (LANDLOCK_WITH_NAMESPACES <= confine::landlock_version())
            .then(|| ReadOnlyWrapper { exe, private: Vec::new(), processes: None });
        let known = known_without_limits(start);
        return Ok(ConfinementResult {
            read_only_words: read_only.as_ref().map(ReadOnlyWrapper::words).unwrap_or_default(),
            exe: read_only.map(|wrapper| wrapper.exe),
            known,
            ..unconfined(start, cgroup, Vec::new())?
        });
    }

    let probe = match order.probe.clone() {
        Some(probe) => probe,
        None => confine::probe_blocking().map_err(WorkerStartError::confinement)?,
    };
    let (tier, refusal) = match confine::choose(&probe, group.is_some(), order.tier) {
        Ok(tier) => (tier, None),
        // An unavailable requested tier is an error. Without a request, the worker starts unconfined and only
        // read-only tools work.
        Err(refusal) if order.tier.is_some() => return Err(WorkerStartError::confinement(refusal)),
        Err(refusal) => (Tier::Unconfined, Some(refusal.to_string())),
    };
    if !tier.has_namespaces() {
        if order.policy.network_mode() == NetworkMode::Hosts {
            return Err(no_hosts(tier));
        }
        if order.isolated.is_some() {
            return Err(not_isolated(tier));
        }
    }
    if let Some(refusal) = refusal {
        return unconfined(start, cgroup, vec![refusal]);
    }

    let world = ConfinementInputs::look_blocking(start, home_links, tier)?;
    let mut confined = match tier {
        Tier::A | Tier::B => {
            let mode = if probe.held_calls { GitProtection::Top } else { GitProtection::Names };
            world.enter_namespaces(start, cgroup, group, exe, mode)?
        }
        Tier::D => world.enter_alone(start, cgroup, group, exe)?,
        Tier::M | Tier::Unconfined => return unconfined(start, cgroup, Vec::new()),
    };
    confined.report.tier = Some(tier);
    Ok(confined)
}

fn unconfined(
    start: &Start,
    cgroup: Option<&SessionPaths>,
    notes: Vec<String>,
) -> Result<ConfinementResult, WorkerStartError> {
    split_off_monitor_of(cgroup).map_err(WorkerStartError::at("cannot start the monitor"))?;
    let (spawn_thread, note) = launching(OomScore::open(), None);
    let notes = notes.into_iter().chain(note).collect();

    // Commands have the user's keys, so a missing signature needs no note.
    let user_git = UserGit { unsigned: None, ..of_user(&user_settings(start)) };
    let mut result = ConfinementResult::new(&start.sandbox.policy, notes, user_git);
    (result.report.tier, result.report.network) = (Some(Tier::Unconfined), true);
    (result.is_confined, result.spawn_thread) = (false, Some(spawn_thread));
    Ok(result)
}

/// Inputs of confinement, read before it exists.
///
/// Each directory is opened once, without following links, and all files in it are reached through that handle. The
/// mounts must show the same directories.
struct ConfinementInputs {
    workspace: OwnedFd,
    /// Writable directories outside the workspace.
    roots: Vec<(PathBuf, OwnedFd)>,
    facts: HostFacts,
    plan: MountPlan,
    repositories: git::FoundRepositories,
    /// The user's git settings.
    settings: git::UserSettings,
    policy: Policy,
    notes: Vec<String>,
    /// Deadline for reading the workspace.
    until: Instant,
}

impl ConfinementInputs {
    fn look_blocking(
        start: &Start,
        home_links: &[HomeLink],
        tier: Tier,
    ) -> Result<Self, WorkerStartError> {
        let until = Instant::now() + LOOK_LIMIT;
        let order = &start.sandbox;
        let places = SessionDirs {
            workspace: PathBuf::from(&start.workspace),
            run_dir: PathBuf::from(&start.run_dir),
            state_dir: PathBuf::from(&order.state_dir),
            home: PathBuf::from(&order.home),
        };
        let isolated = order.isolated.as_ref().map(|one| Path::new(&one.directory));
        // Everything below works with this handle; only its path is that of the workspace.
        let held = isolated.map_or_else(|| places.workspace.clone(), |one| one.join("tree"));
        let workspace = git::hold_directory_blocking(&held).map_err(|source| match isolated {
            Some(_) => WorkerStartError::confinement(NO_COPY),
            None => WorkerStartError::System { step: "cannot open the workspace", source },
        })?;

        let path = start.env.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or("/usr/local/bin:/usr/bin:/bin", |(_, path)| path.as_str());
        let mut facts =
            HostFacts::gather_blocking(places, path, &start.env, &order.policy.writable_roots);
        if ssh_agent::is_served(tier, &order.policy) {
            let Credentials { ssh, git, .. } = start.credentials;
            facts.git_settings.use_credentials(ssh, git);
        }
        facts.system.extend(
            home_links
                .iter()
                .map(|(at, to)| SystemDirectory::Link { at: at.clone(), to: to.clone() }),
        );

        let (policy, roots, notes) = hold_roots(order.policy.clone(), Path::new(&order.home));
        // A workspace that must not be one is refused before it is looked through.
        let mut plan = MountPlan::new(&policy, &facts).map_err(WorkerStartError::confinement)?;
        if let Some(IsolatedStart { directory, copied }) = &order.isolated {
            plan.isolate(copied, Path::new(directory).join("out"));
        }
        for (path, root) in &roots {
            plan.verify(path, root).map_err(WorkerStartError::confinement)?;
        }

        let repositories = repositories(&workspace, until)
            .map_err(WorkerStartError::at("cannot read the workspace"))?;
        if repositories.has_more_repositories && policy.may_write() {
            return Err(too_many_repositories());
        }
        let settings = git::UserSettings::read_blocking(Path::new(&order.home), &start.env);
        Ok(Self { workspace, roots, facts, plan, repositories, settings, policy, notes, until })
    }

    fn enter_namespaces(
        self,
        start: &Start,
        cgroup: Option<&SessionPaths>,
        group: Option<&Group>,
        exe: SelfExe,
        mode: GitProtection,
    ) -> Result<ConfinementResult, WorkerStartError> {
        let (mut plan, mut notes) = (self.plan, self.notes);
        let Self { workspace, roots, facts, repositories, settings, policy, until, .. } = self;

        plan.limits = limits(start, group);
        plan.host_ports = host_ports::host_ports(start);
        let kept = caches::keep(start, &facts, &mut plan, &mut notes);
        let agents = agents::keep(start, &mut plan, &mut notes);

        let registry = facts.places.state_dir.join(PLACEHOLDERS);
        let mut known = Known::from(&repositories);
        let mut placeholders = None;
        if policy.may_write() {
            let first = Tree { handle: &workspace, path: &facts.places.workspace, repositories };
            let trees = trees_of(first, &roots, until)?;
            let (protected, named) =
                protect_all(&mut plan, &trees, &registry, mode, until, &settings, &mut notes);
            known = known.naming(&named);
            placeholders = protected;
        }

        // The handles stay open until the directories are mounted.
        let (placeholders, elsewhere) = placeholders.unzip();
        let places = roots.iter().map(|(path, handle)| (path.as_path(), handle));
        let places: Vec<_> = places.chain([(plan.workspace.as_path(), &workspace)]).collect();
        let (above, absent) = pins_above_hidden(&policy, &places, &mut notes);
        plan.pin(above);
        cut_notes(&mut notes);

        let extra = beyond_the_plan(group, &exe)?;
        // The placeholders in the repositories and the locks of what is kept stay until the monitor calls this.
        let at_the_end = caches::at_the_end(placeholders, kept, agents.lock);
        let split = || -> io::Result<ForkSide<Init, _>> {
            Ok(match confine::split(workspace.as_fd(), plan.network).map_err(io::Error::other)? {
                Side::Init(init) => ForkSide::Child(init),
                Side::Monitor(monitor) => {
                    ForkSide::Monitor { child: monitor.init, status: monitor.status, at_the_end }
                }
            })
        };
        let init = split_off_monitor_by(cgroup, split)
            .map_err(WorkerStartError::at("cannot split the process"))?;
        drop(workspace);
        let (pins, read_only_pins) = paths_to_watch(&plan, &policy);
        let confined = init.enter(&plan, extra).map_err(WorkerStartError::confinement)?;

        notes.extend(confined.caches_in_memory.map(|why| caches::note(&why)));
        let oom_score = confined.oom_score.and_then(OomScore::from_file);
        let (spawn_thread, note) = launching(oom_score, Some(confined.command_filter));
        notes.extend(note.into_iter().chain(confined.outputs_note).chain(git_notes(&plan, mode)));
        drop((roots, elsewhere));

        let read_only = ReadOnlyWrapper { exe, private: private_of_safe_mode(), processes: None };
        let user_git = of_user(&facts.git_settings);
        let mut result = ConfinementResult::new(&start.sandbox.policy, notes, user_git);
        result.report.git = (!plan.git_mounts.is_empty()).then_some(mode);
        Ok(ConfinementResult {
            spawn_thread: Some(spawn_thread),
            pid: confined.host_pid.unwrap_or_else(std::process::id),
            env: variables(start, plan.home.display().to_string(), agents.variables),
            pins: mounted(pins),
            read_only_pins: mounted(read_only_pins),
            absent,
            sources: MountSources::look_blocking(&plan),
            private_home: plan.private_home().map(Path::to_owned),
            has_private_tmp: true,
            read_only_words: read_only.words(),
            exe: Some(read_only.exe),
            known: Some(known),
            private_network: confined.private_network,
            ..result
        })
    }

    fn enter_alone(
        self,
        start: &Start,
        cgroup: Option<&SessionPaths>,
        group: Option<&Group>,
        exe: SelfExe,
    ) -> Result<ConfinementResult, WorkerStartError> {
        let Self { workspace, facts, repositories, settings, policy, mut notes, until, .. } = self;
        let path = &facts.places.workspace;
        let tree = Tree { handle: &workspace, path, repositories };
        let named = named_files(std::slice::from_ref(&tree), &settings, until, &mut notes);
        cut_notes(&mut notes);
        let repositories = tree.repositories;

        let tmp = facts.places.run_dir.join("tmp");
        make_directory_blocking(&tmp).map_err(WorkerStartError::at("cannot make a directory"))?;
        let settings = write_settings_blocking(&tmp, &facts.git_settings, "")
            .map_err(WorkerStartError::at("cannot write the settings of git"))?;
        let mut rules =
            confine::rules_alone_blocking(&policy, &facts, workspace.as_fd(), &repositories)
                .map_err(WorkerStartError::confinement)?;
        rules.extend(beyond_the_plan(group, &exe)?);
        split_off_monitor_of(cgroup).map_err(WorkerStartError::at("cannot start the monitor"))?;

        // The rule is for this one slave. As long as its master is open, no other terminal gets its number.
        let (terminal, slave) = KeptTerminal::open().ok().unzip();
        rules.extend(slave.map(|what| FileRule { what, rights: FileRights::Write }));

        // The kernel counts all processes of the user, so each command gets its limit when it starts.
        let processes = limits(start, group).processes;
        let read_only = ReadOnlyWrapper { exe, private: vec![tmp.clone()], processes };
        let ConfinedProcess { oom_score, .. } =
            confine::enter_alone(&ConfinementLimits::default(), &policy, rules)
                .map_err(WorkerStartError::confinement)?;
        // In this tier no `.git` is writable, so the filter needs no git directories.
        let filter = confine::CommandFilter::default();
        let (spawn_thread, note) = launching(oom_score.and_then(OomScore::from_file), Some(filter));
        notes.extend(note);

        let user_git = of_user(&facts.git_settings);
        Ok(ConfinementResult {
            spawn_thread: Some(spawn_thread),
            env: vec![
                ("TMPDIR", tmp.display().to_string()),
                // The user's file exists but is unreadable, and git would fail.
                ("GIT_CONFIG_GLOBAL", settings),
            ],
            terminal,
            command_words: read_only.limiting_words(),
            read_only_words: read_only.words(),
            exe: Some(read_only.exe),
            known: Some(Known::from(&repositories).naming(&named)),
            ..ConfinementResult::new(&start.sandbox.policy, notes, user_git)
        })
    }
}

/// Returns notes on what the system cannot do for git directories.
fn git_notes(plan: &MountPlan, mode: GitProtection) -> Vec<String> {
    let has_git = !plan.git_mounts.is_empty();
    let links = (has_git && !confine::CommandFilter::can_hold_calls()).then_some(LINKS_NOTE);
    let names = (has_git && mode == GitProtection::Names).then_some(NAMES_NOTE);
    links.into_iter().chain(names).map(str::to_owned).collect()
}

/// Returns the thread that launches commands, and a note if their OOM score cannot be set.
fn launching(
    score: io::Result<OomScore>,
    filter: Option<confine::CommandFilter>,
) -> (SpawnThread, Option<String>) {
    let note = score.as_ref().err().map(|error| {
        format!("if memory runs out, the kernel may kill the worker before its commands: {error}")
    });
    let prepare = move || match &filter {
        Some(filter) => filter.apply_to_thread().map_err(io::Error::other),
        None => Ok(()),
    };
    (SpawnThread::new(prepare, score.ok()), note)
}

/// Registry of placeholders, in the state directory.
const PLACEHOLDERS: &str = "placeholders";

/// Returns the limits. Limits processes if no control group counts them: in a new user namespace the kernel counts
/// the processes in it; without one it counts all processes of the user (`read_only`).
fn limits(start: &Start, group: Option<&Group>) -> ConfinementLimits {
    let is_counted = group.is_some_and(|group| group.processes().is_some());
    let has_own_count = !is_counted && !rustix::process::getuid().is_root();
    let processes = start.limits.processes.filter(|_| has_own_count);
    let commands = Limits { memory: start.limits.memory_bytes, ..Limits::default() };
    let private_bytes = Some(commands.files_in_memory());
    ConfinementLimits { processes, private_bytes, ..ConfinementLimits::default() }
}

/// Returns rules for files that the worker continues to use by descriptor: the control group of its commands, and its
/// executable.
fn beyond_the_plan(
    group: Option<&Group>,
    exe: &SelfExe,
) -> Result<Vec<FileRule>, WorkerStartError> {
    let mut rules = Vec::new();
    let what = exe.as_fd().try_clone_to_owned();
    let what = what.map_err(WorkerStartError::at("cannot hold our own executable"))?;
    rules.push(FileRule { what, rights: FileRights::Read });

    for directory in group.into_iter().flat_map(Group::directories) {
        let what = directory.try_clone_to_owned();
        let what = what.map_err(WorkerStartError::at("cannot hold a control group"))?;
        rules.push(FileRule { what, rights: FileRights::Write });
    }
    Ok(rules)
}

/// Error of a policy with hosts in a tier that cannot enforce them.
fn no_hosts(tier: Tier) -> WorkerStartError {
    WorkerStartError::Confinement(format!(
        "a list of hosts needs namespaces, and tier {} has none; set the network to off or on, for an agent with \
         quack run --network on",
        tier.name()
    ))
}

/// Error of an isolated session in a tier that does not keep it out of the workspace.
fn not_isolated(tier: Tier) -> WorkerStartError {
    // Landlock has no right for permissions and times, so no rule forbids their change.
    let why = if tier == Tier::D {
        "in tier D git cannot write, and commands can change permissions and times of your own files"
    } else {
        "here commands are not confined"
    };
    WorkerStartError::Confinement(format!("an isolated session needs tier A, B or M: {why}"))
}

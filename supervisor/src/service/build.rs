//! Builds the objects that the actors' thread shares, from those that the main thread prepared.

use crate::approvals::Approvals;
use crate::children::ChildServices;
use crate::children::errands::Errands;
use crate::children::isolate::Isolation;
use crate::children::login_env::{CapturedEnv, LoginEnv, LoginEnvInputs};
use crate::children::probing::Probing;
use crate::children::repo_cleanup::RepoCleanup;
use crate::children::spawner::Spawner;
use crate::children::tool_registries::ToolRegistries;
use crate::children::{Credentials, Deaths, OneShot};
use crate::clock::now_text;
use crate::daemon_info::{ConfigFile, DaemonInfo, upstream};
use crate::errors::start::StartError;
use crate::events::Events;
use crate::events::client_registry::Clients;
use crate::health::Health;
use crate::health::executable::Executable;
use crate::health::loop_monitor::LoopMonitor;
use crate::health::service_manager::ServiceManager;
use crate::links::Links;
use crate::log::LogControl;
use crate::log::journal::Journal;
use crate::metrics::Metrics;
use crate::metrics::endpoint::MetricsEndpoint;
use crate::obeyed::Obeyed;
use crate::pool::Pool;
use crate::pool::command_slots::CommandSlots;
use crate::pool::copy_sizes::CopySizes;
use crate::pool::disk_space::DiskSpace;
use crate::pool::network::SessionNetworks;
use crate::pool::sessions::SessionTable;
use crate::pool::spill_quota::SpillQuota;
use crate::pool::terminals::TerminalCounts;
use crate::registry::shutdown_record::Interrupted;
use crate::remote::RemoteControl;
use crate::retention::{Retention, journal_limits, mebibytes};
use crate::services::{ClientMemory, Services, StopRequest};
use crate::session::actors::ActorTable;
use crate::session::agent::LastFailure;
use crate::session::call_record::CallJournal;
use crate::session::models::Models;
use crate::session::services::SessionServices;
use crate::session::spending::{Spending, Spent};
use crate::voice::Voice;
use crate::workspaces::user_home;
use quackd_config::{Config, KeepSettings};
use quackd_egress::Egress;
use quackd_egress::models::ModelLists;
use quackd_home::{Home, Tenure};
use quackd_ipc::alias::Alias;
use quackd_ipc::listener::SocketFile;
use quackd_process::CgroupBase;
use quackd_protocol::client::InterruptedSession;
use quackd_protocol::limits::{APPROVALS_FILE_BYTES, NETWORK_FILE_BYTES};
use quackd_supervision::{
    CREDENTIALS_WORKER, FAR_ERRAND, ISOLATE_WORKER, REPOSITORY_CLEANER, STATE_RECORDER,
    TOOL_REGISTRIES,
};
use std::cell::{OnceCell, RefCell};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;
use tokio::sync::{Semaphore, mpsc};

/// Maximum number of lookups of clients' directories at the same time. Bounds the blocking threads
/// that lookups use.
const MAX_PATH_LOOKUPS: usize = 8;

/// Values of the daemon's start until it has the lock and its log.
pub(super) struct StartInputs {
    pub(super) home: Home,
    pub(super) config: Config,
    pub(super) config_file: ConfigFile,
    /// The socket, if the service manager owns it.
    pub(super) activated: Option<UnixListener>,
    pub(super) service_manager: ServiceManager,
    pub(super) remote: RemoteControl,
    pub(super) log: LogControl,
}

/// Values that move to the actors' thread. Each of them was prepared on the main thread, which may block.
pub(super) struct ActorThreadInputs {
    pub(super) start: StartInputs,
    pub(super) tenure: Tenure,
    pub(super) socket: PathBuf,
    pub(super) alias: Option<Alias>,
    pub(super) executable: Executable,
    pub(super) interrupted: Vec<InterruptedSession>,
    pub(super) cgroups: Option<Arc<CgroupBase>>,
    pub(super) login: Option<CapturedEnv>,
    pub(super) spent: Spent,
    pub(super) lists: ModelLists,
    pub(super) egress: Egress,
    pub(super) health: Health,
    pub(super) metrics: Arc<Metrics>,
    pub(super) spawner: Spawner,
    pub(super) ready: SyncSender<Result<SocketFile, StartError>>,
}

/// Builds the services for connections and methods. Starts no task.
pub(super) fn services(parts: ActorThreadInputs, stop: mpsc::Sender<StopRequest>) -> Rc<Services> {
    let start = parts.start;
    let clients = Rc::<Clients>::default();
    // The process id distinguishes two daemons that started in the same second.
    let events = Rc::new(Events::new(format!("{}-{}", now_text(), std::process::id())));

    let min_free = mebibytes(start.config.keep.min_free_mb.value);
    let disk = Rc::new(DiskSpace::new(&start.home, min_free, start.log));
    let pool = pool(&start.config, &start.home, disk, &parts.metrics);

    let live = (start.config.worker.max_live.value, start.config.pi.max_live.value);
    let (spawner, cgroups, cached) = (parts.spawner, parts.cgroups, parts.login);
    let children = children(&start.config, &start.home, spawner, cgroups, cached, &parts.metrics);

    let approvals = Approvals::new(
        Rc::clone(&events),
        Rc::clone(&clients),
        Journal::rotating(&start.home.approvals_file(), APPROVALS_FILE_BYTES),
        Arc::clone(&parts.metrics),
    );

    let daemon = Rc::new(DaemonInfo {
        obeyed: Obeyed::new(&start.config, start.config_file.path.clone(), &start.home),
        home: start.home,
        user_home: user_home(),
        // The directory may have been deleted.
        started_in: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        socket: parts.socket,
        started: Instant::now(),
        started_at: now_text(),
        upstream: upstream(start.config.sandbox.upstream_proxy.value),
        config: start.config,
        config_file: start.config_file,
    });
    let models = Models::new(&daemon, &children, parts.egress, parts.lists);

    let sessions = Rc::new(SessionServices {
        daemon: Rc::clone(&daemon),
        children,
        pool,
        events: Rc::clone(&events),
        approvals,
        network_journal: Journal::rotating(&daemon.home.network_file(), NETWORK_FILE_BYTES),
        call_journal: call_journal(&daemon.config.keep, &daemon.home),
        table: SessionTable::new(live.0, live.1),
        agent_failure: LastFailure::default(),
        // Set by the start of the daemon, because the runner needs all services.
        tool_runner: OnceCell::new(),
        egress: models.egress(),
        models,
        spending: Spending::new(daemon.home.spending_file(), parts.spent),
        metrics: parts.metrics,
        lookups: Arc::new(Semaphore::new(MAX_PATH_LOOKUPS)),
    });

    publish_questions(&sessions);
    let actors = Rc::new(ActorTable::new(Rc::clone(&sessions)));

    let (health, loop_monitor) = (Rc::new(parts.health), Rc::new(LoopMonitor::new()));
    let retention =
        Retention::new(Rc::clone(&sessions), Rc::clone(&health), Rc::clone(&loop_monitor));

    Rc::new(Services {
        interrupted: Interrupted::new(daemon.home.interrupted_file(), parts.interrupted),
        daemon,
        links: Links::new(Rc::clone(&actors)),
        sessions,
        actors,
        voice: Rc::new(Voice::new(Rc::clone(&clients), events)),
        clients,
        memory: ClientMemory::default(),
        socket_alias: parts.alias,
        socket_file: RefCell::new(None),
        remote: start.remote,
        metrics_endpoint: MetricsEndpoint::default(),
        health,
        service_manager: start.service_manager,
        executable: parts.executable,
        loop_monitor,
        retention,
        stop,
    })
}

fn call_journal(keep: &KeepSettings, home: &Home) -> CallJournal {
    let limits = journal_limits(keep);
    let is_on = !limits.kept.is_zero();
    CallJournal::new(is_on.then(|| Journal::of_calls(home.journal_dir(), limits)))
}

/// Publishes the number of open questions of each session.
fn publish_questions(sessions: &Rc<SessionServices>) {
    // The approvals belong to the sessions' services, so a strong reference would never be dropped.
    let weak = Rc::downgrade(sessions);
    sessions.approvals.on_change(move |session, n_asked| {
        if let Some(sessions) = weak.upgrade() {
            sessions.table.publish_asked(session, n_asked);
        }
    });
}

fn pool(config: &Config, home: &Home, disk: Rc<DiskSpace>, metrics: &Arc<Metrics>) -> Pool {
    let spill_bytes = mebibytes(config.limits.spill_mb.value);
    let slots = CommandSlots::new(config.limits.commands.value, config.limits.jobs.value);
    Pool {
        copies: CopySizes::new(home.clone(), &config.isolated, slots.clone()),
        slots,
        spills: SpillQuota::new(home.run_dir(), spill_bytes, Arc::clone(metrics)),
        disk,
        networks: SessionNetworks::default(),
        terminals: TerminalCounts::default(),
    }
}

fn children(
    config: &Config,
    home: &Home,
    spawner: Spawner,
    cgroups: Option<Arc<CgroupBase>>,
    cached: Option<CapturedEnv>,
    metrics: &Arc<Metrics>,
) -> ChildServices {
    let deaths = Rc::<Deaths>::default();
    let login = LoginEnv::start(LoginEnvInputs {
        login_shell: config.environment.login_shell.value,
        extra: config.tools.env.value.clone(),
        for_pi: config.pi.env.value.clone(),
        variables: std::env::vars_os().collect(),
        cached,
        cache: home.login_environment(),
        run_dir: home.run_dir(),
        spawner: spawner.clone(),
        deaths: Rc::clone(&deaths),
    });

    let has_launcher = !config.worker.launcher.value.is_empty();
    let cleaner = OneShot::new(&REPOSITORY_CLEANER, Rc::clone(&deaths));
    let asker = OneShot::new(&TOOL_REGISTRIES, Rc::clone(&deaths));
    let copies = OneShot::new(&ISOLATE_WORKER, Rc::clone(&deaths));
    let states = OneShot::new(&STATE_RECORDER, Rc::clone(&deaths));
    let credentials = OneShot::new(&CREDENTIALS_WORKER, Rc::clone(&deaths));
    let errands = OneShot::new(&FAR_ERRAND, Rc::clone(&deaths));
    let run_dir = home.run_dir();

    ChildServices {
        errands: Errands::new(spawner.clone(), Rc::clone(&login), errands),
        credentials: Credentials::new(spawner.clone(), Rc::clone(&login), credentials),
        isolation: Isolation::new(spawner.clone(), Rc::clone(&login), copies, states),
        probing: Probing::new(has_launcher, Rc::clone(&deaths)),
        repo_cleanup: RepoCleanup::new(home, spawner.clone(), cleaner),
        tool_registries: ToolRegistries::new(run_dir, spawner.clone(), Rc::clone(&login), asker),
        spawner,
        login,
        cgroups,
        deaths,
        metrics: Arc::clone(metrics),
    }
}

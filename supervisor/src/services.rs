//! What connections, methods and handles share: immutable facts and the handles of other parts.

use crate::children::login_env::Login;
use crate::children::probing::Probing;
use crate::children::spawner::Spawner;
use crate::children::{Deaths, Errand};
use crate::clients::metrics_endpoint::MetricsEndpoint;
use crate::clients::remote::RemoteControl;
use crate::events::Events;
use crate::events::client_registry::Clients;
use crate::health::Health;
use crate::health::executable::Executable;
use crate::health::loop_monitor::Pulse;
use crate::health::service_manager::Managed;
use crate::metrics::Metrics;
use crate::pool::command_slots::Places;
use crate::pool::session_status::Standings;
use crate::pool::spill_quota::Spills;
use crate::pool::worker_pool::Tenants;
use crate::registry::shutdown_record::Interrupted;
use crate::retention::Keeping;
use crate::service::shutdown::Stop;
use crate::session::pi::Pis;
use crate::voice::Voice;
use quackd_config::Config;
use quackd_egress::Egress;
use quackd_home::Home;
use quackd_ipc::alias::Alias;
use quackd_ipc::listener::SocketFile;
use quackd_process::CgroupBase;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::{Semaphore, mpsc};

/// One instance per daemon, behind an `Rc` on the actors' thread.
#[derive(Debug)]
pub(crate) struct Services {
    /// Where things live.
    pub(crate) home: Home,
    /// The socket that clients use.
    pub(crate) socket: PathBuf,
    /// Link for upstream's clients, if they expect the socket at another path.
    pub(crate) socket_alias: Option<Alias>,
    /// Its file, if it had to be made again.
    pub(crate) socket_file: RefCell<Option<SocketFile>>,
    /// The directory in which the daemon was started: `attach` without a path means it.
    pub(crate) started_in: PathBuf,
    /// The home directory of whoever runs the daemon; `/` if it has none.
    pub(crate) user_home: PathBuf,
    /// When the daemon started.
    pub(crate) started: Instant,
    /// The same as wall-clock time, for display.
    pub(crate) started_at: String,
    /// The environment of the commands that tools start.
    pub(crate) login: Rc<Login>,
    /// The configuration, as it was at the start.
    pub(crate) config: Config,
    /// Where it was looked for.
    pub(crate) config_file: ConfigFile,
    /// What happens in the sessions.
    pub(crate) events: Rc<Events>,
    /// Who is connected.
    pub(crate) clients: Rc<Clients>,
    /// Which of them speak for sessions.
    pub(crate) voice: Voice,
    /// The user's agents.
    pub(crate) pis: Pis,
    /// The door for other machines.
    pub(crate) remote: RemoteControl,
    /// The door for a Prometheus.
    pub(crate) metrics_endpoint: MetricsEndpoint,
    /// The way to the web.
    pub(crate) egress: Egress,
    /// Where commands are kept together and counted; `None` where control groups cannot be had.
    pub(crate) cgroups: Option<Arc<CgroupBase>>,
    /// Why not.
    pub(crate) no_cgroups: Option<String>,
    /// Finds the layers of confinement that work on this system.
    pub(crate) probing: Probing,
    /// What went wrong that a person should know.
    pub(crate) health: Health,
    /// Who started the daemon, and how it is told.
    pub(crate) managed: Managed,
    /// The program that runs.
    pub(crate) executable: Executable,
    /// What the last stop cut short.
    pub(crate) interrupted: Rc<Interrupted>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// What each session is doing.
    pub(crate) standings: Standings,
    /// Whose workers live, and who may be ended for another.
    pub(crate) tenants: Tenants,
    /// How late timers are, and when time stood still.
    pub(crate) pulse: Pulse,
    /// How children died.
    pub(crate) deaths: Rc<Deaths>,
    /// The process that cleans repositories.
    pub(crate) cleaner: Errand,
    /// Places for commands, over all sessions.
    pub(crate) places: Places,
    /// The bound on what long outputs take of the disk.
    pub(crate) spills: Spills,
    /// What is kept for how long, and the room on the disk.
    pub(crate) keeping: Keeping,
    /// Places for directory look-ups: one on a dead mount holds its thread for ever.
    pub(crate) lookups: Arc<Semaphore>,
    /// Starts and reaps workers.
    pub(crate) spawner: Spawner,
    /// One message asks the daemon to stop.
    pub(crate) stop: mpsc::Sender<Stop>,
}

/// The configuration's file.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    /// When it was last changed before it was read; `None` if there was none.
    pub(crate) modified: Option<SystemTime>,
}

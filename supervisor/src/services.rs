//! Services that connections and methods share.

use crate::daemon_info::DaemonInfo;
use crate::events::client_registry::Clients;
use crate::health::Health;
use crate::health::executable::Executable;
use crate::health::loop_monitor::LoopMonitor;
use crate::health::service_manager::ServiceManager;
use crate::links::Links;
use crate::metrics::endpoint::MetricsEndpoint;
use crate::registry::shutdown_record::Interrupted;
use crate::remote::RemoteControl;
use crate::retention::Retention;
use crate::session::actors::ActorTable;
use crate::session::services::SessionServices;
use crate::voice::Voice;
use crate::wire::unanswered::RequestMemory;
use quackd_ipc::alias::Alias;
use quackd_ipc::listener::SocketFile;
use quackd_protocol::limits::{MAX_QUEUED_BYTES, MAX_UNFINISHED_BYTES};
use quackd_supervision::Budget;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) daemon: Rc<DaemonInfo>,
    pub(crate) sessions: Rc<SessionServices>,
    pub(crate) actors: Rc<ActorTable>,
    pub(crate) clients: Rc<Clients>,
    pub(crate) memory: ClientMemory,
    pub(crate) voice: Rc<Voice>,
    /// Link for upstream's clients, if they expect the socket at another path.
    pub(crate) socket_alias: Option<Alias>,
    /// The socket's file, if the listener had to create it again.
    pub(crate) socket_file: RefCell<Option<SocketFile>>,
    pub(crate) remote: RemoteControl,
    pub(crate) metrics_endpoint: MetricsEndpoint,
    pub(crate) health: Rc<Health>,
    pub(crate) service_manager: ServiceManager,
    pub(crate) executable: Executable,
    /// Work that the last shutdown interrupted.
    pub(crate) interrupted: Rc<Interrupted>,
    pub(crate) loop_monitor: Rc<LoopMonitor>,
    pub(crate) retention: Rc<Retention>,
    pub(crate) links: Links,
    /// Takes one request to stop the daemon.
    pub(crate) stop: mpsc::Sender<StopRequest>,
}

/// Memory that all clients share. A client that holds most of it for longest is refused.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    /// Lines that are not complete.
    pub(crate) unfinished: Arc<Budget<CancellationToken>>,
    /// Messages that are not written.
    pub(crate) queued: Arc<Budget<CancellationToken>>,
    /// Requests that are not answered. One more is refused in place of a client.
    pub(crate) requests: RequestMemory,
}

impl Default for ClientMemory {
    fn default() -> Self {
        Self {
            unfinished: Budget::new(MAX_UNFINISHED_BYTES),
            queued: Budget::new(MAX_QUEUED_BYTES),
            requests: RequestMemory::default(),
        }
    }
}

/// Request to stop the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// Stop and exit.
    Shutdown,
    /// Exit so that the next daemon can start.
    Restart,
}

impl StopRequest {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shutdown => "stop",
            Self::Restart => "restart",
        }
    }
}

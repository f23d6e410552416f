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
use quackd_ipc::alias::Alias;
use quackd_ipc::listener::SocketFile;
use quackd_protocol::limits::{MAX_LINE_BYTES, MAX_QUEUED_BYTES, MAX_UNFINISHED_BYTES};
use quackd_supervision::Budget;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
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

/// Bytes of requests that wait for their answer in a separate task, of all clients.
const MAX_REQUEST_BYTES: usize = 16 * MAX_LINE_BYTES;

/// Requests of at most this size, in bytes, do not count. Their number is limited for each client.
const FREE_REQUEST_BYTES: usize = 1024;

/// Memory that all clients share. A client that holds most of it for longest is refused.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    /// Lines that are not complete.
    pub(crate) unfinished: Arc<Budget<CancellationToken>>,
    /// Messages that are not written.
    pub(crate) queued: Arc<Budget<CancellationToken>>,
    /// One permit for each byte of [`MAX_REQUEST_BYTES`].
    requests: Arc<Semaphore>,
}

impl ClientMemory {
    /// Counts the bytes of a request until the permit is dropped. `None`: the unanswered requests of all clients have
    /// too many.
    pub(crate) fn hold_request(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let counted = if bytes <= FREE_REQUEST_BYTES { 0 } else { bytes };
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        Arc::clone(&self.requests).try_acquire_many_owned(counted).ok()
    }
}

impl Default for ClientMemory {
    fn default() -> Self {
        Self {
            unfinished: Budget::new(MAX_UNFINISHED_BYTES),
            queued: Budget::new(MAX_QUEUED_BYTES),
            requests: Arc::new(Semaphore::new(MAX_REQUEST_BYTES)),
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

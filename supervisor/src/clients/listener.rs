//! Accepts clients of the same user, at most [`MAX_CLIENTS`], without a busy loop.
//!
//! If the socket file was deleted, for example by a cleaner of temporary directories, the listener creates it again.
//! Otherwise no client could find this daemon, and its lock would prevent another one from starting.

use crate::clients::connection::{self, ConnectionOrigin};
use crate::events::client_registry::Transport;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use actix::Addr;
use quackd_ipc::halves;
use quackd_ipc::listener::{BoundSocket, ClientStream, SocketFile, Standing, peer_is_owner};
use quackd_protocol::limits::MAX_CLIENTS;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

/// Initial and maximum pause after a failed accept, for example if no descriptors are left.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Timeout for sending the refusal to a rejected client.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum number of concurrent refusals. Further clients are closed without a text.
const MAX_REFUSALS: usize = 16;

/// Maximum number of clients that are refused for lack of descriptors before a pause.
const MAX_REFUSALS_IN_A_ROW: usize = 256;

/// Descriptors in reserve.
const RESERVED_DESCRIPTORS: usize = 4;

/// Text for a client that connects while the daemon has no descriptor left.
const NO_DESCRIPTOR: &str = "Daemon has no free file descriptor for another client. Close some clients, or try again later.";

/// Interval of the checks of the socket file.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Accepts clients until it is dropped.
pub(crate) async fn accept_clients(
    mut socket: BoundSocket,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let mut looking = tokio::time::interval(FILE_CHECK_INTERVAL);
    looking.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let room = Arc::new(Semaphore::new(MAX_CLIENTS));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let mut reserve = Reserve::default();

    let mut pause = BACKOFF.0;
    loop {
        reserve.fill();
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = looking.tick() => {
                if let Some(rebound) = bound_anew(socket.file(), &services).await {
                    socket = rebound;
                }
                continue;
            }
        };

        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, ?pause, "cannot accept a client");
                let n_refused = reserve.refuse_waiting(&error, &socket).await;
                services.sessions.metrics.refused_clients.add(n_refused);
                // Without a pause, a lack of descriptors would keep the loop busy.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
                continue;
            }
        };

        pause = BACKOFF.0;
        // A peer that cannot be identified counts as another user.
        if !peer_is_owner(&stream).unwrap_or(false) {
            services.sessions.metrics.refused_clients.add(1);
            tracing::warn!("refused a client of another user");
            continue;
        }

        reserve.fill();
        if reserve.is_short() {
            services.sessions.metrics.refused_clients.add(1);
            // It has one of the last descriptors, which the reserve needs to refuse those that connect after it.
            refuse(stream, NO_DESCRIPTOR).await;
            continue;
        }

        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            services.sessions.metrics.refused_clients.add(1);
            // In a separate task, because the client may not read.
            if let Ok(refusal) = Arc::clone(&refusals).try_acquire_owned() {
                actix::spawn(async move {
                    refuse(stream, "Too many connections").await;
                    drop(refusal);
                });
            }
            continue;
        };

        let (services, registry) = (Rc::clone(&services), registry.clone());
        let pid = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
        actix::spawn(async move {
            match halves::split(stream) {
                Ok((reading, writing)) => {
                    let origin = ConnectionOrigin {
                        transport: Transport::Socket,
                        websocket_url: None,
                        immediate: Some(writing.immediate()),
                        pid,
                        page: None,
                    };
                    connection::serve(reading, writing, origin, services, registry).await;
                }
                Err(error) => tracing::warn!(%error, "cannot serve a client"),
            }
            drop(permit);
        });
    }
}

/// Returns a new socket if its file was deleted.
async fn bound_anew(file: SocketFile, services: &Services) -> Option<BoundSocket> {
    let alias = services.socket_alias.clone();
    let look = move || {
        if let Some(alias) = alias {
            alias.restore_blocking();
        }
        file.look_blocking()
    };

    // A directory that hangs counts as unchanged. The next check tries again.
    let looked = actix_rt::task::spawn_blocking(look);
    let standing = tokio::time::timeout(FILE_CHECK_INTERVAL, looked).await.ok()?.ok()?;
    if standing != Standing::Gone {
        return None;
    }

    match BoundSocket::bind(&services.daemon.socket) {
        Ok(socket) => {
            tracing::warn!(socket = %services.daemon.socket.display(), "socket file was deleted, created a new one");
            // The shutdown removes this file, not the deleted one.
            services.socket_file.replace(Some(socket.file()));
            Some(socket)
        }
        Err(error) => {
            tracing::error!(%error, "socket file was deleted and cannot be created again");
            None
        }
    }
}

/// Descriptors that are closed to accept and refuse clients when no other one is left. More than one, because another
/// thread may take one in between and keep it.
#[derive(Default)]
struct Reserve(Vec<File>);

impl Reserve {
    /// Opens as many descriptors as are missing and can be opened.
    fn fill(&mut self) {
        while self.0.len() < RESERVED_DESCRIPTORS {
            match File::open("/dev/null") {
                Ok(file) => self.0.push(file),
                Err(_) => break,
            }
        }
    }

    fn is_short(&self) -> bool {
        self.0.len() < RESERVED_DESCRIPTORS
    }

    /// Refuses at most [`MAX_REFUSALS_IN_A_ROW`] waiting clients if `error` is a lack of descriptors. Returns their number.
    async fn refuse_waiting(&mut self, error: &io::Error, socket: &BoundSocket) -> u64 {
        if !matches!(error.raw_os_error(), Some(nix::libc::EMFILE | nix::libc::ENFILE)) {
            return 0;
        }

        let mut n_refused = 0;
        for _ in 0..MAX_REFUSALS_IN_A_ROW {
            if self.0.pop().is_none() {
                break;
            }
            // Without a wait: the queue may be empty.
            match tokio::time::timeout(Duration::ZERO, socket.accept()).await {
                Ok(Ok(stream)) if peer_is_owner(&stream).unwrap_or(false) => {
                    refuse(stream, NO_DESCRIPTOR).await;
                }
                Ok(Ok(stream)) => drop(stream),
                // Another thread took the descriptor.
                Ok(Err(_)) => continue,
                Err(_) => break,
            }
            n_refused += 1;
            self.fill();
        }
        n_refused
    }
}

async fn refuse(mut stream: ClientStream, reason: &str) {
    let line = wire::disconnect_notice(reason);
    // The client may be gone or not read, so the timeout applies.
    tokio::time::timeout(REFUSAL_TIMEOUT, stream.write_all(&line)).await.ok();
}

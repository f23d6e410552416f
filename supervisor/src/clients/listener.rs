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
    reserve.fill();

    let mut pause = BACKOFF.0;
    loop {
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
            // The next round accepts the client with the released descriptor.
            Err(error) if reserve.release(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, ?pause, "cannot accept a client");
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

        if !reserve.fill() {
            services.sessions.metrics.refused_clients.add(1);
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

/// Descriptors that are closed to accept clients when no other one is left, to refuse them. More than one, because another
/// thread may take one in between and keep it.
#[derive(Default)]
struct Reserve(Vec<File>);

impl Reserve {
    /// Opens the missing descriptors. Returns false if there are not enough: then the client that was just accepted has
    /// one that the reserve needs for the next ones.
    fn fill(&mut self) -> bool {
        while self.0.len() < RESERVED_DESCRIPTORS {
            match File::open("/dev/null") {
                Ok(file) => self.0.push(file),
                Err(_) => return false,
            }
        }
        true
    }

    /// Closes a descriptor if `error` is a lack of them. Returns false if it is not, or if none is left.
    fn release(&mut self, error: &io::Error) -> bool {
        let is_lack = matches!(error.raw_os_error(), Some(nix::libc::EMFILE | nix::libc::ENFILE));
        is_lack && self.0.pop().is_some()
    }
}

async fn refuse(mut stream: ClientStream, reason: &str) {
    let line = wire::disconnect_notice(reason);
    // The client may be gone or not read, so the timeout applies.
    tokio::time::timeout(REFUSAL_TIMEOUT, stream.write_all(&line)).await.ok();
}

//! Accepts clients: only its own user's, at most [`MAX_CLIENTS`], and never in a busy loop.
//!
//! A socket file that somebody deletes (a cleaner of temporary directories, for one) is made again: no
//! client would find this daemon, and the lock would keep every other from starting.

use crate::clients::connection::{self, Origin};
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use actix::Addr;
use quackd_ipc::listener::{BoundSocket, ClientStream, SocketFile, Standing, peer_is_owner};
use quackd_protocol::limits::MAX_CLIENTS;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

/// First and longest pause after a failed accept, for example when descriptors are used up.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long a refused client gets to take its refusal.
const REFUSAL_LIMIT: Duration = Duration::from_millis(200);

/// Refusals that are being written at the same time; beyond them a client is closed without a word.
const MAX_REFUSALS: usize = 16;

/// Pause between two looks at the socket file.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Accepts until it is dropped.
pub(crate) async fn accept_clients(
    socket: BoundSocket,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let mut socket = socket;
    let mut looking = tokio::time::interval(LOOK_INTERVAL);
    looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let room = Arc::new(Semaphore::new(MAX_CLIENTS));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let mut pause = BACKOFF.0;
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = looking.tick() => {
                if let Some(anew) = bound_anew(socket.file(), &services).await {
                    socket = anew;
                }
                continue;
            }
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, ?pause, "cannot accept a client");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
                continue;
            }
        };
        pause = BACKOFF.0;
        if !peer_is_owner(&stream).unwrap_or(false) {
            services.sessions.metrics.refused_clients.add(1);
            tracing::warn!("refused a client of another user");
            continue;
        }
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            services.sessions.metrics.refused_clients.add(1);
            if let Ok(refusal) = Arc::clone(&refusals).try_acquire_owned() {
                actix::spawn(async move {
                    refuse(stream).await;
                    drop(refusal);
                });
            }
            continue;
        };
        let (services, registry) = (Rc::clone(&services), registry.clone());
        actix::spawn(async move {
            let (reading, writing) = (&stream, &stream);
            connection::serve(reading, writing, Origin::SOCKET, services, registry).await;
            drop(place);
        });
    }
}

/// The socket, made again where its file is gone.
async fn bound_anew(file: SocketFile, services: &Services) -> Option<BoundSocket> {
    let alias = services.socket_alias.clone();
    let look = move || {
        if let Some(alias) = alias {
            alias.restore_blocking();
        }
        file.look_blocking()
    };
    let looked = actix_rt::task::spawn_blocking(look);
    let standing = tokio::time::timeout(LOOK_INTERVAL, looked).await.ok()?.ok()?;
    if standing != Standing::Gone {
        return None;
    }
    match BoundSocket::bind(&services.daemon.socket) {
        Ok(socket) => {
            tracing::warn!(socket = %services.daemon.socket.display(), "the socket file was deleted and is made again");
            services.socket_file.replace(Some(socket.file()));
            Some(socket)
        }
        Err(error) => {
            tracing::error!(%error, "the socket file was deleted and cannot be made again");
            None
        }
    }
}

async fn refuse(mut stream: ClientStream) {
    let line = wire::goodbye("Too many connections");
    // The client may be gone or not read; the limit decides.
    drop(tokio::time::timeout(REFUSAL_LIMIT, stream.write_all(&line)).await);
}

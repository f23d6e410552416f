//! Accepts clients: only its own user's, at most [`MAX_CLIENTS`], and never in a busy loop.

use crate::connection;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use actix::Addr;
use quackd_ipc::listener::{BoundSocket, ClientStream, peer_is_owner};
use quackd_protocol::limits::MAX_CLIENTS;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

/// First and longest pause after a failed accept, for example when descriptors are used up.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long a refused client gets to take its refusal.
const REFUSAL_LIMIT: Duration = Duration::from_millis(200);

/// Refusals that are being written at the same time; beyond them a client is closed without a word.
const MAX_REFUSALS: usize = 16;

/// Accepts until it is dropped.
pub(crate) async fn accept_clients(
    socket: BoundSocket,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let room = Arc::new(Semaphore::new(MAX_CLIENTS));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let mut pause = BACKOFF.0;
    loop {
        let stream = match socket.accept().await {
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
            services.metrics.refused_clients.add(1);
            tracing::warn!("refused a client of another user");
            continue;
        }
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            services.metrics.refused_clients.add(1);
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
            connection::serve(stream, services, registry).await;
            drop(place);
        });
    }
}

async fn refuse(mut stream: ClientStream) {
    let line = wire::goodbye("Too many connections");
    // The client may be gone or not read; the limit decides.
    drop(tokio::time::timeout(REFUSAL_LIMIT, stream.write_all(&line)).await);
}

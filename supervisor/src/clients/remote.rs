//! Serves the clients of remote control like those of the socket.

use super::connection::{self, ConnectionOrigin, RemoteReady};
use crate::events::client_registry::Transport;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use actix::Addr;
use bytes::Bytes;
use quackd_remote::{Ask, RpcAnswer};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// Maximum number of concurrent requests without a connection, including those of disconnected clients.
const MAX_ALONE: usize = 256;

/// Opens the listener if the configuration enables it, and serves its clients. Returns at once.
pub(crate) fn start(services: &Rc<Services>, registry: &Addr<Registry>) {
    let Some(requests) = services.remote.take_requests() else { return };
    actix::spawn(hand_in(requests, Rc::clone(services), registry.clone()));
    if services.remote.is_enabled() {
        let services = Rc::clone(services);
        actix::spawn(async move { services.remote.open().await });
    }
}

async fn hand_in(
    mut requests: mpsc::Receiver<Ask>,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let alone = Arc::new(Semaphore::new(MAX_ALONE));
    while let Some(ask) = requests.recv().await {
        let (services, registry) = (Rc::clone(&services), registry.clone());
        match ask {
            Ask::WebSocket { lines, url } => {
                let origin = ConnectionOrigin {
                    transport: Transport::RemoteWs,
                    remote_ready: Some(RemoteReady { websocket_url: url }),
                    pid: None,
                    immediate: None,
                };
                // The listener limits their number.
                actix::spawn(async move {
                    let (reading, writing) = tokio::io::split(lines);
                    connection::serve(reading, writing, origin, services, registry).await;
                });
            }
            Ask::Rpc { body, client, answer } => {
                let Ok(permit) = Arc::clone(&alone).try_acquire_owned() else {
                    let busy = wire::disconnect_notice("Too many requests at the same time");
                    // The client may have disconnected.
                    answer.send(RpcAnswer::Reply(busy)).ok();
                    continue;
                };
                actix::spawn(async move {
                    let reply = alone_answer(&body, client.as_deref(), &services, &registry).await;
                    if answer.send(reply).is_err() {
                        services.sessions.metrics.unread_answers.add(1);
                    }
                    drop(permit);
                });
            }
        }
    }
}

async fn alone_answer(
    body: &Bytes,
    client: Option<&str>,
    services: &Rc<Services>,
    registry: &Addr<Registry>,
) -> RpcAnswer {
    match connection::answer_single_request(body, client, services, registry).await {
        Ok(Some(reply)) => RpcAnswer::Reply(reply),
        // The listener accepts no blank body.
        Ok(None) => {
            RpcAnswer::Reply(wire::disconnect_notice("Failed to parse request: it is blank"))
        }
        Err(connection::UnknownClient) => RpcAnswer::UnknownClient,
    }
}

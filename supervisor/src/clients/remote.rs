//! Serves the clients of remote control like those of the socket.

use super::connection::{self, ConnectionOrigin};
use crate::events::client_registry::{Client, Transport};
use crate::methods::{self, Caller};
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use actix::Addr;
use bytes::Bytes;
use quackd_remote::{Ask, Page, RpcAnswer};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::interval;

/// Maximum number of concurrent requests without a connection, including those of disconnected clients.
const MAX_ALONE: usize = 256;

/// Interval at which the use of a token by a connected page is recorded.
const USE_INTERVAL: Duration = Duration::from_secs(24 * 3600);

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
            Ask::Code { code, agent, answer } => {
                // The listener limits their number.
                actix::spawn(async move {
                    // The client may have disconnected.
                    answer.send(services.remote.exchange(&code, agent).await).ok();
                });
            }
            Ask::SignOut { page, answer } => {
                // The listener limits their number.
                actix::spawn(async move {
                    let revoked = services.remote.revoke_pages(Some(&page.id)).await;
                    // The client may have disconnected.
                    answer.send(revoked.map(drop).map_err(|error| error.to_string())).ok();
                });
            }
            Ask::WebSocket { lines, url, page } => {
                let of_page = page.clone();
                let origin = ConnectionOrigin {
                    transport: Transport::RemoteWs,
                    websocket_url: Some(url),
                    pid: None,
                    immediate: None,
                    page,
                };
                // The listener limits their number.
                actix::spawn(async move {
                    let (reading, writing) = tokio::io::split(lines);
                    let serving =
                        connection::serve(reading, writing, origin, Rc::clone(&services), registry);
                    tokio::pin!(serving);
                    // A page may be connected for longer than an unused token is valid. The first tick is at once.
                    let mut uses = interval(USE_INTERVAL);
                    loop {
                        tokio::select! {
                            () = &mut serving => break,
                            _ = uses.tick() => note_use(of_page.as_ref(), &services),
                        }
                    }
                    note_use(of_page.as_ref(), &services);
                });
            }
            Ask::Rpc { body, client, page, answer } => {
                note_use(page.as_ref(), &services);
                let Ok(permit) = Arc::clone(&alone).try_acquire_owned() else {
                    let busy = wire::disconnect_notice("Too many requests at the same time");
                    // The client may have disconnected.
                    answer.send(RpcAnswer::Reply(busy)).ok();
                    continue;
                };
                actix::spawn(async move {
                    let reply =
                        alone_answer(&body, client.as_deref(), page, &services, &registry).await;
                    if answer.send(reply).is_err() {
                        services.sessions.metrics.unread_answers.add(1);
                    }
                    drop(permit);
                });
            }
        }
    }
}

/// Records that a page connected.
fn note_use(page: Option<&Page>, services: &Rc<Services>) {
    if let Some(page) = page.cloned() {
        let services = Rc::clone(services);
        actix::spawn(async move { services.remote.page_used(&page).await });
    }
}

/// Answers one HTTP request, which has no connection. `client` is the id of the WebSocket client that sends the request.
async fn alone_answer(
    body: &Bytes,
    client: Option<&str>,
    page: Option<Page>,
    services: &Rc<Services>,
    registry: &Addr<Registry>,
) -> RpcAnswer {
    let client = match client {
        Some(id) => match services.clients.get(id) {
            // The request must have the token of the WebSocket, because rights differ.
            Some(client)
                if client.transport == Transport::RemoteWs
                    && client.page.get() == page.as_ref() =>
            {
                client
            }
            _ => return RpcAnswer::UnknownClient,
        },
        None => match Client::new(Transport::RemoteHttp, None) {
            Ok(client) => {
                if let Some(page) = page {
                    // A new client has none yet.
                    client.page.set(page).ok();
                }
                client
            }
            Err(error) => return RpcAnswer::Reply(wire::disconnect_notice(&error.to_string())),
        },
    };

    let request = match wire::parse(body) {
        Ok(Some(request)) => request,
        // The listener accepts no blank body.
        Ok(None) => {
            let why = "Failed to parse request: it is blank";
            return RpcAnswer::Reply(wire::disconnect_notice(why));
        }
        Err(reply) => {
            services.sessions.metrics.bad_lines.add(1);
            return RpcAnswer::Reply(reply);
        }
    };

    let caller = Caller::new(Rc::clone(services), registry.clone(), client);
    let reply = methods::answer(request, &caller).await;
    caller.client.replied();
    RpcAnswer::Reply(reply)
}

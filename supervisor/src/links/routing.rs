//! Connections that the router passes on: finds the session of each, and its proxy.

use crate::registry::{LinkNames, Named, Registry, TakeSnapshot};
use crate::session::actor::TellSession;
use crate::session::network::{NetworkActor, TellNetwork, close_elsewhere};
use crate::session::services::SessionServices;
use actix::Addr;
use quackd_ipc::descriptors::{receive_with_descriptors, send_with_descriptors};
use quackd_ipc::sockets::is_tcp_connection;
use quackd_protocol::network::{MAX_PACKET_BYTES, RouteAnswer, RouteAsk, RouteRefusal};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

#[expect(
    deprecated,
    reason = "the other function is unsafe, for types that change their descriptor"
)]
pub(super) fn watch(pair: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pair, Interest::READABLE)
}

/// Serves requests of one process until its end of the pair is closed.
pub(super) async fn serve(
    pair: AsyncFd<OwnedFd>,
    sessions: Rc<SessionServices>,
    registry: Addr<Registry>,
) -> io::Result<()> {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    loop {
        let mut ready = pair.readable().await?;
        let mut received = Vec::new();
        match receive_with_descriptors(pair.get_ref(), &mut packet, 1, &mut received) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                let ask = serde_json::from_slice(packet.get(..n).unwrap_or_default());
                let client = received.pop();
                let (Ok(RouteAsk { id, name, port }), Some(client)) = (ask, client) else {
                    return Err(io::Error::other("a request that is not understood"));
                };
                if !is_tcp_connection(&client) {
                    return Err(io::Error::other("a descriptor other than a connection"));
                }
                let result = pass_on(&name, port, client, (&sessions, &registry)).await;
                let answer = serde_json::to_vec(&RouteAnswer { id, result })?;
                match send_with_descriptors(pair.get_ref(), &answer, &[]) {
                    Err(error) if has_ended(&error) => return Ok(()),
                    sent => drop(sent?),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if has_ended(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Whether the process has ended, perhaps with unread answers.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Passes a connection on to the proxy of the session with this name.
async fn pass_on(
    name: &str,
    port: u16,
    client: OwnedFd,
    (sessions, registry): (&SessionServices, &Addr<Registry>),
) -> Result<(), RouteRefusal> {
    let to = match registry.send(TakeSnapshot).await.map(|snapshot| snapshot.link_names()) {
        Ok(names) => proxy_of(name, &names, sessions).await,
        // The daemon is overloaded.
        Err(_full) => Err(RouteRefusal::Busy),
    };
    let network = match to {
        Ok(network) => network,
        Err(refusal) => {
            close_elsewhere(client);
            return Err(refusal);
        }
    };
    let (reply, routed) = oneshot::channel();
    // An actor that has ended drops the connection, which the router still has.
    network.send(TellNetwork::Route { port, client, reply }).await.ok();
    routed.await.unwrap_or(Err(RouteRefusal::NoWorker))
}

async fn proxy_of(
    name: &str,
    names: &LinkNames,
    sessions: &SessionServices,
) -> Result<Addr<NetworkActor>, RouteRefusal> {
    let id = match names.find(name) {
        Named::One(id) => id,
        Named::Several => return Err(RouteRefusal::Ambiguous),
        Named::Nothing => return Err(RouteRefusal::NoSession),
    };
    let entry = sessions.table.get(&id).ok_or(RouteRefusal::NoWorker)?;
    let (reply, opened) = oneshot::channel();
    entry.handle.send(TellSession::OpenNetwork(reply)).await.ok();
    opened.await.map_err(|_no_worker| RouteRefusal::NoWorker)
}

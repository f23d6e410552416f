//! Connections that the router passes on: finds the session of each, and its proxy.

use crate::registry::{LinkNames, Named, Registry, RegistrySnapshot, TakeSnapshot};
use crate::session::actors::ActorTable;
use crate::session::network::{ForeignSocket, Route, close_pair_elsewhere};
use crate::session::worker::OpenNetwork;
use actix::Addr;
use quackd_ipc::descriptors::{MAX_DESCRIPTORS, receive_with_descriptors, send_with_descriptors};
use quackd_ipc::sockets::is_tcp_connection;
use quackd_protocol::network::{MAX_PACKET_BYTES, RouteAnswer, RouteAsk, RouteRefusal};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The supervisor's end of the pair to a router.
pub(super) struct RouterPair(Option<AsyncFd<OwnedFd>>);

impl RouterPair {
    #[expect(
        deprecated,
        reason = "the other function is unsafe, for types that change their descriptor"
    )]
    pub(super) fn watch(pair: OwnedFd) -> io::Result<Self> {
        Ok(Self(Some(AsyncFd::with_interest(pair, Interest::READABLE)?)))
    }
}

impl Drop for RouterPair {
    fn drop(&mut self) {
        if let Some(pair) = self.0.take() {
            close_pair_elsewhere(pair.into_inner());
        }
    }
}

/// Serves requests of one process until its end of the pair is closed. `listener` is the address of links.
pub(super) async fn serve(
    pair: RouterPair,
    listener: SocketAddr,
    actors: Rc<ActorTable>,
    registry: Addr<Registry>,
) -> io::Result<()> {
    // Empty only while it is dropped.
    let Some(pair) = &pair.0 else { return Ok(()) };
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let mut names = NameCache::default();
    loop {
        let mut ready = pair.readable().await?;

        let mut received = Vec::new();
        let read =
            receive_with_descriptors(pair.get_ref(), &mut packet, MAX_DESCRIPTORS, &mut received);
        let mut received: Vec<ForeignSocket> =
            received.into_iter().map(ForeignSocket::new).collect();

        match read {
            Ok(0) => return Ok(()),
            Ok(n) => {
                let ask = serde_json::from_slice(packet.get(..n).unwrap_or_default());
                // Exactly one descriptor. The others are closed.
                let client = received.pop().filter(|_| received.is_empty());
                let (Ok(RouteAsk { id, name, port }), Some(client)) = (ask, client) else {
                    return Err(io::Error::other("a request that is not understood"));
                };
                // The router is hostile and could pass on any descriptor.
                if !client.get().is_some_and(|client| is_accepted_by(client, listener)) {
                    return Err(io::Error::other("a descriptor other than a connection of a link"));
                }

                let result = pass_on(&name, port, client, &mut names, &actors, &registry).await;
                let answer = serde_json::to_vec(&RouteAnswer { id, result })?;
                match send_with_descriptors(pair.get_ref(), &answer, &[]) {
                    // The process ended while its request was served, which is not a violation.
                    Err(error) if has_ended(&error) => return Ok(()),
                    sent => drop(sent?),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            // A signal interrupted the call: the next round receives again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if has_ended(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether a descriptor is a connection that came in at this address.
fn is_accepted_by(client: &OwnedFd, listener: SocketAddr) -> bool {
    let local = rustix::net::getsockname(client).ok();
    let local = local.and_then(|local| SocketAddr::try_from(local).ok());
    is_tcp_connection(client) && local == Some(listener)
}

/// Returns whether the process has ended, perhaps with unread answers.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Names of the sessions, kept until a session changes, because any program of this machine can ask
/// for one at any rate.
#[derive(Debug, Default)]
struct NameCache(Option<(RegistrySnapshot, LinkNames)>);

impl NameCache {
    async fn names(&mut self, registry: &Addr<Registry>) -> Option<&LinkNames> {
        let now = registry.send(TakeSnapshot).await.ok()?;
        if !self.0.as_ref().is_some_and(|(known, _)| known.is_same(&now)) {
            let names = now.link_names();
            self.0 = Some((now, names));
        }
        self.0.as_ref().map(|(_, names)| names)
    }
}

/// Passes a connection on to the proxy of the session with this name.
async fn pass_on(
    name: &str,
    port: u16,
    client: ForeignSocket,
    names: &mut NameCache,
    actors: &ActorTable,
    registry: &Addr<Registry>,
) -> Result<(), RouteRefusal> {
    // Without a registry the daemon is stopping.
    let names = names.names(registry).await.ok_or(RouteRefusal::Busy)?;
    let id = match names.find(name) {
        Named::One(id) => id,
        Named::Several => return Err(RouteRefusal::Ambiguous),
        Named::Nothing => return Err(RouteRefusal::NoSession),
    };

    let actors = actors.get(&id).ok_or(RouteRefusal::NoWorker)?;
    let network = actors.worker.send(OpenNetwork).await.ok().flatten();
    let network = network.ok_or(RouteRefusal::NoWorker)?;
    // An actor that has ended drops the connection, which the router still has.
    network.send(Route { port, client }).await.unwrap_or(Err(RouteRefusal::NoWorker))
}

//! Servers of the session for programs of this machine: listeners on 127.0.0.1 that lead to one, and connections that the
//! router has accepted.

use crate::proxy::Proxy;
use crate::reply::answer;
use quackd_ipc::descriptors::receive_with_descriptors;
use quackd_protocol::limits::MAX_FORWARDS_PER_SESSION;
use quackd_protocol::network::{ForwardError, MAX_PACKET_BYTES, RoutedPacket};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Routed connections for which the worker is asked at the same time. Others wait, so that forwards and requests of
/// commands find room among those that a worker accepts.
const MAX_ROUTED_CONNECTING: usize = 32;

/// Open routed connections of a session. Their places are separate: any program of the machine can keep some open, and
/// commands need theirs.
const MAX_ROUTED_OPEN: usize = 256;

/// Open forwards by id.
#[derive(Debug, Default)]
pub(crate) struct Forwards(HashMap<u64, JoinHandle<()>>);

impl Forwards {
    /// Listens on a port of this machine. Returns the port.
    pub(crate) fn open(
        &mut self,
        id: u64,
        port: u16,
        local: u16,
        proxy: &Rc<Proxy>,
    ) -> Result<u16, ForwardError> {
        if MAX_FORWARDS_PER_SESSION <= self.0.len() {
            return Err(ForwardError::Failed);
        }

        let listener = listen(local).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => ForwardError::InUse,
            io::ErrorKind::PermissionDenied => ForwardError::Privileged,
            _ => ForwardError::Failed,
        })?;

        let bound = listener.local_addr().map_err(|_error| ForwardError::Failed)?.port();
        self.0.insert(id, tokio::task::spawn_local(serve(listener, port, Rc::clone(proxy))));
        Ok(bound)
    }

    /// Stops listening. Its connections end too.
    pub(crate) fn close(&mut self, id: u64) {
        if let Some(task) = self.0.remove(&id) {
            task.abort();
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves one forward. Owns its connections, so that they end with the forward.
async fn serve(listener: TcpListener, port: u16, proxy: Rc<Proxy>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
        };
        let Ok((client, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };

        let Some(slot) = proxy.slot() else { continue };
        let proxy = Rc::clone(&proxy);
        connections.spawn_local(async move {
            if let Some(server) = proxy.pair.connect(port).await {
                copy(client, server).await;
            }
            drop(slot);
        });
    }
}

async fn copy(mut client: TcpStream, mut server: TcpStream) {
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    // A broken connection ends for both sides.
    copy_bidirectional(&mut client, &mut server).await.ok();
}

/// Serves connections that the supervisor passes on, until it closes the pair.
pub(crate) async fn serve_routed(socket: AsyncFd<OwnedFd>, proxy: Rc<Proxy>) {
    let connecting = Rc::new(Semaphore::new(MAX_ROUTED_CONNECTING));
    let places = Arc::new(Semaphore::new(MAX_ROUTED_OPEN));
    let mut packet = vec![0; MAX_PACKET_BYTES];
    loop {
        let Ok(mut ready) = socket.readable().await else { return };
        let mut sockets = Vec::new();
        match receive_with_descriptors(socket.get_ref(), &mut packet, 1, &mut sockets) {
            Ok(0) => return,
            Ok(n) => {
                let packet = serde_json::from_slice(packet.get(..n).unwrap_or_default());
                let (Ok(RoutedPacket { port }), Some(client)) = (packet, sockets.pop()) else {
                    continue;
                };
                // Without a place it is closed.
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };

                let (connecting, proxy) = (Rc::clone(&connecting), Rc::clone(&proxy));
                // It ends with the process, which ends with the worker.
                tokio::task::spawn_local(async move {
                    routed(client, port, &proxy, &connecting).await;
                    drop(place);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_broken) => return,
        }
    }
}

/// Serves one connection. Its first request is still unread.
async fn routed(client: OwnedFd, port: u16, proxy: &Rc<Proxy>, connecting: &Semaphore) {
    let client = StdStream::from(client);
    // The router has set this already.
    let Ok(client) = client.set_nonblocking(true).and_then(|()| TcpStream::from_std(client)) else {
        return;
    };

    // Bounds the connections that wait for the worker.
    let permit = connecting.acquire().await;
    let server = proxy.pair.connect(port).await;
    drop(permit);

    match server {
        Some(server) => copy(client, server).await,
        None => {
            let text = format!(
                "quackd: nothing listens on port {port} of the loopback of this session: start the server, or check its \
                 port. `quack ps` lists servers\n"
            );
            // The client may be gone.
            let _sent = answer(client, "502 Bad Gateway", "", &text).await;
        }
    }
}

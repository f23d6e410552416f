//! Forwarded ports: listeners on 127.0.0.1 of this machine that lead to a server of the session.

use crate::proxy::Proxy;
use quackd_protocol::limits::MAX_FORWARDS_PER_SESSION;
use quackd_protocol::network::ForwardError;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Open forwards by id.
#[derive(Debug, Default)]
pub(crate) struct Forwards(HashMap<u64, JoinHandle<()>>);

impl Forwards {
    /// Listens on a port of this machine. Returns the port.
    pub(crate) fn open(
        &mut self,
        id: u64,
        (port, local): (u16, u16),
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

/// Owns its connections, so that they end with the forward.
async fn serve(listener: TcpListener, port: u16, proxy: Rc<Proxy>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
        };
        let Ok((mut client, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let Some(slot) = proxy.slot() else { continue };
        let proxy = Rc::clone(&proxy);
        connections.spawn_local(async move {
            if let Some(mut server) = proxy.pair.connect(port).await {
                client.set_nodelay(true).ok();
                server.set_nodelay(true).ok();
                // A broken connection ends for both sides.
                drop(copy_bidirectional(&mut client, &mut server).await);
            }
            drop(slot);
        });
    }
}

//! The worker's end of the pair: first to the supervisor, which gets the sockets of the network namespace, then to the
//! session's network proxy, a process outside.
//!
//! The proxy reports what it refuses before the command gets the refusal, so that the end of a call can name it. It also
//! asks for connections to servers of the session, for forwarded ports.

use crate::confinement_result::ConfinementResult;
use crate::ssh_agent::{self, KnownHosts};
use crate::start_error::WorkerStartError;
use quackd_ipc::descriptors::send_with_descriptors;
use quackd_process::complain;
use quackd_protocol::network::{FromWorkerPacket, MAX_PACKET_BYTES, SocketKind, ToWorkerPacket};
use quackd_protocol::policy::NetworkMode;
use quackd_protocol::worker::Start;
use quackd_tools::{Attempts, RefusedRequest};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Time for a connection to a server of the session.
const CONNECT_TIME: Duration = Duration::from_secs(2);

/// Most requests for connections that wait. More are refused.
const MAX_CONNECTING: usize = 64;

/// Most packets that are read at once.
const MAX_BATCH: usize = 1024;

/// Variables that end retries, since pip, cargo and uv also retry a refusal, for 8 to 11 s. And npm's search for a newer
/// npm, which would make each npm command an attempt to use the network.
const NO_RETRIES: [(&str, &str); 4] = [
    ("CARGO_NET_RETRY", "0"),
    ("PIP_RETRIES", "0"),
    ("UV_HTTP_RETRIES", "0"),
    ("npm_config_update_notifier", "false"),
];

/// Variables of commands without the machine's network: no retries, and the proxy if it is served, by its port. Names that
/// `listed` has in any case are left out: the user has chosen their values.
pub(crate) fn variables(
    listed: &[(String, String)],
    proxy: Option<u16>,
) -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = NO_RETRIES.map(|(name, value)| (name, value.to_owned())).into();
    if let Some(port) = proxy {
        let proxy = format!("http://127.0.0.1:{port}");
        // Programs differ in the spelling that they read.
        let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"];
        all.extend(names.map(|name| (name, proxy.clone())));
        let near = ["NO_PROXY", "no_proxy"];
        all.extend(near.map(|name| (name, "localhost,127.0.0.1,::1".to_owned())));
        all.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    }
    all.retain(|(name, _)| !listed.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    all
}

/// Passes the sockets of the network namespace to the supervisor, and reports it for the hello. Called in stage 0, before
/// the hello.
pub(crate) fn hand_over(
    pair: Option<OwnedFd>,
    confined: &mut ConfinementResult,
    start: &Start,
    known_hosts: &KnownHosts,
) -> Result<Option<OwnedFd>, WorkerStartError> {
    if confined.private_network.is_none() {
        return Ok(pair);
    }
    let Some(pair) = pair else {
        if start.sandbox.policy.network_mode() == NetworkMode::Off {
            return Ok(None);
        }
        let why = "a list of hosts needs a socket of the supervisor, which worker.launcher does not pass on";
        return Err(WorkerStartError::confinement(why));
    };

    let agent = ssh_agent::open_blocking(confined, start, known_hosts);
    let sockets =
        confined.private_network.as_mut().map(|network| std::mem::take(&mut network.sockets));
    let sockets = sockets.unwrap_or_default().into_iter().chain(agent);
    let (kinds, sockets): (Vec<SocketKind>, Vec<OwnedFd>) = sockets.unzip();
    let borrowed: Vec<BorrowedFd<'_>> = sockets.iter().map(OwnedFd::as_fd).collect();
    send(&pair, &FromWorkerPacket::Sockets(kinds), &borrowed)
        .map_err(WorkerStartError::at("cannot pass on the sockets of the network"))?;
    confined.report.hosts = true;
    Ok(Some(pair))
}

fn send(
    pair: &impl AsFd,
    packet: &FromWorkerPacket,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let packet = serde_json::to_vec(packet)?;
    send_with_descriptors(pair, &packet, descriptors).map(drop)
}

/// The pair, read both by a task and at the end of each call.
#[derive(Debug)]
pub(crate) struct ProxyLink {
    pair: Arc<OwnedFd>,
    /// `None` if no server of the session can exist: the loopback is the machine's, whose servers are not for commands.
    connecting: Option<mpsc::Sender<(u64, u16)>>,
}

/// Starts to serve the pair, and makes the end of each call read it first. `has_servers`: the proxy may connect to
/// servers of this loopback. False if commands cannot listen.
///
/// # Errors
/// The runtime cannot watch the pair.
pub(crate) fn serve(pair: OwnedFd, attempts: &Arc<Attempts>, has_servers: bool) -> io::Result<()> {
    let pair = Arc::new(pair);
    let (connecting, requests) = mpsc::channel(MAX_CONNECTING);
    let connecting = has_servers.then_some(connecting);
    let link = Arc::new(ProxyLink { pair: Arc::clone(&pair), connecting });
    attempts.read_first(Box::new({
        let link = Arc::clone(&link);
        move |attempts| link.read(attempts)
    }));
    actix::spawn(connect_all(requests, Arc::clone(&pair)));

    let watched = watch(pair)?;
    let attempts = Arc::clone(attempts);
    actix::spawn(async move {
        while let Ok(mut ready) = watched.readable().await {
            if !link.read(&attempts) {
                return;
            }
            ready.clear_ready();
        }
    });
    Ok(())
}

#[expect(
    deprecated,
    reason = "the other function is unsafe, for types that change their descriptor"
)]
fn watch(pair: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    AsyncFd::with_interest(pair, Interest::READABLE)
}

impl ProxyLink {
    /// Reads what has arrived. Returns false at the end.
    fn read(&self, attempts: &Attempts) -> bool {
        let mut packet = [0; MAX_PACKET_BYTES];
        for _ in 0..MAX_BATCH {
            match recv(&self.pair, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((n, _)) => self.handle(packet.get(..n).unwrap_or_default(), attempts),
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn handle(&self, packet: &[u8], attempts: &Attempts) {
        match serde_json::from_slice(packet) {
            Ok(ToWorkerPacket::Refused { host, port, why, address, waited_s }) => {
                let why = Some(why);
                let request =
                    RefusedRequest { port, why, address, waited_s, ..RefusedRequest::default() };
                attempts.refused(&host, request);
            }
            Ok(ToWorkerPacket::Approved { host, port, scope }) => {
                let approved = Some(scope);
                let request = RefusedRequest { port, approved, ..RefusedRequest::default() };
                attempts.refused(&host, request);
            }
            Ok(ToWorkerPacket::CredentialRefused(refused)) => attempts.credential_refused(&refused),
            Ok(ToWorkerPacket::Connect { id, port }) => {
                let connecting = self.connecting.as_ref();
                if connecting.is_none_or(|connecting| connecting.try_send((id, port)).is_err()) {
                    // If the pair is full or closed, the proxy gives up by itself.
                    send(&self.pair, &FromWorkerPacket::NotConnected { id }, &[]).ok();
                }
            }
            Err(_) => complain("the network proxy sent a packet that is not understood"),
        }
    }
}

/// Connects to servers of the session, several at a time.
async fn connect_all(mut requests: mpsc::Receiver<(u64, u16)>, pair: Arc<OwnedFd>) {
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTING));
    while let Some((id, port)) = requests.recv().await {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let pair = Arc::clone(&pair);
        actix::spawn(async move {
            let sent = match timeout(CONNECT_TIME, connect(port)).await {
                Ok(Ok(stream)) => {
                    send(&pair, &FromWorkerPacket::Connected { id }, &[stream.as_fd()])
                }
                _ => send(&pair, &FromWorkerPacket::NotConnected { id }, &[]),
            };
            // If the pair is full or closed, the proxy gives up by itself.
            sent.ok();
            drop(slot);
        });
    }
}

async fn connect(port: u16) -> io::Result<TcpStream> {
    // Some servers listen on one of the two only. The first address that answers counts.
    let addresses: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    TcpStream::connect(&addresses[..]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_the_user_has_listed_stay() {
        let listed = [
            ("https_proxy".to_owned(), "x".to_owned()),
            ("PIP_RETRIES".to_owned(), "3".to_owned()),
        ];
        let names = |listed: &[_], proxy| -> Vec<_> {
            variables(listed, proxy).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(
            names(&[], None),
            ["CARGO_NET_RETRY", "PIP_RETRIES", "UV_HTTP_RETRIES", "npm_config_update_notifier"]
        );
        let expected = [
            "CARGO_NET_RETRY",
            "UV_HTTP_RETRIES",
            "npm_config_update_notifier",
            "HTTP_PROXY",
            "http_proxy",
            "NO_PROXY",
            "no_proxy",
            "NODE_USE_ENV_PROXY",
        ];
        assert_eq!(names(&listed, Some(1)), expected);
    }
}

//! Copies bytes between a command and a host, counts them, and ends when a rule is removed or nothing happens for long.

use crate::dial::{Route, Server};
use crate::proxy::{Admitted, Proxy, Request, Traffic};
use quackd_network::hello::{self, Hello, MAX_HELLO};
use quackd_network::http::{BadChunks, Body, Chunks};
use quackd_policy::hosts::Host;
use quackd_protocol::network::{DenyReason, FailReason, MACHINE_HOST, Verdict};
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Time without a byte after which a connection is closed.
pub(crate) const IDLE: Duration = Duration::from_secs(60 * 60);

/// The same after the command has closed its side of a request, and after it has sent a second request, which this proxy
/// does not pass on.
const IDLE_CLOSED: Duration = Duration::from_secs(60);
const IDLE_REUSED: Duration = Duration::from_secs(10);

/// Time for the first message of TLS.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Sizes of a buffer: at first, so that idle connections are small, and after a read that filled it. All connections of a
/// session have at most 1,024 × 2 buffers, of which [`LARGE_LEFT`] are large.
const SMALL: usize = 8 * 1024;
const MEDIUM: usize = 16 * 1024;
const LARGE: usize = 256 * 1024;

/// Large buffers that may still be made.
static LARGE_LEFT: Semaphore = Semaphore::const_new(32);

/// Ports whose traffic is read.
pub(crate) const HTTP: u16 = 80;
pub(crate) const TLS: u16 = 443;

/// Start of the answer of a server that switches to another protocol.
const SWITCHED: &[u8] = b"HTTP/1.1 101";

/// Bytes of a connection so far.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) sent: Cell<u64>,
    pub(crate) received: Cell<u64>,
    last: Cell<Instant>,
}

/// Bytes that the command may send.
pub(crate) enum Upstream {
    /// Everything.
    All,
    /// Everything once the server has switched to another protocol, and nothing before.
    IfSwitched,
    /// The rest of the body of one request.
    Rest(BodyReader),
}

/// Error of one direction.
#[derive(Debug)]
enum PumpError {
    /// The input is broken.
    Read(io::Error),
    /// The output is broken.
    Write(io::Error),
}

/// Copies in both directions until the end, and reports it. `first` was read from the command already, and goes to the
/// host first.
pub(crate) async fn run(
    proxy: &Proxy,
    request: &Request,
    admitted: Admitted,
    mut client: TcpStream,
    server: Server,
    first: Vec<u8>,
    upstream: Upstream,
) {
    let started = Instant::now();
    let Server { stream: mut server, route } = server;

    // A program must not take half of an answer for all of it: until the end was copied, closing resets, also if this
    // process is killed.
    reset_on_close([&client, &server], true);

    let counts = Counts::new();
    let ends = ends(&server, route);

    let (ended, is_whole) = {
        let copying = copy_both(&mut client, &mut server, first, upstream, &counts);
        tokio::select! {
            // A removed rule comes first, even while bytes still arrive.
            biased;
            () = until_revoked(proxy, request, &admitted, ends) => {
                (Verdict::Failed(FailReason::RuleRemoved), false)
            }
            copied = copying => match copied {
                Ok(()) => (Verdict::Allowed, true),
                Err(_) if counts.sent.get() != 0 && counts.received.get() != 0 => {
                    (Verdict::Allowed, false)
                }
                Err(_) => (Verdict::Failed(FailReason::Broken), false),
            },
            () = until_idle(&counts, IDLE) => (Verdict::Failed(FailReason::Broken), false),
        }
    };

    if is_whole {
        reset_on_close([&client, &server], false);
    }
    drop((client, server));

    proxy.report(request, ended, admitted.rule, counts.traffic(started));
}

/// Resets a connection, so that the program sees an error and no end of the data.
pub(crate) fn reset(stream: TcpStream) {
    reset_on_close([&stream], true);
    drop(stream);
}

fn reset_on_close<const N: usize>(streams: [&TcpStream; N], resets: bool) {
    for stream in streams {
        // If this fails, the connection ends in the usual way.
        rustix::net::sockopt::set_socket_linger(stream, resets.then_some(Duration::ZERO)).ok();
    }
}

/// Addresses of a connection to the host itself.
pub(crate) type Ends = Option<(io::Result<SocketAddr>, io::Result<SocketAddr>)>;

pub(crate) fn ends(server: &TcpStream, route: Route) -> Ends {
    (route == Route::Direct).then(|| (server.local_addr(), server.peer_addr()))
}

/// Ends when the rules no longer allow the connection.
pub(crate) async fn until_revoked(
    proxy: &Proxy,
    request: &Request,
    admitted: &Admitted,
    ends: Ends,
) {
    let mut version = proxy.version.subscribe();
    let is_address_once = matches!(&ends, Some((_, Ok(peer)))
        if proxy.is_address_allowed_once(peer.ip(), request.port));
    // The rules may have changed while the host was dialed, so the first check comes before the first change.
    while is_allowed(proxy, request, admitted, is_address_once, &ends) {
        if version.changed().await.is_err() {
            return;
        }
    }
}

/// Whether the rules still allow the host, the dialled address, and traffic that is not read. A host or an address that the
/// user allowed once ends the connection only if a rule denies it or a setting turns the network off.
fn is_allowed(
    proxy: &Proxy,
    request: &Request,
    admitted: &Admitted,
    is_address_once: bool,
    ends: &Ends,
) -> bool {
    let is_raw_now = match proxy.decide(&request.host, request.port) {
        Ok(now) => now.raw,
        Err(DenyReason::NotListed) if admitted.is_once && proxy.counts_once() => admitted.raw,
        Err(_) => return false,
    };
    if admitted.raw && !is_raw_now && matches!(request.port, HTTP | TLS) {
        return false;
    }

    if matches!(&request.host, Host::Name(name) if name == MACHINE_HOST) {
        return true;
    }

    let Some(ends) = ends else { return true };
    let (Ok(local), Ok(peer)) = ends else { return false };

    // The kernel connects this machine's addresses from themselves. One may have become its own since the lookup.
    let is_own = |address| local.ip().to_canonical() == address;
    if !proxy.rules().refuses_address(peer.ip(), request.port, is_own) {
        return true;
    }

    let address = peer.ip().to_canonical();
    is_address_once
        && proxy.counts_once()
        && !is_own(address)
        && !proxy.denies_address(address, request.port)
}

pub(crate) async fn until_idle(counts: &Counts, limit: Duration) {
    loop {
        let left = limit.saturating_sub(counts.last.get().elapsed());
        if left.is_zero() {
            return;
        }
        sleep(left).await;
    }
}

async fn copy_both(
    client: &mut TcpStream,
    server: &mut TcpStream,
    first: Vec<u8>,
    upstream: Upstream,
    counts: &Counts,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();

    let sent_first = async {
        to_server.write_all(&first).await.map_err(PumpError::Write)?;
        counts.add(&counts.sent, &first);
        Ok(to_server)
    };

    match upstream {
        Upstream::All => {
            let up = async { pump(from_client, sent_first.await?, &counts.sent, counts).await };
            both(up, pump(from_server, to_client, &counts.received, counts)).await
        }
        // The server learns the end of the body by its length, and closes the connection after its answer.
        Upstream::Rest(body) => {
            let up = async {
                let sent = match sent_first.await {
                    Ok(to_server) => send_rest(body, &mut from_client, to_server, counts).await,
                    Err(error) => Err(error),
                };
                match sent {
                    // The server may answer before it has read the whole body.
                    Ok(()) | Err(PumpError::Write(_)) => watch(from_client, counts).await,
                    Err(PumpError::Read(error)) => error,
                }
            };
            let down = pump(from_server, to_client, &counts.received, counts);
            tokio::select! {
                biased;
                down = down => down.map_err(PumpError::into_io),
                error = up => Err(error),
            }
        }
        Upstream::IfSwitched => {
            let to_server = sent_first.await.map_err(PumpError::into_io)?;
            let is_switched = tokio::select! {
                biased;
                answer = read_switch(&mut from_server, &mut to_client, counts) => answer?,
                error = watch(&mut from_client, counts) => return Err(error),
            };

            let down = pump(from_server, to_client, &counts.received, counts);
            if is_switched {
                return both(pump(from_client, to_server, &counts.sent, counts), down).await;
            }

            // The next bytes of the client would be a request that was not checked.
            tokio::select! {
                biased;
                down = down => down.map_err(PumpError::into_io),
                error = watch(from_client, counts) => Err(error),
            }
        }
    }
}

/// Runs both directions until both have ended, or one is broken.
async fn both(
    up: impl Future<Output = Result<(), PumpError>>,
    down: impl Future<Output = Result<(), PumpError>>,
) -> io::Result<()> {
    let up = async {
        match up.await {
            Ok(()) => Ok(Ok(())),
            // The server may have answered before it stopped reading.
            Err(PumpError::Write(error)) => Ok(Err(error)),
            Err(PumpError::Read(error)) => Err(error),
        }
    };
    let down = async { down.await.map_err(PumpError::into_io) };

    let (up, ()) = tokio::try_join!(up, down)?;
    up
}

/// Passes on the first bytes of an answer. Returns whether the server switches to another protocol.
async fn read_switch(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    counts: &Counts,
) -> io::Result<bool> {
    let mut answer = Vec::with_capacity(SMALL);
    while answer.len() < SWITCHED.len() {
        let before = answer.len();
        if from.read_buf(&mut answer).await? == 0 {
            break;
        }

        let part = answer.get(before..).unwrap_or_default();
        to.write_all(part).await?;
        counts.add(&counts.received, part);
    }

    Ok(answer.starts_with(SWITCHED))
}

/// Waits for the error of a client that may send nothing more. Does not return while the server answers.
async fn watch(mut from: impl AsyncRead + Unpin, counts: &Counts) -> io::Error {
    let mut ignored = [0; 1024];
    let mut limit = IDLE;
    loop {
        let read = tokio::select! {
            read = from.read(&mut ignored), if limit != IDLE_CLOSED => read,
            () = until_idle(counts, limit) => return io::ErrorKind::TimedOut.into(),
        };

        match read {
            // A client that has closed its side is waited for less long.
            Ok(0) => limit = IDLE_CLOSED,
            // The start of another request. Some clients send it before they have read the answer.
            Ok(_) => limit = IDLE_REUSED,
            Err(error) => return error,
        }
    }
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self { sent: Cell::new(0), received: Cell::new(0), last: Cell::new(Instant::now()) }
    }

    /// Bytes so far, and the time since `started`.
    pub(crate) fn traffic(&self, started: Instant) -> Traffic {
        let (sent, received) = (self.sent.get(), self.received.get());
        Traffic { sent, received, took: started.elapsed() }
    }

    pub(crate) fn add(&self, count: &Cell<u64>, bytes: &[u8]) {
        count.set(count.get().saturating_add(length(bytes)));
        self.last.set(Instant::now());
    }
}

impl PumpError {
    fn into_io(self) -> io::Error {
        match self {
            Self::Read(error) | Self::Write(error) => error,
        }
    }
}

/// Copies until the end of the input, and then closes the output.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &Cell<u64>,
    counts: &Counts,
) -> Result<(), PumpError> {
    let mut buffer = vec![0; SMALL];
    let mut permit = None;
    loop {
        let n = from.read(&mut buffer).await.map_err(PumpError::Read)?;
        if n == 0 {
            return to.shutdown().await.map_err(PumpError::Write);
        }

        let part = buffer.get(..n).unwrap_or_default();
        to.write_all(part).await.map_err(PumpError::Write)?;
        counts.add(count, part);

        if n == buffer.len() && permit.is_none() {
            // The number of large buffers is limited, so another transfer gets a medium one.
            permit = LARGE_LEFT.try_acquire().ok();
            let larger = if permit.is_some() { LARGE } else { MEDIUM };
            buffer.resize(larger, 0);
        } else if n < SMALL && permit.take().is_some() {
            // The transfer is over, and another may need the large buffer.
            buffer = vec![0; SMALL];
        }
    }
}

/// Copies the rest of a body, and nothing that follows it: another request could be for another host.
async fn send_rest(
    mut left: BodyReader,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    counts: &Counts,
) -> Result<(), PumpError> {
    let mut buffer = vec![0; MEDIUM];
    while !left.is_done() {
        let n = from.read(&mut buffer).await.map_err(PumpError::Read)?;
        if n == 0 {
            return Err(PumpError::Read(io::ErrorKind::UnexpectedEof.into()));
        }

        let of_body = left.take(buffer.get(..n).unwrap_or_default());
        let of_body = of_body.map_err(|bad| PumpError::Read(io::Error::other(bad)))?;
        let part = buffer.get(..of_body).unwrap_or_default();

        to.write_all(part).await.map_err(PumpError::Write)?;
        counts.add(&counts.sent, part);
    }
    Ok(())
}

/// Finds the end of a body.
pub(crate) enum BodyReader {
    Length(u64),
    Chunked(Chunks, bool),
}

impl BodyReader {
    pub(crate) fn new(body: Body) -> Self {
        match body {
            Body::Length(length) => Self::Length(length),
            Body::Chunked => Self::Chunked(Chunks::default(), false),
        }
    }

    fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(_, true))
    }

    /// Returns how many of the bytes, from the first on, belong to the body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<usize, BadChunks> {
        match self {
            Self::Length(left) => {
                let n = length(bytes).min(*left);
                *left -= n;
                Ok(usize::try_from(n).unwrap_or_default())
            }
            Self::Chunked(_, true) => Ok(0),
            Self::Chunked(chunks, is_done) => {
                let (n, ended) = chunks.take(bytes)?;
                *is_done = ended;
                Ok(n)
            }
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// First bytes of a tunnel.
pub(crate) enum First<T> {
    /// They are for the requested host.
    Complete(T),
    /// They are for another host, or of another protocol.
    Other,
    /// The command closed the connection or sent nothing.
    Gone,
}

/// Reads the first message of TLS from a command. Its server name must be the host, unless the host is an address.
pub(crate) async fn tls_hello(
    client: &mut TcpStream,
    mut bytes: Vec<u8>,
    host: &Host,
) -> First<Vec<u8>> {
    let reading = async {
        loop {
            match hello::read(&bytes) {
                Hello::Complete(name) => return First::Complete((name, bytes)),
                Hello::Other => return First::Other,
                Hello::Incomplete if MAX_HELLO <= bytes.len() => return First::Other,
                Hello::Incomplete => {}
            }

            match client.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return First::Gone,
                Ok(_) => {}
            }
        }
    };

    let (name, bytes) = match timeout(HELLO_TIME, reading).await {
        Ok(First::Complete(read)) => read,
        Ok(First::Other) => return First::Other,
        Ok(First::Gone) | Err(_) => return First::Gone,
    };

    let is_same = match host {
        Host::Address(_) => true,
        Host::Name(_) => name.is_some_and(|name| Host::read(&name).as_ref() == Ok(host)),
    };
    if is_same { First::Complete(bytes) } else { First::Other }
}

#[cfg(test)]
mod tests;

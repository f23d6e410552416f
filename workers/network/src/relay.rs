//! Copies bytes between a command and a host, counts them, and ends when a rule is removed or nothing happens for long.

use crate::proxy::{Admitted, Proxy, Request, Traffic};
use quackd_network::hello::{self, Hello, MAX_HELLO};
use quackd_network::http::{BadChunks, Body, Chunks};
use quackd_policy::hosts::Host;
use quackd_protocol::network::{DenyReason, FailReason, Verdict};
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Time without a byte after which a connection is closed.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// Interval of checks for idle connections.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// Time for the first message of TLS.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Sizes of a buffer: at first, so that idle connections are small, and after a read that filled it.
const SMALL: usize = 8 * 1024;
const LARGE: usize = 128 * 1024;

/// Start of the answer of a server that switches to another protocol.
const SWITCHED: &[u8] = b"HTTP/1.1 101";

/// Bytes of a connection so far.
#[derive(Debug)]
struct Counts {
    sent: Cell<u64>,
    received: Cell<u64>,
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

/// Copies in both directions until the end, and reports it. `first` was read from the command already, and goes to the
/// host first.
pub(crate) async fn run(
    proxy: &Proxy,
    (request, admitted): (&Request, Admitted),
    (client, server): (TcpStream, TcpStream),
    (first, upstream): (Vec<u8>, Upstream),
) {
    let started = Instant::now();
    let counts =
        Counts { sent: Cell::new(0), received: Cell::new(0), last: Cell::new(Instant::now()) };
    let ended = {
        let copying = copy_both(client, server, first, upstream, &counts);
        tokio::select! {
            copied = copying => match copied {
                Ok(()) => Verdict::Allowed,
                Err(_) if counts.sent.get() != 0 && counts.received.get() != 0 => Verdict::Allowed,
                Err(_) => Verdict::Failed(FailReason::Broken),
            },
            () = until_revoked(proxy, request, admitted.is_once) => Verdict::Failed(FailReason::RuleRemoved),
            () = until_idle(&counts) => Verdict::Failed(FailReason::Broken),
        }
    };
    let traffic = Traffic {
        sent: counts.sent.get(),
        received: counts.received.get(),
        took: started.elapsed(),
    };
    proxy.report(request, ended, admitted.rule, traffic);
}

/// Ends when the rules no longer allow the request. What the user allowed once ends only if a rule denies it.
async fn until_revoked(proxy: &Proxy, request: &Request, is_once: bool) {
    let mut version = proxy.version.subscribe();
    loop {
        // The rules may have changed while the host was dialed.
        match proxy.decide(&request.host, request.port) {
            Ok(_) => {}
            Err(DenyReason::NotListed) if is_once => {}
            Err(_) => return,
        }
        if version.changed().await.is_err() {
            return;
        }
    }
}

async fn until_idle(counts: &Counts) {
    loop {
        sleep(IDLE_CHECK).await;
        if IDLE < counts.last.get().elapsed() {
            return;
        }
    }
}

async fn copy_both(
    mut client: TcpStream,
    mut server: TcpStream,
    first: Vec<u8>,
    upstream: Upstream,
    counts: &Counts,
) -> io::Result<()> {
    let (from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    if matches!(upstream, Upstream::IfSwitched) {
        to_server.write_all(&first).await?;
        let mut answer = vec![0; SMALL];
        let n = from_server.read(&mut answer).await?;
        let answer = answer.get(..n).unwrap_or_default();
        to_client.write_all(answer).await?;
        counts.sent.set(length(&first));
        counts.received.set(length(answer));
        let down = pump(from_server, to_client, &counts.received, counts);
        // Without a switch, what the client sends next would be a request that was not checked.
        if !answer.starts_with(SWITCHED) {
            return down.await;
        }
        let up = pump(from_client, to_server, &counts.sent, counts);
        let (up, down) = tokio::join!(up, down);
        return up.and(down);
    }
    let up = async {
        to_server.write_all(&first).await?;
        counts.sent.set(counts.sent.get() + length(&first));
        match upstream {
            Upstream::All | Upstream::IfSwitched => {
                pump(from_client, to_server, &counts.sent, counts).await
            }
            // The server learns the end of the body by its length, and closes the connection after its answer.
            Upstream::Rest(body) => send_rest(body, from_client, to_server, counts).await,
        }
    };
    let down = pump(from_server, to_client, &counts.received, counts);
    let (up, down) = tokio::join!(up, down);
    up.and(down)
}

/// Copies until the end of the input, and then closes the output.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &Cell<u64>,
    counts: &Counts,
) -> io::Result<()> {
    let mut buffer = vec![0; SMALL];
    loop {
        let n = match from.read(&mut buffer).await {
            Ok(0) => return to.shutdown().await,
            Ok(n) => n,
            Err(error) => {
                // The other side learns that no more comes.
                to.shutdown().await.ok();
                return Err(error);
            }
        };
        to.write_all(buffer.get(..n).unwrap_or_default()).await?;
        count.set(count.get().saturating_add(length(buffer.get(..n).unwrap_or_default())));
        counts.last.set(Instant::now());
        if n == buffer.len() && n < LARGE {
            buffer = vec![0; LARGE];
        }
    }
}

/// Copies the rest of a body, and nothing that follows it: another request could be for another host.
async fn send_rest(
    mut left: BodyReader,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    counts: &Counts,
) -> io::Result<()> {
    let mut buffer = vec![0; LARGE / 4];
    while !left.is_done() {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let of_body = left.take(buffer.get(..n).unwrap_or_default()).map_err(io::Error::other)?;
        let part = buffer.get(..of_body).unwrap_or_default();
        to.write_all(part).await?;
        counts.sent.set(counts.sent.get().saturating_add(length(part)));
        counts.last.set(Instant::now());
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

    /// Number of the first bytes that belong to the body.
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

/// Reads the first message of TLS from a command. Returns the bytes if its server name is the host, or if the host is an
/// address. `None` for other protocols and names.
pub(crate) async fn tls_hello(
    client: &mut TcpStream,
    mut bytes: Vec<u8>,
    host: &Host,
) -> Option<Vec<u8>> {
    let reading = async {
        loop {
            match hello::read(&bytes) {
                Hello::Complete(name) => return Some((name, bytes)),
                Hello::Other => return None,
                Hello::Incomplete if MAX_HELLO <= bytes.len() => return None,
                Hello::Incomplete => {}
            }
            if client.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
    };
    let (name, bytes) = timeout(HELLO_TIME, reading).await.ok()??;
    let is_same = match host {
        Host::Address(_) => true,
        Host::Name(_) => name.is_some_and(|name| Host::read(&name).as_ref() == Ok(host)),
    };
    is_same.then_some(bytes)
}

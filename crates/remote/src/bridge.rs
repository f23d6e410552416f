//! A WebSocket on one side, a stream of lines on the other: a remote client becomes one like any other.
//!
//! Two futures, one for each direction, so that a client that does not read its events can still send, and
//! a daemon that does not read for a moment can still answer. Each direction waits for the other end to take
//! what it has: nothing is queued here but the pipe.

use crate::Ask;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use quackd_protocol::limits::{
    CLIENT_WRITE_TIMEOUT, MAX_LINE_BYTES, REMOTE_PING_INTERVAL, REMOTE_SILENCE,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

/// What lies between the thread of remote control and the actors', in bytes and each way.
const PIPE_BYTES: usize = 64 * 1024;

/// How long the client has for its part of the closing handshake, and the connection for becoming one.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
const UPGRADE_LIMIT: Duration = Duration::from_secs(5);

/// What ends a client from our side.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    /// The token that it came with is no longer the one.
    pub(crate) revoked: CancellationToken,
    /// The door is closed or moved.
    pub(crate) epoch: CancellationToken,
}

/// Serves one client from its handshake to its end.
pub(crate) async fn serve(
    upgrade: OnUpgrade,
    url: String,
    asks: mpsc::Sender<Ask>,
    connected: Arc<AtomicUsize>,
    ends: Ends,
) {
    let Ok(Ok(upgraded)) = timeout(UPGRADE_LIMIT, upgrade).await else { return };
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_LINE_BYTES))
        .max_frame_size(Some(MAX_LINE_BYTES));
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (ours, lines) = tokio::io::duplex(PIPE_BYTES);
    if asks.send(Ask::WebSocket { lines, url }).await.is_err() {
        return;
    }
    connected.fetch_add(1, Ordering::Relaxed);
    between(socket, ours, ends).await;
    connected.fetch_sub(1, Ordering::Relaxed);
}

/// Why the socket is closed from our side.
#[derive(Debug, Clone, Copy)]
struct Why(CloseCode, &'static str);

async fn between<S, P>(socket: WebSocketStream<S>, pipe: P, ends: Ends)
where
    S: AsyncRead + AsyncWrite + Unpin,
    P: AsyncRead + AsyncWrite + Unpin,
{
    let (sink, stream) = socket.split();
    let (from_daemon, to_daemon) = tokio::io::split(pipe);
    // One `pong` for each `ping`, as upstream; a client that sends more of them than it takes waits.
    let (pong, pongs) = mpsc::channel(8);
    let (end, ended) = oneshot::channel();
    let incoming = incoming(stream, to_daemon, pong);
    let outgoing = outgoing(sink, from_daemon, pongs, ended, ends);
    tokio::pin!(incoming, outgoing);
    let why = tokio::select! {
        why = &mut incoming => why,
        () = &mut outgoing => return,
    };
    // Gone only if the other half has ended too.
    end.send(why).ok();
    outgoing.await;
}

/// Frames to lines, until the client closes or does something that it must not.
async fn incoming(
    mut stream: impl Stream<Item = Result<Message, Error>> + Unpin,
    mut to_daemon: impl AsyncWrite + Unpin,
    pong: mpsc::Sender<()>,
) -> Why {
    const DONE: Why = Why(CloseCode::Normal, "");
    loop {
        let message = match timeout(REMOTE_SILENCE, stream.next()).await {
            Err(_elapsed) => return Why(CloseCode::Away, "no sign of life"),
            Ok(None) => return DONE,
            Ok(Some(Err(Error::Capacity(_)))) => return Why(CloseCode::Size, "message too large"),
            Ok(Some(Err(Error::Utf8(_)))) => return Why(CloseCode::Invalid, "not UTF-8"),
            Ok(Some(Err(Error::Protocol(_)))) => return Why(CloseCode::Protocol, "bad frame"),
            Ok(Some(Err(_))) => return DONE,
            Ok(Some(Ok(message))) => message,
        };
        let text: Bytes = match message {
            Message::Text(text) => text.into(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return DONE,
            // Pings are answered below us; either is a sign of life, and that is all.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        if text == b"ping" {
            if pong.send(()).await.is_err() {
                return DONE;
            }
            continue;
        }
        let line = one_line(text);
        if to_daemon.write_all(&line).await.is_err() {
            return Why(CloseCode::Away, "disconnected by the daemon");
        }
    }
}

/// A frame as one line. Where JSON may have a line end it may have a tab, and where it must not have the
/// one, inside a string, it must not have the other: so it means the same, and two requests in one frame
/// stay the mistake that they are.
fn one_line(text: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend(text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b'\t' } else { *byte }));
    line.push(b'\n');
    line
}

/// Lines to frames, and everything else that is sent, until somebody ends it.
async fn outgoing(
    mut sink: impl Sink<Message, Error = Error> + Unpin,
    from_daemon: impl AsyncRead + Unpin,
    mut pongs: mpsc::Receiver<()>,
    mut ended: oneshot::Receiver<Why>,
    ends: Ends,
) {
    let mut reader = BufReader::with_capacity(PIPE_BYTES, from_daemon);
    let mut line = Vec::new();
    let mut pings = interval(REMOTE_PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    let why = loop {
        let message = tokio::select! {
            // What was read of a line stays in the buffer when something else comes first.
            read = reader.read_until(b'\n', &mut line) => match read {
                Ok(n) if 0 < n => frame(&mut line),
                _ => break Why(CloseCode::Away, "disconnected by the daemon"),
            },
            Some(()) = pongs.recv() => Message::text("pong"),
            _ = pings.tick() => Message::Ping(Bytes::new()),
            () = ends.revoked.cancelled() => break Why(CloseCode::Policy, "the token was changed"),
            () = ends.epoch.cancelled() => break Why(CloseCode::Away, "remote control was closed"),
            why = &mut ended => break why.unwrap_or(Why(CloseCode::Normal, "")),
        };
        match timeout(CLIENT_WRITE_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    };
    let frame = CloseFrame { code: why.0, reason: Utf8Bytes::from_static(why.1) };
    let closing = async {
        // A client that is gone needs neither.
        sink.send(Message::Close(Some(frame))).await.ok();
        sink.close().await.ok();
    };
    timeout(CLOSE_LIMIT, closing).await.ok();
}

fn frame(line: &mut Vec<u8>) -> Message {
    let mut bytes = std::mem::take(line);
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    match Utf8Bytes::try_from(Bytes::from(bytes)) {
        Ok(text) => Message::Text(text),
        // JSON is UTF-8, always; should it not be, the client is told as much as can be told.
        Err(_) => Message::text("{\"id\":\"unknown\",\"ok\":false,\"error\":\"unprintable\"}"),
    }
}

#[cfg(test)]
mod tests;

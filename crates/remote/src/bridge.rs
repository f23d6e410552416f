//! Connects a WebSocket to a stream of lines, so that a remote client looks like a local one.
//!
//! Each direction is a separate future. A client that does not read its events can still send, and the daemon
//! can still reply while it does not read. Each direction waits until the other end accepts its data, so only
//! the pipe buffers data. A message that is not complete waits in the WebSocket; the messages of all clients together
//! have a budget.
//!
//! A browser cannot send a header with its handshake, so its first message is the token.

use crate::gate::TokenCheck;
use crate::pages::TokenHolder;
use crate::state::{RouteContext, Waiting};
use crate::{Ask, Page, Pages};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use quackd_protocol::limits::{
    CLIENT_WRITE_TIMEOUT, FIRST_MESSAGE_TIMEOUT, MAX_LINE_BYTES, MAX_UNAUTHENTICATED_BYTES,
    REMOTE_PING_INTERVAL, REMOTE_SILENCE,
};
use quackd_supervision::Share;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

/// Buffer between the remote thread and the actors' thread, in bytes per direction.
const PIPE_BYTES: usize = 64 * 1024;

/// Timeouts of the closing handshake and of the upgrade to a WebSocket.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(5);

/// [`FIRST_MESSAGE_TIMEOUT`], or less in tests.
const TOKEN_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(700) } else { FIRST_MESSAGE_TIMEOUT };

/// Bytes of the head of a ping or pong of a client.
const CONTROL_HEAD: usize = 6;

/// Cancellation tokens that close a WebSocket.
#[derive(Debug, Clone)]
pub(crate) struct CloseTokens {
    /// Cancelled when the client's token was replaced.
    pub(crate) revoked: CancellationToken,
    /// Cancelled when the listener is closed or moved.
    pub(crate) epoch: CancellationToken,
    /// Cancelled when the incomplete messages of all clients need too much memory, and this client's most of it for longest.
    pub(crate) refused: CancellationToken,
}

/// Counts the bytes of a connection until their message is complete. Refuses the client after `allowed` bytes.
fn counted<S: AsyncRead>(
    io: S,
    share: Arc<Share<CancellationToken>>,
    allowed: Arc<AllowedBytes>,
) -> InspectReader<S, impl FnMut(&[u8])> {
    InspectReader::new(io, move |bytes: &[u8]| {
        allowed.take(bytes.len());
        for refused in share.add(bytes.len(), Instant::now()) {
            refused.cancel();
        }
    })
}

/// Limit of the bytes that a client may send before it is authenticated.
#[derive(Debug)]
pub(crate) struct AllowedBytes {
    /// [`usize::MAX`] once the client is authenticated.
    left: AtomicUsize,
    refused: CancellationToken,
}

impl AllowedBytes {
    fn take(&self, n_bytes: usize) {
        let left = self.left.load(Ordering::Relaxed);
        if left == usize::MAX {
            return;
        }
        if left < n_bytes {
            self.refused.cancel();
        }
        self.left.store(left.saturating_sub(n_bytes), Ordering::Relaxed);
    }

    fn lift(&self) {
        self.left.store(usize::MAX, Ordering::Relaxed);
    }
}

/// Holder of a valid token, and the cancellation for a change of the token of remote control.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) holder: TokenHolder,
    pub(crate) revoked: CancellationToken,
}

/// Authentication of a client.
#[derive(Debug)]
pub(crate) enum Admission {
    /// By the header of the handshake. Has a slot for a WebSocket.
    Header(Admitted, OwnedSemaphorePermit),
    /// By its first message.
    FirstMessage(Waiting),
}

/// Serves one client until it disconnects, its token changes or remote control is closed.
pub(crate) async fn serve(
    upgrade: OnUpgrade,
    url: String,
    context: &RouteContext,
    admission: Admission,
) {
    let Ok(Ok(upgraded)) = timeout(UPGRADE_TIMEOUT, upgrade).await else { return };

    let state = &context.state;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_LINE_BYTES))
        .max_frame_size(Some(MAX_LINE_BYTES));
    let refused = CancellationToken::new();
    let share = Arc::new(state.unfinished.join(refused.clone()));
    let left = match admission {
        Admission::Header(..) => AtomicUsize::new(usize::MAX),
        Admission::FirstMessage(_) => AtomicUsize::new(MAX_UNAUTHENTICATED_BYTES),
    };
    let allowed = Arc::new(AllowedBytes { left, refused: refused.clone() });
    let io = counted(TokioIo::new(upgraded), Arc::clone(&share), Arc::clone(&allowed));
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;

    let (Admitted { holder, revoked }, _slot) = match admission {
        Admission::Header(admitted, slot) => (admitted, slot),
        Admission::FirstMessage(waiting) => {
            let admitted = tokio::select! {
                admitted = first_message(&mut socket, context) => admitted,
                () = refused.cancelled() => Err(CloseReason(CloseCode::Size, "too much before the token")),
                () = waiting.0.cancelled() => {
                    Err(CloseReason(CloseCode::Again, "too many clients that send no token"))
                }
                () = context.epoch.cancelled() => Err(CLOSED),
            };
            let full = || CloseReason(CloseCode::Again, "too many clients");
            let slot = || Arc::clone(&state.sockets).try_acquire_owned().map_err(|_full| full());
            match admitted.and_then(|admitted| Ok((admitted, slot()?))) {
                Ok(admitted) => {
                    drop(waiting);
                    allowed.lift();
                    share.clear(Instant::now());
                    admitted
                }
                Err(why) => return close(&mut socket, why).await,
            }
        }
    };

    let page = holder.page();
    // The token of remote control does not concern pages.
    let revoked = if page.is_some() { CancellationToken::new() } else { revoked };
    let cancel = CloseTokens { revoked: revoked.clone(), epoch: context.epoch.clone(), refused };

    let revocation = cancel_with(page.clone(), state.pages.clone(), revoked);
    let (ours, lines) = tokio::io::duplex(PIPE_BYTES);
    if state.asks.send(Ask::WebSocket { lines, url, page }).await.is_err() {
        return;
    }

    state.connected.fetch_add(1, Ordering::Relaxed);
    tokio::select! {
        () = between(socket, ours, &share, cancel) => {}
        () = revocation => {}
    }
    state.connected.fetch_sub(1, Ordering::Relaxed);
}

/// Cancels `revoked` when the page's token is no longer valid. Returns when the close frame had time to be sent; without a
/// page never.
async fn cancel_with(
    page: Option<Page>,
    mut pages: watch::Receiver<Pages>,
    revoked: CancellationToken,
) {
    if let Some(page) = page {
        // An error means that remote control ends.
        pages.wait_for(|pages| !pages.has(&page.id)).await.ok();
        revoked.cancel();
        // A client that does not read must not go on.
        return sleep(CLOSE_TIMEOUT).await;
    }
    std::future::pending::<()>().await;
}

/// Reads the first message, `{"token":"…"}`, and checks the token.
async fn first_message<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    context: &RouteContext,
) -> Result<Admitted, CloseReason> {
    #[derive(Deserialize)]
    struct FirstMessage {
        token: String,
    }

    let reading = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => return Some(Bytes::from(text)),
                Some(Ok(Message::Binary(bytes))) => return Some(bytes),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return None,
            }
        }
    };
    let late = |_elapsed| CloseReason(CloseCode::Policy, "no token in time");
    let message = timeout(TOKEN_TIMEOUT, reading).await.map_err(late)?;
    let message = message.and_then(|text| serde_json::from_slice::<FirstMessage>(&text).ok());
    let Some(FirstMessage { token }) = message else {
        return Err(CloseReason(CloseCode::Policy, "the first message must be the token"));
    };

    let Some(listener) = context.state.listener() else { return Err(CLOSED) };
    match listener.verifier.check(context.peer, &token, context.page_of(&token)).await {
        TokenCheck::Right(holder) => {
            Ok(Admitted { holder, revoked: listener.verifier.revoked.clone() })
        }
        TokenCheck::Wrong => Err(CloseReason(CloseCode::Policy, "wrong token")),
        TokenCheck::TooMany(_) => Err(CloseReason(CloseCode::Again, "too many wrong tokens")),
    }
}

/// Close code and reason that are sent to the client.
#[derive(Debug, Clone, Copy)]
struct CloseReason(CloseCode, &'static str);

const CLOSED: CloseReason = CloseReason(CloseCode::Away, "remote control was closed");

/// Sends a close frame and closes the WebSocket. Errors are ignored, because the client may be gone.
async fn close(sink: &mut (impl Sink<Message, Error = Error> + Unpin), why: CloseReason) {
    let frame = CloseFrame { code: why.0, reason: Utf8Bytes::from_static(why.1) };
    let closing = async {
        sink.send(Message::Close(Some(frame))).await.ok();
        sink.close().await.ok();
    };
    // A client that does not read gets no close frame.
    timeout(CLOSE_TIMEOUT, closing).await.ok();
}

async fn between<S, P>(
    socket: WebSocketStream<S>,
    pipe: P,
    share: &Share<CancellationToken>,
    cancel: CloseTokens,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    P: AsyncRead + AsyncWrite + Unpin,
{
    let (sink, stream) = socket.split();
    let (from_daemon, to_daemon) = tokio::io::split(pipe);

    // One `pong` per `ping`, like upstream. The channel slows down a client that sends many pings without
    // reading.
    let (pong, pongs) = mpsc::channel(8);
    let (end, ended) = oneshot::channel();
    let incoming = incoming(stream, to_daemon, pong, share);
    let outgoing = outgoing(sink, from_daemon, pongs, ended, cancel);

    tokio::pin!(incoming, outgoing);
    let reason = tokio::select! {
        reason = &mut incoming => reason,
        () = &mut outgoing => return,
    };
    // The receiver is gone if the other future has finished too.
    end.send(reason).ok();
    outgoing.await;
}

/// Forwards frames as lines until the client closes or violates the protocol. Returns the reason.
async fn incoming(
    mut stream: impl Stream<Item = Result<Message, Error>> + Unpin,
    mut to_daemon: impl AsyncWrite + Unpin,
    pong: mpsc::Sender<()>,
    share: &Share<CancellationToken>,
) -> CloseReason {
    const DONE: CloseReason = CloseReason(CloseCode::Normal, "");
    loop {
        let message = match timeout(REMOTE_SILENCE, stream.next()).await {
            Err(_elapsed) => return CloseReason(CloseCode::Away, "no sign of life"),
            Ok(None) => return DONE,
            Ok(Some(Err(Error::Capacity(_)))) => {
                return CloseReason(CloseCode::Size, "message too large");
            }
            Ok(Some(Err(Error::Utf8(_)))) => return CloseReason(CloseCode::Invalid, "not UTF-8"),
            Ok(Some(Err(Error::Protocol(_)))) => {
                return CloseReason(CloseCode::Protocol, "bad frame");
            }
            Ok(Some(Err(_))) => return DONE,
            Ok(Some(Ok(message))) => message,
        };

        match &message {
            // It may come between the frames of a message.
            Message::Ping(payload) | Message::Pong(payload) => {
                share.subtract(payload.len() + CONTROL_HEAD, Instant::now());
            }
            // The message is complete, so it needs no more of the budget.
            _ => share.clear(Instant::now()),
        }

        let text: Bytes = match message {
            Message::Text(text) => text.into(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return DONE,
            // tungstenite answers pings. Both only show that the client is alive.
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
            return CloseReason(CloseCode::Away, "disconnected by the daemon");
        }
    }
}

/// Converts a frame into one line by replacing line breaks with tabs. JSON allows both as white space and
/// neither inside a string, so the meaning stays. Two requests in one frame remain an error.
fn one_line(text: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend(text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b'\t' } else { *byte }));
    line.push(b'\n');
    line
}

/// Sends lines, pongs and pings as frames until a side closes.
async fn outgoing(
    mut sink: impl Sink<Message, Error = Error> + Unpin,
    from_daemon: impl AsyncRead + Unpin,
    mut pongs: mpsc::Receiver<()>,
    mut ended: oneshot::Receiver<CloseReason>,
    cancel: CloseTokens,
) {
    let mut reader = BufReader::with_capacity(PIPE_BYTES, from_daemon);
    let mut line = Vec::new();
    let mut pings = interval(REMOTE_PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick would come at once.
    pings.reset();

    let why = loop {
        let message = tokio::select! {
            // If another branch is first, the partial line stays in `line`.
            read = reader.read_until(b'\n', &mut line) => match read {
                Ok(n) if 0 < n => frame(&mut line),
                _ => break CloseReason(CloseCode::Away, "disconnected by the daemon"),
            },
            Some(()) = pongs.recv() => Message::text("pong"),
            _ = pings.tick() => Message::Ping(Bytes::new()),
            () = cancel.revoked.cancelled() => break CloseReason(CloseCode::Policy, "the token was changed"),
            () = cancel.epoch.cancelled() => break CLOSED,
            () = cancel.refused.cancelled() => {
                break CloseReason(CloseCode::Again, "the unfinished messages of all clients need too much memory");
            }
            why = &mut ended => break why.unwrap_or(CloseReason(CloseCode::Normal, "")),
        };

        match timeout(CLIENT_WRITE_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    };

    close(&mut sink, why).await;
}

fn frame(line: &mut Vec<u8>) -> Message {
    let mut bytes = std::mem::take(line);
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    match Utf8Bytes::try_from(Bytes::from(bytes)) {
        Ok(text) => Message::Text(text),
        // Replies are JSON and so always UTF-8. If not, send at least an error.
        Err(_) => Message::text("{\"id\":\"unknown\",\"ok\":false,\"error\":\"unprintable\"}"),
    }
}

#[cfg(test)]
mod tests;

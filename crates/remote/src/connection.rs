//! Serves one connection: TLS if configured, then hyper, with limits on time and size.

use crate::routes;
use crate::state::{ListenerState, RouteContext, ServerState};
use crate::write_timeout::WriteTimeoutStream;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use quackd_protocol::limits::{MAX_REMOTE_HEAD_BYTES, REMOTE_HEAD_TIMEOUT};
use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// [`REMOTE_HEAD_TIMEOUT`], or less in tests.
const HEAD_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(700) } else { REMOTE_HEAD_TIMEOUT };

/// Time for running requests to finish when the listener is closed or moved.
const GRACE: Duration = Duration::from_secs(2);

/// Serves one connection until it closes. A failed handshake is only logged.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    state: Rc<ServerState>,
    listener: Rc<ListenerState>,
) {
    // Replies and events are small and must not be delayed. A failure only adds latency.
    stream.set_nodelay(true).ok();
    let stream = WriteTimeoutStream::new(stream);
    let context = RouteContext { state, peer, epoch: listener.epoch.clone() };

    match &listener.tls {
        None => http(stream, context).await,
        Some(acceptor) => {
            let accepting = timeout(HEAD_TIMEOUT, acceptor.accept(stream));
            let accepted = tokio::select! {
                accepted = accepting => accepted,
                () = listener.epoch.cancelled() => return,
            };
            match accepted {
                Ok(Ok(stream)) => http(stream, context).await,
                Ok(Err(error)) => tracing::debug!(%error, "remote: no TLS"),
                Err(_elapsed) => tracing::debug!("remote: no TLS in time"),
            }
        }
    }
}

async fn http<S>(stream: S, context: RouteContext)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let epoch = context.epoch.clone();
    let context = Rc::new(context);
    let service = service_fn(move |request| {
        let context = Rc::clone(&context);
        async move { Ok::<_, Infallible>(routes::answer(request, &context).await) }
    });

    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_REMOTE_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();

    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = epoch.cancelled() => {
            connection.as_mut().graceful_shutdown();
            timeout(GRACE, &mut connection).await.unwrap_or(Ok(()))
        }
    };

    if let Err(error) = ended {
        // Errors of the peer, such as a malformed or incomplete request. It got a reply if possible.
        tracing::debug!(%error, "remote: connection ended");
    }
}

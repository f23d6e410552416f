//! One connection: TLS if it is wanted, then hyper, within bounds of time and size.

use crate::patient::Patient;
use crate::routes::{self, Visit};
use crate::server::{Door, House};
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

/// See [`REMOTE_HEAD_TIMEOUT`]; tests wait less.
const HEAD_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(700) } else { REMOTE_HEAD_TIMEOUT };

/// How long requests under way have when the door is closed or moved.
const GRACE: Duration = Duration::from_secs(2);

/// Serves one connection to its end.
pub(crate) async fn serve(stream: TcpStream, peer: IpAddr, house: Rc<House>, door: Rc<Door>) {
    // Answers and events are small, and each is wanted at once. Without it they are late, no more.
    stream.set_nodelay(true).ok();
    let stream = Patient::new(stream);
    let visit = Visit { house, peer, epoch: door.epoch.clone() };
    match &door.tls {
        None => http(stream, visit).await,
        Some(acceptor) => {
            let accepting = timeout(HEAD_TIMEOUT, acceptor.accept(stream));
            let accepted = tokio::select! {
                accepted = accepting => accepted,
                () = door.epoch.cancelled() => return,
            };
            match accepted {
                Ok(Ok(stream)) => http(stream, visit).await,
                Ok(Err(error)) => tracing::debug!(%error, "remote: no TLS"),
                Err(_elapsed) => tracing::debug!("remote: no TLS in time"),
            }
        }
    }
}

async fn http<S>(stream: S, visit: Visit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let epoch = visit.epoch.clone();
    let visit = Rc::new(visit);
    let service = service_fn(move |request| {
        let visit = Rc::clone(&visit);
        async move { Ok::<_, Infallible>(routes::answer(request, &visit).await) }
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
        // Whatever a peer sends or leaves unsaid is its own affair; it was answered if it could be.
        tracing::debug!(%error, "remote: connection ended");
    }
}

//! Accepts TCP connections, also while the process has no descriptors left. Called by [`crate::server`] and
//! [`crate::scrape`].

use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// First and longest pause after a failed accept, for example if no descriptors are left.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Waits for the next connection. Tries again after each failure, which it logs with the name of the endpoint.
pub(crate) async fn next_connection(
    listener: &TcpListener,
    endpoint: &str,
) -> (TcpStream, SocketAddr) {
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => tracing::debug!(%error, ?pause, "{endpoint}: cannot accept"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

//! Answers of quackd itself to requests of HTTP.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time and size of a body that is read and ignored after a refusal. A client that still sends would get a reset in place
/// of the answer.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const MAX_DRAINED: u64 = 1024 * 1024;

/// Sends a short text and closes the connection. `status` is a code with its words. `None` if the client is gone.
pub(crate) async fn answer(
    mut client: TcpStream,
    status: &str,
    fields: &str,
    body: &str,
) -> Option<()> {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\nProxy-Connection: close\r\n\r\n{body}"
    );

    // The answer fits into the socket's buffer, so the write does not wait for the client.
    client.write_all(answer.as_bytes()).await.ok()?;
    client.shutdown().await.ok()?;

    let mut rest = client.take(MAX_DRAINED);
    let mut nowhere = tokio::io::sink();
    timeout(DRAIN_TIME, tokio::io::copy(&mut rest, &mut nowhere)).await.ok()?.ok().map(drop)
}

//! Answers of quackd itself to requests of HTTP.

use crate::own::told_reason;
use crate::proxy::Request;
use crate::relay::{HTTP, TLS};
use quackd_policy::hosts::Host;
use quackd_protocol::denial::of_session;
use quackd_protocol::network::DenyReason;
use quackd_protocol::suggestion::may_be_suggested;
use std::net::IpAddr;
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

/// Texts of the refusal of a request.
pub(crate) struct Refusal {
    /// Code with its words.
    pub(crate) status: String,
    /// The reason that the session may know.
    pub(crate) reason: DenyReason,
    /// One line, with the command that allows the host if the user can allow it.
    pub(crate) body: String,
}

impl Refusal {
    pub(crate) fn new(request: &Request, reason: DenyReason, label: &str) -> Self {
        let of_session = of_session(label);
        let Request { host, port, .. } = request;
        let host = match host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            host => host.to_string(),
        };

        let status = match reason {
            DenyReason::TooMany => "503 quackd: too many connections".to_owned(),
            _ => format!("403 quackd: {host}:{port} is not allowed"),
        };

        let rule_host = request.host.to_string();
        let rule = if matches!(*port, HTTP | TLS) { host } else { format!("{host}:{port}") };
        let reason = told_reason(&request.host, reason);
        let body = match reason {
            DenyReason::NotListed | DenyReason::NoAnswerer if may_be_suggested(&rule_host) => {
                format!(
                    "quackd: denied ({reason}). To allow it: quack sandbox allow {rule}{of_session}\n"
                )
            }
            _ if !may_be_suggested(&rule_host) => format!("quackd: denied ({reason})\n"),
            _ => format!(
                "quackd: denied ({reason}). More: quack sandbox explain {rule}{of_session}\n"
            ),
        };
        Self { status, reason, body }
    }
}

/// Refuses a request of HTTP, and closes the connection. `None` if the client is gone.
pub(crate) async fn refuse(
    client: TcpStream,
    request: &Request,
    reason: DenyReason,
    label: &str,
) -> Option<()> {
    let Refusal { status, reason, body } = Refusal::new(request, reason, label);
    answer(client, &status, &format!("Quackd-Denied: {reason}\r\n"), &body).await
}

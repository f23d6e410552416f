//! The HTTP clients, and one search: posts the body and reads a response of bounded length.

use crate::endpoint::Connection;
use crate::error_text::reason;
use crate::settings::{Settings, failed};
use hyper::ext::ReasonPhrase;
use quackd_protocol::VERSION;
use quackd_protocol::limits::MAX_WEB_BODY_BYTES;
use quackd_protocol::worker::WebOutcome;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, redirect};
use std::time::Duration;

/// Timeout of connecting. Ample for a proxy and a TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Lifetime of an idle connection. Older ones are often dropped by the network without notice.
const POOL_IDLE: Duration = Duration::from_secs(20);

/// Idle connections that are kept, for consecutive searches.
const POOL_SIZE: usize = 2;

/// Maximum length of a status text in a result, in characters.
const MAX_STATUS_TEXT: usize = 100;

/// Creates the client for a kind of connection. For encrypted ones it reads the machine's
/// certificates, about 150 files, which takes some milliseconds.
///
/// The roots are the machine's and not built in: a company's own certificate works, a withdrawn one does not, and
/// `SSL_CERT_FILE` applies. Proxies come from `HTTPS_PROXY` and similar variables, but not for servers of this machine and
/// unencrypted servers of the local network. Redirects are not followed, because
/// the key would be sent along. Requests are never retried, because each search costs money.
pub(crate) fn client(connection: Connection) -> reqwest::Result<Client> {
    // Only the first call in a process has an effect, and all calls install the same provider.
    rustls::crypto::ring::default_provider().install_default().ok();

    let mut builder = Client::builder()
        .user_agent(format!("quackd/{VERSION}"))
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_SIZE);

    if connection.is_local || !connection.is_encrypted {
        builder = builder.no_proxy();
    }

    // A client without encryption needs no certificates.
    builder =
        if connection.is_encrypted { builder.https_only(true) } else { builder.tls_certs_only([]) };
    builder.build()
}

/// Posts a body and reads the response, regardless of its status. The caller sets the timeout.
pub(crate) async fn exchange(client: &Client, settings: &Settings, body: Vec<u8>) -> WebOutcome {
    let Some(key) = settings.key.header() else { return failed("the key cannot be sent") };
    let request = client
        .post(settings.endpoint.url().clone())
        .header("x-api-key", key)
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    match request.send().await {
        Ok(response) => read(response).await,
        Err(error) => failed(reason(&error)),
    }
}

/// Reads the body in chunks. The request offers no compression, and a compressed body is not unpacked.
async fn read(mut response: Response) -> WebOutcome {
    let status = response.status();
    // The library keeps a status text only if it is not the usual one.
    let status_text = match response.extensions().get::<ReasonPhrase>() {
        Some(unusual) => String::from_utf8_lossy(unusual.as_bytes()).into_owned(),
        None => status.canonical_reason().unwrap_or_default().to_owned(),
    };
    let status_text = status_text.chars().take(MAX_STATUS_TEXT).collect();

    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if MAX_WEB_BODY_BYTES < body.len() + chunk.len() => {
                return WebOutcome::TooLong { limit: MAX_WEB_BODY_BYTES as u64 };
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(error) => return failed(reason(&error)),
        }
    }

    let body = String::from_utf8_lossy(&body).into_owned();
    WebOutcome::Reply { status: status.as_u16(), status_text, body }
}

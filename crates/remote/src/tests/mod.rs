//! Tests of remote control with real connections, raw bytes, and a daemon that echoes its requests.

mod changes;
mod hostile;
mod pages;
mod routes;
mod sockets;

use crate::{Ask, CodeAnswer, Page, Remote, RpcAnswer, Settings, TlsPaths, TokenHash};
use bytes::Bytes;
use quackd_protocol::client::PageRights;
use quackd_testkit::{HttpReply, wait_until};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// A token that cannot be guessed.
const TOKEN: &str = "the-right-token-0123456789";
const SHORT: &str = "1234";

/// Far longer than any reply takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open listener.
struct World {
    runtime: Runtime,
    remote: Remote,
    dir: TempDir,
    port: u16,
    settings: Settings,
}

impl World {
    fn new() -> Self {
        Self::with(TOKEN, true)
    }

    /// Opens a listener with this token. `is_plain_known`: the settings contain it in plain text.
    fn with(token: &str, is_plain_known: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (remote, asked) = Remote::new();
        runtime.spawn(daemon(asked));
        let token_hash = hash_of(token);
        let token = SecretString::from(token);
        let settings = Settings {
            host: "127.0.0.1".into(),
            port: 0,
            tls: None,
            token: token_hash,
            plain_token: is_plain_known.then_some(token),
            token_updated_at: Some("2026-01-02T03:04:05.678Z".into()),
            histories: dir.path().join("sessions"),
        };
        std::fs::create_dir(&settings.histories).unwrap();
        let port = runtime.block_on(remote.apply(settings.clone())).unwrap();
        Self { runtime, remote, dir, port, settings }
    }

    /// Applies settings and stores the port.
    fn apply(&mut self, settings: Settings) -> Result<(), String> {
        let applied = self.runtime.block_on(self.remote.apply(settings.clone()));
        self.port = applied.map_err(|error| error.to_string())?;
        self.settings = settings;
        Ok(())
    }

    /// Creates a certificate for `localhost`, and a client configuration that trusts it.
    fn tls(&self) -> (TlsPaths, Arc<rustls::ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = self.dir.path().join("cert.pem");
        let key = self.dir.path().join("key.pem");
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (TlsPaths { certificate, key }, Arc::new(client))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes.
    fn raw(&self, bytes: &[u8]) -> HttpReply {
        let mut stream = self.connect();
        // The server may reply and close during the write.
        stream.write_all(bytes).ok();
        HttpReply::read(&mut stream)
    }

    /// Sends one request with these headers in addition to the required ones.
    fn request(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> HttpReply {
        let head = head(method, target, headers, body.len());
        self.raw(&[head.as_bytes(), body].concat())
    }

    /// Sends one request with the correct token.
    fn authorized(&self, method: &str, target: &str, body: &[u8]) -> HttpReply {
        self.request(method, target, &[&bearer(TOKEN)], body)
    }

    /// Fails if the server does not reply as expected.
    #[track_caller]
    fn is_well(&self) {
        let answer = self.request("GET", "/health", &[], b"");
        assert_eq!((answer.status, &answer.json()["ok"]), (200, &json!(true)));
    }
}

/// Caches the hash of the usual token, because hashing takes time.
fn hash_of(token: &str) -> TokenHash {
    static USUAL: OnceLock<TokenHash> = OnceLock::new();
    let new = || TokenHash::new_blocking(&SecretString::from(token)).unwrap();
    if token == TOKEN { USUAL.get_or_init(new).clone() } else { new() }
}

fn head(method: &str, target: &str, headers: &[&str], length: usize) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n"
    )
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// The error text of a reply.
#[track_caller]
fn error(reply: &HttpReply) -> String {
    reply.json()["error"].as_str().unwrap_or_else(|| panic!("no error: {reply:?}")).to_owned()
}

/// Adds the id of the page.
fn of_page(mut reply: Value, page: Option<Page>) -> Value {
    if let Some(page) = page {
        reply["page"] = json!(*page.id);
    }
    reply
}

/// Replies to every request with the request, and to every line with the line.
async fn daemon(mut asked: mpsc::Receiver<Ask>) {
    while let Some(ask) = asked.recv().await {
        match ask {
            Ask::Rpc { body, client, page, answer } => {
                let said: Value = serde_json::from_slice(&body).unwrap();
                let ok = said["method"] != "fail";
                let reply = json!({"id": said["id"], "ok": ok, "said": said, "as": client});
                let reply = of_page(reply, page);
                let reply = match client.as_deref() {
                    Some("nobody") => RpcAnswer::UnknownClient,
                    _ => RpcAnswer::Reply(Bytes::from(format!("{reply}\n"))),
                };
                answer.send(reply).ok();
            }
            Ask::Code { code, agent, answer } => {
                let page = Page { id: "new".into(), rights: PageRights::default() };
                let reply = match code.as_str() {
                    "right" => {
                        CodeAnswer::Token { token: format!("token of {agent}").into(), page }
                    }
                    "full" => CodeAnswer::NotSaved("no space".to_owned()),
                    _ => CodeAnswer::Wrong,
                };
                answer.send(reply).ok();
            }
            Ask::SignOut { page, answer } => {
                let is_saved = &*page.id == "a";
                answer.send(is_saved.then_some(()).ok_or_else(|| "no space".to_owned())).ok();
            }
            Ask::WebSocket { lines, url, page } => {
                tokio::spawn(async move {
                    let (reading, mut writing) = tokio::io::split(lines);
                    let ready = of_page(json!({"event": "remote_ready", "url": url}), page);
                    let ready = format!("{ready}\n");
                    writing.write_all(ready.as_bytes()).await.ok();
                    let mut lines = BufReader::new(reading).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        if writing.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
    }
}

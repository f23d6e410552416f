//! Random bytes on the port of remote control. Every connection ends, every reply is HTTP, and no request
//! without the token reaches the daemon.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_remote::{Ask, CodeAnswer, Remote, RpcAnswer, Settings, TokenHash};
use secrecy::SecretString;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Valid token. Longer than the minimum of 16 bytes.
const TOKEN: &str = "token-of-the-fuzzer";

/// Timeout of a connection. A longer one counts as hung.
const PATIENCE: Duration = Duration::from_secs(8);

/// Number of requests that reached the daemon.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Opens the port once.
fn port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let (opened, port) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(serve(&opened));
        });
        port.recv().expect("a port")
    })
}

async fn serve(opened: &std::sync::mpsc::Sender<u16>) {
    let (remote, mut asked) = Remote::new();
    let token = SecretString::from(TOKEN);
    let settings = Settings {
        host: "127.0.0.1".to_owned(),
        port: 0,
        tls: None,
        token: TokenHash::new_blocking(&token).expect("random numbers"),
        plain_token: Some(token),
        token_updated_at: None,
        histories: quackd_fuzz::scratch().clone(),
    };
    opened.send(remote.apply(settings).await.expect("a port")).expect("a receiver");
    while let Some(ask) = asked.recv().await {
        // A page asks for its token with a code only.
        if !matches!(ask, Ask::Code { .. }) {
            ASKED.fetch_add(1, Ordering::SeqCst);
        }
        match ask {
            Ask::Code { answer, .. } => drop(answer.send(CodeAnswer::Wrong)),
            Ask::SignOut { answer, .. } => drop(answer.send(Ok(()))),
            Ask::Rpc { answer, body, .. } => drop(answer.send(RpcAnswer::Reply(body))),
            Ask::WebSocket { mut lines, .. } => {
                tokio::spawn(async move { lines.read_to_end(&mut Vec::new()).await });
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut stream = TcpStream::connect(("127.0.0.1", port())).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The server may close the connection before all bytes are sent.
    let _sent = stream.write_all(data).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let kind = error.kind();
        assert!(!matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
    }
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1."),
        "{:?}",
        answer.escape_ascii().to_string()
    );
    // Every request needs its own line with the token. A request may still be in flight when the next input
    // starts.
    static MAY_COME: AtomicU64 = AtomicU64::new(0);
    if data.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes()) {
        let requests = data.windows(5).filter(|part| *part == b"HTTP/").count();
        MAY_COME.fetch_add(requests as u64, Ordering::SeqCst);
    }
    let (came, may) = (ASKED.load(Ordering::SeqCst), MAY_COME.load(Ordering::SeqCst));
    assert!(came <= may, "{came} requests came through and {may} had a token");
});

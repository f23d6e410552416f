//! `quack version`: of this program, and of the daemon if one runs.

use crate::connect::{REPLY_TIMEOUT, connect};
use crate::exit::Exit;
use crate::output::Output;
use quackd_home::Home;
use quackd_protocol::VERSION;
use quackd_protocol::client::CLIENT_PROTOCOL;
use serde_json::{Value, json};

/// Runs the verb. A daemon that cannot be asked is no failure: the question was this program's version.
pub(crate) async fn run(output: Output) -> anyhow::Result<Exit> {
    let daemon = ask_daemon().await.unwrap_or(Value::Null);
    if output.is_json() {
        output.document(&json!({
            "version": VERSION,
            "protocol": CLIENT_PROTOCOL,
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "daemon": daemon,
        }))?;
        return Ok(Exit::Ok);
    }
    let running = match daemon.get("version").and_then(Value::as_str) {
        Some(version) => format!("daemon {}\n", crate::display::plain(version)),
        None => String::new(),
    };
    output.text(&format!("quack {VERSION}\n{running}"))?;
    Ok(Exit::Ok)
}

async fn ask_daemon() -> Option<Value> {
    let client = connect(&Home::from_process_env_blocking().ok()?).await.ok()?;
    client.request_raw("ping", json!({}), REPLY_TIMEOUT).await.ok()
}

//! `quack version`: of this program, and of the daemon if one runs.

use crate::connect::{REPLY_TIMEOUT, connect};
use crate::display::plain;
use crate::exit::Exit;
use crate::output::Output;
use quackd_home::Home;
use quackd_protocol::VERSION;
use quackd_protocol::client::{CLIENT_PROTOCOL, DaemonData, ExecutableInfo, ExecutableState};
use serde_json::{Value, json};

/// Runs the verb. A daemon that cannot be asked is no failure: the question was this program's version.
pub(crate) async fn run(output: Output) -> anyhow::Result<Exit> {
    let (daemon, executable) = ask_daemon().await.unwrap_or_default();
    if output.is_json() {
        output.document(&json!({
            "version": VERSION,
            "protocol": CLIENT_PROTOCOL,
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "daemon": daemon,
            "executable": executable,
        }))?;
        return Ok(Exit::Ok);
    }
    let running = match daemon.get("version").and_then(Value::as_str) {
        Some(version) => {
            let file = executable.as_ref().map_or_else(String::new, upgrade);
            let hint = difference(version, executable.as_ref());
            format!("daemon {}{file}{hint}\n", plain(version))
        }
        None => String::new(),
    };
    output.text(&format!("quack {VERSION}\n{running}"))?;
    Ok(Exit::Ok)
}

/// What the daemon says of itself, and of the file that it was started from. An older one does not know of
/// the second.
async fn ask_daemon() -> Option<(Value, Option<ExecutableInfo>)> {
    let client = connect(&Home::from_process_env_blocking().ok()?).await.ok()?;
    let daemon = client.request_raw("ping", json!({}), REPLY_TIMEOUT).await.ok()?;
    let asked = client.request("quack.daemon", json!({}), REPLY_TIMEOUT).await;
    let executable = asked.ok().map(|data: DaemonData| data.executable);
    Some((daemon, executable))
}

/// What to do about a daemon of another version.
fn difference(version: &str, executable: Option<&ExecutableInfo>) -> &'static str {
    match executable.map(|executable| executable.state) {
        _ if version == VERSION => "",
        // That was said already.
        Some(ExecutableState::Replaced) => "",
        Some(_) => "; `quack restart` starts the program that is installed now",
        // It is too old to be asked, or another one's.
        None => "; `quack stop` ends it, and the next verb starts this one",
    }
}

fn upgrade(executable: &ExecutableInfo) -> String {
    let path = plain(&executable.path);
    match executable.state {
        ExecutableState::Replaced => {
            format!(", and another program stands at {path} by now; `quack restart` starts that")
        }
        ExecutableState::Deleted => format!(", whose file {path} was deleted"),
        ExecutableState::Current | ExecutableState::Unknown => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_of_another_version_comes_with_the_way_out() {
        let file = |state| ExecutableInfo { path: "/q".to_owned(), state };
        let (current, replaced) = (file(ExecutableState::Current), file(ExecutableState::Replaced));
        assert_eq!(difference(VERSION, Some(&current)), "");
        assert_eq!(difference(VERSION, None), "");
        assert!(difference("0.0.1", Some(&current)).contains("`quack restart`"));
        assert!(difference("0.0.1", None).contains("`quack stop`"));
        // Once is enough.
        assert_eq!(difference("0.0.1", Some(&replaced)), "");
        assert!(upgrade(&replaced).contains("`quack restart`"));
    }
}

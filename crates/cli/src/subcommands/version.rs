//! `quack version`: prints the versions of this program and of the running daemon.

use crate::connect::connect;
use crate::display::plain;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use quackd_home::Home;
use quackd_protocol::VERSION;
use quackd_protocol::client::{
    CLIENT_PROTOCOL, DaemonParams, ExecutableInfo, ExecutableState, PingParams,
};
use serde_json::{Value, json};

/// Runs the subcommand. An unreachable daemon is not a failure.
pub(crate) async fn run(output: CliOutput) -> anyhow::Result<ExitCode> {
    let (daemon, executable) = ask_daemon().await.unwrap_or_default();
    let document = json!({
        "version": VERSION,
        "protocol": CLIENT_PROTOCOL,
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "daemon": daemon,
        "executable": executable,
    });

    let running = match daemon.get("version").and_then(Value::as_str) {
        Some(version) => {
            let file = executable.as_ref().map_or_else(String::new, upgrade);
            let hint = difference(version, executable.as_ref());
            format!("daemon {}{file}{hint}\n", plain(version))
        }
        None => String::new(),
    };

    output.show(&document, || format!("quack {VERSION}\n{running}"))?;
    Ok(ExitCode::Ok)
}

/// Returns the daemon's description and that of its executable. An older daemon does not know the latter.
async fn ask_daemon() -> Option<(Value, Option<ExecutableInfo>)> {
    let client = connect(&Home::from_process_env_blocking().ok()?).await.ok()?;
    let daemon = client.call_raw(PingParams {}).await.ok()?;
    let reply = client.call(DaemonParams {}).await;
    let executable = reply.ok().map(|data| data.executable);
    Some((daemon, executable))
}

/// Returns advice for a daemon of another version.
fn difference(version: &str, executable: Option<&ExecutableInfo>) -> &'static str {
    match executable.map(|executable| executable.state) {
        _ if version == VERSION => "",
        // The line about the executable already contains this advice.
        Some(ExecutableState::Replaced) => "",
        Some(_) => "; `quack restart` starts the program that is installed now",
        // The daemon is too old for the request, or another program's.
        None => "; `quack stop` stops it, and the next subcommand starts this version",
    }
}

fn upgrade(executable: &ExecutableInfo) -> String {
    let path = plain(&executable.path);
    match executable.state {
        ExecutableState::Replaced => {
            format!(", and {path} contains another program now; `quack restart` starts it")
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
        // The advice appears only once.
        assert_eq!(difference("0.0.1", Some(&replaced)), "");
        assert!(upgrade(&replaced).contains("`quack restart`"));
    }
}

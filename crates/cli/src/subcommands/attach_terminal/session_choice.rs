//! Finds the session of `quack attach` and `quack detach`. Without a name, it is that of the last started terminal of the
//! directory. For a daemon of another machine, of that machine.

use crate::args::terminals::TerminalArgs;
use crate::connect::start_and_connect;
use crate::display::plain;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::session_ref::{Missing, Wanted};
use crate::subcommands::{login, ps};
use quackd_client::{Client, ClientError};
use quackd_egress::{Key, RemoteAddress};
use quackd_protocol::client::{ErrorCode, FindBy, FindParams, FoundInfo, WorkerInfo};

/// Variable with the token of remote control.
const REMOTE_TOKEN: &str = "QUACKD_REMOTE_TOKEN";

/// A connection, and what the user has chosen.
#[derive(Debug)]
pub(crate) struct ChosenTerminal {
    pub(crate) client: Client,
    pub(crate) session: FoundInfo,
    /// The terminal, if the user named one.
    pub(crate) terminal: Option<String>,
}

/// Connects to the daemon and finds the session.
///
/// # Errors
/// Those of connecting and of the requests, and a session that does not exist.
pub(crate) async fn chosen(
    args: TerminalArgs,
    output: CliOutput,
) -> anyhow::Result<ChosenTerminal> {
    let (choice, terminal) = args.take()?;
    let is_named = choice.session.is_some() || terminal.is_some();
    // Before the connection, so that wrong arguments start no daemon.
    let wanted = Wanted::of(&choice)?;
    let client = start_and_connect(output).await?.client;
    let found = wanted.one(&client, Missing::Refuse).await;
    if is_named {
        return Ok(ChosenTerminal { client, session: found?, terminal });
    }

    let own = found.as_ref().ok();
    let workspace = own.map(|own| own.workspace_path.as_str()).or_else(|| wanted.workspace());
    let workers = ps::ask(&client).await?.workers;
    let here = workers.iter().filter(|it| Some(it.workspace_path.as_str()) == workspace);
    let session = match last_started(here) {
        Some(worker) => info(worker),
        None => found?,
    };
    Ok(ChosenTerminal { client, session, terminal })
}

/// Connects to remote control of another daemon and finds the session there. Without a name, it is that of the last started
/// terminal of the other machine.
///
/// # Errors
/// Those of connecting and of the requests, and a session that does not exist.
pub(crate) async fn remote(
    address: &RemoteAddress,
    args: TerminalArgs,
    output: CliOutput,
) -> anyhow::Result<ChosenTerminal> {
    let (choice, terminal) = args.take()?;
    if address.is_in_the_clear() {
        output.warning("the connection is not encrypted: others on the network can read the token");
    }
    let token = match std::env::var(REMOTE_TOKEN) {
        Ok(token) if !token.is_empty() => token,
        _ => login::ask("Token of remote control")
            .await?
            .ok_or_else(|| CliError::interrupted("no token was given"))?,
    };
    let unusable = || CliError::usage("a token is one word of printable characters");
    let token = Key::parse(&token).map_err(|_error| unusable())?.ok_or_else(unusable)?;
    let client = Client::over(address.connect(&token).await?);

    let session = match &choice.session {
        // A path of this machine means nothing there.
        Some(_) => {
            let params = FindParams { session_id: choice.session.clone(), ..FindParams::default() };
            match client.call(params).await {
                // The usual advice lists the sessions of this machine.
                Err(ClientError::Refused { code: Some(ErrorCode::SessionNotFound), .. }) => None,
                found => found?.session,
            }
        }
        None => last_started(ps::ask(&client).await?.workers.iter()).map(info),
    };
    let none = || match &choice.session {
        Some(name) => CliError::failed(format!("that machine has no session {}", plain(name))),
        None => CliError::failed("no program runs on a terminal of that machine"),
    };
    Ok(ChosenTerminal { client, session: session.ok_or_else(none)?, terminal })
}

/// Returns the worker with the running terminal that was started last.
fn last_started<'a>(workers: impl Iterator<Item = &'a WorkerInfo>) -> Option<&'a WorkerInfo> {
    let age = |worker: &WorkerInfo| {
        let terminals = worker.jobs.iter().filter(|job| job.terminal);
        terminals.map(|job| job.elapsed_ms).min()
    };
    let with_age = workers.filter_map(|worker| Some((age(worker)?, worker)));
    with_age.min_by_key(|(age, _)| *age).map(|(_, worker)| worker)
}

fn info(worker: &WorkerInfo) -> FoundInfo {
    FoundInfo {
        session_id: worker.session_id.clone(),
        session_name: worker.session_name.clone(),
        label: worker.label.clone(),
        workspace_path: worker.workspace_path.clone(),
        by: FindBy::Directory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn worker(session: &str, workspace: &str, jobs: &[(u64, bool)]) -> WorkerInfo {
        let jobs = jobs.iter().map(|(elapsed, is_terminal)| {
            json!({"jobId": "x", "command": "c", "elapsedMs": elapsed, "terminal": is_terminal})
        });
        serde_json::from_value(json!({
            "sessionId": session, "sessionName": session, "label": format!("app/{session}"),
            "workspacePath": workspace, "state": "ready", "restarts": 0, "calls": [],
            "jobs": jobs.collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    #[test]
    fn the_last_started_terminal_of_the_directory_is_meant() {
        let mut workers =
            vec![worker("one", "/a", &[(1, false)]), worker("two", "/b", &[(2, true)])];
        let found = |workers: &[WorkerInfo], workspace| {
            let here = workers.iter().filter(|it| Some(it.workspace_path.as_str()) == workspace);
            last_started(here).map(|worker| worker.session_id.0.clone())
        };
        assert_eq!(found(&workers, Some("/a")), None);
        workers.push(worker("three", "/a", &[(90, true), (40, true)]));
        workers.push(worker("four", "/a", &[(50, true), (1, false)]));
        assert_eq!(found(&workers, Some("/a")).as_deref(), Some("three"));
        workers.push(worker("five", "/a", &[(30, true)]));
        assert_eq!(found(&workers, Some("/a")).as_deref(), Some("five"));
        assert_eq!(found(&workers, None), None);
        assert_eq!(last_started(workers.iter()).unwrap().session_id.0, "two");
    }
}

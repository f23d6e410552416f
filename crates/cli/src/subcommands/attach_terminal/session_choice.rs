//! Finds the session of `quack attach` and `quack detach`. Without a name, a session of the directory that has terminals
//! is preferred to the user's default session, which may have none.

use crate::args::terminals::TerminalArgs;
use crate::connect::start_and_connect;
use crate::display::{self, plain};
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::session_ref::{Missing, Wanted};
use crate::subcommands::ps;
use quackd_client::Client;
use quackd_protocol::SessionId;
use quackd_protocol::client::{FindBy, FoundInfo, RunningJob, WorkerInfo};

/// Largest number of terminals that an error lists.
const MAX_LISTED: usize = 10;

/// A connection, and what the user has chosen.
#[derive(Debug)]
pub(crate) struct ChosenTerminal {
    pub(crate) client: Client,
    pub(crate) session: FoundInfo,
    /// The terminal, if the user named one.
    pub(crate) terminal: Option<String>,
}

/// Connects to the daemon and finds the session. `verb` is the subcommand for the texts.
///
/// # Errors
/// Those of connecting and of the requests, a session that does not exist, and several sessions with terminals.
pub(crate) async fn chosen(
    args: TerminalArgs,
    verb: &str,
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
    let workers = with_terminals(&workers, own.map(|own| &own.session_id), workspace);
    let session = match workers.as_slice() {
        [] => found?,
        [worker] => info(worker),
        several => return Err(too_many(several, verb).into()),
    };
    Ok(ChosenTerminal { client, session, terminal })
}

/// Returns the user's session if it has running terminals, otherwise all sessions of the workspace that have some.
fn with_terminals<'a>(
    workers: &'a [WorkerInfo],
    own: Option<&SessionId>,
    workspace: Option<&str>,
) -> Vec<&'a WorkerInfo> {
    let is_here = |worker: &&WorkerInfo| {
        Some(worker.workspace_path.as_str()) == workspace && terminals(worker).next().is_some()
    };
    let here: Vec<_> = workers.iter().filter(is_here).collect();
    match here.iter().find(|worker| Some(&worker.session_id) == own) {
        Some(own) => vec![*own],
        None => here,
    }
}

fn terminals(worker: &WorkerInfo) -> impl Iterator<Item = &RunningJob> {
    worker.jobs.iter().filter(|job| job.terminal)
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

/// Creates the error that lists the terminals of several sessions.
fn too_many(workers: &[&WorkerInfo], verb: &str) -> CliError {
    let mut listed: Vec<String> = Vec::new();
    for worker in workers {
        let label = display::name(display::label(&worker.label, &worker.session_name));
        let command = |job: &RunningJob| format!("quack {verb} {label}/{}", plain(&job.job_id));
        listed.extend(terminals(worker).map(command));
    }

    if MAX_LISTED < listed.len() {
        listed.truncate(MAX_LISTED);
        listed.push("and others, which quack ps lists".to_owned());
    }
    CliError::usage(format!(
        "several sessions of this directory have terminals; name one: {}",
        listed.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn worker(session: &str, workspace: &str, terminals: &[bool]) -> WorkerInfo {
        let jobs = terminals.iter().enumerate().map(|(n, is_terminal)| {
            json!({"jobId": format!("x-{n}"), "command": "c", "elapsedMs": 1, "terminal": is_terminal})
        });
        serde_json::from_value(json!({
            "sessionId": session, "sessionName": session, "label": format!("app/{session}"),
            "workspacePath": workspace, "state": "ready", "restarts": 0, "calls": [],
            "jobs": jobs.collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    fn found(workers: &[WorkerInfo], own: &str) -> Vec<String> {
        let found = with_terminals(workers, Some(&SessionId(own.to_owned())), Some("/a"));
        found.into_iter().map(|worker| worker.session_id.0.clone()).collect()
    }

    #[test]
    fn a_session_without_terminals_yields_to_others_of_its_directory() {
        let mut workers = vec![worker("one", "/a", &[false]), worker("two", "/a", &[false, true])];
        workers.push(worker("three", "/b", &[true]));
        assert_eq!(found(&workers, "one"), ["two"]);
        assert_eq!(found(&workers, "gone"), ["two"]);
        workers.push(worker("four", "/a", &[true, true]));
        assert_eq!(found(&workers, "one"), ["two", "four"]);
        assert_eq!(found(&workers, "four"), ["four"]);
        assert_eq!(found(&workers[..1], "one"), [""; 0]);
        assert!(with_terminals(&workers, None, None).is_empty());
    }

    #[test]
    fn the_error_lists_the_terminals() {
        let (two, four) = (worker("two", "/a", &[true, false]), worker("four", "/a", &[true; 99]));
        let text = too_many(&[&two, &four], "attach").to_string();
        let begin = "several sessions of this directory have terminals; name one: \
                     quack attach app/two/x-0, quack attach app/four/x-0, quack ";
        assert!(text.starts_with(begin), "{text}");
        assert_eq!(text.matches("quack attach ").count(), MAX_LISTED, "{text}");
    }
}

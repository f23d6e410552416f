//! `quack state`: one session and its worker.

use crate::age::local;
use crate::args::sessions::StateArgs;
use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::directory;
use crate::display;
use crate::exit::Exit;
use crate::output::{BOLD, DIM, Output};
use jiff::tz::TimeZone;
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{SessionParams, StateData, WorkspaceInfo, WorkspacesData};
use serde_json::json;

/// Runs the verb.
pub(crate) async fn run(args: StateArgs, output: Output) -> anyhow::Result<Exit> {
    let workspace = match args.which.session {
        Some(_) => None,
        None => Some(directory::workspace(args.which.dir.as_deref(), true)?),
    };
    let daemon = start_and_connect(output).await?;
    let session = match workspace {
        Some(workspace) => existing(&daemon.client, &workspace).await?,
        None => args.which.session.unwrap_or_default(),
    };
    let data = state_of(&daemon.client, session).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        output.text(&lines(&data))?;
    }
    Ok(Exit::Ok)
}

/// What the daemon says of the session that `session` refers to.
///
/// # Errors
/// Of the request.
pub(crate) async fn state_of(client: &Client, session: String) -> Result<StateData, ClientError> {
    let params = SessionParams { session_id: Some(session) };
    client.request("get_state", params, REPLY_TIMEOUT).await
}

/// The session of a directory. Makes none: who looks changes nothing.
async fn existing(client: &Client, path: &str) -> anyhow::Result<String> {
    let data: WorkspacesData = client.request("workspaces", json!({}), REPLY_TIMEOUT).await?;
    let workspace = data.workspaces.iter().find(|workspace| workspace.path == path);
    let session = workspace.and_then(preferred_session);
    session.ok_or_else(|| {
        let path = display::plain(path);
        anyhow::anyhow!("{path} has no session; `quack` or `quack new` makes one")
    })
}

/// The session that `attach` would give: the one that was last active, else the first.
fn preferred_session(workspace: &WorkspaceInfo) -> Option<String> {
    let last = workspace.last_active_session_id.as_ref();
    let mut sessions = workspace.sessions.iter();
    let session =
        sessions.clone().find(|session| Some(&session.id) == last).or_else(|| sessions.next());
    session.map(|session| session.id.0.clone())
}

fn lines(data: &StateData) -> String {
    let worker = &data.worker;
    let name = display::name(&data.session_name);
    let id = display::plain(data.session_id.as_str());
    let mut text = format!("{BOLD}{name}{BOLD:#}  {DIM}{id}{DIM:#}\n");
    let pid = worker.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    let mut row = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));
    if !data.status.status_why.is_empty() {
        let since = data.status.status_since.as_deref();
        let since = since.map(|since| format!(" since {}", local(since, &TimeZone::system())));
        let (status, why) = (data.status.status.name(), display::plain(&data.status.status_why));
        row("status", &format!("{status}{}: {why}", since.unwrap_or_default()));
    }
    row("worker", &format!("{}{pid}", display::plain(&worker.state)));
    for (name, value) in [("tier", &worker.tier), ("policy", &worker.policy)] {
        row(name, &value.as_deref().map_or_else(|| "-".to_owned(), display::plain));
    }
    row("restarts", &worker.restarts.to_string());
    row("safe mode", if data.safe_mode { "on" } else { "off" });
    if data.status.pinned {
        row("pinned", "yes");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_shown_with_its_worker() {
        let data: StateData = serde_json::from_value(json!({
            "sessionId": "abc", "sessionName": "duck\u{1b}1", "isRunning": true, "safeMode": true,
            "worker": {"state": "busy", "pid": 7, "restarts": 2, "tier": "unconfined", "policy": null}
        }))
        .unwrap();
        let text = anstream::adapter::strip_str(&lines(&data)).to_string();
        assert_eq!(
            text,
            "duck\u{fffd}1  abc\nworker      busy, process 7\ntier        unconfined\npolicy      -\n\
             restarts    2\nsafe mode   on\n"
        );
    }
}

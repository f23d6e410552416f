//! `quack follow`: what happens in a session, until a person has seen enough. [`watch`] does it, for
//! `quack [DIR]` too.

pub(crate) mod watch;

use self::watch::Watch;
use crate::args::{FollowArgs, LookArgs};
use crate::connect::{Connected, REPLY_TIMEOUT, start_and_connect};
use crate::directory;
use crate::display;
use crate::exit::Exit;
use crate::output::{BOLD, DIM, Output};
use crate::render::Look;
use quackd_protocol::client::{AttachData, AttachParams, FollowData};
use serde_json::Value;

/// Runs the verb.
pub(crate) async fn run(args: FollowArgs, output: Output) -> anyhow::Result<Exit> {
    let workspace = match args.which.session {
        Some(_) => None,
        None => Some(directory::workspace(args.which.dir.as_deref(), args.force)?),
    };
    let daemon = start_and_connect(output).await?;
    let session = match (args.which.session, workspace) {
        (Some(session), _) => session,
        (None, workspace) => session_of(&daemon, workspace).await?,
    };
    let mut watch = Watch::begin(daemon.client, session, args.since).await?;
    if !output.is_json() {
        watch.settle().await;
        let home_dir = std::env::var("HOME").ok();
        output.text(&header(watch.followed(), home_dir.as_deref()))?;
    }
    watch.until_interrupted(look(args.look), output).await
}

/// The session of a directory, made if there is none. The active session stays the active one.
async fn session_of(daemon: &Connected, workspace: Option<String>) -> anyhow::Result<String> {
    let params = AttachParams {
        path: workspace.map(Value::from),
        activate: Some(false),
        ..AttachParams::default()
    };
    let data: AttachData = daemon.client.request("attach", params, REPLY_TIMEOUT).await?;
    Ok(data.session.id.0)
}

/// What the arguments want to see.
pub(crate) fn look(args: LookArgs) -> Look {
    Look { show_thinking: args.show_thinking, verbose: args.verbose }
}

/// The first line: which session this is, and how it is confined.
pub(crate) fn header(followed: &FollowData, home_dir: Option<&str>) -> String {
    let name = display::plain(&followed.session_name);
    let path = display::path(&followed.workspace_path, home_dir);
    let worker = &followed.worker;
    let words: Vec<&str> =
        [&worker.tier, &worker.policy].into_iter().flatten().map(String::as_str).collect();
    let state = match (words.is_empty(), worker.state.as_str()) {
        (false, _) => words.join(" · "),
        (true, "absent") => "its worker starts with the first call".to_owned(),
        (true, state) => state.to_owned(),
    };
    format!("{BOLD}{name}{BOLD:#}  {path}  {DIM}[{}]{DIM:#}\n", display::plain(&state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_line_names_the_session_and_its_confinement() {
        for (worker, shown) in [
            (
                json!({"state": "ready", "pid": 7, "restarts": 0, "tier": "B", "policy": "workspace-write"}),
                "[B · workspace-write]",
            ),
            (json!({"state": "absent", "restarts": 0}), "[its worker starts with the first call]"),
            (json!({"state": "failed\u{1b}[2J", "restarts": 0}), "[failed\u{fffd}[2J]"),
        ] {
            let followed: FollowData = serde_json::from_value(json!({
                "sessionId": "s", "sessionName": "duck\n1", "workspacePath": "/home/ada/app",
                "isRunning": true, "sessionState": null, "appHistoryFile": "", "appHistoryExists": false,
                "appHistorySizeBytes": 0, "seq": 3, "epoch": "e", "resync": false, "replayed": 0,
                "worker": worker
            }))
            .unwrap();
            let line =
                anstream::adapter::strip_str(&header(&followed, Some("/home/ada"))).to_string();
            assert_eq!(line, format!("duck\u{fffd}1  ~/app  {shown}\n"));
        }
    }
}

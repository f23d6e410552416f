//! `quack follow`: what happens in a session, until a person has seen enough. [`live`] does it, for `quack [DIR]` and
//! `quack say` too: over the connection of [`watch`], printed by [`screen`], with what a person types ([`typed`],
//! [`desk`]), the requests beside it ([`ask`]), the app's [`history`], and the [`course`] of one turn, of which [`gate`]
//! knows which it is.

mod ask;
mod course;
mod desk;
mod gate;
mod history;
pub(crate) mod live;
mod screen;
mod typed;
pub(crate) mod watch;

use self::live::{Interrupts, Live, Typing};
use self::watch::Watch;
use crate::args::LookArgs;
use crate::args::sessions::FollowArgs;
use crate::connect::start_and_connect;
use crate::display;
use crate::exit::Exit;
use crate::output::{BOLD, DIM, Output};
use crate::render::Look;
use crate::which::{self, Missing, Wanted};
use quackd_protocol::client::FollowData;
use quackd_protocol::tiers;
use serde_json::Value;
use std::sync::Arc;

/// Longest description of a session on its first line, in characters.
const MAX_STATE: usize = 160;

/// Runs the verb.
pub(crate) async fn run(args: FollowArgs, output: Output) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::catch()?;
    let begun = tokio::select! {
        biased;
        () = interrupts.next() => return Ok(Exit::Interrupted),
        begun = begin(args, output) => begun,
    };
    begun?.run(&mut interrupts).await
}

async fn begin(args: FollowArgs, output: Output) -> anyhow::Result<Live> {
    let wanted = Wanted::of(&args.which)?;
    let daemon = start_and_connect(output).await?;
    let found = match wanted.find(&daemon.client, Missing::UseActive).await? {
        Some(found) => found,
        None => wanted.one(&daemon.client, Missing::Create).await?,
    };
    which::tell_if_elsewhere(&found, output);
    let session = found.session_id.0;
    let client = Arc::new(daemon.client);
    let mut watch = Watch::begin(client, session, args.since).await?;
    if !output.is_json() {
        watch.settle().await;
        let home_dir = std::env::var("HOME").ok();
        output.text(&header(&found.label, watch.followed(), home_dir.as_deref()))?;
    }
    Ok(Live::new(watch, look(args.look), Typing::Answers, output))
}

/// What the arguments want to see.
pub(crate) fn look(args: LookArgs) -> Look {
    Look { show_thinking: args.show_thinking, verbose: args.verbose }
}

/// The first line: which session this is, how it is confined, and which model its Pi has, if that is known.
pub(crate) fn header(label: &str, followed: &FollowData, home_dir: Option<&str>) -> String {
    let name = display::name(label);
    let path = display::path(&followed.workspace_path, home_dir);
    let worker = &followed.worker;
    let words: Vec<&str> = [worker.tier.as_deref().map(tiers::in_words), worker.policy.as_deref()]
        .into_iter()
        .flatten()
        .collect();
    let mut state = match (words.is_empty(), worker.state.as_str()) {
        (false, _) => words.join(" · "),
        (true, "absent") => "its worker starts with the first call".to_owned(),
        (true, state) => state.to_owned(),
    };
    if let Some(pi) = &followed.session_state {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let model = pi.get("model");
        let model = text(model).or_else(|| text(model.and_then(|model| model.get("id"))));
        state.push_str(&format!(" · {}", model.as_deref().unwrap_or("default")));
        if let Some(thinking) = text(pi.get("thinkingLevel")) {
            state.push_str(&format!(" · thinking:{thinking}"));
        }
    }
    format!("{BOLD}{name}{BOLD:#}  {path}  {DIM}[{}]{DIM:#}\n", display::cut(&state, MAX_STATE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_line_names_the_session_its_confinement_and_its_model() {
        let ready = json!({"state": "ready", "pid": 7, "restarts": 0, "tier": "B", "policy": "workspace-write"});
        let none = Value::Null;
        for (worker, pi, shown) in [
            (ready.clone(), none.clone(), "[confined · workspace-write]"),
            (
                ready.clone(),
                json!({"model": {"id": "gpt-4o"}, "thinkingLevel": "off"}),
                "[confined · workspace-write · gpt-4o · thinking:off]",
            ),
            (ready, json!({"model": null}), "[confined · workspace-write · default]"),
            (
                json!({"state": "absent", "restarts": 0}),
                none.clone(),
                "[its worker starts with the first call]",
            ),
            (json!({"state": "failed\u{1b}[2J", "restarts": 0}), none, "[failed\u{fffd}[2J]"),
        ] {
            let followed: FollowData = serde_json::from_value(json!({
                "sessionId": "s", "sessionName": "duck\n1", "workspacePath": "/home/ada/app",
                "isRunning": true, "sessionState": pi, "appHistoryFile": "", "appHistoryExists": false,
                "appHistorySizeBytes": 0, "seq": 3, "epoch": "e", "resync": false, "replayed": 0,
                "worker": worker
            }))
            .unwrap();
            let line =
                anstream::adapter::strip_str(&header("app/duck\n1", &followed, Some("/home/ada")))
                    .to_string();
            assert_eq!(line, format!("app/duck\u{fffd}1  ~/app  {shown}\n"));
        }
    }
}

//! `quack delete`: the daemon forgets a session, after a person has said that it should.

use super::state::state_of;
use crate::args::sessions::DeleteArgs;
use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::display;
use crate::exit::{Exit, Fault};
use crate::output::Output;
use quackd_client::Client;
use quackd_protocol::client::{
    SessionDeleteData, SessionDeleteParams, SessionsData, SessionsParams, StateData,
};
use serde_json::Value;

/// Runs the verb.
pub(crate) async fn run(args: DeleteArgs, output: Output) -> anyhow::Result<Exit> {
    let is_sure = args.yes || args.force;
    if !is_sure && !Output::can_ask() {
        return Err(Fault::usage("nobody is there to confirm it; say --yes").into());
    }
    let daemon = start_and_connect(output).await?;
    // The daemon says what the reference means, so that what is asked about is what is deleted.
    let state = state_of(&daemon.client, args.session).await?;
    if !is_sure {
        let question = question(&daemon.client, &state).await?;
        let asked = tokio::task::spawn_blocking(move || output.ask_blocking(&question));
        if !asked.await?? {
            anyhow::bail!("nothing was deleted");
        }
    }
    let params = SessionDeleteParams {
        session_id: Value::from(state.session_id.as_str()),
        force: args.force.then_some(true),
    };
    let data: SessionDeleteData =
        daemon.client.request("quack.session_delete", params, REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        let name = display::name(&data.session.name);
        let ended = [(data.calls_ended, "running call"), (data.jobs_ended, "background job")];
        let ended: Vec<_> = ended.into_iter().filter(|(n, _)| 0 < *n).collect();
        let ended = match ended.as_slice() {
            [] => String::new(),
            some => {
                let counted = some.iter().map(|(n, what)| display::count(*n, what));
                format!(", and ended {}", counted.collect::<Vec<_>>().join(" and "))
            }
        };
        output.text(&format!("Deleted {name}{ended}.\n"))?;
    }
    Ok(Exit::Ok)
}

async fn question(client: &Client, state: &StateData) -> anyhow::Result<String> {
    let all = SessionsParams { all: Value::Bool(true), ..SessionsParams::default() };
    let known: SessionsData = client.request("sessions", all, REPLY_TIMEOUT).await?;
    let session = known.sessions.iter().find(|known| known.id == state.session_id);
    let home_dir = std::env::var("HOME").ok();
    let place = session.map_or_else(String::new, |session| {
        format!(" of {}", display::path(&session.workspace_path, home_dir.as_deref()))
    });
    let name = display::name(&state.session_name);
    Ok(format!("Delete session {name}{place}? The files there stay."))
}

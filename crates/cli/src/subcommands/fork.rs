//! `quack fork`: continues a conversation in another session.

use crate::args::sessions::ForkArgs;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM};
use crate::session_ref;
use quackd_protocol::client::{AgentParams, ForkParams};
use quackd_protocol::denial::of_session;
use serde_json::{Value, json};

/// Maximum length of a message in the list, in characters.
const MAX_SHOWN: usize = 100;

/// Creates the session with the messages before the chosen one, or lists the messages.
pub(crate) async fn run(args: ForkArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (client, session) = session_ref::existing(&args.which, output).await?;
    let session_id = Value::from(session.session_id.0);
    if args.list {
        let command = json!({ "type": "get_fork_messages" });
        let params = AgentParams { session_id, command };
        let listed = client.call(params).await?;
        let listed = listed.data.and_then(|data| serde_json::from_str(data.get()).ok());
        return list(&listed.unwrap_or(Value::Null), output);
    }

    let params = ForkParams {
        session_id,
        entry_id: args.entry,
        name: args.name,
        activate: args.activate.then_some(true),
    };

    let made = client.call(params).await?;
    if output.is_json() {
        output.document(&made)?;
    } else {
        let label = session_ref::label(&client, &made.session_id.0).await?;
        let id = display::plain(&made.session_id.0);
        output.text(&format!("{BOLD}{}{BOLD:#}  {DIM}{id}{DIM:#}\n", display::name(&label)))?;
        if let Some(note) = &made.note {
            output.text(&format!("{}\n", display::plain(note)))?;
        }
        if let Some(text) = &made.text {
            output.text(&format!("Your message was:\n{}\n", display::plain(text)))?;
        }
        output.note(&format!("to go on there: quack say{} 'your message'", of_session(&label)));
    }
    Ok(ExitCode::Ok)
}

fn list(listed: &Value, output: CliOutput) -> anyhow::Result<ExitCode> {
    let row = |message: &Value| {
        let text = |name: &str| display::plain(message[name].as_str().unwrap_or_default());
        let line: String = text("text").replace('\n', " ").chars().take(MAX_SHOWN).collect();
        format!("{BOLD}{}{BOLD:#}  {line}\n", text("entryId"))
    };

    let messages = listed["messages"].as_array().into_iter().flatten();
    output.show(listed, || messages.map(row).collect())?;
    Ok(ExitCode::Ok)
}

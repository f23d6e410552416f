//! `quack history`: lists the messages of a session's conversation.

use super::export::conversation;
use crate::args::sessions::HistoryArgs;
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::time_format::local_second;
use jiff::tz::TimeZone;
use quackd_agent::message::{Message, text_of};
use quackd_agent::transcript::{Entry, EntryKind, Transcript};
use serde_json::{Value, json};

/// Maximum width of a message, in columns.
const MAX_TEXT: usize = 100;

/// Runs the subcommand.
pub(crate) async fn run(args: HistoryArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (found, transcript) = conversation(args.which, output).await?;
    if output.is_json() {
        output.document(&document(found.session_id.as_str(), &transcript))?;
    } else {
        output.text(&text(&transcript, &TimeZone::system()))?;
    }
    Ok(ExitCode::Ok)
}

fn document(session: &str, transcript: &Transcript) -> Value {
    let row = |entry: &&Entry| match &entry.kind {
        EntryKind::Message(message) => Some(json!({
            "entryId": entry.id, "timestamp": entry.timestamp, "message": message,
        })),
        _ => None,
    };
    let path = transcript.path();
    json!({
        "sessionId": session,
        "name": transcript.name(),
        "stats": transcript.stats(),
        "messages": path.iter().filter_map(row).collect::<Vec<_>>(),
    })
}

fn text(transcript: &Transcript, zone: &TimeZone) -> String {
    let path = transcript.path();
    let rows: Vec<_> = path.iter().filter_map(|entry| row(entry, zone)).collect();
    if rows.is_empty() {
        return "No messages yet.\n".to_owned();
    }
    let stats = transcript.stats();
    let messages =
        display::count(usize::try_from(stats.total_messages).unwrap_or(usize::MAX), "message");
    let table = display::table(["TIME", "FROM", "MESSAGE"], [10, 10, 0], &rows);
    format!(
        "{table}{messages}, {} tokens, {}\n",
        stats.tokens.total,
        display::cost(stats.cost, stats.cost_unknown)
    )
}

/// Returns time, author and first line of a message. `None` for an entry without one.
fn row(entry: &Entry, zone: &TimeZone) -> Option<[String; 3]> {
    let (from, text) = match &entry.kind {
        EntryKind::Message(Message::User(message)) => ("user", message.content.text()),
        EntryKind::Message(Message::Assistant(message)) => {
            let calls = message.tool_calls().map(|call| format!("[{}]", call.name));
            let text = Some(text_of(&message.content)).filter(|it| !it.trim().is_empty());
            let error = message.error_message.as_ref().map(|it| format!("error: {it}"));
            let parts: Vec<_> = text.into_iter().chain(calls).chain(error).collect();
            ("assistant", parts.join(" "))
        }
        EntryKind::Message(Message::ToolResult(result)) => {
            (if result.is_error { "error" } else { "result" }, text_of(&result.content))
        }
        EntryKind::Message(Message::BashExecution(it)) => ("command", it.command.clone()),
        EntryKind::Compaction { summary, .. } => ("summary", summary.clone()),
        EntryKind::BranchSummary { summary, .. } => ("branch", summary.clone()),
        _ => return None,
    };
    let time = display::plain(&local_second(&entry.timestamp, zone));
    Some([time, from.to_owned(), display::first_line(text.trim(), MAX_TEXT)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = concat!(
        r#"{"type":"session","version":3,"id":"s","timestamp":"2026-03-10T12:00:00.000Z","cwd":"/w"}"#,
        "\n",
        r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-03-10T12:00:01.000Z","message":{"role":"user","content":"hi\u001b[2J\nmore","timestamp":1}}"#,
        "\n",
        r#"{"type":"message","id":"b","parentId":"a","timestamp":"2026-03-10T12:00:02.000Z","message":{"role":"assistant","content":[{"type":"toolCall","id":"1","name":"read","arguments":{}}],"api":"x","provider":"p","model":"m","usage":{"input":3,"output":1,"cost":{"total":0.5}},"stopReason":"toolUse","timestamp":1}}"#,
        "\n",
        r#"{"type":"message","id":"c","parentId":"b","timestamp":"2026-03-10T12:00:03.000Z","message":{"role":"toolResult","toolCallId":"1","toolName":"read","content":[{"type":"text","text":"no"}],"isError":true,"timestamp":1}}"#,
        "\n",
    );

    #[test]
    fn each_message_is_one_line_that_cannot_control_the_terminal() {
        let transcript = Transcript::read(FILE.as_bytes()).unwrap();
        let shown = anstream::adapter::strip_str(&text(&transcript, &TimeZone::UTC)).to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines.len(), 5, "{shown}");
        assert!(
            lines[1].starts_with("2026-03-10 12:00:01  user") && lines[1].contains("user"),
            "{shown}"
        );
        assert!(lines[1].contains("hi") && !shown.contains('\u{1b}'), "{shown}");
        assert!(lines[2].ends_with("assistant   [read]"), "{shown}");
        assert!(lines[3].ends_with("error       no"), "{shown}");
        assert_eq!(lines[4], "3 messages, 4 tokens, $0.5000");
        let empty = FILE.lines().next().unwrap();
        let empty = Transcript::read(empty.as_bytes()).unwrap();
        assert_eq!(text(&empty, &TimeZone::UTC), "No messages yet.\n");
    }

    #[test]
    fn the_document_has_the_messages_of_the_file() {
        let document = document("s-1", &Transcript::read(FILE.as_bytes()).unwrap());
        assert_eq!(document["sessionId"], "s-1");
        assert_eq!(document["messages"].as_array().unwrap().len(), 3);
        assert_eq!(document["messages"][2]["message"]["toolName"], "read");
        assert_eq!(document["messages"][0]["entryId"], "a");
        assert_eq!(document["stats"]["tokens"]["total"], 4);
    }
}

//! `quack history`: the conversation of a session, as the prompt of `quack` shows it, or as a list without a terminal.

use super::export::conversation;
use super::follow::{can_move, screen_size};
use crate::args::sessions::HistoryArgs;
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::render::{DisplayOptions, Renderer};
use crate::time_format::local_second;
use jiff::tz::TimeZone;
use quackd_agent::message::{BashExecution, Message, ToolCall, ToolResultMessage, text_of};
use quackd_agent::transcript::{Entry, EntryKind, Transcript};
use quackd_protocol::tools::{BASH, BashArguments};
use serde_json::{Value, json};

/// Maximum width of a message, in columns.
const MAX_TEXT: usize = 100;

/// Runs the subcommand.
pub(crate) async fn run(args: HistoryArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (session, transcript) = conversation(args.which, output).await?;
    let zone = TimeZone::system();
    if output.is_json() {
        output.document(&document(session.session_id.as_str(), &transcript))?;
    } else if can_move(output) {
        let _reader = output.piece(rendered(&transcript, &zone, screen_size().0)).await?;
    } else {
        output.text(&text(&transcript, &zone))?;
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
    let table = display::table(["TIME", "FROM", "MESSAGE"], [10, 10, 0], &rows);
    table + &last_line(transcript)
}

/// Returns the number of messages, and what they cost.
fn last_line(transcript: &Transcript) -> String {
    let stats = transcript.stats();
    let messages = display::count(stats.total_messages, "message");
    let cost = display::cost(stats.cost, stats.cost_unknown);
    format!("{messages}, {} tokens, {cost}\n", stats.tokens.total)
}

/// Returns the conversation for a terminal of this width.
fn rendered(transcript: &Transcript, zone: &TimeZone, columns: usize) -> String {
    let mut renderer = Renderer::new(DisplayOptions::default());
    renderer.set_columns(columns);
    let mut conversation = Rendered { renderer, zone, text: String::new(), calls: Vec::new() };
    transcript.path().into_iter().for_each(|entry| conversation.entry(entry));
    conversation.end_calls();
    if conversation.text.is_empty() {
        return "No messages yet.\n".to_owned();
    }
    conversation.text + "\n" + &last_line(transcript)
}

/// A conversation as the events that the agent has sent about it.
struct Rendered<'a> {
    renderer: Renderer,
    zone: &'a TimeZone,
    text: String,
    /// Calls whose result comes next.
    calls: Vec<&'a ToolCall>,
}

impl<'a> Rendered<'a> {
    fn entry(&mut self, entry: &'a Entry) {
        if !matches!(&entry.kind, EntryKind::Message(Message::ToolResult(_))) {
            self.end_calls();
        }

        match &entry.kind {
            EntryKind::Message(Message::ToolResult(result)) => self.result(result),
            EntryKind::Message(Message::BashExecution(run)) => {
                self.time(&entry.timestamp);
                self.command(run);
            }
            EntryKind::Message(message) => {
                if matches!(message, Message::User(_)) {
                    self.time(&entry.timestamp);
                }
                let data = json!({ "message": message });
                self.event("message_start", &data);
                self.event("message_end", &data);
                if let Message::Assistant(message) = message {
                    self.calls.extend(message.tool_calls());
                }
            }
            EntryKind::CustomMessage { content, display: true, .. } => {
                let message = json!({ "role": "custom", "display": true, "content": content });
                self.event("message_end", &json!({ "message": message }));
            }
            EntryKind::Compaction { summary, .. } => {
                self.summary("summary of the conversation so far", summary);
            }
            EntryKind::BranchSummary { summary, .. } => {
                self.summary("summary of another branch", summary);
            }
            EntryKind::ModelChange { provider, model_id } => {
                let model = display::cut(&format!("model: {provider}/{model_id}"), MAX_TEXT);
                self.remark(&model);
            }
            _ => {}
        }
    }

    fn event(&mut self, name: &str, data: &Value) {
        self.text.push_str(&self.renderer.render(name, data));
        self.text.push_str(&self.renderer.close());
    }

    /// Shows a call with its end.
    fn call(&mut self, start: &Value, end: &Value) {
        self.event("tool_execution_start", start);
        self.event("tool_execution_end", end);
    }

    fn remark(&mut self, text: &str) {
        self.text.push_str(&self.renderer.remark(&format!("-- {} --", display::plain(text))));
    }

    /// Shows when a prompt was sent, below an empty line.
    fn time(&mut self, time: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.remark(&local_second(time, self.zone));
    }

    fn summary(&mut self, title: &str, summary: &str) {
        self.remark(title);
        let message = json!({ "role": "assistant", "content": summary });
        self.event("message_end", &json!({ "message": message }));
    }

    fn command(&mut self, run: &BashExecution) {
        let (id, args) =
            ("command", BashArguments::builder().command(run.command.as_str()).build());
        let start = json!({ "toolCallId": id, "toolName": BASH.name, "args": args });
        let result = json!({ "content": run.output });
        let end = json!({ "toolCallId": id, "result": result, "exitCode": run.exit_code });
        self.call(&start, &end);
    }

    fn result(&mut self, result: &ToolResultMessage) {
        let at = self.calls.iter().position(|call| call.id == result.tool_call_id);
        let start = match at.map(|at| self.calls.remove(at)) {
            Some(call) => start(call),
            None => json!({ "toolCallId": result.tool_call_id, "toolName": result.tool_name }),
        };

        let end = json!({
            "toolCallId": result.tool_call_id, "isError": result.is_error,
            "result": { "content": result.content, "details": result.details },
        });
        self.call(&start, &end);
    }

    /// Shows the calls that have no result.
    fn end_calls(&mut self) {
        for call in std::mem::take(&mut self.calls) {
            let result = json!({ "content": "no result" });
            let end = json!({ "toolCallId": call.id, "isError": true, "result": result });
            self.call(&start(call), &end);
        }
    }
}

/// Returns the beginning of a call.
fn start(call: &ToolCall) -> Value {
    json!({ "toolCallId": call.id, "toolName": call.name, "args": call.arguments })
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
        EntryKind::Message(Message::BashExecution(run)) => ("command", run.command.clone()),
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

    #[test]
    fn on_a_terminal_the_conversation_is_rendered_and_no_part_of_it_is_missing() {
        let message = |id: &str, message: Value| {
            let time = "2026-03-10T12:00:01.000Z";
            json!({"type": "message", "id": id, "parentId": null, "timestamp": time, "message": message})
        };
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let call = |id: &str, name: &str, args: Value| json!({"type": "toolCall", "id": id, "name": name, "arguments": args});
        let assistant = |id: &str, content: Value, stop: &str| {
            message(
                id,
                json!({"role": "assistant", "content": content, "api": "x", "provider": "p",
                "model": "m", "usage": {}, "stopReason": stop, "timestamp": 1}),
            )
        };
        let result = |id: &str, call: &str, text: Value| {
            message(
                id,
                json!({"role": "toolResult", "toolCallId": call, "toolName": "bash", "content": text,
                "isError": false, "timestamp": 1}),
            )
        };
        let edit = json!({"path": "a.rs", "old_text": "one\n", "new_text": "two\n"});
        let calls =
            json!([call("1", "bash", json!({"command": "seq 3"})), call("2", "edit", edit)]);
        let mut lines = vec![
            message("a", json!({"role": "user", "content": "hi\u{1b}[2J", "timestamp": 1})),
            assistant("b", json!([{"type": "text", "text": "I **look**."}]), "toolUse"),
            assistant("c", calls, "toolUse"),
            result("d", "2", text("Edited")),
            result("e", "1", text("1\n2\n3")),
            result("f", "9", text("late")),
            assistant("g", json!([call("3", "grep", json!({"pattern": "x"}))]), "toolUse"),
            json!({"type": "compaction", "id": "h", "parentId": "", "timestamp": "", "summary": "# All\nwent well",
                "firstKeptEntryId": "a", "tokensBefore": 9}),
            assistant("i", text("half an"), "length"),
        ];
        for n in 1..lines.len() {
            lines[n]["parentId"] = lines[n - 1]["id"].clone();
        }
        let head = FILE.lines().next().unwrap();
        let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let transcript = Transcript::read(format!("{head}\n{file}").as_bytes()).unwrap();
        let shown = rendered(&transcript, &TimeZone::UTC, 60);
        let shown = anstream::adapter::strip_str(&shown).to_string();
        let expected = [
            "-- 2026-03-10 12:00:01 --",
            "> hi",
            "I look.",
            "[tool] edit a.rs",
            "  - one",
            "  + two",
            "[tool] bash seq 3",
            "  1",
            "  2",
            "  3",
            "[tool] bash",
            "  late",
            "[tool] grep pattern=x failed",
            "  no result",
            "-- summary of the conversation so far --",
            "All",
            "went well",
            "half an",
        ];
        let rows: Vec<&str> = shown.lines().collect();
        assert_eq!(rows[..expected.len()], expected, "{shown}");
        assert!(rows[expected.len()].starts_with("[error] the answer was cut"), "{shown}");
        assert!(shown.ends_with("\n\n8 messages, 0 tokens, $0.0000\n"), "{shown}");
    }

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

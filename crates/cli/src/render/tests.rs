//! Table tests of the renderer.

use super::*;
use serde_json::json;

fn show(look: DisplayOptions, events: &[(&str, Value)]) -> String {
    let text = anstream::adapter::strip_str(&styled(look, events)).to_string();
    text.strip_suffix("END\n").unwrap().to_owned()
}

fn styled(look: DisplayOptions, events: &[(&str, Value)]) -> String {
    let mut renderer = Renderer::new(look);
    let text: String = events.iter().map(|(name, data)| renderer.render(name, data)).collect();
    text + &renderer.remark("END")
}

fn shown(events: &[(&str, Value)]) -> String {
    show(DisplayOptions::default(), events)
}

fn start(id: &str, tool: &str, args: Value) -> (&'static str, Value) {
    ("tool_execution_start", json!({"toolCallId": id, "toolName": tool, "args": args}))
}

fn delta(id: &str, text: &str) -> (&'static str, Value) {
    gap(id, text, 0, 0)
}

fn gap(id: &str, text: &str, omitted: u64, total: u64) -> (&'static str, Value) {
    let details = json!({"totalBytes": total, "omittedBytes": omitted});
    (
        "tool_execution_update",
        json!({"toolCallId": id, "toolName": "bash", "args": {"command": "x"}, "delta": text,
               "partialResult": {"content": [{"type": "text", "text": "not this"}], "details": details}}),
    )
}

fn partial(id: &str, text: &str) -> (&'static str, Value) {
    let partial = json!({"content": [{"type": "text", "text": text}], "details": {}});
    let data = json!({"toolCallId": id, "toolName": "bash", "args": {}, "partialResult": partial});
    ("tool_execution_update", data)
}

fn end(id: &str, tool: &str, text: &str, more: Value) -> (&'static str, Value) {
    let mut data = json!({"toolCallId": id, "toolName": tool, "isError": false, "durationMs": 3,
                          "result": {"content": [{"type": "text", "text": text}]}});
    for (key, value) in more.as_object().unwrap() {
        if key == "details" {
            data["result"]["details"] = value.clone();
        } else {
            data[key] = value.clone();
        }
    }
    ("tool_execution_end", data)
}

#[test]
fn a_call_is_its_name_its_arguments_its_output_and_its_time() {
    let text = shown(&[
        start("c1", "bash", json!({"command": "make", "timeout": 5})),
        delta("c1", "one\ntw"),
        delta("c1", "o\n\nthree"),
        end("c1", "bash", "one\ntwo\n\nthree\n\n[Exit code: 0]", json!({"exitCode": 0})),
    ]);
    assert_eq!(text, "[tool] bash command=make timeout=5\n  one\n  two\n\n  three\n[3 ms]\n");
}

#[test]
fn a_call_of_a_client_that_named_itself_has_its_name_and_its_outcome() {
    let by = |(name, mut data): (&'static str, Value), client: &str| {
        data["client"] = json!({"name": client, "version": "2.0.1"});
        (name, data)
    };
    let failed = json!({"isError": true, "exitCode": 3});
    let text = shown(&[
        by(start("c1", "bash", json!({"command": "make"})), "Claude Code"),
        by(end("c1", "bash", "", json!({"exitCode": 0})), "Claude Code"),
        by(start("c2", "bash", json!({})), "a\u{1b}[2J\n\u{202e}"),
        by(start("c3", "jobs", json!({})), "zed"),
        by(end("c3", "jobs", "none", json!({})), "zed"),
        by(end("c2", "bash", "", failed), "a\u{1b}[2J\n\u{202e}"),
    ]);
    assert_eq!(
        text,
        "[tool] Claude Code: bash command=make\n[Claude Code: bash] ok [3 ms]\n\
         [tool] a\\n\u{fffd}: bash\n[tool 2] zed: jobs\n  [jobs 2] none\n[zed: jobs 2] ok [3 ms]\n\
         [error] a\\n\u{fffd}: bash failed [3 ms] exit code 3\n"
    );
}

#[test]
fn arguments_are_short_and_on_one_line() {
    let long = "x".repeat(200);
    let many: serde_json::Map<_, _> = (10..40).map(|n| (format!("k{n}"), json!(n))).collect();
    for (args, line) in [
        (json!({}), "[tool] t".to_owned()),
        (Value::Null, "[tool] t".to_owned()),
        (json!("word"), "[tool] t word".to_owned()),
        (json!({"a": "two\nlines\n"}), r"[tool] t a=two\nlines".to_owned()),
        (json!({"a": [1, {"b": null}]}), r#"[tool] t a=[1,{"b":null}]"#.to_owned()),
        (json!({ "a": long }), format!("[tool] t a={}...", "x".repeat(120))),
        (json!({"a\u{1b}[2J": "\u{7}"}), "[tool] t a=\u{fffd}".to_owned()),
    ] {
        assert_eq!(shown(&[start("c", "t", args)]), format!("{line}\n"));
    }
    let line = shown(&[start("c", "t", Value::Object(many))]);
    assert!(line.ends_with(" k25=25 ...\n"), "{line}");
}

#[test]
fn what_no_update_showed_comes_with_the_end() {
    let file: String = (1..=14).map(|n| format!("line {n}\n")).collect();
    let ten: String = (1..=10).map(|n| format!("  line {n}\n")).collect();
    for (tool, text, more, shown_text) in [
        ("bash", "hi\n\n[Exit code: 0]", json!({"exitCode": 0}), "  hi\n[3 ms]\n".to_owned()),
        ("bash", "\n[Exit code: 0]", json!({"exitCode": 0}), "[3 ms]\n".to_owned()),
        ("grep_search", "a:1:x\n\nb:2:y\n", json!({}), "  a:1:x\n\n  b:2:y\n[3 ms]\n".to_owned()),
        ("read_file", file.as_str(), json!({}), format!("{ten}  … 4 more lines\n[3 ms]\n")),
        ("write_file", "", json!({"durationMs": 1340}), "[1.3 s]\n".to_owned()),
        ("x", "", json!({"durationMs": null}), "[done]\n".to_owned()),
    ] {
        let text = shown(&[start("c", tool, json!({})), end("c", tool, text, more)]);
        assert_eq!(text, format!("[tool] {tool}\n{shown_text}"));
    }
}

#[test]
fn a_failure_says_how() {
    let died = "Error: Worker died during bash (signal 9). It may have run; it was not retried.";
    for (text, more, shown_text) in [
        (
            "out\n\n[Exit code: 3]",
            json!({"exitCode": 3}),
            "[error] bash failed [3 ms] exit code 3\n",
        ),
        (
            "out",
            json!({"details": {"timedOut": true, "backgroundEnded": 2, "fullOutputPath": "/s/1"}}),
            "[error] bash failed [3 ms] timed out, 2 background processes ended with it, full output: /s/1\n",
        ),
        (
            died,
            json!({"details": {"workerDied": true}}),
            "  Error: Worker died during bash (signal 9). It may have run; it was not retried.\n\
             [error] bash failed [3 ms] worker died\n",
        ),
        (
            "out",
            json!({"details": {"truncation": "of another agent"}}),
            "[error] bash failed [3 ms]\n",
        ),
    ] {
        let mut end = end("c", "bash", text, more);
        end.1["isError"] = json!(true);
        let text = shown(&[start("c", "bash", json!({})), delta("c", "out\n"), end]);
        assert_eq!(text, format!("[tool] bash\n  out\n{shown_text}"));
    }
}

#[test]
fn an_agent_that_tells_no_times_gets_none() {
    for (is_error, line) in [(false, "[done]\n"), (true, "[error] ls failed\n")] {
        let end = end("c", "ls", "", json!({"durationMs": null, "isError": is_error}));
        let text = shown(&[start("c", "ls", json!({})), end]);
        assert_eq!(text, format!("[tool] ls\n{line}"));
    }
}

#[test]
fn output_that_is_left_out_is_counted() {
    let text = shown(&[
        start("c", "bash", json!({})),
        delta("c", "begin"),
        gap("c", "end\n", 5000, 5009),
        end("c", "bash", "…", json!({})),
    ]);
    assert_eq!(text, "[tool] bash\n  begin\n  [... 5000 bytes omitted]\n  end\n[3 ms]\n");
}

#[test]
fn a_call_that_began_before_we_came_is_taken_up() {
    let text = shown(&[gap("c", "now\n", 0, 104), delta("c", "then\n")]);
    assert_eq!(text, "[tool] bash command=x\n  [... 100 bytes omitted]\n  now\n  then\n");
    let text = shown(&[end("c", "grep_search", "a:1:x", json!({}))]);
    assert_eq!(text, "[tool] grep_search\n  a:1:x\n[3 ms]\n");
}

#[test]
fn of_an_output_that_is_repeated_only_the_new_is_shown() {
    let slid = format!("{}last\nnew\n", "line\n".repeat(20));
    let text = shown(&[
        start("c", "bash", json!({})),
        partial("c", "one\n"),
        partial("c", "one\ntwo"),
        partial("c", "one\ntwo\nthree\n"),
        end("c", "bash", "one\ntwo\nthree\n", json!({})),
    ]);
    assert_eq!(text, "[tool] bash\n  one\n  two\n  three\n[3 ms]\n");
    let first = format!("gone\n{}last\n", "line\n".repeat(20));
    let text = shown(&[partial("c", &first), partial("c", &slid)]);
    assert!(text.ends_with("  line\n  last\n  new\n"), "{text}");
    assert_eq!(text.matches("last").count(), 1);
}

#[test]
fn calls_side_by_side_are_told_apart_in_whole_lines() {
    let text = shown(&[
        start("a", "bash", json!({"command": "a"})),
        delta("a", "a1\na"),
        start("b", "bash", json!({"command": "b"})),
        delta("b", "b"),
        delta("a", "2\na3"),
        delta("b", "1\nb2"),
        end("b", "bash", "", json!({})),
        delta("a", "!\na4"),
        end("a", "bash", "", json!({})),
        start("c", "bash", json!({"command": "c"})),
    ]);
    assert_eq!(
        text,
        "[tool] bash command=a\n  a1\n  a\n[tool 2] bash command=b\n  [bash 1] 2\n  [bash 2] b1\n\
         \x20 [bash 2] b2\n[bash 2] [3 ms]\n  a3!\n  a4\n[3 ms]\n[tool] bash command=c\n"
    );
}

#[test]
fn a_line_without_end_is_not_held_back_for_ever() {
    let long = "x".repeat(5000);
    let text = shown(&[
        start("a", "bash", json!({})),
        start("b", "bash", json!({})),
        delta("a", &long),
        delta("a", "y"),
    ]);
    assert!(text.contains(&format!("[bash 1] {long}")), "{text}");
}

fn message(name: &'static str, message: Value) -> (&'static str, Value) {
    (name, json!({"type": name, "message": message}))
}

fn stream(kind: &str, text: &str) -> (&'static str, Value) {
    let event = json!({"type": kind, "contentIndex": 0, "delta": text});
    ("message_update", json!({"message": {"role": "assistant"}, "assistantMessageEvent": event}))
}

fn answer(more: Value) -> Value {
    let mut message =
        json!({"role": "assistant", "content": [{"type": "text", "text": "Hello.\nBye."}]});
    for (key, value) in more.as_object().unwrap() {
        message[key] = value.clone();
    }
    message
}

#[test]
fn an_answer_is_shown_once_as_it_comes() {
    let text = shown(&[
        message("message_start", json!({"role": "user", "content": "first\nsecond\n"})),
        message("message_start", json!({"role": "assistant", "content": []})),
        stream("thinking_delta", "secret"),
        stream("text_delta", "Hel"),
        stream("text_delta", "lo.\nBye."),
        stream("text_end", ""),
        message("message_end", answer(json!({}))),
        message("message_end", answer(json!({}))),
    ]);
    assert_eq!(
        text, "> first\n> second\nHello.\nBye.\nHello.\nBye.\n",
        "the second came without deltas"
    );
}

#[test]
fn the_line_with_the_error_of_a_pi_that_died_is_shown_whole_before_its_last_lines() {
    let long = format!("SyntaxError: {}", "x".repeat(1_000));
    let stack: String = (0..8).map(|n| format!("    at frame{n}\n")).collect();
    let tail = format!("file:///pi/cli.js:2\nimport x\n{long}\n{stack}\nNode.js v20.20.2\n");
    let data = json!({"extensionPath": "daemon", "event": "process_death", "error": "It died",
        "stderrTail": tail});
    let text = shown(&[("extension_error", data)]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["[error] It died", &format!("  {long}")]);
    assert_eq!(lines.last(), Some(&"  Node.js v20.20.2"));
    assert_eq!(lines.len(), 7, "{text}");
}

#[test]
fn an_answer_that_is_cut_short_says_why() {
    for (reason, line) in
        [("error", "[error] no model\n"), ("aborted", "[aborted]\n"), ("stop", "")]
    {
        let end = answer(json!({"stopReason": reason, "errorMessage": "no model"}));
        let text = shown(&[stream("text_delta", "Hel"), message("message_end", end)]);
        assert_eq!(text, format!("Hel\n{line}"));
    }
}

#[test]
fn thinking_is_shown_when_it_is_wanted() {
    let look = DisplayOptions { show_thinking: true, ..DisplayOptions::default() };
    let text = show(
        look,
        &[
            stream("thinking_delta", "hm\nhm"),
            stream("thinking_end", ""),
            stream("text_delta", "Yes"),
        ],
    );
    assert_eq!(text, "[thinking] hm\n[thinking] hm\nYes\n");
}

#[test]
fn a_terminal_is_a_line_at_its_start_and_at_its_end() {
    let text = shown(&[
        ("terminal_started", json!({"terminalId": "term-1", "command": "vi\u{1b}[2J a"})),
        ("terminal_title", json!({"terminalId": "term-1", "title": "a"})),
        ("terminal_ended", json!({"terminalId": "term-1", "command": "vi", "exitCode": 3})),
        ("terminal_ended", json!({"terminalId": "term-2", "signal": 1})),
        ("terminal_ended", json!({"terminalId": "term-3", "signal": 1, "reason": "why"})),
    ]);
    assert_eq!(
        text,
        "[terminal] term-1: vi a\n[terminal] term-1 has ended with code 3\n\
         [terminal] term-2 has ended by signal 1\n[terminal] term-3 has ended: why\n"
    );
}

#[test]
fn everything_else_takes_a_line() {
    let death = json!({"extensionPath": "daemon", "event": "process_death", "error": "It died",
                       "stderrTail": "last\u{1b}[2J\nwords\n"});
    let extension = json!({"extensionPath": "/x.ts", "event": "tool_call", "error": "boom"});
    let ui = |method: &str, text: &str| json!({"id": "1", "method": method, "message": text});
    for (name, data, line) in [
        ("prompt_error", json!({"error": "no key"}), "[error] Prompt failed: no key\n"),
        ("extension_error", death, "[error] It died\n  last\n  words\n"),
        ("extension_error", extension, "[error] Extension /x.ts (tool_call): boom\n"),
        ("auto_compaction_start", json!({"reason": "threshold"}), "[compact] threshold\n"),
        ("compaction_end", json!({"aborted": true}), "[compact] aborted\n"),
        (
            "auto_compaction_end",
            json!({"result": {"tokensBefore": 12}}),
            "[compact] done, 12 tokens before\n",
        ),
        ("auto_compaction_end", json!({"errorMessage": "x"}), "[compact] failed: x\n"),
        (
            "auto_retry_start",
            json!({"attempt": 1, "maxAttempts": 3, "delayMs": 2000, "errorMessage": "500"}),
            "[retry] attempt 1 of 3 in 2.0 s: 500\n",
        ),
        ("auto_retry_end", json!({"success": true}), "[retry] succeeded\n"),
        ("auto_retry_end", json!({"finalError": "500"}), "[retry] gave up: 500\n"),
        ("session_deleted", json!({}), "[session] deleted\n"),
        ("extension_ui_request", ui("notify", "done"), "[ui] done\n"),
        ("extension_ui_request", json!({"method": "confirm", "title": "Sure?"}), "[ui] Sure?\n"),
        (
            "extension_ui_request",
            json!({"method": "select", "title": "Which?", "options": ["a", 7, "b\u{1b}[2J"]}),
            "[ui] Which?  a | b\n",
        ),
        (
            "credential_used",
            json!({"use": "ssh git@github.com", "result": "used\u{1b}[2J"}),
            "[credential] ssh git@github.com: used\n",
        ),
        ("extension_ui_closed", json!({"id": "1", "reason": "answered"}), "[ui] answered\n"),
        ("extension_ui_closed", json!({"id": "1", "reason": "timeout"}), "[ui] timed out\n"),
        ("extension_ui_closed", json!({"id": "1", "reason": "ended"}), ""),
        ("extension_ui_request", ui("setStatus", "voice:listening"), ""),
        ("agent_start", json!({}), ""),
        ("turn_end", json!({}), ""),
        ("something_new", json!({"a": 1}), ""),
    ] {
        assert_eq!(shown(&[(name, data.clone())]), line, "{name} {data}");
    }
}

#[test]
fn verbose_shows_the_rest() {
    let look = DisplayOptions { verbose: true, ..DisplayOptions::default() };
    let status = json!({"method": "setStatus", "message": "voice:thinking"});
    let text = show(
        look,
        &[
            ("turn_start", json!({})),
            ("extension_ui_request", status),
            ("something_new\n", json!({"a": "x".repeat(500)})),
            ("agent_end", json!({})),
        ],
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("--- turn ---", "[voice] thinking", "--- end ---"));
    assert!(lines[2].starts_with("[something_new] {\"a\":\"xxx") && lines[2].len() < 160, "{text}");
}

/// Every event name with data of every shape gives text that cannot control the terminal.
#[test]
fn no_event_can_break_or_steer_anything() {
    let evil = "\u{1b}]0;x\u{7}\u{1b}[2J\r\u{202e}\n".repeat(50);
    let shapes = [
        Value::Null,
        json!(7),
        json!([evil]),
        json!(evil),
        json!({"toolCallId": 7, "toolName": [], "args": evil, "delta": 1, "message": [], "result": evil}),
        json!({"toolCallId": evil, "toolName": evil, "args": {evil.as_str(): evil}, "delta": evil,
               "message": {"role": "user", "content": evil}, "error": evil, "reason": evil,
               "extensionPath": evil, "event": evil, "stderrTail": evil, "title": evil,
               "assistantMessageEvent": {"type": "text_delta", "delta": evil},
               "partialResult": {"details": {"omittedBytes": -1, "totalBytes": u64::MAX}},
               "result": {"content": [7, {"type": "text", "text": evil}], "details": evil},
               "isError": evil, "exitCode": u64::MAX, "durationMs": -1}),
    ];
    let names = [
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_end",
        "message_start",
        "message_update",
        "message_end",
        "prompt_error",
        "extension_error",
        "auto_compaction_end",
        "auto_retry_start",
        "auto_retry_end",
        "extension_ui_request",
        "\u{1b}[2Junknown",
    ];
    let look = DisplayOptions { verbose: true, show_thinking: true };
    for first in &shapes {
        for second in &shapes {
            for name in names {
                let text = styled(look, &[(name, first.clone()), (name, second.clone())]);
                // Our own styles have the form `ESC [ number m`.
                for piece in text.split("\u{1b}[").skip(1) {
                    let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
                    assert!(rest.starts_with('m'), "{name}: {text:?}");
                }
                let text = text.replace("\u{1b}[", "");
                let steers = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
                assert!(!text.contains(steers), "{name}: {text:?}");
            }
        }
    }
}

#[test]
fn a_session_that_starts_calls_without_end_costs_bounded_memory() {
    let mut renderer = Renderer::new(DisplayOptions::default());
    for n in 0..1000 {
        let (name, data) = start(&format!("c{n}"), "bash", json!({}));
        renderer.render(name, &data);
    }
    let (name, data) = end("c999", "bash", "", json!({}));
    assert!(renderer.render(name, &data).contains("[3 ms]"));
    assert!(format!("{renderer:?}").matches("held").count() < 100);
}

/// Returns the texts of entries of the app's history after some events.
fn told(events: &[(&str, Value)], entries: &[Value]) -> String {
    let mut renderer = Renderer::new(DisplayOptions::default());
    let mut text: String = events.iter().map(|(name, data)| renderer.render(name, data)).collect();
    text.extend(entries.iter().map(|entry| renderer.history(entry)));
    text.push_str(&renderer.close());
    anstream::adapter::strip_str(&text).to_string()
}

#[test]
fn what_the_app_tells_is_shown_as_what_events_tell() {
    let entry = |kind: &str, text: &str| json!({"sessionID": "s", "type": kind, "text": text});
    let call = |id: &str, state: &str| {
        let metadata = json!({"call_id": id, "tool": "bash", "arguments": "{\"command\":\"ls\"}", "state": state});
        json!({"sessionID": "s", "type": "tool_call", "metadata": metadata})
    };
    let text = told(
        &[start("c1", "bash", json!({"command": "ls"})), end("c1", "bash", "", json!({}))],
        &[
            entry("user_text", "hello\u{1b}[2J"),
            entry("assistant_text_delta", "Hi "),
            entry("assistant_text_delta", "you."),
            entry("assistant_text", "Hi you."),
            call("c1", "start"),
            call("c2", "start"),
            call("c2", "complete"),
            entry("assistant_text", "Done."),
            entry("user_audio", ""),
            entry("response_complete", ""),
            entry("something_new", "x"),
            json!(7),
        ],
    );
    assert_eq!(
        text,
        "[tool] bash command=ls\n[3 ms]\n> hello\nHi you.\n[tool:voice] bash command=ls\nDone.\n"
    );
}

#[test]
fn what_is_told_by_both_sides_or_was_typed_here_is_shown_once() {
    let said = |text: &str| message("message_start", json!({"role": "user", "content": text}));
    let entry = json!({"sessionID": "s", "type": "user_text", "text": "fix  it "});
    assert_eq!(told(&[said("fix it")], std::slice::from_ref(&entry)), "> fix it\n");
    assert_eq!(told(&[said("fix it"), said("fix it")], &[]), "> fix it\n> fix it\n");
    assert_eq!(told(&[], &[entry.clone(), entry]), "> fix  it\n> fix  it\n");
    let mut renderer = Renderer::new(DisplayOptions::default());
    renderer.typed("fix it");
    let (name, data) = said("fix it");
    assert_eq!(renderer.render(name, &data), "");
    assert!(!renderer.render(name, &data).is_empty(), "only once");
}

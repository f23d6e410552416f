//! Lines as each dialect prints them, and what comes of them.

use super::*;

fn event(line: &str) -> (String, String) {
    match read(line) {
        Some(PiLine::Event(event)) => (event.name, event.data),
        other => panic!("{line}: {other:?}"),
    }
}

fn meaning_of(line: &str) -> TurnEffect {
    match read(line) {
        Some(PiLine::Event(event)) => event.meaning,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn an_update_is_its_delta_in_both_dialects() {
    let old = r#"{"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Hel}lo"}]},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"lo","partial":{"role":"assistant","content":[{"type":"text","text":"Hello"}]}}}"#;
    let expected = r#"{"type":"message_update","message":{"role":"assistant"},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"lo"}}"#;
    assert_eq!(event(old), ("message_update".into(), expected.into()));
    let new = r#"{"type":"message_update","usage":{"input":1},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"lo"}}"#;
    let expected = r#"{"type":"message_update","message":{"role":"assistant"},"usage":{"input":1},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"lo"}}"#;
    assert_eq!(event(new).1, expected);
    let bare = r#"{"type":"message_update"}"#;
    let expected = r#"{"type":"message_update","message":{"role":"assistant"}}"#;
    assert_eq!(event(bare).1, expected);
}

#[test]
fn compaction_has_its_old_names_and_a_result() {
    let start = event(r#"{"type":"compaction_start","reason":"manual"}"#);
    assert_eq!(start.0, "auto_compaction_start");
    assert_eq!(start.1, r#"{"type":"auto_compaction_start","reason":"manual"}"#);
    for kind in ["compaction_end", "auto_compaction_end"] {
        let end = event(&format!(r#"{{"type":"{kind}","aborted":true,"willRetry":false}}"#));
        let expected =
            r#"{"type":"auto_compaction_end","aborted":true,"willRetry":false,"result":null}"#;
        assert_eq!(end, ("auto_compaction_end".into(), expected.into()));
    }
    let whole = r#"{"type":"auto_compaction_end","result":{"summary":"s"},"aborted":false}"#;
    assert_eq!(event(whole).1, whole);
}

#[test]
fn an_exit_code_is_told_beside_the_result() {
    let new = r#"{"type":"tool_execution_end","toolCallId":"1","toolName":"bash","result":{"content":[],"structuredContent":{"exit_code":3}},"isError":true}"#;
    assert!(event(new).1.ends_with(r#""isError":true,"exitCode":3}"#));
    let old = r#"{"type":"tool_execution_end","toolCallId":"1","toolName":"bash","result":{"content":[]},"isError":false}"#;
    assert_eq!(event(old).1, old);
}

#[test]
fn everything_else_is_the_same_bytes() {
    for line in [
        r#"{"type":"turn_end","message":{"role":"assistant", "content":[]},"toolResults":[]}"#,
        "{\"type\":\"message_end\",\"message\":{\"content\":\"a\u{2028}b\"}}",
        r#"{"type":"extension_ui_request","id":"1","method":"setStatus","statusKey":"k"}"#,
    ] {
        assert_eq!(event(line).1, line);
    }
    // No reader of lines further down can be misled.
    assert_eq!(event("{\"type\":\"x\",\r\"a\":1}").1.matches('\r').count(), 0);
}

#[test]
fn what_is_no_protocol_is_nothing() {
    for line in [
        "",
        "hello",
        "[]",
        "{}",
        r#"{"type":7}"#,
        r#"{"type":"two words"}"#,
        r#"{"type":"response","id":"other","command":"prompt","success":true}"#,
    ] {
        assert_eq!(read(line), None, "{line}");
    }
    assert_eq!(read(&format!(r#"{{"type":"{}"}}"#, "x".repeat(65))), None);
}

#[test]
fn responses_are_matched_by_our_numbers() {
    let said =
        read(r#"{"id":"q7","type":"response","command":"prompt","success":false,"error":"busy"}"#);
    let expected = PiLine::Response {
        number: Some(7),
        command: "prompt".into(),
        success: false,
        error: Some("busy".into()),
        data: None,
    };
    assert_eq!(said, Some(expected));
    let said = read(r#"{"type":"response","command":"abort","success":true}"#);
    assert!(
        matches!(said, Some(PiLine::Response { number: None, command, .. }) if command == "abort")
    );
}

#[test]
fn a_state_has_no_keys() {
    let line = r#"{"id":"q1","type":"response","command":"get_state","success":true,"data":{"model":{"id":"m","headers":{"Authorization":"Bearer sk-secret"}},"isStreaming":false}}"#;
    let Some(PiLine::Response { data: Some(data), .. }) = read(line) else { panic!() };
    assert_eq!(data, r#"{"model":{"id":"m"},"isStreaming":false}"#);
}

#[test]
fn dialogs_are_what_waits_for_a_person() {
    let line = r#"{"type":"extension_ui_request","id":"u1","method":"confirm","title":"t","timeout":1500}"#;
    let Some(PiLine::Dialog { id, timeout_ms, data }) = read(line) else { panic!() };
    assert_eq!((id.as_str(), timeout_ms, data.as_str()), ("u1", Some(1500), line));
    for (method, waits) in [("select", true), ("input", true), ("editor", true), ("notify", false)]
    {
        let line = format!(r#"{{"type":"extension_ui_request","id":"u","method":"{method}"}}"#);
        assert_eq!(matches!(read(&line), Some(PiLine::Dialog { .. })), waits, "{method}");
    }
    for timeout in ["-1", "0", "\"x\"", "null", "1e300"] {
        let line = format!(
            r#"{{"type":"extension_ui_request","id":"u","method":"input","timeout":{timeout}}}"#
        );
        assert!(matches!(read(&line), Some(PiLine::Dialog { timeout_ms: None, .. })), "{timeout}");
    }
}

#[test]
fn a_long_event_is_cut_and_a_long_message_behind_an_update_costs_nothing() {
    let text = "x".repeat(2 * MAX_AGENT_EVENT_BYTES);
    let (name, data) =
        event(&format!(r#"{{"type":"message_end","message":{{"content":"{text}"}}}}"#));
    assert_eq!(name, "message_end");
    assert!(data.len() <= MAX_AGENT_EVENT_BYTES && data.contains("[cut]"));
    let (_, data) = event(&format!(
        r#"{{"type":"message_update","message":{{"role":"assistant","content":"{text}"}},"assistantMessageEvent":{{"type":"text_delta","delta":"d","partial":"{text}"}}}}"#
    ));
    assert!(data.len() < 200 && data.contains("\"delta\":\"d\""), "{}", data.len());
}

#[test]
fn the_end_of_a_run_says_whether_another_one_may_follow() {
    for (line, expected) in [
        (r#"{"type":"agent_start"}"#, TurnEffect::Begin),
        (
            r#"{"type":"agent_end","messages":[],"willRetry":true}"#,
            TurnEffect::End { again: Some(true) },
        ),
        (
            r#"{"type":"agent_end","messages":[{"role":"user"}]}"#,
            TurnEffect::End { again: Some(false) },
        ),
        (
            r#"{"type":"agent_end","messages":[{"stopReason":"stop"},{"stopReason":"error"}]}"#,
            TurnEffect::End { again: None },
        ),
        (r#"{"type":"auto_retry_start","attempt":1}"#, TurnEffect::Again),
        (r#"{"type":"auto_retry_end","success":false}"#, TurnEffect::GaveUp),
        (r#"{"type":"auto_retry_end","success":true}"#, TurnEffect::Other),
        (r#"{"type":"compaction_end","willRetry":true}"#, TurnEffect::Again),
        (r#"{"type":"agent_settled"}"#, TurnEffect::Settled),
    ] {
        assert_eq!(meaning_of(line), expected, "{line}");
    }
}

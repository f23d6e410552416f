//! Tests of session files: as Pi wrote them, as a crash leaves them, and of all versions.

mod oddities;

use super::*;
use crate::message::{
    AssistantMessage, Block, Content, Message, StopReason, ToolCall, ToolResultMessage, Usage,
    UserMessage,
};
use serde_json::{Value, json};

const FILES: [&str; 2] = [
    include_str!("../../../../tests/fixtures/session-files/pi-0.55.0.jsonl"),
    include_str!("../../../../tests/fixtures/session-files/pi-1.5.2.jsonl"),
];

const TIME: &str = "2026-10-05T11:22:33.044Z";

/// The session files of a recording: before a fork, and its fork.
fn recorded(recording: &str) -> [String; 2] {
    let records = recording.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    let files = records.filter(|it| it["dir"] == "file").map(|it| {
        let lines = it["data"]["lines"].as_array().unwrap().clone();
        lines.iter().map(|line| format!("{line}\n")).collect()
    });
    files.collect::<Vec<_>>().try_into().unwrap()
}

fn header() -> Header {
    Header {
        id: "s1".to_owned(),
        version: VERSION,
        timestamp: TIME.to_owned(),
        cwd: "/w".to_owned(),
        parent_session: None,
    }
}

fn user(text: &str) -> EntryKind {
    let content = Content::Blocks(vec![Block::text(text)]);
    EntryKind::Message(Message::User(UserMessage { content, timestamp: 1 }))
}

fn answer(text: &str, calls: &[&str], stop_reason: StopReason) -> EntryKind {
    let call = |id: &&str| {
        Block::ToolCall(ToolCall {
            id: (*id).to_owned(),
            name: "read".to_owned(),
            ..ToolCall::default()
        })
    };
    EntryKind::Message(Message::Assistant(AssistantMessage {
        content: [Block::text(text)].into_iter().chain(calls.iter().map(call)).collect(),
        api: "openai-completions".to_owned(),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        usage: Usage { input: 10, output: 2, total_tokens: 12, ..Usage::default() },
        stop_reason,
        error_message: None,
        timestamp: 2,
        response_id: None,
        duration_ms: None,
        images_refused: false,
        raw_stop_reason: None,
    }))
}

fn result(id: &str) -> EntryKind {
    EntryKind::Message(Message::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: "read".to_owned(),
        content: vec![Block::text("text")],
        details: None,
        is_error: false,
        timestamp: 3,
    }))
}

/// A conversation of these entries, and its file.
fn written(kinds: impl IntoIterator<Item = EntryKind>) -> (Transcript, String) {
    let mut transcript = Transcript::new(header());
    let mut file = transcript.header().to_line();
    for (n, kind) in (0..).zip(kinds) {
        file += &transcript.append(kind, TIME, 0xabcd_0000 + n);
    }
    (transcript, file)
}

fn texts(transcript: &Transcript) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User(message) => message.content.text(),
        Message::Assistant(message) => crate::message::text_of(&message.content),
        Message::ToolResult(message) => crate::message::text_of(&message.content),
        Message::CompactionSummary { summary, .. } => format!("summary: {summary}"),
        Message::BranchSummary { summary, .. } => format!("branch: {summary}"),
        Message::Custom(message) => format!("custom: {}", message.content.text()),
        other => format!("{other:?}"),
    };
    transcript.messages().iter().map(|message| text(message)).collect()
}

#[test]
fn files_of_pi_are_read_without_loss_and_written_as_they_were() {
    for file in FILES.iter().flat_map(|it| recorded(it)) {
        let transcript = Transcript::read(file.as_bytes()).unwrap();
        assert_eq!(transcript.problems(), Problems::default());
        assert!(!transcript.needs_newline() && !transcript.needs_rewrite());
        let entries: String = transcript.entries().iter().map(Entry::to_line).collect();
        assert_eq!(entries, file.split_once('\n').unwrap().1, "byte for byte");
        assert!(transcript.entries().iter().all(|it| !matches!(it.kind, EntryKind::Other(_))));
        // The typed members are written as Pi wrote them.
        for entry in transcript.entries() {
            let was: Value = serde_json::from_str(&entry.to_line()).unwrap();
            let is = serde_json::to_value(entry).unwrap();
            assert_contains(&was, &is);
        }
    }
}

/// Fails unless each member of `is` is one of `was`. Numbers may have another notation.
fn assert_contains(was: &Value, is: &Value) {
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            is.iter().for_each(|(name, value)| assert_contains(&was[name], value));
        }
        (Value::Array(was), Value::Array(is)) => {
            assert_eq!(was.len(), is.len());
            was.iter().zip(is).for_each(|(was, is)| assert_contains(was, is));
        }
        (Value::Number(was), Value::Number(is)) => assert_eq!(was.as_f64(), is.as_f64()),
        _ => assert_eq!(was, is),
    }
}

#[test]
fn a_file_of_pi_goes_on_with_our_entries() {
    for file in FILES.map(|it| recorded(it)[0].clone()) {
        let mut transcript = Transcript::read(file.as_bytes()).unwrap();
        let leaf = transcript.leaf().map(str::to_owned);
        let line = transcript.append(user("third"), TIME, 0xce72_1edc);
        assert!(line.starts_with("{\"type\":\"message\",\"id\":\""), "{line}");
        let read = Transcript::read((file + &line).as_bytes()).unwrap();
        let last = read.entries().last().unwrap();
        assert_eq!(last.parent_id, leaf);
        assert_eq!(last.to_line(), line);
        let last_texts = texts(&read).split_off(texts(&read).len() - 3);
        assert_eq!(last_texts, ["second", "echo: second", "third"]);
        assert_eq!(read.name(), Some("named"));
        let context = read.context();
        assert_eq!(context.model, Some(("fake".to_owned(), "fake-1".to_owned())));
        assert_eq!(context.thinking.unwrap().name(), "off");
        assert_eq!(read.last_assistant_text().as_deref(), Some("echo: second"));
    }
}

#[test]
fn counts_are_those_that_pi_reports() {
    for (file, messages, input, cost) in
        [(FILES[0], 4, 1126, 0.001_14), (FILES[1], 5, 1187, 0.001_201)]
    {
        let stats = Transcript::read(recorded(file)[0].as_bytes()).unwrap().stats();
        assert_eq!((stats.user_messages, stats.assistant_messages), (2, 2));
        assert_eq!(
            (stats.total_messages, stats.tokens.input, stats.tokens.output),
            (messages, input, 7)
        );
        assert_eq!(stats.tokens.total, input + 7);
        assert!((stats.cost - cost).abs() < 1e-9);
        let json = serde_json::to_value(stats).unwrap();
        assert_eq!(json["tokens"]["cacheRead"], 0);
    }
}

#[test]
fn a_fork_has_the_lines_that_pi_wrote() {
    for file in FILES {
        let [before, fork] = recorded(file);
        let transcript = Transcript::read(before.as_bytes()).unwrap();
        let points = transcript.fork_points();
        assert_eq!(
            points.iter().map(|it| it.1.as_str()).collect::<Vec<_>>(),
            ["remember me", "second"]
        );
        let header = Transcript::read(fork.as_bytes()).unwrap().header().clone();
        let (lines, text) = transcript.fork(&points[1].0, header).unwrap();
        assert_eq!(text, "second");
        let values = |file: &str| -> Vec<Value> {
            file.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
        };
        assert_eq!(values(&lines), values(&fork));
        assert_eq!(lines.split_once('\n').unwrap().1, fork.split_once('\n').unwrap().1);
    }
}

#[test]
fn a_fork_links_around_labels_and_creates_them_again() {
    let (mut transcript, _) = written([user("a"), answer("b", &[], StopReason::Stop)]);
    let ids: Vec<_> = transcript.entries().iter().map(|it| it.id.clone()).collect();
    let label = |target_id: &str, label: Option<&str>| EntryKind::Label {
        target_id: target_id.to_owned(),
        label: label.map(str::to_owned),
    };
    transcript.append(label(&ids[0], Some("gone")), TIME, 1);
    transcript.append(user("c"), TIME, 7);
    transcript.append(user("d"), TIME, 8);
    transcript.append(label(&ids[0], None), TIME, 9);
    transcript.append(label(&ids[1], Some("kept")), TIME, 10);
    transcript.append(label("00000008", Some("not in the fork")), TIME, 11);
    let (lines, text) = transcript.fork("00000008", header()).unwrap();
    assert_eq!(text, "d");
    let fork = Transcript::read(lines.as_bytes()).unwrap();
    assert_eq!(fork.problems().total(), 0);
    assert_eq!(texts(&fork), ["a", "b", "c"]);
    let labels = fork.path().into_iter().filter_map(|it| match &it.kind {
        EntryKind::Label { target_id, label } => Some((target_id.clone(), label.clone())),
        _ => None,
    });
    assert_eq!(labels.collect::<Vec<_>>(), [(ids[1].clone(), Some("kept".to_owned()))]);
    assert_eq!(fork.leaf(), Some("00000002"));

    assert_eq!(transcript.fork("x", header()), Err(TranscriptError::UnknownEntry("x".to_owned())));
    let error = transcript.fork(&ids[1], header()).unwrap_err();
    assert_eq!(error, TranscriptError::NotAUserMessage(ids[1].clone()));
    let (first, _) = transcript.fork(&ids[0], header()).unwrap();
    assert_eq!(first, header().to_line());
}

#[test]
fn a_file_torn_at_any_byte_keeps_all_complete_entries() {
    for file in FILES.map(|it| recorded(it)[0].clone()) {
        let first = file.find('\n').unwrap();
        for end in 0..=file.len() {
            let torn = &file.as_bytes()[..end];
            let read = Transcript::read(torn);
            if end < first {
                let expected =
                    if end == 0 { TranscriptError::Empty } else { TranscriptError::NoHeader };
                assert_eq!(read.unwrap_err(), expected);
                continue;
            }
            let mut transcript = read.unwrap();
            let ends = file.match_indices('\n').filter(|(at, _)| *at <= end).count();
            assert_eq!(transcript.entries().len(), ends - 1, "at {end}");
            assert_eq!(transcript.needs_newline(), torn.last() != Some(&b'\n'));
            let is_complete = [Some(&b'\n'), Some(&b'}')].contains(&torn.last());
            assert!(is_complete || transcript.problems().bad_lines == 1);
            // The next entry is not lost.
            if end % 97 == 0 {
                let mut next = torn.to_vec();
                next.extend(transcript.needs_newline().then_some(b'\n'));
                next.extend(transcript.append(user("next"), TIME, 5).into_bytes());
                let next = Transcript::read(&next).unwrap();
                assert_eq!(texts(&next), texts(&transcript));
                assert_eq!(next.problems(), transcript.problems());
            }
        }
    }
}

#[test]
fn pieces_of_any_size_read_the_same() {
    let file = recorded(FILES[1])[0].clone();
    let whole: Vec<_> = Transcript::read(file.as_bytes()).unwrap().lines().collect();
    for size in [1, 2, 7, 100, 4096] {
        let mut reader = Reader::default();
        file.as_bytes().chunks(size).for_each(|piece| reader.push(piece));
        assert_eq!(reader.finish().unwrap().lines().collect::<Vec<_>>(), whole);
    }
}

#[test]
fn an_entry_after_a_lost_line_is_linked_to_the_one_before_it() {
    let (_, file) = written([user("a"), user("b"), user("c"), user("d")]);
    let lines: Vec<_> = file.lines().collect();
    // Pi 0.55 writes the next entry on a torn line, and so loses both.
    let damaged = [lines[0], lines[1], &lines[2][..40], lines[4]].join("\n");
    let transcript = Transcript::read(damaged.as_bytes()).unwrap();
    assert_eq!(texts(&transcript), ["a", "d"]);
    let problems = transcript.problems();
    assert_eq!((problems.bad_lines, problems.bridged_links, problems.broken_links), (1, 1, 0));
    // Without a damaged line the walk ends, as in Pi.
    let broken = [lines[0], lines[1], lines[4]].join("\n");
    let transcript = Transcript::read(broken.as_bytes()).unwrap();
    assert_eq!(texts(&transcript), ["d"]);
    assert_eq!(transcript.problems().broken_links, 1);
}

#[test]
fn an_entry_after_an_empty_line_is_linked_to_the_one_before_it() {
    let (_, file) = written([user("a"), user("b"), user("c")]);
    let lines: Vec<_> = file.lines().collect();
    let gap = [lines[0], lines[1], "", lines[3]].join("\n");
    let transcript = Transcript::read(gap.as_bytes()).unwrap();
    assert_eq!(texts(&transcript), ["a", "c"]);
    let problems = transcript.problems();
    assert_eq!((problems.bridged_links, problems.broken_links), (1, 0));
    // The empty line counts for the entry after it only.
    let known = [lines[0], lines[1], "", lines[2]].join("\n");
    assert_eq!(Transcript::read(known.as_bytes()).unwrap().problems().total(), 0);
}

#[test]
fn links_never_form_a_cycle() {
    let line = |id: &str, parent: &str| {
        json!({ "type": "custom", "id": id, "parentId": parent, "customType": "x" }).to_string()
    };
    let lines = [line("a", "b"), line("b", "a"), line("c", "c"), line("b", "b"), line("d", "b")];
    let transcript = Transcript::read((header().to_line() + &lines.join("\n")).as_bytes()).unwrap();
    assert_eq!(transcript.path().len(), 4);
    assert_eq!(transcript.problems().broken_links, 2);
}

#[test]
fn other_branches_are_kept_and_not_in_the_context() {
    let (_, file) = written([user("a"), user("b"), user("c")]);
    let lines: Vec<_> = file.lines().collect();
    let sibling = lines[3].replace("\"abcd0001\"", "\"abcd0000\"");
    let file = [lines[0], lines[1], lines[2], &sibling].join("\n");
    let transcript = Transcript::read(file.as_bytes()).unwrap();
    assert_eq!(texts(&transcript), ["a", "c"]);
    assert_eq!(transcript.stats().user_messages, 3);
}

#[test]
fn the_context_begins_at_the_last_compaction() {
    let (mut transcript, _) = written(["a", "b", "c", "d"].map(user));
    let compaction = |n: usize, summary: &str, transcript: &Transcript| EntryKind::Compaction {
        summary: summary.to_owned(),
        first_kept_entry_id: transcript
            .entries()
            .get(n)
            .map_or_else(|| "gone".to_owned(), |it| it.id.clone()),
        tokens_before: 100,
        details: None,
        usage: Some(Usage { input: 5, ..Usage::default() }),
    };
    transcript.append(compaction(2, "first", &transcript), TIME, 20);
    transcript.append(user("e"), TIME, 21);
    assert_eq!(texts(&transcript), ["summary: first", "c", "d", "e"]);
    let before = transcript.stats();
    transcript.append(compaction(3, "second", &transcript), TIME, 22);
    assert_eq!(texts(&transcript), ["summary: second", "d", "e"]);
    let stats = transcript.stats();
    assert_eq!((stats.user_messages, stats.tokens.input), (5, before.tokens.input + 5));
    transcript.append(compaction(99, "third", &transcript), TIME, 23);
    assert_eq!(texts(&transcript), ["summary: third"], "the kept entry is unknown");
    let Message::CompactionSummary { timestamp, tokens_before, .. } = *transcript.messages()[0]
    else {
        panic!()
    };
    assert_eq!((iso_time(timestamp).as_str(), tokens_before), (TIME, 100));
}

#[test]
fn edits_of_newer_versions_hide_and_replace_messages() {
    let (mut transcript, _) = written(["a", "b", "c"].map(user));
    let edit = |target: &str, replacement: Value| {
        json!({ "type": "context_edit", "id": format!("e-{target}-{}", replacement.is_null()),
            "parentId": "abcd0002", "timestamp": TIME, "targetId": target, "replacement": replacement })
    };
    let mut file: String = transcript.lines().collect();
    let mut last = edit("abcd0001", json!({ "content": "B", "more": 1 }));
    last["parentId"] = json!("e-abcd0000-true");
    file += &format!("{}\n{last}\n", edit("abcd0000", Value::Null));
    transcript = Transcript::read(file.as_bytes()).unwrap();
    assert_eq!(texts(&transcript), ["B", "c"]);
    assert_eq!(transcript.lines().collect::<String>(), file, "nothing is lost");
}

#[test]
fn an_unfinished_turn_is_found() {
    let of = |kinds: Vec<EntryKind>| {
        let found = written(kinds).0.interrupted()?;
        let calls = found.calls.iter().map(|it| it.id.clone()).collect::<Vec<_>>().join(" ");
        Some((found.entry_id, calls))
    };
    let (stop, tools) = (StopReason::Stop, StopReason::ToolUse);
    let some = |n: u32, calls: &str| Some((format!("abcd{n:04x}"), calls.to_owned()));
    assert_eq!(of(vec![]), None);
    assert_eq!(of(vec![user("a"), answer("b", &[], stop)]), None);
    assert_eq!(of(vec![user("a"), answer("", &["1"], StopReason::Aborted)]), None);
    assert_eq!(of(vec![user("a"), answer("", &[], StopReason::Error)]), None);
    assert_eq!(of(vec![user("a")]), some(0, ""));
    assert_eq!(of(vec![user("a"), answer("b", &[], stop), user("c")]), some(2, ""));
    assert_eq!(of(vec![user("a"), answer("", &["1", "2"], tools)]), some(1, "1 2"));
    assert_eq!(of(vec![user("a"), answer("", &["1", "2"], tools), result("1")]), some(2, "2"));
    assert_eq!(of(vec![user("a"), answer("", &["1"], tools), result("1")]), some(2, ""));
    assert_eq!(of(vec![answer("", &["1"], tools), user("later")]), some(1, ""));
    assert_eq!(of(vec![user("a"), EntryKind::SessionInfo { name: "n".to_owned() }]), some(0, ""));
}

#[test]
fn ids_are_unique_and_derive_from_the_random_number() {
    let mut transcript = Transcript::new(header());
    (0..1000).for_each(|_| drop(transcript.append(user("x"), TIME, u32::MAX)));
    let ids: std::collections::HashSet<_> = transcript.entries().iter().map(|it| &it.id).collect();
    assert_eq!((ids.len(), transcript.entries()[0].id.as_str()), (1000, "ffffffff"));
    assert!(ids.iter().all(|id| id.len() == 8));
    assert_eq!(transcript.path().len(), 1000);
}

#[test]
fn the_last_name_wins_and_an_empty_one_removes_it() {
    let name = |name: &str| EntryKind::SessionInfo { name: name.to_owned() };
    assert_eq!(written([name("one"), name(" two ")]).0.name(), Some("two"));
    assert_eq!(written([name("one"), name(" ")]).0.name(), None);
}

//! Checks that the schemas are valid, accept the values that the wire types write and reject wrong values. Also checks
//! that the TypeScript declarations have the same names.

use quackd_protocol::client::{
    EventLine, METHODS, PingData, ToolContent, ToolData, ToolExecutionEnd, ToolInfo, VoiceStopEvent,
};
use quackd_protocol::{SessionId, client};
use schemars::generate::SchemaSettings;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns a validator for the definition `name`.
fn validator(name: &str) -> jsonschema::Validator {
    let mut schema = quackd_schema::document();
    schema.as_object_mut().unwrap().remove("anyOf");
    schema["$ref"] = format!("#/$defs/{name}").into();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn is_valid(name: &str, value: &Value) -> bool {
    validator(name).is_valid(value)
}

#[test]
fn the_document_and_its_parts_are_schemas_without_loose_ends() {
    let document = quackd_schema::document();
    let (methods, events) = quackd_schema::names();
    for names in [&methods, &events] {
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
    let parts = methods.iter().chain(&events).map(|name| quackd_schema::named(name).unwrap());
    let types = document["$defs"]
        .as_object()
        .unwrap()
        .keys()
        .map(|name| quackd_schema::named(name).unwrap());
    for schema in parts.chain(types).chain([
        document.clone(),
        quackd_schema::methods(),
        quackd_schema::events(),
    ]) {
        assert!(jsonschema::draft202012::meta::is_valid(&schema), "{schema}");
        let none = serde_json::Map::new();
        let defs = schema["$defs"].as_object().unwrap_or(&none);
        let mut wanted = BTreeSet::new();
        references(&schema, &mut wanted);
        for reference in &wanted {
            let name = reference.strip_prefix("#/$defs/").unwrap();
            assert!(defs.contains_key(name), "{}: {reference} leads nowhere", schema["title"]);
        }
        let unused: Vec<_> =
            defs.keys().filter(|name| !wanted.contains(&format!("#/$defs/{name}"))).collect();
        // These two exist only for lookups by name.
        let is_index =
            |name: &&String| schema == document && ["Methods", "Events"].contains(&name.as_str());
        assert!(unused.iter().all(is_index), "{}: nothing uses {unused:?}", schema["title"]);
    }
    assert_eq!(quackd_schema::named("nothing"), None);
}

fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Array(all) => all.iter().for_each(|it| references(it, found)),
        Value::Object(all) => {
            found.extend(all.get("$ref").and_then(Value::as_str).map(str::to_owned));
            all.values().for_each(|it| references(it, found));
        }
        _ => {}
    }
}

/// A definition has one name and one shape, so the schemas for reading and for writing must be equal.
#[test]
fn types_that_are_read_and_written_have_one_shape() {
    let of = |settings: SchemaSettings| {
        let mut generator = settings.into_generator();
        for method in METHODS {
            (method.params)(&mut generator);
        }
        generator.take_definitions(true)
    };
    let read = of(SchemaSettings::draft2020_12().for_deserialize());
    let mut writing = SchemaSettings::draft2020_12().for_serialize().into_generator();
    for method in METHODS {
        (method.reply)(&mut writing);
    }
    let written = writing.take_definitions(true);
    let both: Vec<_> = read.iter().filter(|(name, _)| written.contains_key(*name)).collect();
    assert!(!both.is_empty());
    for (name, schema) in both {
        assert_eq!(Some(schema), written.get(name), "{name}");
    }
}

#[test]
fn what_the_types_write_is_valid_and_nothing_else_is() {
    let ping = PingData {
        version: "0".into(),
        uptime: 1,
        clients: 1,
        pid: 2,
        started_at: "2026-01-01T00:00:00Z".into(),
        protocol: client::CLIENT_PROTOCOL,
        build: "test".into(),
    };
    let text = RawValue::from_string("\"x\"".into()).unwrap();
    let info = ToolInfo { exit_code: Some(3), ..ToolInfo::default() };
    let tool = ToolData { text: text.clone(), info: info.clone(), data: None, closing: None };
    let session = SessionId::from("s");
    let end = EventLine {
        event: "tool_execution_end",
        session_id: &session,
        data: ToolExecutionEnd {
            kind: "tool_execution_end",
            tool_call_id: "c",
            tool_name: "bash",
            result: ToolContent { content: vec![client::TextBlock::new(&text)], details: &info },
            is_error: true,
            exit_code: Some(3),
            duration_ms: 4,
            client: None,
        },
        seq: 1,
        turn: None,
    };
    let stop = client::ToldLine {
        event: "voice_stop",
        session_id: &session,
        data: VoiceStopEvent { kind: "voice_stop", reason: "cli_exit", session_id: &session },
    };
    let written = [
        ("PingData", serde_json::to_value(ping).unwrap()),
        ("ToolResult", serde_json::to_value(tool).unwrap()),
        ("ToolExecutionEndEvent", serde_json::to_value(end).unwrap()),
        ("VoiceStopEvent", serde_json::to_value(stop).unwrap()),
    ];
    for (name, value) in &written {
        let validator = validator(name);
        assert!(validator.is_valid(value), "{name}: {value}");
        every_change(value, &mut |changed| {
            assert!(!validator.is_valid(changed), "{name} takes {changed}");
        });
        let mut more = value.clone();
        more["another"] = json!({"key": 1});
        assert!(validator.is_valid(&more), "{name}: one more key is an error");
    }
}

/// Calls `check` with variants of the value, each with one inner value replaced by a value of another type.
fn every_change(value: &Value, check: &mut dyn FnMut(&Value)) {
    let other = if value.is_array() { json!({}) } else { json!([]) };
    check(&other);
    let places: Vec<String> = match value {
        Value::Object(all) => all.keys().cloned().collect(),
        _ => Vec::new(),
    };
    for place in places {
        every_change(&value[&place], &mut |changed| {
            let mut whole = value.clone();
            whole[&place] = changed.clone();
            check(&whole);
        });
    }
}

#[test]
fn lines_are_taken_and_refused_as_the_documentation_says() {
    let event = |event: &str, data: Value| json!({"event": event, "sessionId": "s", "data": data, "seq": 1});
    let of_type = |name: &str| event(name, json!({"type": name}));
    for (name, value) in [
        ("Request", json!({"id": "1", "method": "ping"})),
        (
            "Request",
            json!({"id": {"any": 1}, "method": "say", "params": {"message": "x", "new": 1}}),
        ),
        ("Request", json!({"method": "attach", "params": {"path": null}})),
        ("Reply", json!({"id": 1, "ok": true})),
        ("Reply", json!({"ok": false, "error": "x", "data": {}})),
        ("Event", of_type("agent_start")),
        ("Event", of_type("of_a_newer_pi")),
        ("Event", json!({"event": "voice_say", "sessionId": "s", "data": {"text": "x"}})),
    ] {
        assert!(is_valid(name, &value), "{value}");
    }
    for (name, value) in [
        ("Request", json!({"id": "1", "method": "nosuch"})),
        ("Request", json!({"id": "1", "method": "say", "params": {}})),
        ("Request", json!({"id": "1", "method": "say"})),
        ("Request", json!({"id": "1", "method": "attach", "params": {"path": 5}})),
        ("Request", json!({"id": "1", "method": "voice_state", "params": {"state": "dancing"}})),
        ("Request", json!({"id": "1", "method": "quack.sandbox", "params": {"profile": "none"}})),
        ("Reply", json!({"id": 1})),
        ("Reply", json!({"id": 1, "ok": true, "error": "x"})),
        ("Reply", json!({"id": 1, "ok": false})),
        (
            "Event",
            json!({"event": "agent_start", "sessionId": "s", "data": {"type": "agent_start"}}),
        ),
        ("Event", event("agent_start", json!({"type": "agent_end"}))),
        ("Event", event("prompt_error", json!({"type": "prompt_error", "error": 1}))),
        ("Event", event("voice_say", json!({"text": "x"}))),
        ("Event", event("of_a_newer_pi", json!({}))),
    ] {
        assert!(!is_valid(name, &value), "{value}");
    }
}

#[test]
fn a_name_that_is_a_method_and_an_event_shows_both() {
    let both = quackd_schema::named("voice_start").unwrap();
    let parts: Vec<&String> = both["properties"].as_object().unwrap().keys().collect();
    assert_eq!(parts, ["data", "event", "params"]);
    let method = quackd_schema::named("unfollow").unwrap();
    assert_eq!(method["properties"]["data"], false);
    assert_eq!(
        quackd_schema::named("agent_end").unwrap()["properties"].as_object().unwrap().len(),
        1
    );
    assert_eq!(quackd_schema::named("VoiceState").unwrap()["title"], "VoiceState");
}

#[test]
fn the_declarations_name_everything_once() {
    let text = quackd_schema::typescript();
    for name in quackd_schema::document()["$defs"].as_object().unwrap().keys() {
        let count = ["export interface", "export type"].map(|word| {
            text.lines().filter(|line| line.starts_with(&format!("{word} {name} "))).count()
        });
        assert_eq!(count.iter().sum::<usize>(), 1, "{name}");
    }
    for expected in [
        "export type AuditChange = \"made\" | \"changed\" | \"removed\";",
        "export interface AttachedSession {\n  /** Opaque id. */\n  id: SessionId;\n  /** Display name. */\n  \
         name: string;\n}\n",
        "  \"quack.session_new\": {\n    data: AttachData;\n    params: SessionNewParams;\n  };\n",
        "    data?: undefined;\n",
        "  lastActiveSessionId: SessionId | null;\n",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
    assert_eq!(text.matches('{').count(), text.matches('}').count());
}

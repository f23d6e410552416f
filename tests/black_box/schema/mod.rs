//! `quack schema`: it covers the daemon's methods and their documentation, and its TypeScript
//! compiles. The transcript tests use the checker of this module for every line.

mod checker;

pub(crate) use checker::Checker;

use crate::harness::{Daemon, program};
use crate::transcripts::read;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_method_that_is_answered_has_a_schema_and_a_section() {
    let daemon = Daemon::absent();
    let printed = daemon.quack(&["schema", "methods"]).json();
    let of = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let with_schema = of(&printed["properties"]);
    assert!(with_schema.contains("ping") && 10 < with_schema.len(), "{with_schema:?}");
    let document = read("docs/protocol.md");
    // One section may describe several methods: `### follow and unfollow`.
    let is_headed = |name: &String| {
        document.lines().any(|line| {
            line.strip_prefix("### ").is_some_and(|title| title.split(' ').any(|word| word == name))
        })
    };
    let without: Vec<_> = with_schema.iter().filter(|name| !is_headed(name)).collect();
    assert!(without.is_empty(), "docs/protocol.md has no section about {without:?}");
}

#[test]
fn every_event_that_has_a_schema_is_documented() {
    let events = Daemon::absent().quack(&["schema", "events"]).json();
    let document = read("docs/protocol.md");
    let named = |name: &&String| !document.contains(&format!("`{name}`"));
    let missing: Vec<_> = events["properties"].as_object().unwrap().keys().filter(named).collect();
    assert!(missing.is_empty(), "docs/protocol.md says nothing of {missing:?}");
}

#[test]
fn schema_prints_the_whole_and_its_parts_without_a_daemon() {
    let daemon = Daemon::absent();
    let whole = daemon.quack(&["schema"]).json();
    assert_eq!(whole["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let attach = daemon.quack(&["schema", "attach"]).json();
    assert_eq!(
        attach["properties"],
        whole["$defs"]["Methods"]["properties"]["attach"]["properties"]
    );
    assert!(attach["$defs"]["AttachData"].is_object() && attach["$defs"]["PsData"].is_null());
    let event = daemon.quack(&["schema", "agent_end"]).json();
    assert_eq!(event["properties"]["event"], json!({"$ref": "#/$defs/AgentEndEvent"}));
    let tool = daemon.quack(&["schema", "tools", "bash"]).json();
    assert_eq!(tool["name"], "bash");
    let unknown = daemon.quack(&["schema", "atach"]);
    assert_eq!(unknown.code(), Some(2));
    assert!(unknown.stderr().contains("there is no method, event or type 'atach'"));
    assert!(!daemon.socket().exists());
}

#[test]
fn the_declarations_pass_the_compiler_at_its_strictest() {
    let Some(tsc) = tsc() else {
        crate::harness::skipped("no TypeScript compiler (tsc in PATH, or QUACKD_TSC)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let declarations = Daemon::absent().quack(&["schema", "--typescript"]).ok();
    std::fs::write(dir.path().join("quackd.d.ts"), declarations).unwrap();
    let use_of = |line: &str| {
        let text =
            format!("import type {{ Methods, KnownEvent }} from \"./quackd.d.ts\";\n{line}\n");
        std::fs::write(dir.path().join("use.ts"), text).unwrap();
        strict(&tsc, dir.path(), &["quackd.d.ts", "use.ts"])
    };
    for right in [
        "export const a: Methods[\"attach\"][\"params\"] = { path: \"/x\" };",
        "export const of = (it: KnownEvent) => (it.event === \"prompt_error\" ? it.data.error.length : it.sessionId);",
        "export const none: Methods[\"unfollow\"][\"data\"] = undefined;",
    ] {
        assert_eq!(use_of(right), Ok(()), "{right}");
    }
    for wrong in [
        "export const a: Methods[\"attach\"][\"params\"] = { path: 5 };",
        "export const a: Methods[\"attach\"][\"params\"] = { pth: \"/x\" };",
        "export const a: Methods[\"say\"][\"params\"] = {};",
        "export const a: Methods[\"nosuch\"][\"params\"] = {};",
    ] {
        assert!(use_of(wrong).is_err(), "the compiler takes {wrong}");
    }
}

/// A checker that accepts every line would prove nothing.
#[test]
fn a_line_that_is_not_as_its_schema_says_is_told() {
    let ask = |method: &str, params: Value, reply: Value| {
        let mut checker = Checker::default();
        checker.sent(&json!({"id": "1", "method": method, "params": params}).to_string());
        checker.got(&reply)
    };
    let deleted = |calls: Value| json!({"id": "1", "ok": true, "data": {"session": {"id": "s", "name": "n"}, "callsEnded": calls}});
    let delete = |params, calls| ask("quack.session_delete", params, deleted(calls));
    assert_eq!(delete(json!({"sessionId": "s"}), json!(1)), Ok(()));
    assert!(
        delete(json!({"sessionId": "s"}), json!("1")).unwrap_err().contains("/data/callsEnded")
    );
    assert!(
        delete(json!({}), json!(1)).unwrap_err().contains("/params: \"sessionId\" is a required")
    );
    let done = json!({"id": "1", "ok": true});
    assert_eq!(ask("unfollow", json!({}), done.clone()), Ok(()));
    assert!(ask("ping", json!({}), done.clone()).unwrap_err().contains("\"data\" is a required"));
    assert!(ask("nosuch", json!({}), done).unwrap_err().contains("no schema"));
    assert!(ask("unfollow", json!({}), json!({"id": "1", "ok": true, "data": {}})).is_err());
    assert!(ask("unfollow", json!({}), json!({"id": "1", "ok": false})).is_err());
    let event =
        |data: Value| json!({"event": "session_deleted", "sessionId": "s", "data": data, "seq": 1});
    let mut checker = Checker::default();
    assert_eq!(checker.got(&event(json!({"type": "session_deleted"}))), Ok(()));
    assert!(checker.got(&event(json!({"type": "another"}))).is_err());
}

/// The TypeScript compiler, if available.
pub(crate) fn tsc() -> Option<String> {
    let named = std::env::var("QUACKD_TSC").ok();
    let tsc = named.unwrap_or_else(|| "tsc".to_owned());
    succeeds(&tsc, &["--version"]).then_some(tsc)
}

/// Returns true if a program exists and exits with 0.
pub(crate) fn succeeds(name: &str, args: &[&str]) -> bool {
    program(name).args(args).output().is_ok_and(|output| output.status.success())
}

/// Type-checks files of a directory. The error contains the compiler's output.
pub(crate) fn strict(tsc: &str, dir: &Path, files: &[&str]) -> Result<(), String> {
    let flags = "--strict --noEmit --target es2022 --module nodenext --allowImportingTsExtensions";
    let output = program(tsc).args(flags.split(' ')).args(files).current_dir(dir).output();
    let output = output.expect("run the compiler");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

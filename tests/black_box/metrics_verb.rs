//! `quack metrics` and `quack ps --watch`: numbers of a busy daemon, in formats for other programs.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Running};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Parses the samples of a text by name and labels. Asserts that Prometheus would accept every
/// line.
#[track_caller]
pub(crate) fn samples(text: &str) -> BTreeMap<String, f64> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
    };
    let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
    let mut helped = BTreeSet::new();
    // Lines of a family are consecutive, after its HELP and its TYPE.
    let mut current = "";
    // The last bucket of a series: bucket counts never decrease.
    let mut last_bucket = ("".to_owned(), 0.0);
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && help.ends_with('.') && helped.insert(name), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name) && name.starts_with("quackd_"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(families.insert(name, kind).is_none(), "{line}");
            current = name;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                name.strip_suffix(end).filter(|it| families.get(it) == Some(&"histogram"))
            });
            assert_eq!(family.unwrap_or(name), current, "{line} is not with its type");
            let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}"));
            for label in labels.split(',').filter(|label| !label.is_empty()) {
                let (key, text) = label.split_once('=').unwrap();
                assert!(
                    is_name(key) && text.len() >= 2 && text.starts_with('"') && text.ends_with('"')
                );
            }
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(value.is_finite() && 0.0 <= value, "{line}");
            if let Some((of, _)) = labels.split_once(",le=\"").filter(|_| name.ends_with("_bucket"))
            {
                let before = std::mem::replace(&mut last_bucket, (of.to_owned(), value));
                assert!(before.0 != of || before.1 <= value, "{line}");
            }
            assert!(samples.insert(series.to_owned(), value).is_none(), "{line} is there twice");
        }
    }
    samples
}

#[test]
fn metrics_are_what_prometheus_reads_and_move_with_what_happens() {
    needs!(Signals);
    let daemon = Daemon::start();
    let before = samples(&daemon.quack(&["metrics"]).ok());
    assert_eq!(before["quackd_sessions"], 0.0);
    let repo = daemon.repo("very-secret-name");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    session.bash("exit 3");
    session.call("no_such_tool_of_ours", json!({}));
    session.begin("bash", json!({"command": "kill -9 $PPID"})).text();
    let text = daemon.quack(&["metrics"]).ok();
    let after = samples(&text);
    assert!(!text.contains("very-secret-name") && !text.contains("duck-1"), "{text}");
    assert!(!text.contains("no_such_tool_of_ours"), "{text}");
    assert_eq!(after["quackd_sessions"], 1.0);
    assert_eq!(after["quackd_child_deaths_total"], before["quackd_child_deaths_total"] + 1.0);
    let killed = "quackd_child_deaths_by_cause_total{child=\"session-worker\",cause=\"signal\"}";
    assert_eq!((before.get(killed), after.get(killed)), (None, Some(&1.0)));
    assert!(before.contains_key("quackd_client_queue_bytes"));
    assert!(before.contains_key("quackd_event_ring_bytes"));
    assert!(before["quackd_events_total"] + 4.0 <= after["quackd_events_total"]);
    let count = |tool: &str, outcome: &str| {
        let name = "quackd_tool_call_duration_seconds";
        let labels = format!("tool=\"{tool}\",outcome=\"{outcome}\"");
        let count = after.get(&format!("{name}_count{{{labels}}}")).copied().unwrap_or(0.0);
        let all = after.get(&format!("{name}_bucket{{{labels},le=\"+Inf\"}}")).copied();
        assert_eq!(all.unwrap_or(0.0), count);
        count
    };
    assert_eq!(
        [count("bash", "ok"), count("bash", "error"), count("bash", "worker_died")],
        [1.0; 3]
    );
    if cfg!(target_os = "linux") {
        assert!(0.0 < after["quackd_resident_memory_bytes"] && 2.0 < after["quackd_open_fds"]);
    }
    let data = daemon.quack(&["metrics", "--json"]).json();
    assert_eq!(data["contentType"], "text/plain; version=0.0.4; charset=utf-8");
}

#[test]
fn ps_watch_gives_scripts_a_line_for_each_look_until_ctrl_c_which_is_no_failure() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let watching = Running::start(daemon.command(&["ps", "--watch=1", "--json"]));
    let look = |line: String| serde_json::from_str::<Value>(&line).unwrap();
    let first = look(watching.line());
    let call = session.begin("bash", json!(daemon.gated("go", "true")));
    let used = loop {
        let worker = look(watching.line())["workers"][0].clone();
        if worker["calls"].as_array().is_some_and(|calls| !calls.is_empty())
            && worker["usage"].is_object()
        {
            break worker["usage"].clone();
        }
    };
    assert!(
        first["supervisor"]["pid"] == daemon.pid() && 3 <= used["processes"].as_u64().unwrap(),
        "{used}"
    );
    assert!(1000 < used["rssKb"].as_u64().unwrap(), "{used}");
    daemon.open_gate("go");
    call.text();
    assert_eq!(watching.interrupt(), (Some(0), String::new()));
    assert_eq!(daemon.quack(&["ps", "--watch=0"]).code(), Some(2));
}

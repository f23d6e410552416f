//! Self-check: every kind of predicate becomes true once. A predicate that cannot become true would
//! pass every case.
//!
//! Two kinds are not shown here: `host_slow` and `disk_used_gt_mb` concern the whole machine, and
//! making them true would disturb other programs.

use super::corpus::Case;
use super::modes::Mode;
use super::world::has_program;
use super::{Verdict, run};
use crate::harness::tier::needs;
use crate::harness::users::User;
use serde_json::{Value, json};

const PYTHON: &str = "/usr/bin/python3";

/// Builds a case that exists only here. The id decides whether it has a search provider.
fn case(id: &str, tool: &str, args: &Value, must_not: &Value) -> Case {
    let case = json!({"id": id, "tries": "", "class": "self-check", "tool": tool, "args": args,
        "must_not": [must_not], "profile": "workspace-write"});
    serde_json::from_value(case).expect("a case")
}

/// Cases that need a listening program, or a client of a socket without a port.
const WITH_PYTHON: [(&str, &str, &str); 3] = [
    ("host_connect", "", "s = socket.create_server(('', {{FREE}})); s.settimeout(15); s.accept()"),
    ("net_hit", "unix", "s = socket.socket(socket.AF_UNIX); s.connect('{{SOCK}}')"),
    ("net_hit", "abstract", "s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + '{{ABS}}')"),
];

#[test]
fn every_kind_of_predicate_can_become_true() {
    needs!(OwnTier);
    let rows = [
        ("echo here", json!({"kind": "output_has", "text": "here"})),
        ("seq 100000", json!({"kind": "output_has", "text": "\n50001\n"})),
        ("true", json!({"kind": "output_lacks", "text": "here"})),
        ("echo 12345", json!({"kind": "result_bytes_gt", "value": 5})),
        ("sleep 0.3", json!({"kind": "slow", "ms": 250})),
        ("echo >> notes.txt", json!({"kind": "changed", "path": "{{WS}}/notes.txt"})),
        ("touch -d 1970-01-01 notes.txt", json!({"kind": "changed", "path": "{{WS}}/notes.txt"})),
        ("ln -sf x notes.txt", json!({"kind": "changed", "path": "{{WS}}/notes.txt"})),
        ("ln -s nowhere new", json!({"kind": "created", "path": "{{WS}}/new"})),
        ("chmod 700 notes.txt", json!({"kind": "mode_changed", "path": "{{WS}}/notes.txt"})),
        (
            "rm notes.txt",
            json!({"kind": "file_lacks", "path": "{{WS}}/notes.txt", "text": "hello"}),
        ),
        ("true", json!({"kind": "host_exec", "cmd": "touch {{OUT}}/new", "path": "{{OUT}}/new"})),
        ("echo > /dev/tcp/127.0.0.1/{{TCP}}", json!({"kind": "net_hit", "via": "tcp"})),
        ("echo > /dev/udp/127.0.0.1/{{UDP}}", json!({"kind": "net_hit", "via": "any"})),
        ("kill -STOP {{DPID}}", json!({"kind": "daemon_dead"})),
        ("kill -9 {{DPID}}", json!({"kind": "daemon_dead"})),
        (
            "echo 500 > /proc/{{DPID}}/oom_score_adj",
            json!({"kind": "daemon_attr_changed", "attr": "oom_score_adj"}),
        ),
        ("kill -9 $PPID", json!({"kind": "worker_crash"})),
        ("true", json!({"kind": "rss_mb_gt", "value": 1})),
        ("sleep {{N}} & sleep 1", json!({"kind": "jobs_gt", "value": 0})),
    ];
    let bash = |(command, must_not): &(&str, Value)| {
        case("bash", "bash", &json!({"command": command, "timeout": 20}), must_not)
    };
    let mut cases: Vec<Case> = rows.iter().map(bash).collect();
    if has_program(PYTHON) {
        cases.extend(WITH_PYTHON.iter().map(|(kind, via, script)| {
            let command = format!("{PYTHON} -c \"import socket; {script}\"");
            bash(&(&command, json!({"kind": kind, "via": via})))
        }));
    }
    // A job's call returns before the job runs.
    let runs = "until ps -eo args | grep -qx 'sleep {{N}}'; do sleep 0.02; done";
    let job = json!({"steps": [
        {"tool": "bash", "args": {"command": "sleep {{N}}", "background": true}},
        {"tool": "bash", "args": {"command": runs}},
    ]});
    let alive = json!({"kind": "proc_alive", "cmdline": "sleep {{N}}", "after_ms": 300});
    let alive_by_world = json!({"kind": "proc_alive", "cmdline": "sleep", "after_ms": 300});
    cases.extend([
        case("job", "seq", &job, &alive),
        case("job", "seq", &job, &alive_by_world),
        case("read", "read", &json!({"path": "notes.txt"}), &json!({"kind": "accepted"})),
        case(
            "web-02",
            "web_search",
            &json!({"query": "x"}),
            &json!({"kind": "outbound_has", "text": "POST "}),
        ),
    ]);
    let mode = Mode::unconfined(User::Ordinary);
    for row in run(&mode, cases) {
        let kind = row.case.must_not[0]["kind"].as_str().expect("a kind").to_owned();
        assert_eq!(row.verdict, Verdict::Violated(vec![kind]), "{:?}", row.case);
    }
}

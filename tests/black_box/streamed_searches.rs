//! Searches whose rows arrive while they run: order, memory, cancellation, and clients that read slowly or stop.

use crate::harness::long::resident_kib;
use crate::harness::{Daemon, Repo, wait_for};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::Read;
use std::process::{Child, Stdio};

/// Lines of the large file. The socket's buffers, the client's outbox and the pieces in flight hold a small part of
/// their rows.
const N_LINES: usize = 400_000;

/// Creates a daemon and a repository in which `row` matches many lines.
fn world() -> (Daemon, Repo) {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("a.txt", "row 0\n");
    let rows: String = (0..N_LINES).map(|n| format!("row {n} of a long file\n")).collect();
    repo.write("big.txt", rows);
    repo.write("c/d.txt", "no\nrow last\n");
    (daemon, repo)
}

fn search(repo: &Repo, more: &Value) -> Value {
    let mut params = json!({"path": repo.path(), "tool": "search", "callId": "c1", "stream": true,
        "streamRows": true, "arguments": {"pattern": "row", "limit": 0, "max_bytes": 1_048_576}});
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

fn calls(daemon: &Daemon) -> usize {
    let ps = daemon.wire().request("quack.ps", json!({}));
    let workers = ps["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker["calls"].as_array().unwrap().len()).sum()
}

/// Returns the lines of a stream.
fn lines(events: &[Value]) -> Vec<Value> {
    let mut bytes = Vec::new();
    for event in events.iter().filter(|event| event["event"] == "tool_output") {
        assert_eq!(
            (&event["data"]["stream"], &event["data"]["toolCallId"]),
            (&json!("rows"), &json!("c1"))
        );
        bytes.extend(STANDARD.decode(event["data"]["bytes"].as_str().unwrap()).unwrap());
    }
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn all_rows_come_before_the_reply_in_order_and_the_reply_has_none() {
    let (daemon, repo) = world();
    let wire = daemon.wire();
    let data = wire.request("quack.tool", search(&repo, &json!({})));
    let end = &data["data"];
    let n_rows = N_LINES + 2;
    assert_eq!(
        (&end["shown"], &end["total"], &end["matches"]),
        (&json!(n_rows), &json!(n_rows), &json!([]))
    );
    assert_eq!(
        (&end["truncated"], &data["text"]),
        (&json!(false), &json!(format!("[{n_rows} streamed]")))
    );
    let lines = lines(&wire.early_events());
    let paths: Vec<&str> =
        lines.iter().map(|line| line["lines"]["path"].as_str().unwrap()).collect();
    assert!(paths.is_sorted() && 10 < paths.len(), "{} lines", paths.len());
    let rows = lines.iter().flat_map(|line| line["lines"]["rows"].as_array().unwrap());
    assert_eq!(rows.clone().count(), n_rows);
    let big = rows.skip(1).take(N_LINES).enumerate();
    assert!(
        big.into_iter()
            .all(|(n, row)| *row == json!([n + 1, format!("row {n} of a long file"), [1, 0, 3]]))
    );
    assert_eq!(
        lines.last().unwrap(),
        &json!({"lines": {"path": "c/d.txt", "rows": [[2, "row last", [1, 0, 3]]]}})
    );
}

#[test]
fn every_form_of_row_is_streamed_and_other_tools_answer_as_always() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("a.txt", "one\nrow\n");
    let ask = |tool: &str, arguments: Value| {
        let wire = daemon.wire();
        let data = wire
            .request("quack.tool", search(&repo, &json!({"tool": tool, "arguments": arguments})));
        (lines(&wire.early_events()), data)
    };
    for (tool, arguments, expected) in [
        (
            "search",
            json!({"pattern": "row", "output": "files"}),
            json!([{"file": {"path": "a.txt"}}]),
        ),
        (
            "search",
            json!({"pattern": "o", "output": "count", "include": "a.*"}),
            json!([{"file": {"path": "a.txt", "count": 2}}]),
        ),
        (
            "search",
            json!({"pattern": "row", "before": 1}),
            json!([{"lines": {"path": "a.txt", "rows": [[1, "one"], [2, "row", [1, 0, 3]]]}}]),
        ),
        (
            "search",
            json!({"pattern": "e\\nr"}),
            json!([{"lines": {"path": "a.txt", "rows": [[1, "one\nrow", [3, 2, 5], [2, 0, 0]]]}}]),
        ),
        ("find", json!({"pattern": "a.*"}), json!([{"entry": {"path": "a.txt", "kind": "file"}}])),
        ("search", json!({"pattern": "nothing"}), json!([])),
    ] {
        let (rows, data) = ask(tool, arguments.clone());
        assert_eq!(
            (Value::from(rows), data["data"]["timedOut"].clone()),
            (expected, json!(false)),
            "{arguments}"
        );
    }
    let (rows, data) = ask("read_file", json!({"path": "a.txt"}));
    assert_eq!((rows.len(), &data["text"]), (0, &json!("one\nrow\n")));
    let (rows, data) = ask("search", json!({"pattern": ""}));
    assert_eq!((rows.len(), &data["isError"]), (0, &json!(true)));
    // Without `stream`, the rows are in the reply.
    let params = search(&repo, &json!({"stream": false}));
    let data = daemon.wire().request("quack.tool", params);
    assert_eq!(data["data"]["matches"][0]["line"], 2);
}

#[test]
fn a_client_that_does_not_read_makes_the_search_wait_in_bounded_memory_and_can_cancel_it() {
    let (daemon, repo) = world();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let worker = session.pid("pid");
    let before = [resident_kib(daemon.pid()), resident_kib(worker)];
    let pending = wire.begin("quack.tool", &search(&repo, &json!({})));
    // The first row arrives before the search ends: it cannot end, because this client does not read the rest.
    let first = wire.event();
    assert_eq!(first["event"], "tool_output");
    let grown = |now: u64, then: u64| now.saturating_sub(then);
    for _ in 0..20 {
        assert_eq!(calls(&daemon), 1);
        assert!(grown(resident_kib(daemon.pid()), before[0]) < 24 * 1024);
        assert!(grown(resident_kib(worker), before[1]) < 48 * 1024);
    }
    let cancel = wire.begin("quack.cancel", &json!({"callId": "c1"}));
    assert_eq!(cancel.reply()["data"]["found"], true);
    assert_eq!(pending.reply()["data"]["aborted"], true);
    // The worker is free for the next call.
    assert_eq!(session.pid("pid"), worker);
    assert!(session.call("search", json!({"pattern": "last"})).contains("row last"));
}

/// Starts `quack grep` and reads its first line.
fn begun(daemon: &Daemon, repo: &Repo) -> Child {
    let mut command = daemon.command(&["grep", "row"]);
    command.current_dir(repo.path()).stdin(Stdio::null());
    let mut grep = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 14];
    grep.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"a.txt:1:row 0\n");
    grep
}

#[test]
fn a_closed_pipe_ends_grep_and_its_search_at_once_and_quietly() {
    let (daemon, repo) = world();
    let mut grep = begun(&daemon, &repo);
    drop(grep.stdout.take());
    let output = grep.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    wait_for("the call to end", || (calls(&daemon) == 0).then_some(()));
}

#[test]
fn grep_that_is_killed_frees_the_worker() {
    let (daemon, repo) = world();
    // This test reads only the first line, so the search waits.
    let mut grep = begun(&daemon, &repo);
    kill(Pid::from_raw(i32::try_from(grep.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(grep.wait().unwrap().code(), Some(130));
    wait_for("the call to end", || (calls(&daemon) == 0).then_some(()));
    let run = daemon.quack(&["grep", "-q", "row", "-C", repo.path().to_str().unwrap()]);
    assert_eq!(run.ok(), "");
}

#[test]
fn grep_prints_many_rows_as_they_are_in_the_files() {
    let (daemon, repo) = world();
    let mut command = daemon.command(&["grep", "row", "--limit", "250001"]);
    let output = command.current_dir(repo.path()).stdin(Stdio::null()).output().unwrap();
    let expected = (0..250_000).map(|n| format!("big.txt:{}:row {n} of a long file", n + 1));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let mut lines = stdout.lines();
    assert_eq!((lines.next(), output.status.code()), (Some("a.txt:1:row 0"), Some(0)));
    assert!(lines.eq(expected), "{} lines", stdout.lines().count());
}

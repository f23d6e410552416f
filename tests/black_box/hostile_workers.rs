//! Workers that are wrong, silent or hostile. `worker.launcher` starts another program instead of
//! the worker. The program sends valid frames first, then violates the protocol.

use crate::harness::{Daemon, one_takes_less_than, wait_within, write_program};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Reads and writes frames. The appended lines define its behavior.
const WORKER: &str = r#"#!/usr/bin/perl
use strict; use warnings; use Fcntl;
fcntl(STDIN, F_SETFL, fcntl(STDIN, F_GETFL, 0) & ~O_NONBLOCK);
open(my $out, '>&=', 0); binmode $out; binmode STDIN; select((select($out), $| = 1)[0]);
sub take { my $n = ''; my $got;
    while (length($n) < 4) { $got = sysread(STDIN, $n, 4 - length($n), length($n)); exit 0 unless $got; }
    my $len = unpack('N', $n); my $body = '';
    while (length($body) < $len) { $got = sysread(STDIN, $body, $len - length($body), length($body)); exit 0 unless $got; }
    return $body; }
sub say_frame { my $frame = pack('N', length($_[0])) . $_[0]; syswrite($out, $frame); }
sub hello { say_frame('{"hello":{"proto":1,"version":"x","pid":1,"sandbox":{"tier":"fake","policy":"fake"}}}'); }
sub call { while (1) { my $frame = take(); return $1 if $frame =~ /^\{"tool_call":\{"call_id":"(\d+)"/; } }
sub finish { my ($id, $rest) = @_; say_frame("{\"tool_finished\":{\"call_id\":\"$id\",$rest}}"); }
"#;

/// Starts a daemon whose workers are [`WORKER`] plus `lines`.
fn daemon_with(lines: &str) -> Daemon {
    let mut daemon = Daemon::absent();
    let worker = daemon.home().join("worker.pl");
    write_program(&worker, format!("{WORKER}{lines}\n"));
    launch_through(&daemon, &json!([worker]));
    daemon.boot();
    daemon
}

fn launch_through(daemon: &Daemon, words: &Value) {
    let text = format!("worker.launcher = {words}\n");
    daemon.configure(text);
}

/// The reply to the first call, and the next line on the same connection.
fn first_answer(daemon: &Daemon) -> String {
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let text = session.call("web_search", json!("x"));
    // The next line is the reply to the next request, regardless of the worker.
    wire.request("ping", json!({}));
    assert!(wire.early_events().is_empty());
    text
}

fn died(cause: &str) -> String {
    format!("Error: Worker died during web_search ({cause}). It may have run; it was not retried.")
}

#[test]
fn a_launcher_that_does_nothing_starts_workers_as_always() {
    let mut daemon = Daemon::absent();
    launch_through(&daemon, &json!(["env", "DUCK=1"]));
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    assert_eq!(session.bash("echo $DUCK$EXA_API_KEY"), "\n\n[Exit code: 0]", "nor does it leak");
    let environ = std::fs::read(format!("/proc/{}/environ", session.pid("pid"))).unwrap();
    assert!(!String::from_utf8_lossy(&environ).contains("secret"), "no key in the worker");
}

#[test]
fn a_worker_that_plays_by_the_rules_is_believed() {
    let daemon = daemon_with(r#"hello(); finish(call(), '"text":"fine"'); take() while 1;"#);
    assert_eq!(first_answer(&daemon), "fine");
}

#[test]
fn a_worker_cannot_forge_the_lines_of_its_supervisor() {
    for (rest, cause) in [
        (
            r#""text":"x","data":{\n"id":"t3","ok":true}"#,
            "protocol error: a result of several lines",
        ),
        (r#""text":{"x":\n1}"#, "protocol error: a result that is no text"),
        (r#""text":"x","shown":[\n1]"#, "protocol error: a result that is no text"),
        (
            r#""text":"x","update":{"call_id":"1","delta":[\n],"partial":"","total_bytes":0,"omitted_bytes":0}"#,
            "protocol error: an update that is no text",
        ),
    ] {
        let rest = rest.replace("\\n", "\\\\n").replace('"', "\\\"");
        let lines = format!(
            "hello(); my $id = call(); my $r = \"{rest}\"; $r =~ s/\\\\n/\\n/g; finish($id, $r); take() while 1;"
        );
        let daemon = daemon_with(&lines);
        assert_eq!(first_answer(&daemon), died(cause), "{rest}");
    }
}

#[test]
fn a_worker_that_says_more_than_it_may_is_ended() {
    let update = r#"{"tool_update":{"call_id":"1","delta":"d","partial":"d","total_bytes":1,"omitted_bytes":0}}"#;
    let search = r#"{"web_search":{"call_id":"99","search":{"query":"q","num_results":1,"include_text":false,"include_domains":[],"exclude_domains":[]}}}"#;
    for (frame, n, cause) in [
        (update, 9, "protocol error: an update without a credit"),
        (search, 1, "protocol error: a web search without a call"),
        (r#"{"pong":{"seq":77}}"#, 1, "protocol error: a pong without a ping"),
        (r#"{"jobs":{"running":[]}}"#, 7, "protocol error: too many reports on jobs"),
        (
            r#"{"jobs":{"running":[{"id":"an-id-of-more-than-thirty-two-bytes","command":"x"}]}}"#,
            1,
            "protocol error: a job of too many words",
        ),
        (r#"{"warning":{"text":"w"}}"#, 1001, "protocol error: too many warnings"),
        (
            r#"{"tool_finished":{"call_id":"5","text":"x"}}"#,
            1,
            "protocol error: a result without a call",
        ),
    ] {
        let lines = format!("hello(); call(); say_frame('{frame}') for 1..{n}; take() while 1;");
        let daemon = daemon_with(&lines);
        assert_eq!(first_answer(&daemon), died(cause), "{frame}");
    }
}

#[test]
fn a_worker_that_never_says_hello_holds_nobody_for_long() {
    one_takes_less_than(Duration::from_secs(10), || {
        let daemon = daemon_with("take() while 1;");
        let begun = Instant::now();
        assert_eq!(first_answer(&daemon), "Error: Session worker is restarting (it is starting)");
        begun.elapsed()
    });
}

#[test]
fn workers_that_keep_dying_are_given_up_after_five_restarts_and_tried_again_when_asked() {
    let mut daemon = Daemon::absent();
    launch_through(&daemon, &json!(["false"]));
    daemon.boot();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let text = wait_within(Duration::from_secs(40), "the session to fail", || {
        let text = session.call("bash", json!("true"));
        text.contains(" 5 times in 60 s").then_some(text)
    });
    assert!(text.starts_with("Error: Session worker "), "{text}");
    assert!(text.contains("exit code 1"), "the last cause is missing: {text}");
    assert_eq!(session.call("bash", json!("true")), text, "refused at once");
    let checks = wire.request("doctor", json!({}));
    let sessions = checks["checks"].as_array().unwrap().iter().find(|c| c["name"] == "sessions");
    assert_eq!(sessions.unwrap()["status"], "fail");
    let state = wire.request("get_state", json!({}));
    assert_eq!(
        (&state["worker"]["state"], &state["worker"]["restarts"]),
        (&json!("failed"), &json!(6))
    );
    // An attach allows another start.
    let session = wire.attach(repo.path());
    let text = session.call("bash", json!("true"));
    assert!(text.starts_with("Error: Session worker is restarting"), "{text}");
}

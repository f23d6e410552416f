//! Clients that are wrong, hostile, slow or numerous: a client can harm only itself.

use crate::harness::{Daemon, Wire, wait_for};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest accepted line, in bytes.
const MAX_LINE: usize = 8 * 1024 * 1024;

#[track_caller]
fn assert_healthy(daemon: &Daemon) {
    daemon.wire().request("ping", json!({}));
}

#[track_caller]
fn resident_kb(daemon: &Daemon) -> u64 {
    let ps = daemon.wire().request("quack.ps", json!({}));
    ps["supervisor"]["rssKb"].as_u64().expect("resident memory")
}

#[test]
fn every_garbage_line_gets_one_error_and_the_connection_stays_usable() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let kinds: [&[u8]; 8] = [
        b"hello",
        b"{",
        b"\xff\xfe\x00",
        b"\xef\xbb\xbf{}",
        b"nul\0",
        b"[[[[",
        b"{\"id\":}",
        b"\"\\ud800",
    ];
    let mut input = Vec::new();
    for n in 0..10_000 {
        input.extend_from_slice(kinds[n % kinds.len()]);
        input.push(b'\n');
    }
    let mut sender = wire.sender();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write(&input));
        for _ in 0..10_000 {
            let reply: Value = serde_json::from_str(&wire.line().unwrap()).unwrap();
            assert_eq!((&reply["id"], &reply["ok"]), (&json!("unknown"), &json!(false)));
            let error = reply["error"].as_str().unwrap();
            assert!(error.starts_with("Failed to parse request: "), "{error}");
        }
    });
    wire.request("ping", json!({}));
    assert!(daemon.log().len() < 64 * 1024, "the log grew to {} bytes", daemon.log().len());
}

#[test]
fn blank_lines_are_ignored_and_other_values_are_no_methods() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    wire.write(b"\n  \r\n\t\n");
    assert_eq!(
        wire.exchange("5"),
        r#"{"ok":false,"error":"Unknown method: undefined","code":"unknown_method"}"#
    );
    assert_eq!(
        wire.exchange(r#"{"id":null}"#),
        r#"{"id":null,"ok":false,"error":"Unknown method: undefined","code":"unknown_method"}"#
    );
}

#[test]
fn a_line_of_100_megabytes_costs_one_error_and_no_memory() {
    let daemon = Daemon::start();
    let before = resident_kb(&daemon);
    let wire = daemon.wire();
    let mut sender = wire.sender();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let chunk = vec![b'x'; 1024 * 1024];
            for _ in 0..100 {
                sender.write(&chunk);
            }
            sender.write(b"\n{\"id\":\"after\",\"method\":\"ping\"}\n");
        });
        let error: Value = serde_json::from_str(&wire.line().unwrap()).unwrap();
        assert_eq!(
            error["error"],
            format!("Failed to parse request: line is longer than {MAX_LINE} bytes")
        );
        let reply: Value = serde_json::from_str(&wire.line().unwrap()).unwrap();
        assert_eq!((&reply["id"], &reply["ok"]), (&json!("after"), &json!(true)));
    });
    let grown = resident_kb(&daemon).saturating_sub(before);
    assert!(grown < 32 * 1024, "the daemon grew by {grown} KiB");
}

#[test]
fn a_line_of_the_longest_length_is_a_request() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let line = |length: usize| {
        let shell = r#"{"id":"l","method":"ping","params":{"x":""}}"#.len();
        let x = "x".repeat(length - shell);
        format!("{{\"id\":\"l\",\"method\":\"ping\",\"params\":{{\"x\":\"{x}\"}}}}")
    };
    let mut sender = wire.sender();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.write(format!("{}\n{}\n", line(MAX_LINE), line(MAX_LINE + 1)).as_bytes());
        });
        let reply = wire.line().unwrap();
        assert!(reply.starts_with(r#"{"id":"l","ok":true"#), "{reply}");
        assert!(wire.line().unwrap().contains("line is longer than"));
    });
}

#[test]
fn half_a_line_and_silence_disturb_nobody() {
    let daemon = Daemon::start();
    let silent: Vec<Wire> = (0..20).map(|_| daemon.wire()).collect();
    for wire in &silent {
        wire.write(b"{\"id\":\"half\",\"meth");
    }
    assert_healthy(&daemon);
    silent[0].write(b"od\":\"ping\"}\n");
    assert!(silent[0].line().unwrap().starts_with(r#"{"id":"half","ok":true"#));
}

#[test]
fn unfinished_lines_of_many_clients_cost_bounded_memory_and_the_worst_clients_are_refused() {
    const MIB: usize = 1024 * 1024;
    let daemon = Daemon::start();
    let before = resident_kb(&daemon);
    let honest = daemon.wire();
    let half = vec![b'x'; 7 * MIB];
    let hostile: Vec<Wire> = (0..40)
        .map(|_| {
            let wire = daemon.wire();
            let mut stream = wire.stream();
            stream.write_all(&half).unwrap();
            honest.request("ping", json!({}));
            wire
        })
        .collect();
    let long = json!({"x": "x".repeat(7 * MIB)});
    honest.request("ping", long);
    let grown = resident_kb(&daemon).saturating_sub(before);
    assert!(grown < 160 * 1024, "the daemon grew by {grown} KiB");
    let refusal: Value = serde_json::from_str(&hostile[0].line().unwrap()).unwrap();
    let error = refusal["error"].as_str().unwrap();
    assert!(
        error.starts_with("the unfinished lines of all clients need too much memory"),
        "{error}"
    );
    assert_eq!(hostile[0].line(), None);
    let last = hostile.last().unwrap();
    last.write(b"\n");
    assert!(last.line().unwrap().contains("Failed to parse request"));
}

#[test]
fn a_last_line_without_its_end_is_answered() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    wire.write(br#"{"id":"last","method":"ping"}"#);
    wire.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert!(wire.line().unwrap().starts_with(r#"{"id":"last","ok":true"#));
    assert_eq!(wire.line(), None);
}

#[test]
fn three_hundred_clients_are_served_at_once() {
    let daemon = Daemon::start();
    let wires: Vec<Wire> = (0..300).map(|_| daemon.wire()).collect();
    for wire in &wires {
        wire.write(b"{\"id\":\"p\",\"method\":\"ping\"}\n");
    }
    for wire in &wires {
        assert!(wire.line().unwrap().starts_with(r#"{"id":"p","ok":true"#));
    }
    // The client that waited for the start may be seen as gone a moment later.
    wait_for("no other client", || {
        (wires[0].request("ping", json!({}))["clients"] == 300).then_some(())
    });
    let files = |daemon: &Daemon| {
        daemon.wire().request("quack.ps", json!({}))["supervisor"]["openFiles"].as_u64().unwrap()
    };
    assert!(300 <= files(&daemon));
    drop(wires);
    wait_for("the descriptors to come back", || (files(&daemon) < 100).then_some(()));
}

#[test]
fn a_client_too_many_is_told_so() {
    // Both ends of two thousand sockets exceed the default limit of some systems.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let daemon = Daemon::start();
    let wires: Vec<Wire> = (0..1024).map(|_| daemon.wire()).collect();
    wires[1023].request("ping", json!({}));
    let refused = daemon.wire();
    assert_eq!(
        refused.line().unwrap(),
        r#"{"id":"unknown","ok":false,"error":"Too many connections"}"#
    );
    assert_eq!(refused.line(), None);
    wires[0].request("ping", json!({}));
    drop(wires);
    wait_for("room for clients", || {
        let wire = daemon.wire();
        wire.write(b"{\"id\":\"p\",\"method\":\"ping\"}\n");
        wire.line()?.contains(r#""ok":true"#).then_some(())
    });
}

#[test]
fn a_client_that_leaves_unread_replies_disturbs_nobody() {
    let daemon = Daemon::start();
    let session_id = daemon.wire().attach(daemon.repo("a").path()).id;
    for _ in 0..50 {
        let wire = daemon.wire();
        wire.write(
            b"{\"id\":1,\"method\":\"ping\"}\n{\"id\":2,\"method\":\"ping\"}\ngarbage\n{\"half",
        );
        let call = json!({"id": "c", "method": "voice_tool_call", "params": {"toolName": "bash", "arguments": "\"true\"", "sessionId": session_id}});
        wire.write(format!("\n{call}\n").as_bytes());
        drop(wire);
    }
    assert_healthy(&daemon);
    wait_for("the clients to be forgotten", || {
        (daemon.wire().request("ping", json!({}))["clients"] == 1).then_some(())
    });
}

#[test]
fn a_client_that_reads_nothing_is_not_read_further_and_costs_bounded_memory() {
    let daemon = Daemon::start();
    let before = resident_kb(&daemon);
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    stream.set_nonblocking(true).unwrap();
    // Each request is small and its reply is large, because the reply repeats the id.
    let line = format!("{{\"id\":\"{}\",\"method\":\"ping\"}}\n", "x".repeat(60_000));
    let mut written = 0_usize;
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut blocked = 0;
    while blocked < 50 {
        assert!(Instant::now() < deadline && written < 256 * 1024 * 1024, "never blocked");
        match stream.write(line.as_bytes()) {
            Ok(n) => {
                written += n;
                blocked = 0;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                blocked += 1;
                assert_healthy(&daemon);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let grown = resident_kb(&daemon).saturating_sub(before);
    assert!(grown < 64 * 1024, "the daemon grew by {grown} KiB");
}

#[test]
fn a_client_may_have_many_calls_waiting_and_still_be_answered() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    // More calls than a session accepts. The others get an error that allows a retry.
    let command = daemon.gated("gate", "echo ok");
    let calls: Vec<_> = (0..60).map(|_| session.begin("bash", json!(command))).collect();
    // The last call was answered, so all calls were admitted or refused.
    let mut texts: Vec<String> = Vec::new();
    let mut calls = calls.into_iter();
    let running: Vec<_> = calls.by_ref().take(32).collect();
    texts.extend(calls.map(|call| call.text()));
    daemon.open_gate("gate");
    texts.extend(running.into_iter().map(|call| call.text()));
    let done = texts.iter().filter(|text| *text == "ok\n\n[Exit code: 0]").count();
    let busy = texts.iter().filter(|text| text.starts_with("Error: Session is busy")).count();
    assert_eq!(done + busy, 60, "{texts:#?}");
    assert_eq!(done, 32, "{texts:#?}");
}

#[test]
fn a_large_request_is_refused_while_those_of_all_clients_need_too_much_memory() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let command = format!("echo >> started; {}", daemon.gated("gate", "echo ok"));
    let arguments = json!({"command": command}).to_string();
    let clients: Vec<Wire> = (0..4).map(|_| daemon.wire()).collect();
    let wire = daemon.wire();
    let id = wire.attach(repo.path()).id;
    let pad = "x".repeat(MAX_LINE - 4096);
    let params = json!({
        "callId": "c", "toolName": "bash", "arguments": arguments, "sessionId": id, "x": pad,
    });
    // Upstream's methods ignore what they do not know, so these calls are as long as a line may be.
    let calls: Vec<_> = clients
        .iter()
        .flat_map(|client| [(); 4].map(|()| client.begin("voice_tool_call", &params)))
        .collect();
    let started = repo.path().join("started");
    wait_for("sixteen commands", || {
        let lines = std::fs::read_to_string(&started).unwrap_or_default().lines().count();
        (lines == 16).then_some(())
    });

    let reply = wire.reply("ping", json!({"x": pad}));
    let text =
        "The unanswered requests of all clients need too much memory. Try again after a reply.";
    assert_eq!(
        (&reply["ok"], &reply["error"], &reply["code"]),
        (&json!(false), &json!(text), &json!("busy"))
    );
    wire.request("ping", json!({}));

    daemon.open_gate("gate");
    for call in calls {
        assert_eq!(call.text(), "ok\n\n[Exit code: 0]");
    }
    wire.request("ping", json!({"x": pad}));
}

#[test]
fn a_client_that_leaves_during_a_call_frees_its_connection() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let n_clients = || wire.request("ping", json!({}))["clients"].as_u64().unwrap();
    let marked =
        |name| format!("touch {name}; {}; touch {name}-ended", daemon.gated("gate", "true"));
    let exists = |name: &str| repo.path().join(name).exists().then_some(());
    let begin = |wire: &Wire, name| {
        let arguments = json!({"command": marked(name)}).to_string();
        let params = json!({
            "callId": "c", "toolName": "bash", "arguments": arguments, "sessionId": session.id,
        });
        drop(wire.begin("voice_tool_call", &params));
        wait_for("the command", || exists(name));
    };

    let leaving = daemon.wire();
    begin(&leaving, "first");
    // A client that only stops sending still gets its replies.
    let listening = daemon.wire();
    begin(&listening, "second");
    listening.stream().shutdown(std::net::Shutdown::Write).unwrap();
    drop(leaving);
    wait_for("the client to be gone", || (n_clients() == 2).then_some(()));

    daemon.open_gate("gate");
    assert!(listening.line().unwrap().contains("[Exit code: 0]"));
    assert_eq!(listening.line(), None);
    wait_for("the end of the first command", || exists("first-ended"));
    wait_for("one client", || (n_clients() == 1).then_some(()));
}

#[test]
fn abort_ends_what_the_same_client_has_just_begun() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let command = daemon.gated("gate", "true");
    let calls: Vec<_> = (0..32).map(|_| session.begin("bash", json!(command))).collect();
    wire.request("abort", json!({"sessionId": session.id}));
    assert_eq!(
        calls.into_iter().map(|call| call.text()).filter(|text| text.contains("aborted")).count(),
        32
    );
}

#[test]
fn ids_and_arguments_are_bounded() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let long = "x".repeat(100_000);
    let reply = wire.exchange(&format!("{{\"id\":\"{long}\",\"method\":\"ping\"}}"));
    assert_eq!(
        reply,
        r#"{"id":"unknown","ok":false,"error":"Failed to parse request: id is longer than 65536 bytes"}"#
    );
    let text = session.call("bash", json!({"command": "true", "x": "x".repeat(3 * 1024 * 1024)}));
    assert_eq!(text, "Error: Tool arguments are too long");
    assert_eq!(session.bash("true"), "\n[Exit code: 0]");
}

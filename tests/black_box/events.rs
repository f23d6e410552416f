//! Followers of a session: the events that they receive, their order, and the handling of followers
//! that do not read.

use crate::harness::{Daemon, Session, Wire, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

fn seqs(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

/// Follows a session on a separate connection.
fn follow(daemon: &Daemon, session: &Session<'_>, since: &Value) -> (Wire, Value) {
    let wire = daemon.wire();
    let mut params = json!({"sessionId": session.id});
    if let Value::Object(since) = since {
        params.as_object_mut().unwrap().extend(since.clone());
    }
    let data = wire.request("follow", params);
    (wire, data)
}

fn delta(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["data"]["delta"].as_str()).collect()
}

#[test]
fn follow_answers_with_what_upstream_answers_and_where_the_events_are() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    assert_eq!(wire.refused("follow", json!({})), "No active session. Run `duck` first.");
    assert_eq!(wire.refused("follow", json!({"sessionId": "x"})), "Session not found: x");
    let session = wire.attach(repo.path());
    session.bash("true");
    let history = daemon.app().join(format!("sessions/{}.jsonl", session.id));
    let mut data = wire.request("follow", json!({}));
    let worker = data["worker"].take();
    assert_eq!(worker["state"], "ready");
    assert_eq!(worker["restarts"], 0);
    let epoch = data["epoch"].take();
    assert!(!epoch.as_str().unwrap().is_empty());
    assert_eq!(
        data,
        json!({
            "sessionId": session.id, "sessionName": "duck-1", "workspacePath": session.path,
            "isRunning": true, "sessionState": null,
            "appHistoryFile": history, "appHistoryExists": false, "appHistorySizeBytes": 0,
            "seq": 2, "epoch": null, "resync": false, "replayed": 0, "worker": null,
        })
    );
    std::fs::create_dir(history.parent().unwrap()).unwrap();
    std::fs::write(&history, "{}\n").unwrap();
    let data = wire.request("follow", json!({}));
    assert_eq!(
        (&data["appHistoryExists"], &data["appHistorySizeBytes"]),
        (&json!(true), &json!(3))
    );
}

#[test]
fn a_tool_call_is_told_from_its_start_over_its_output_to_its_end() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    let command = format!("echo one; {}", daemon.gated("go", "echo two; exit 3"));
    let params = json!({
        "callId": "call-7", "toolName": "bash", "arguments": json!({"command": command}).to_string(),
        "sessionId": session.id,
    });
    let call = wire.begin("voice_tool_call", &params);
    let mut events = follower.events_until("tool_execution_update");
    daemon.open_gate("go");
    assert_eq!(call.text(), "one\ntwo\n\n[Exit code: 3]");
    events.extend(follower.events_until("tool_execution_end"));
    let expected_seqs: Vec<u64> = (1..).take(events.len()).collect();
    assert_eq!(seqs(&events), expected_seqs);
    for event in &events {
        assert_eq!(event["sessionId"], session.id);
        let data = &event["data"];
        assert_eq!((&data["type"], &data["toolCallId"]), (&event["event"], &json!("call-7")));
        assert_eq!(data["toolName"], "bash");
    }
    assert_eq!(events[0]["event"], "tool_execution_start");
    assert_eq!(events[0]["data"]["args"], json!({"command": command}));
    assert_eq!(
        events[1]["data"]["partialResult"]["content"],
        json!([{"type": "text", "text": "one\n"}])
    );
    assert_eq!(delta(&events), "one\ntwo\n");
    let end = &events.last().unwrap()["data"];
    assert_eq!((&end["isError"], &end["exitCode"]), (&json!(true), &json!(3)));
    let text = json!([{"type": "text", "text": "one\ntwo\n\n[Exit code: 3]"}]);
    assert_eq!(end["result"]["content"], text);
    assert_eq!(end["result"]["details"]["sessionId"], session.id);
}

#[test]
fn a_call_that_prints_nothing_for_long_has_a_start_and_an_end_only() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    assert_eq!(session.call("read_file", json!("README.md")), "# A repository\n");
    session.bash("true");
    let refused = session.call("dance", json!({}));
    let events = [
        follower.events_until("tool_execution_end"),
        follower.events_until("tool_execution_end"),
        follower.events_until("tool_execution_end"),
    ]
    .concat();
    assert_eq!(names(&events), ["tool_execution_start", "tool_execution_end"].repeat(3));
    assert_eq!(events[0]["data"]["args"], json!({"path": "README.md"}), "a shorthand is an object");
    assert_eq!(events[5]["data"]["result"]["content"][0]["text"], refused);
    assert_eq!(events[5]["data"]["isError"], true);
}

#[test]
fn characters_that_are_printed_in_pieces_arrive_whole() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    // The first update comes between the bytes of one character.
    let command = format!("printf 'a\\xe2\\x82'; {}", daemon.gated("go", "printf '\\xacb'"));
    let call = session.begin("bash", json!(command));
    let mut events = follower.events_until("tool_execution_update");
    assert_eq!(delta(&events), "a");
    daemon.open_gate("go");
    assert_eq!(call.text(), "a€b\n[Exit code: 0]");
    events.extend(follower.events_until("tool_execution_end"));
    assert_eq!(delta(&events), "a€b");
}

#[test]
fn control_characters_after_half_a_character_harm_nobody() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    let half = "printf '\\360\\237\\230'";
    let zeros = format!("head -c 16384 /dev/zero; {}", daemon.gated("end", "true"));
    let command = format!("{half}; {}", daemon.gated("go", &zeros));
    let call = session.begin("bash", json!(command));
    follower.events_until("tool_execution_start");
    daemon.open_gate("go");
    follower.events_until("tool_execution_update");
    daemon.open_gate("end");
    assert!(call.text().ends_with("\n[Exit code: 0]"));
    follower.events_until("tool_execution_end");
}

#[test]
fn a_flood_is_shown_in_pieces_that_say_what_is_missing() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    session.bash("head -c 200M /dev/zero | tr '\\0' x");
    let events = follower.events_until("tool_execution_end");
    let updates: Vec<&Value> = events
        .iter()
        .filter(|e| e["event"] == "tool_execution_update")
        .map(|e| &e["data"])
        .collect();
    assert!(!updates.is_empty());
    let (mut told, mut partial, mut n_without) = (0, String::new(), 0);
    let n_updates = updates.len();
    for update in updates {
        let details = &update["partialResult"]["details"];
        told += details["omittedBytes"].as_u64().unwrap();
        told += u64::try_from(update["delta"].as_str().unwrap().len()).unwrap();
        assert_eq!(details["totalBytes"], told, "nothing is missing without a word");
        // Once `partialResult` is full, updates omit it.
        let Some(text) = update["partialResult"]["content"][0]["text"].as_str() else {
            n_without += 1;
            continue;
        };
        assert!(text.starts_with(&partial) && text.len() <= 16 * 1024, "it only grows");
        partial = text.to_owned();
    }
    assert!(n_updates <= 1 + n_without, "{n_without} of {n_updates}");
    let end = &events.last().unwrap()["data"]["result"];
    assert!(end["content"][0]["text"].as_str().unwrap().len() <= 16 * 1024);
    assert_eq!(end["details"]["truncated"], true);
}

#[test]
fn the_death_of_a_worker_is_told_with_its_cause() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, data) = follow(&daemon, &session, &Value::Null);
    let worker = wait_for("a worker", || {
        wire.request("get_state", json!({"sessionId": session.id}))["worker"]["pid"].as_i64()
    });
    assert_eq!(data["sessionId"], session.id);
    let call = session.begin("bash", json!("sleep 60"));
    follower.events_until("tool_execution_start");
    kill(Pid::from_raw(i32::try_from(worker).unwrap()), Signal::SIGKILL).unwrap();
    let text = call.text();
    let events = follower.events_until("extension_error");
    assert_eq!(names(&events), ["tool_execution_end", "extension_error"]);
    assert_eq!(events[0]["data"]["result"]["content"][0]["text"], text);
    assert_eq!(events[0]["data"]["result"]["details"]["workerDied"], true);
    assert_eq!(
        events[1]["data"],
        json!({
            "type": "extension_error", "extensionPath": "daemon", "event": "process_death",
            "error": "Worker for session \"duck-1\" died unexpectedly (signal 9)",
            "signal": 9, "exitCode": null, "stderrTail": "", "process": "worker",
        })
    );
    let state = wire.request("get_state", json!({"sessionId": session.id}));
    assert_eq!(state["worker"]["restarts"], 1);
}

#[test]
fn who_comes_back_is_told_what_happened_meanwhile_or_that_it_is_lost() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    // Two events per call. A slow command would have a third with its output.
    let read = || session.call("read_file", json!({"path": "src/main.rs"}));
    let (first, begun) = follow(&daemon, &session, &Value::Null);
    read();
    let seen = first.events_until("tool_execution_end");
    drop(first);
    read();
    read();
    let since = json!({"sinceSeq": seen.len(), "epoch": begun["epoch"]});
    let (second, data) = follow(&daemon, &session, &since);
    assert_eq!(
        (&data["replayed"], &data["resync"], &data["seq"]),
        (&json!(4), &json!(false), &json!(6))
    );
    read();
    let events: Vec<Value> = (0..6).map(|_| second.event()).collect();
    assert_eq!(seqs(&events), [3, 4, 5, 6, 7, 8]);

    for since in [
        json!({"sinceSeq": 2, "epoch": "another run"}),
        json!({"sinceSeq": 99}),
        json!({"sinceSeq": u64::MAX}),
    ] {
        let (_, data) = follow(&daemon, &session, &since);
        assert_eq!((&data["resync"], &data["replayed"]), (&json!(true), &json!(0)), "{since}");
    }
    let (_, data) = follow(&daemon, &session, &json!({"sinceSeq": 8}));
    assert_eq!((&data["resync"], &data["replayed"]), (&json!(false), &json!(0)));

    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (_, data) = follow(&daemon, &session, &since);
    assert_eq!(data["resync"], true, "numbers of another run mean nothing");
}

#[test]
fn following_again_replaces_and_unfollowing_ends_it() {
    let daemon = Daemon::start();
    let (repo_a, repo_b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let (a, b) = (wire.attach(repo_a.path()), wire.attach(repo_b.path()));
    let follower = daemon.wire();
    follower.request("follow", json!({"sessionId": a.id}));
    follower.request("follow", json!({"sessionId": b.id}));
    a.bash("true");
    b.bash("true");
    let events = follower.events_until("tool_execution_end");
    assert!(events.iter().all(|event| event["sessionId"] == b.id), "{events:?}");
    let reply = follower.reply("unfollow", json!({}));
    assert_eq!((&reply["ok"], reply.get("data")), (&json!(true), None));
    b.bash("true");
    // The reply to a ping would come after an event.
    follower.request("ping", json!({}));
    assert!(follower.early_events().is_empty());
}

#[test]
fn every_follower_sees_every_event_in_order_and_one_that_does_not_read_is_disconnected() {
    const FOLLOWERS: usize = 100;
    const CALLS: usize = 3000;
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let (stopped, begun) = follow(&daemon, &session, &Value::Null);
    let followers: Vec<Wire> =
        (1..FOLLOWERS).map(|_| follow(&daemon, &session, &Value::Null).0).collect();
    let first = begun["seq"].as_u64().unwrap() + 1;
    let last = first + 2 * u64::try_from(CALLS).unwrap() - 1;
    std::thread::scope(|scope| {
        for follower in followers {
            scope.spawn(move || {
                for expected in first..=last {
                    let event = follower.event();
                    assert_eq!(event["seq"], expected, "in order, and none missing");
                }
            });
        }
        // One client, as fast as possible, with several calls at a time.
        let calls: BTreeSet<usize> = (0..CALLS).collect();
        for batch in calls.into_iter().collect::<Vec<_>>().chunks(16) {
            let pending: Vec<_> =
                batch.iter().map(|_| session.begin("read_file", json!("README.md"))).collect();
            for call in pending {
                assert_eq!(call.text(), "# A repository\n");
            }
        }
        // More than the ring and the socket buffers can hold, so a follower that does not read
        // cannot catch up.
        let text = "x".repeat(15_000);
        repo.write("long", &text);
        for _ in 0..400 {
            assert_eq!(session.call("read_file", json!("long")).len(), 15_000);
        }
    });
    let slow = wait_for("the slow one to be disconnected", || {
        wire.request("quack.ps", json!({}))["supervisor"]["slowClients"].as_u64().filter(|n| 0 < *n)
    });
    assert_eq!(slow, 1, "and no other follower");
    // Events in flight arrive, then the end.
    stopped.drain();
    let rss = wire.request("quack.ps", json!({}))["supervisor"]["rssKb"].as_u64().unwrap();
    assert!(rss < 200 * 1024, "{rss} KiB");
}

#[test]
fn a_deleted_session_says_goodbye_to_its_followers() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    let call = session.begin("bash", json!("sleep 60"));
    follower.events_until("tool_execution_start");
    let refused = wire.refused("quack.session_delete", json!({"sessionId": session.id}));
    assert_eq!(refused, "Session is busy: 1 call is running; end with force");
    let data =
        wire.request("quack.session_delete", json!({"sessionId": session.id, "force": true}));
    assert_eq!(
        data,
        json!({"session": {"id": session.id, "name": "duck-1"}, "label": "a", "callsEnded": 1})
    );
    let text = call.text();
    assert_eq!(
        text,
        "Error: Session was deleted during bash. It may have run; it was not retried."
    );
    let events = follower.events_until("session_deleted");
    assert_eq!(names(&events), ["tool_execution_end", "session_deleted"]);
    let gone = wire.refused("follow", json!({"sessionId": session.id}));
    assert_eq!(gone, format!("Session not found: {}", session.id));
    assert!(!daemon.app().join("run").join(&session.id).exists());
    assert_eq!(wire.request("sessions", json!({"all": true})), json!({"sessions": []}));
}

#[test]
fn the_last_request_about_following_decides() {
    let daemon = Daemon::start();
    let (repo_a, repo_b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let (a, b) = (wire.attach(repo_a.path()), wire.attach(repo_b.path()));
    for round in 0..20 {
        let client = daemon.wire();
        let first = client.begin("follow", &json!({"sessionId": a.id}));
        let second = client.begin("follow", &json!({"sessionId": b.id}));
        assert_eq!(
            (first.reply()["ok"].take(), second.reply()["ok"].take()),
            (json!(true), json!(true))
        );
        a.bash("true");
        b.bash("true");
        assert_eq!(client.event()["sessionId"], b.id, "round {round}");
        let first = client.begin("follow", &json!({"sessionId": a.id}));
        let second = client.begin("unfollow", &json!({}));
        assert_eq!(
            (first.reply()["ok"].take(), second.reply()["ok"].take()),
            (json!(true), json!(true))
        );
        a.bash("true");
        client.request("ping", json!({}));
        assert!(
            client.early_events().iter().all(|event| event["sessionId"] == b.id),
            "round {round}"
        );
    }
}

#[test]
fn a_tool_name_without_end_costs_no_follower_its_place() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    let name = "t".repeat(4_000_000);
    let text = session.call(&name, json!({}));
    assert_eq!(text, format!("Error: Unknown tool '{}'", "t".repeat(100)));
    assert_eq!(session.call("dance", json!({})), "Error: Unknown tool 'dance'");
    let events = follower.events_until("tool_execution_end");
    assert_eq!(events[0]["data"]["toolName"], "dance", "a refused call sends no event");
}

#[test]
fn a_call_that_prints_a_little_is_seen_beside_others_that_flood() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (follower, _) = follow(&daemon, &session, &Value::Null);
    // The flood lasts until the quiet session has finished, regardless of the machine's speed.
    let flood = "yes & ".to_owned() + &daemon.gated("end", "kill -KILL $!; true");
    let flood = json!({"command": flood, "timeout_ms": 120_000}).to_string();
    let begin = |n: i32| {
        let params = json!({
            "callId": format!("flood-{n}"), "toolName": "bash", "arguments": flood,
            "sessionId": session.id,
        });
        wire.begin("voice_tool_call", &params)
    };
    // More updates than a session may send: 20 a second each.
    let floods: Vec<_> = (0..6).map(begin).collect();
    // At least seven digits: more than a megabyte.
    let is_flooding = |line: &str| {
        let total = line.split_once("\"totalBytes\":").map(|(_, rest)| rest);
        total.is_some_and(|rest| 7 <= rest.bytes().take_while(u8::is_ascii_digit).count())
    };
    let mut flooding = BTreeSet::new();
    while flooding.len() < floods.len() {
        let is_new = |line: &str| {
            is_flooding(line) && !flooding.iter().any(|id: &String| line.contains(id.as_str()))
        };
        flooding.insert(follower.event_in_flood(is_new)["data"]["toolCallId"].to_string());
    }
    // Each line is printed after the previous one was seen, so no line shares an update with
    // another line or with the result.
    let lines: String =
        (1..=6).map(|n| daemon.gated(&n.to_string(), &format!("echo quiet {n}; "))).collect();
    let quiet = session.begin("bash", json!({"command": lines, "timeout_ms": 120_000}));
    for n in 1..=6 {
        daemon.open_gate(&n.to_string());
        let delta = format!("\"delta\":\"quiet {n}\\n\"");
        follower.event_in_flood(|line| line.contains(&delta));
    }
    assert!(quiet.text().ends_with("quiet 6\n\n[Exit code: 0]"));
    daemon.open_gate("end");
    floods.into_iter().for_each(|flood| drop(flood.text()));
}

//! web_search between client and provider: the outgoing request, the answer, and the data that a
//! worker must never get.

use crate::harness::{Answer, Daemon, FakeExa, answer, descendants_of, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::io::{Read, Seek, SeekFrom};

/// The key that the harness passes to every daemon.
const KEY: &str = "secret-of-the-daemon";

/// Starts a daemon with additional variables.
#[track_caller]
fn daemon_with(variables: &[&str]) -> Daemon {
    let mut daemon = Daemon::absent();
    daemon.boot_in(variables);
    daemon
}

/// Starts a daemon that uses this search provider.
#[track_caller]
fn daemon_for(exa: &FakeExa) -> Daemon {
    daemon_with(&[&format!("QUACKD_EXA_ENDPOINT={}", exa.endpoint())])
}

fn says(status: &str, body: &str) -> FakeExa {
    FakeExa::start(&[Answer::Says(answer(status, body))])
}

fn hangs() -> FakeExa {
    FakeExa::start(&[Answer::Hangs(vec![])])
}

#[test]
fn a_search_goes_out_with_the_key_and_its_results_come_back() {
    let body = json!({"results": [
        {"title": "A", "url": "https://a", "publishedDate": "2023-11-15", "score": 0.892, "text": "t"},
        {"title": "B", "url": "https://b"},
    ]});
    let exa = says("200 OK", &body.to_string());
    let daemon = daemon_for(&exa);
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let expected = "1. A\n   URL: https://a\n   Published: 2023-11-15\n   Score: 0.892\n\n\
                    2. B\n   URL: https://b";
    let session = wire.attach(repo.path());
    let arguments = json!({"query": "ducks", "num_results": "2x", "domains": ["docs.rs"]});
    assert_eq!(session.call("web_search", arguments), expected);
    let request = exa.request();
    let sent = r#"{"query":"ducks","numResults":2,"type":"auto","includeDomains":["docs.rs"]}"#;
    assert_eq!((request.body.as_str(), request.header("x-api-key")), (sent, Some(KEY)));
    exa.connection_ends();

    let params = json!({"tool": "web_search", "arguments": {"q": "x", "include_text": true},
                        "sessionId": session.id, "safeMode": true});
    let data = wire.request("quack.tool", params);
    let expected = expected.replacen("0.892\n", "0.892\n   Snippet: t\n", 1);
    assert_eq!((data["text"].as_str(), &data["isError"]), (Some(&*expected), &json!(false)));
    let results = json!([
        {"rank": 1, "title": "A", "url": "https://a", "published": "2023-11-15", "score": 0.892,
         "snippet": "t"},
        {"rank": 2, "title": "B", "url": "https://b"},
    ]);
    assert_eq!(data["data"], json!({ "results": results }));

    assert_eq!(daemon.quack(&["tool", "web_search", "ducks", "-C", "a"]).code(), Some(0));
}

#[test]
fn the_providers_faults_are_told() {
    let cases = [
        (
            Answer::Says(answer("401 Unauthorized", "Invalid API key")),
            "Error: web_search failed (401 Unauthorized): Invalid API key",
        ),
        (
            Answer::Says(answer("200 OK", "{}")),
            "Error: web_search response missing expected 'results' array",
        ),
        (
            Answer::Says(answer("200 OK", "x".repeat(2 * 1024 * 1024))),
            "Error: web_search response exceeds 1048576 bytes",
        ),
        (
            Answer::Says(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec()),
            "Error: web_search request failed: the connection was closed before the answer was complete",
        ),
        (
            Answer::Says(
                b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
                    .to_vec(),
            ),
            "Error: web_search failed (302 Found)",
        ),
        (Answer::Says(answer("200 OK", r#"{"results":[]}"#)), "No web results found for 'x'"),
    ];
    // With this header, the client does not send its next request on a connection that is just closing.
    let closing = |answer: &Answer| match answer {
        Answer::Says(bytes) => {
            let (status, rest) =
                bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap());
            Answer::Says([status, b"\nconnection: close\r", rest].concat())
        }
        other => other.clone(),
    };
    let answers: Vec<Answer> = cases.iter().map(|(answer, _)| closing(answer)).collect();
    let exa = FakeExa::start(&answers);
    let daemon = daemon_for(&exa);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    for (_, expected) in cases {
        assert_eq!(session.call("web_search", json!("x")), expected);
    }
}

#[test]
fn without_a_key_nothing_goes_out() {
    let exa = says("200 OK", r#"{"results":[]}"#);
    let endpoint = format!("QUACKD_EXA_ENDPOINT={}", exa.endpoint());
    let daemon = daemon_with(&[&endpoint, "EXA_API_KEY=", "RUBBER_DUCK_EXA_API_KEY="]);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let text = session.call("web_search", json!("x"));
    let expected = "Error: EXA_API_KEY not configured. Set EXA_API_KEY (or RUBBER_DUCK_EXA_API_KEY) to \
                    enable web_search.";
    assert_eq!(text, expected);
    assert!(exa.is_untouched());
}

#[test]
fn the_file_names_the_endpoint_and_the_own_variable_the_key() {
    let exa = says("200 OK", r#"{"results":[]}"#);
    let mut daemon = Daemon::absent();
    let content = format!("web_search.endpoint = '{}'\n", exa.endpoint());
    daemon.configure(content);
    daemon.boot_in(&["RUBBER_DUCK_EXA_API_KEY=own-key"]);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    assert_eq!(session.call("web_search", json!("x")), "No web results found for 'x'");
    assert_eq!(exa.request().header("x-api-key"), Some("own-key"));
}

#[test]
fn a_key_is_not_sent_in_the_clear() {
    let daemon = Daemon::absent();
    let endpoint = "http://api.example.com/search?token=x";
    let output = daemon.command(&["daemon"]).env("QUACKD_EXA_ENDPOINT", endpoint).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap() + &daemon.log();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("must be https:// for api.example.com"), "{told}");
    assert!(!told.contains("token=x") && !told.contains(KEY), "{told}");
}

#[test]
fn no_worker_knows_the_key_or_where_it_goes() {
    let exa = hangs();
    let daemon = daemon_for(&exa);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let searching = session.begin("web_search", json!("a needle to find"));
    exa.request();

    let endpoint = exa.endpoint();
    let place = endpoint.trim_start_matches("http://").trim_end_matches("/search");
    let environment = session.bash("env");
    let below = descendants_of(daemon.pid());
    assert!(2 <= below.len(), "a monitor and a worker: {below:?}");
    for process in &below {
        let read = |name: &str| std::fs::read(format!("/proc/{}/{name}", process.pid));
        for told in [read("environ"), read("cmdline"), memory_of(process.pid)] {
            // If the test cannot read the memory, other processes cannot either.
            let told = told.unwrap_or_default();
            assert!(!holds(&told, KEY) && !holds(&told, place), "{process:?}");
        }
    }
    let worker = memory_of(session.pid("pid")).unwrap_or_default();
    assert!(worker.is_empty() || holds(&worker, "a needle to find"), "the memory was not read");
    for told in [environment, daemon.log()] {
        assert!(!told.contains(KEY) && !told.contains(place), "{told}");
    }
    wire.request("abort", json!({"sessionId": session.id}));
    assert_eq!(searching.text(), "Error: web_search was aborted");
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Writable memory of a process: heap, stacks, data.
fn memory_of(pid: i32) -> std::io::Result<Vec<u8>> {
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut bytes = Vec::new();
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let mut words = line.split([' ', '-']);
        let (begin, end) = (words.next(), words.next());
        let number =
            |word: Option<&str>| u64::from_str_radix(word.unwrap_or_default(), 16).unwrap();
        let (begin, end) = (number(begin), number(end));
        if words.next().is_some_and(|rights| rights.starts_with("rw")) {
            memory.seek(SeekFrom::Start(begin))?;
            // An unreadable part of the memory ends the read early.
            drop((&memory).take(end - begin).read_to_end(&mut bytes));
        }
    }
    Ok(bytes)
}

#[test]
fn a_search_ends_with_its_call() {
    let exa = hangs();
    let daemon = daemon_for(&exa);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());

    let aborted = session.begin("web_search", json!("x"));
    exa.request();
    wire.request("abort", json!({"sessionId": session.id}));
    assert_eq!(aborted.text(), "Error: web_search was aborted");
    exa.connection_ends();

    let params =
        json!({"tool": "web_search", "arguments": "x", "sessionId": session.id, "timeoutMs": 300});
    let data = wire.request("quack.tool", params);
    assert_eq!(data["timedOut"], true, "{data}");
    let text = data["text"].as_str().unwrap();
    let ms = text.strip_prefix("Error: web_search request timed out after ").unwrap();
    let ms: u64 = ms.strip_suffix("ms").unwrap().parse().unwrap();
    assert!((1..=300).contains(&ms), "{text}");
    exa.request();
    exa.connection_ends();

    let orphaned = session.begin("web_search", json!("x"));
    exa.request();
    kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).unwrap();
    let text = orphaned.text();
    let death =
        "Error: Worker died during web_search (signal 9). It may have run; it was not retried.";
    assert_eq!(text, death);
    exa.connection_ends();
    assert_eq!(session.bash("echo alive"), "alive\n\n[Exit code: 0]");
}

#[test]
fn a_daemon_that_stops_leaves_no_search_behind() {
    let exa = hangs();
    let mut daemon = daemon_for(&exa);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let searching = session.begin("web_search", json!("x"));
    exa.request();
    daemon.signal(Signal::SIGTERM);
    assert!(searching.text().starts_with("Error: "));
    assert_eq!(daemon.wait(), Some(0));
    exa.connection_ends();
}

#[test]
fn a_daemon_that_never_searches_has_no_thread_for_it() {
    let exa = says("200 OK", r#"{"results":[]}"#);
    let daemon = daemon_for(&exa);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let has_thread = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let mut names = threads
            .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.any(|name| name.trim() == "egress")
    };
    assert!(!has_thread());
    session.call("web_search", json!("x"));
    wait_for("the thread `egress`", || has_thread().then_some(()));
}

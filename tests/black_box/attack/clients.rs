//! Hostile values from clients, the network and workers: tokens, policies, output text, workspaces, sockets.

use crate::harness::{Answer, Daemon, FakeExa, Wire, answer, untested, wait_for, write_program};
use reqwest::StatusCode;
use reqwest::blocking::Client;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A token of sufficient length.
const TOKEN: &str = "the-right-token-0123456789";

/// A token that an earlier version accepted, and its hash in `config.json`: scrypt with this salt.
const SHORT: &str = "1234";
const SHORT_HASH: &str = "4d3c3c21b131943665e1aa4ea3af7c2f47e25072a5b8b73355fdde6e407812c6";
const SALT: &str = "c2FsdHNhbHRzYWx0";

/// Sends one token. Returns the status and `Retry-After`.
fn knock(port: &Value, token: &str) -> (StatusCode, Option<u64>) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let http = Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
    let url = format!("http://127.0.0.1:{port}/status");
    let reply = http.get(url).bearer_auth(token).send().expect("an answer");
    let wait = reply.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    (reply.status(), wait.map(|seconds| seconds.parse().expect("seconds")))
}

/// Sends wrong tokens until the server blocks the address. Returns the time before the last
/// attempt, and the duration of the block from `Retry-After`.
fn guess_until_blocked(port: &Value) -> (Instant, Duration) {
    for n in 0..200 {
        let begun = Instant::now();
        let (status, wait) = knock(port, &format!("{n:04}-0123456789-wrong"));
        if status == StatusCode::TOO_MANY_REQUESTS {
            return (begun, Duration::from_secs(wait.expect("Retry-After")));
        }
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
    panic!("200 guesses were not blocked");
}

#[test]
fn guesses_after_a_right_token_from_the_same_address_are_blocked_and_so_is_the_right_one() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let params = json!({"enabled": true, "port": 0, "authToken": TOKEN});
    let port = wire.request("remote_configure", params)["status"]["port"].clone();
    assert_eq!(knock(&port, TOKEN).0, StatusCode::OK, "the owner was here");
    // A machine may stall for longer than the block: then repeat this.
    wait_for("a check of the right token during a block", || {
        let (begun, block) = guess_until_blocked(&port);
        let (status, _) = knock(&port, TOKEN);
        (begun.elapsed() < block).then(|| {
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "the right token told itself apart");
        })
    });
    wait_for("the right token to be let in", || {
        (knock(&port, TOKEN).0 == StatusCode::OK).then_some(())
    });
}

#[test]
fn a_short_token_is_refused_and_one_from_before_is_told_of_and_limited() {
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).unwrap();
    let before = json!({"version": 2, "remote": {
        "enabled": true, "host": "127.0.0.1", "port": 0, "authTokenHash": SHORT_HASH, "authTokenSalt": SALT,
    }});
    std::fs::write(daemon.app().join("config.json"), before.to_string()).unwrap();
    std::fs::write(daemon.app().join("remote-auth-token"), format!("{SHORT}\n")).unwrap();
    daemon.boot();
    let wire = daemon.wire();
    let state = || wire.request("remote_status", json!({}))["status"].take();
    let port = wait_for("it to listen", || {
        let state = state();
        (state["listening"] == true).then(|| state["port"].clone())
    });
    assert_eq!(knock(&port, SHORT).0, StatusCode::OK, "what was set before goes on working");
    let told = daemon.quack(&["remote", "status"]);
    assert!(told.stderr().contains("quack remote token --rotate"), "{told:?}");
    let doctor = wire.request("doctor", json!({}));
    let checks = doctor["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "remote").unwrap();
    assert_eq!(check["status"], "warn", "{check}");
    assert!(check["hint"].as_str().unwrap().contains("token --rotate"), "{check}");
    guess_until_blocked(&port);

    let short = "fifteen-letters";
    let error = wire.refused("remote_configure", json!({"authToken": short}));
    assert!(error.starts_with("Remote authToken must have at least 16 characters"), "{error}");
    for args in
        [&["remote", "token", "--value", short][..], &["remote", "enable", "--token", short]]
    {
        let refused = daemon.quack(args);
        assert_eq!(refused.code(), Some(2), "{refused:?}");
        assert!(refused.stderr().contains("at least 16 characters"), "{refused:?}");
    }
    assert_eq!(state()["tokenIsShort"], true, "nothing was changed");
    wire.request("remote_configure", json!({"rotateToken": true}));
    assert_eq!(state().get("tokenIsShort"), None);
}

/// Starts a daemon that uses this search provider.
fn searching(exa: &FakeExa, toml: &str) -> Daemon {
    let mut daemon = Daemon::absent();
    daemon.configure(toml);
    let endpoint = format!("QUACKD_EXA_ENDPOINT={}", exa.endpoint());
    daemon.boot_in(&[&endpoint]);
    daemon
}

/// A worker that requests a search on every tool call, and returns the outcome as its result.
const ASKS: &str = r#"#!/usr/bin/perl
use strict; use warnings; use Fcntl;
fcntl(STDIN, F_SETFL, fcntl(STDIN, F_GETFL, 0) & ~O_NONBLOCK);
open(my $out, '>&=', 0); binmode $out; binmode STDIN; select((select($out), $| = 1)[0]);
sub take { my $n = ''; my $got;
    while (length($n) < 4) { $got = sysread(STDIN, $n, 4 - length($n), length($n)); exit 0 unless $got; }
    my $len = unpack('N', $n); my $body = '';
    while (length($body) < $len) { $got = sysread(STDIN, $body, $len - length($body), length($body)); exit 0 unless $got; }
    return $body; }
sub say_frame { my $frame = pack('N', length($_[0])) . $_[0]; syswrite($out, $frame); }
say_frame('{"hello":{"proto":1,"version":"x","pid":1,"sandbox":{"tier":"fake","policy":"fake"}}}');
while (1) {
    my $frame = take();
    if ($frame =~ /^\{"tool_call":\{"call_id":"(\d+)"/) {
        say_frame("{\"web_search\":{\"call_id\":\"$1\",\"search\":{\"query\":\"stolen\",\"num_results\":1,\"include_text\":false,\"include_domains\":[],\"exclude_domains\":[]}}}");
    } elsif ($frame =~ /^\{"web_done":\{"call_id":"(\d+)"/) {
        my $id = $1; my $said = $frame =~ /refused/ ? "refused" : "searched";
        say_frame("{\"tool_finished\":{\"call_id\":\"$id\",\"text\":\"$said\"}}");
    }
}
"#;

#[test]
fn a_search_of_the_web_is_held_by_the_policy_and_by_the_supervisor() {
    let results = answer("200 OK", r#"{"results":[]}"#);
    let exa = FakeExa::start(&[Answer::Says(results)]);
    let daemon = searching(&exa, "");
    let wire = daemon.wire();
    let safe =
        wire.request("attach", json!({"path": daemon.repo("safe").path(), "safeMode": true}));
    let search = |session: &Value| {
        let params =
            json!({"tool": "web_search", "arguments": {"query": "x"}, "sessionId": session});
        wire.request("quack.tool", params)["text"].as_str().unwrap().to_owned()
    };
    let set = |session: &Value, how: &str| {
        let how = ["sandbox", "set", "--web-search", how, "--session", session.as_str().unwrap()];
        daemon.quack(&how).ok();
    };
    let session = &safe["session"]["id"];
    let text = search(session);
    assert!(text.starts_with("Error: web_search is off in this session"), "{text}");
    assert!(text.contains("quack sandbox set --web-search on"), "{text}");
    set(session, "on");
    assert_eq!(search(session), "No web results found for 'x'", "a person has said so");

    let open = wire.attach(daemon.repo("open").path());
    let session = &Value::from(open.id.as_str());
    for (how, begin) in [("off", "is off"), ("ask", "needs a person's leave")] {
        set(session, how);
        let text = search(session);
        assert!(text.starts_with(&format!("Error: web_search {begin} in this session")), "{text}");
        let shown = wire.request("quack.sandbox", json!({"sessionId": session}));
        assert_eq!(shown["policy"]["webSearch"], how, "{shown}");
    }
    let show = daemon.quack(&["sandbox", "show", "--session", &open.id]).ok();
    assert!(show.contains("web search"), "{show}");
    let state = std::fs::read_to_string(daemon.app().join("quackd-state.json")).unwrap();
    assert!(state.contains("webSearch"), "{state}");
}

#[test]
fn a_worker_that_asks_by_itself_is_held_by_the_same_policy() {
    let exa = FakeExa::start(&[Answer::Says(answer("200 OK", r#"{"results":[]}"#))]);
    let mut daemon = Daemon::absent();
    let worker = daemon.home().join("worker.pl");
    write_program(&worker, ASKS);
    let toml = format!("worker.launcher = {}\n[sandbox]\nweb_search = \"off\"\n", json!([worker]));
    daemon.configure(toml);
    let endpoint = format!("QUACKD_EXA_ENDPOINT={}", exa.endpoint());
    daemon.boot_in(&[&endpoint]);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    assert_eq!(session.call("web_search", json!("x")), "refused");
    daemon.quack(&["sandbox", "set", "--web-search", "on", "--session", &session.id]).ok();
    assert_eq!(session.call("web_search", json!("x")), "searched");
}

#[test]
fn a_parameter_that_a_method_of_ours_does_not_know_is_refused_with_the_nearest_name() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let before = wire.request("quack.sandbox", json!({"sessionId": session.id}));
    for (method, params, odd, near) in [
        ("quack.sandbox", json!({"action": "set", "netwrok": true}), "netwrok", "network"),
        ("quack.sandbox", json!({"action": "set", "network": false, "x": 1}), "x", ""),
        ("quack.pin", json!({"sessionID": session.id}), "sessionID", "sessionId"),
        ("quack.kill", json!({"sessionId": session.id, "forse": true}), "forse", ""),
        ("quack.ps", json!({"all": true}), "all", ""),
        ("quack.gc", json!({"dry_run": true}), "dry_run", "dryRun"),
        (
            "quack.session_delete",
            json!({"sessionId": session.id, "forced": true}),
            "forced",
            "force",
        ),
        (
            "quack.tool",
            json!({"tool": "bash", "arguments": {}, "safemode": true}),
            "safemode",
            "safeMode",
        ),
        ("quack.shutdown", json!({"now": true}), "now", ""),
    ] {
        let error = wire.refused(method, params);
        assert!(error.contains(method) && error.contains(&format!("`{odd}`")), "{method}: {error}");
        if !near.is_empty() {
            assert!(error.contains(&format!("`{near}`")), "{method}: {error}");
        }
    }
    // Do not compare `inForce`: the worker may have become ready in between.
    let after = wire.request("quack.sandbox", json!({"sessionId": session.id}));
    for part in ["policy", "layers"] {
        assert_eq!(after[part], before[part]);
    }
    // Upstream's clients may send parameters that upstream does not know.
    wire.request("ping", json!({"x": 1}));
    wire.request("sessions", json!({"all": true, "x": 1}));
}

/// One character of each kind that a terminal interprets or does not display.
const UNSEEN: &str = "\u{7f}\u{80}\u{9b}\u{9f}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}\u{ad}";

#[test]
fn json_of_the_command_line_has_no_character_that_a_terminal_obeys_or_hides() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let text = format!("needle {UNSEEN} 漢 é\n");
    repo.write("odd.txt", &text);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    wire.attach(daemon.repo("od\u{202e}d\u{9b}").path());
    let (id, dir) = (session.id.as_str(), repo.path().to_str().unwrap());
    let bash = format!("cat {dir}/odd.txt");
    for args in [
        &["tool", "bash", &bash, "--session", id, "--json"][..],
        &["tool", "read_file", "odd.txt", "--session", id, "--json"],
        &["grep", "needle", "--session", id, "--json"],
        &["sessions", "--all", "--json"],
        &["ps", "--json"],
    ] {
        let run = daemon.quack(args);
        let out = run.ok();
        let raw: Vec<char> = out.chars().filter(|c| UNSEEN.contains(*c)).collect();
        assert!(raw.is_empty(), "{args:?}: {raw:?} in {out}");
        let values: Vec<Value> = serde_json::Deserializer::from_str(&out)
            .into_iter()
            .map(|value| value.expect("JSON"))
            .collect();
        assert!(!values.is_empty(), "{args:?}");
        if args.contains(&"odd.txt") {
            let all = values[0]["text"].as_str().unwrap_or_else(|| panic!("{out}"));
            assert!(all.contains(UNSEEN) && out.contains("漢 é"), "the value is the same: {out}");
        }
    }
}

#[test]
fn what_is_no_text_in_a_workers_frames_reaches_no_client() {
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    for rest in [
        r#""text":"a\ud800b""#.to_owned(),
        r#""text":"\udc00\ud800""#.to_owned(),
        r#""text":"x","shown":"\ud83dx""#.to_owned(),
        r#""text":"x","data":{"a":["\ud800"]}"#.to_owned(),
        r#""text":"x","data":{"\udfff":1}"#.to_owned(),
        r#""text":"x","data":{"a":1e999}"#.to_owned(),
        format!(r#""text":"x","data":{deep}"#),
        r#""text":"x","update":{"call_id":"1","delta":"\ud800","partial":"","total_bytes":0,"omitted_bytes":0}"#
            .to_owned(),
    ] {
        let mut daemon = Daemon::absent();
        let worker = daemon.home().join("worker.pl");
        let finish = format!(
            "say_frame('{{\"tool_finished\":{{\"call_id\":\"'.$1.'\",'.q\u{1}{rest}\u{1}.'}}}}');"
        );
        let script = ASKS.replacen(
            "say_frame(\"{\\\"web_search\\\":{\\\"call_id\\\":\\\"$1\\\",\\\"search\\\":{\\\"query\\\":\\\"stolen\\\",\\\"num_results\\\":1,\\\"include_text\\\":false,\\\"include_domains\\\":[],\\\"exclude_domains\\\":[]}}}\");",
            &finish,
            1,
        );
        assert_ne!(script, ASKS);
        write_program(&worker, script);
        let toml = format!("worker.launcher = {}\n", json!([worker]));
        daemon.configure(toml);
        daemon.boot();
        let repo = daemon.repo("a");
        let run = daemon.quack(&["tool", "bash", "true", "-C", "a", "--json"]);
        assert_eq!(run.code(), Some(1), "{rest:.80}: {run:?}");
        let text = run.json()["text"].as_str().unwrap().to_owned();
        assert!(text.contains("Worker died during bash (protocol error"), "{rest:.80}: {text}");
        // Each line sent to a client is valid JSON.
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        wire.request("follow", json!({"sessionId": session.id}));
        let text = session.bash("true");
        assert!(text.starts_with("Error: "), "{rest:.80}: {text}");
        wire.request("ping", json!({}));
    }
}

/// System directories that exist on every Linux.
const SYSTEM: [&str; 10] = [
    "/",
    "/usr",
    "/usr/lib",
    "/usr/bin",
    "/etc",
    "/boot",
    "/bin",
    "/var/lib",
    "/proc/self",
    "/dev",
];

#[test]
fn directories_of_the_system_are_no_workspaces_and_nothing_is_recorded() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let link = daemon.home().join("link");
    symlink("/usr/lib", &link).unwrap();
    let home = daemon.home();
    let above = home.parent().unwrap().to_owned();
    let places = SYSTEM.iter().map(PathBuf::from).filter(|place| place.exists());
    for place in places.chain([link.clone(), home, above]) {
        for (method, params) in [
            ("attach", json!({"path": place})),
            ("quack.session_new", json!({"path": place})),
            (
                "quack.tool",
                json!({"path": place, "tool": "bash", "arguments": {"command": "true"}}),
            ),
            ("quack.sandbox", json!({"path": place})),
        ] {
            let error = wire.refused(method, params);
            assert!(error.contains("name a directory"), "{method} {}: {error}", place.display());
        }
    }
    assert_eq!(wire.request("workspaces", json!({})), json!({"workspaces": []}));
    let run = daemon.quack(&["tool", "bash", "true", "-C", "/usr/lib", "--json"]);
    assert_ne!(run.code(), Some(0), "{run:?}");

    let session = wire.attach(daemon.repo("a").path());
    for place in ["/usr/lib", "/etc", "/boot", link.to_str().unwrap()] {
        let set = json!({"action": "set", "sessionId": session.id, "writableRoots": [place]});
        let error = wire.refused("quack.sandbox", set);
        assert!(error.contains("system"), "{place}: {error}");
    }
    // Other directories stay allowed.
    for parent in ["/tmp", "/var/tmp", "/srv", "/opt", "/mnt", "/usr/local/src", "/usr/src"] {
        let Ok(dir) = tempfile::Builder::new().prefix("q").tempdir_in(parent) else { continue };
        assert_eq!(wire.attach(dir.path()).path, dir.path().to_str().unwrap());
    }
}

#[test]
fn a_session_that_another_program_recorded_in_a_directory_of_the_system_runs_nothing() {
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).unwrap();
    let metadata = json!({
        "version": 1, "activeVoiceSessionId": "s1",
        "workspaces": [{"id": "w1", "path": "/usr/lib", "lastActiveSessionId": "s1",
            "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z"}],
        "sessions": [{"id": "s1", "workspaceId": "w1", "name": "duck-1",
            "createdAt": "2026-01-01T00:00:00Z", "lastActiveAt": "2026-01-01T00:00:00Z"}],
    });
    std::fs::write(daemon.app().join("metadata.json"), metadata.to_string()).unwrap();
    let toml = "[sandbox]\nprofile = \"full-access\"\n";
    daemon.configure(toml);
    daemon.boot();
    let wire = daemon.wire();
    let call = json!({"tool": "bash", "arguments": {"command": "pwd"}, "sessionId": "s1"});
    let reply = wire.reply("quack.tool", call).to_string();
    assert!(reply.contains("name a directory"), "{reply}");
    assert!(!reply.contains("Exit code: 0"), "{reply}");
}

/// Creates a file of another user at upstream's socket path.
fn squat(how: &str, place: &Path) -> Option<UnixListener> {
    let mut listener = None;
    match how {
        "file" => std::fs::write(place, "mine").unwrap(),
        "directory" => std::fs::create_dir(place).unwrap(),
        "link" => symlink("/nowhere", place).unwrap(),
        _ => listener = Some(UnixListener::bind(place).unwrap()),
    }
    std::os::unix::fs::lchown(place, Some(1000), Some(1000)).unwrap();
    listener
}

#[test]
fn a_squatted_socket_path_keeps_no_daemon_from_starting_and_no_client_talks_to_it() {
    if !nix::unistd::geteuid().is_root() {
        return untested("only root makes files of another user");
    }
    for how in ["file", "directory", "link", "socket"] {
        let daemon = Daemon::absent();
        let app = daemon.home().join(format!("{how}-with-a-long-name-").repeat(6));
        let digest = Sha256::digest(app.to_str().unwrap().as_bytes());
        let hex: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let place = PathBuf::from(format!("/tmp/duck-{hex}.sock"));
        let squatter = squat(how, &place);
        if let Some(squatter) = &squatter {
            squatter.set_nonblocking(true).unwrap();
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let quack = |args: &[&str]| {
            let mut command = daemon.command(args);
            command.env("RUBBER_DUCK_APP_SUPPORT", &app).stdin(Stdio::null());
            command
        };
        let mut child = quack(&["daemon"]).spawn().unwrap();
        let found = wait_for("the daemon to answer", || {
            let found = quack(&["ps", "--json"]).output().unwrap();
            found.status.success().then_some(found)
        });
        let data: Value = serde_json::from_slice(&found.stdout).unwrap();
        assert_eq!(data["supervisor"]["pid"], child.id(), "{how}");
        let socket = PathBuf::from(data["supervisor"]["socket"].as_str().unwrap());
        assert!(!socket.starts_with("/tmp/duck-"), "{how}: {}", socket.display());
        let private = std::fs::metadata(socket.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(private & 0o077, 0, "{how}: {}", socket.display());
        Wire::connect(&socket).request("quack.shutdown", Value::Null);
        wait_for("the daemon to end", || child.try_wait().unwrap());
        if let Some(squatter) = squatter {
            assert!(squatter.accept().is_err(), "a client connected to the squatter");
        }
        assert!(place.symlink_metadata().is_ok(), "{how}: what is another user's was removed");
        if how == "directory" { std::fs::remove_dir(&place) } else { std::fs::remove_file(&place) }
            .unwrap();
    }
}

#[test]
fn a_squatted_directory_for_sockets_is_told_and_not_used() {
    if !nix::unistd::geteuid().is_root() {
        return untested("only root makes files of another user");
    }
    let daemon = Daemon::absent();
    let app = daemon.home().join("a-directory-with-a-long-name".repeat(4));
    let place = daemon.home().join(".quackd");
    std::fs::create_dir(&place).unwrap();
    chown(&place, Some(1000), Some(1000)).unwrap();
    let run = daemon
        .command(&["daemon"])
        .env("RUBBER_DUCK_APP_SUPPORT", &app)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(3), "{run:?}");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains(place.to_str().unwrap()) && said.contains("1000"), "{said}");
    assert!(UnixStream::connect(place.join("daemon.sock")).is_err());
}

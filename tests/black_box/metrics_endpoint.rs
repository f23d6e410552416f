//! `metrics.listen`: the daemon's metrics over HTTP, requested through a plain socket.
//! `crates/remote` tests faulty peers.

use crate::harness::{Daemon, skipped, untested, wait_for};
use crate::metrics_verb::samples;
use quackd_testkit::HttpReply;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Much longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a world whose configuration sets the listen address.
fn world(listen: &str) -> Daemon {
    let world = Daemon::absent();
    world.configure(format!("[metrics]\nlisten = \"{listen}\"\n"));
    world
}

/// The endpoint's check of `doctor`.
fn check(daemon: &Daemon) -> Option<Value> {
    let doctor = daemon.wire().request("doctor", json!({}));
    let mut checks = doctor["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"] == "metrics").cloned()
}

/// The endpoint's address according to `doctor`.
#[track_caller]
fn address(daemon: &Daemon) -> SocketAddr {
    wait_for("the endpoint to listen", || {
        let check = check(daemon)?;
        let url = check["message"].as_str()?.strip_prefix("http://")?;
        url.strip_suffix("/metrics")?.parse().ok()
    })
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends one request with these headers. Returns the status, the head and the body.
fn ask(at: SocketAddr, line: &str, headers: &str) -> (u16, String, String) {
    let mut stream = connect(at);
    stream.write_all(format!("{line} HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
    let HttpReply { status, head, body } = HttpReply::read(&mut stream);
    (status, head.to_ascii_lowercase(), body)
}

/// Requests the metrics like Prometheus.
#[track_caller]
fn scrape(at: SocketAddr) -> String {
    let headers = format!("Host: {at}\r\nAccept: text/plain;version=0.0.4\r\n");
    let (status, head, body) = ask(at, "GET /metrics", &headers);
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    body
}

/// Local addresses of a process's sockets, in the format of `/proc/net`. `None` unless the test
/// runs as root: only root can read the daemon's descriptors.
#[cfg(target_os = "linux")]
fn listening(pid: i32) -> Option<BTreeSet<String>> {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root sees the daemon's descriptors");
        return None;
    }
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let sockets: BTreeSet<String> = targets
        .filter_map(|target| {
            let text = target.to_str()?.strip_prefix("socket:[")?;
            Some(text.strip_suffix(']')?.to_owned())
        })
        .collect();
    assert!(!sockets.is_empty(), "the daemon has its Unix socket");
    let tables = ["tcp", "tcp6", "udp", "udp6"];
    let rows = tables.iter().flat_map(|table| {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    });
    let of_the_daemon = rows.filter_map(|row| {
        let fields: Vec<&str> = row.split_ascii_whitespace().collect();
        let (address, inode) = (fields.get(1)?, fields.get(9)?);
        sockets.contains(*inode).then(|| (*address).to_owned())
    });
    Some(of_the_daemon.collect())
}

#[cfg(target_os = "linux")]
#[test]
fn no_port_is_open_until_one_is_configured_and_then_one_on_this_machine_only() {
    let daemon = Daemon::start();
    assert_eq!(listening(daemon.pid()).unwrap_or_default(), BTreeSet::new());
    assert_eq!(check(&daemon), None);
    let threads = |daemon: &Daemon| {
        let tree = daemon.wire().request("quack.tree", json!({}));
        let mut rows = tree["children"].as_array().unwrap().iter();
        rows.find(|row| row["spec"]["name"] == "metrics").unwrap()["running"].clone()
    };
    assert_eq!(threads(&daemon), false);
    let mut daemon = world("127.0.0.1:0");
    daemon.boot();
    let at = address(&daemon);
    assert_ne!(at.port(), 0);
    let open = format!("0100007F:{:04X}", at.port());
    let open =
        if cfg!(target_endian = "little") { open } else { open.replace("0100007F", "7F000001") };
    if let Some(found) = listening(daemon.pid()) {
        assert_eq!(found, BTreeSet::from([open]));
    }
    assert_eq!(threads(&daemon), true);
    daemon.quack(&["stop"]).ok();
    assert_eq!(daemon.wait(), Some(0), "it keeps no daemon from its end");
}

#[test]
fn prometheus_reads_what_the_verb_prints_and_nobody_else_is_served() {
    let mut daemon = world("127.0.0.1:0");
    daemon.boot();
    let at = address(&daemon);
    let line = format!(r#""message":"metrics: listening","address":"{at}""#);
    wait_for("the log to name the port", || daemon.log().contains(&line).then_some(()));
    let repo = daemon.repo("very-secret-name");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    // A text is cached for one second.
    let text = wait_for("the call to be counted", || {
        Some(scrape(at)).filter(|text| text.contains("outcome=\"ok\""))
    });
    let numbers = samples(&text);
    assert_eq!(numbers["quackd_sessions"], 1.0);
    assert_eq!(
        numbers["quackd_tool_call_duration_seconds_count{tool=\"bash\",outcome=\"ok\"}"],
        1.0
    );
    for secret in ["very-secret-name", "duck-1", "secret-of-the-daemon", session.id.as_str()] {
        assert!(!text.contains(secret), "{text}");
    }
    let world = daemon.app();
    assert!(!text.contains(world.to_str().unwrap()), "{text}");
    // The same families as `quack metrics` prints.
    let families = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|line| line.starts_with("# TYPE ")).map(str::to_owned).collect()
    };
    assert_eq!(families(&text), families(&daemon.quack(&["metrics"]).ok()));

    let local = format!("Host: localhost:{}\r\n", at.port());
    let (status, _, body) = ask(at, "HEAD /metrics", &local);
    assert_eq!((status, body.as_str()), (200, ""));
    for (line, headers, expected) in [
        ("GET /", local.clone(), 404),
        ("GET /status", local.clone(), 404),
        ("POST /metrics", format!("{local}Content-Length: 0\r\n"), 405),
        ("GET /metrics", format!("{local}Origin: http://evil.example\r\n"), 403),
        ("GET /metrics", format!("{local}Sec-Fetch-Site: cross-site\r\n"), 403),
        ("GET /metrics", format!("Host: evil.example:{}\r\n", at.port()), 403),
        ("GET /metrics", format!("Host: 127.0.0.1:{}\r\n", at.port() ^ 1), 403),
        ("GET /metrics", String::new(), 403),
    ] {
        let (status, head, body) = ask(at, line, &headers);
        assert_eq!(status, expected, "{line} {headers}");
        assert!(!body.contains("quackd_") && !head.contains("access-control"), "{head}\n{body}");
    }
    drop(wire);
    let sessions = daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "asking changes nothing");
}

#[test]
fn asking_often_costs_no_more_than_asking_once() {
    let mut daemon = world("127.0.0.1:0");
    daemon.boot();
    let at = address(&daemon);
    let begun = Instant::now();
    let texts: Vec<String> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..50).map(|_| scrape(at)).collect::<Vec<_>>()))
            .collect();
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    // Each text contains the daemon's uptime in milliseconds, so the number of distinct texts is
    // the number of times that a text was built.
    let made = texts.iter().collect::<BTreeSet<_>>().len();
    let most = usize::try_from(begun.elapsed().as_secs()).unwrap() + 2;
    assert!(texts.len() == 200 && made <= most, "{made} texts in {:?}", begun.elapsed());
}

#[test]
fn who_connects_and_says_nothing_disturbs_nobody() {
    let mut daemon = world("127.0.0.1:0");
    daemon.boot();
    let at = address(&daemon);
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let mut silent: Vec<_> = (0..30).map(|_| connect(at)).collect();
    for (i, stream) in silent.iter_mut().enumerate() {
        if i % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ").unwrap();
        }
    }
    for _ in 0..200 {
        for stream in silent.iter_mut().step_by(2) {
            // The daemon closes accepted connections during this loop.
            stream.write_all(b"x").ok();
        }
        wire.request("ping", json!({}));
    }
    assert_eq!(session.bash("echo at work"), "at work\n\n[Exit code: 0]");
    drop(silent);
    samples(&scrape(at));
}

#[test]
fn a_port_that_is_taken_keeps_no_daemon_from_its_work_and_is_had_when_it_is_free() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let mut daemon = world(&at.to_string());
    daemon.boot();
    let refused =
        wait_for("the refusal", || check(&daemon).filter(|check| check["status"] == "warn"));
    let message = refused["message"].as_str().unwrap();
    let begin = format!("Configured but not listening: {at}: ");
    assert!(message.starts_with(&begin) && message.contains("in use"), "{message}");
    let hint = refused["hint"].as_str().unwrap();
    assert!(hint.contains("`metrics.listen`, then `quack restart`"), "{refused}");
    assert_eq!(daemon.quack(&["doctor"]).code(), Some(0), "a warning is no failure");
    let repo = daemon.repo("a");
    assert_eq!(daemon.wire().attach(repo.path()).bash("echo x"), "x\n\n[Exit code: 0]");
    daemon.wait_for_log("metrics: cannot listen");
    let lines = daemon.log();
    assert_eq!(lines.matches("metrics: cannot listen").count(), 1, "{lines}");
    drop(taken);
    assert_eq!(address(&daemon), at);
    samples(&scrape(at));
}

#[test]
fn an_address_that_others_could_reach_is_refused_with_a_way_out() {
    for (listen, expected) in [
        ("0.0.0.0:9464", "must be an address of this machine only, such as 127.0.0.1:9464"),
        ("[::]:9464", "must be an address of this machine only"),
        ("localhost:9464", "must be an address and a port, such as 127.0.0.1:9464"),
        ("127.0.0.1", "must be an address and a port"),
    ] {
        let world = world(listen);
        let begin = format!("{}:2: `metrics.listen` ", world.app().join("quackd.toml").display());
        for (args, code) in [(&["config", "show"][..], 1), (&["daemon"][..], 3)] {
            let run = world.quack(args);
            assert_eq!(run.code(), Some(code), "{run:?}");
            let stderr = run.stderr();
            assert!(stderr.contains(&begin) && stderr.contains(expected), "{stderr}");
            assert!(stderr.contains(&format!("not `{listen}`")), "{stderr}");
        }
        assert!(!world.socket().exists());
    }
}

#[test]
fn a_session_without_network_does_not_reach_it_and_one_with_network_does() {
    let mut daemon = world("127.0.0.1:0");
    daemon.boot();
    let at = address(&daemon);
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let command = format!(
        "exec 3<>/dev/tcp/{}/{} && printf 'GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' >&3 \
         && grep -c '^quackd_sessions ' <&3",
        at.ip(),
        at.port()
    );
    let without = session.bash(&command);
    assert!(!without.starts_with("1\n"), "{without}");
    let tier = session.worker()["tier"].as_str().unwrap_or_default().to_owned();
    if !["A", "B", "D", "M"].contains(&tier.as_str()) {
        return untested("nothing can be confined here");
    }
    assert!(without.contains("/dev/tcp/"), "the shell says why: {without}");
    // As documented in docs/security.md: a session with network access reaches the machine's own
    // servers.
    let set = json!({"sessionId": session.id, "action": "set", "network": true});
    wire.request("quack.sandbox", set);
    let with = session.bash(&command);
    assert!(with.starts_with("1\n"), "{with}");
}

//! The network by host behind the proxy of the user's network, and without the path for programs that use no proxy.

use crate::first_hour_network::{PROXY, can_test_network};
use crate::harness::tier;
use crate::harness::{Daemon, Session};
use crate::network_hosts::{MACHINE, Server, by_connect, repo_of, sandbox};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// A proxy of the user's network. Answers each request itself, and refuses tunnels to names that start with `refused`.
struct Upstream {
    port: u16,
    /// First lines of the requests.
    lines: Receiver<String>,
}

impl Upstream {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap()).lines();
                    let Some(Ok(first)) = reader.next() else { return };
                    while reader.next().is_some_and(|line| !line.unwrap_or_default().is_empty()) {}
                    let answer: &[u8] = match first.split(' ').collect::<Vec<_>>()[..] {
                        ["CONNECT", name, _] if name.starts_with("refused") => {
                            b"HTTP/1.1 407 no\r\nContent-Length: 0\r\n\r\n"
                        }
                        // The first bytes of the server come with the head.
                        ["CONNECT", ..] => b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbanner\n",
                        _ => b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nproxied\n",
                    };
                    drop(stream.write_all(answer));
                    drop(sender.send(first));
                    // Until the client closes.
                    while let Some(Ok(_)) = reader.next() {}
                });
            }
        });
        Self { port, lines }
    }
}

/// Runs a test in a session of a daemon with these variables and this configuration.
fn in_session_with(variables: &[String], config: &str, test: impl FnOnce(&Daemon, &Session<'_>)) {
    let mut daemon = Daemon::absent();
    daemon.configure(config);
    let args: Vec<&str> = variables.iter().map(String::as_str).collect();
    daemon.boot_in(&args);
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if can_test_network(&session) {
        test(&daemon, &session);
    }
}

/// Sends a request of HTTP over the session's proxy, and prints the answer.
fn get(url: &str, host: &str) -> String {
    format!(
        "exec 3<>{PROXY}; printf 'GET {url} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n' >&3; head -4 <&3"
    )
}

fn tunnel(target: &str) -> String {
    format!("exec 3<>{PROXY}; printf 'CONNECT {target} HTTP/1.1\\r\\n\\r\\n' >&3; head -3 <&3")
}

#[test]
fn names_go_through_the_proxy_of_the_network_and_rules_still_hold() {
    let upstream = Upstream::start();
    let proxy = format!("http://127.0.0.1:{}", upstream.port);
    let variables = [
        format!("HTTPS_PROXY={proxy}"),
        format!("http_proxy={proxy}"),
        "NO_PROXY=direct.example".to_owned(),
    ];
    in_session_with(&variables, "", |daemon, session| {
        let (repo, server) = (repo_of(session), Server::start());
        let names = ["a.example:80,2222", "refused.example:2222", "direct.example"];
        let machine = format!("machine:{}", server.port);
        let allow = names.into_iter().chain([&*machine]).flat_map(|rule| ["--allow", rule]);
        sandbox(daemon, &repo, &["set"].into_iter().chain(allow).collect::<Vec<_>>());
        // The proxy gets a whole address or a tunnel.
        let text = session.bash(&get("http://a.example/x?y", "a.example"));
        assert!(text.contains("proxied"), "{text}");
        assert_eq!(upstream.lines.recv().unwrap(), "GET http://a.example/x?y HTTP/1.1");
        let text = session.bash(&tunnel("a.example:2222"));
        assert!(text.contains("200 Connection established\r\n\r\nbanner"), "{text}");
        assert_eq!(upstream.lines.recv().unwrap(), "CONNECT a.example:2222 HTTP/1.1");
        // A program that uses no proxy.
        let request = "printf 'GET /z HTTP/1.1\\r\\nHost: a.example\\r\\n\\r\\n' >&3";
        if !tier::is_macos() {
            let open = "exec 3<>/dev/tcp/a.example/80";
            let text = session.bash(&format!("{open}; {request}; head -4 <&3"));
            assert!(text.contains("proxied"), "{text}");
            assert_eq!(upstream.lines.recv().unwrap(), "GET http://a.example/z HTTP/1.1");
        }
        // A refusal of the proxy is not a denial by a rule.
        let text = session.bash(&tunnel("refused.example:2222"));
        assert!(text.contains("wants a password"), "{text}");
        assert!(!text.contains("[Sandbox"), "{text}");
        assert_eq!(upstream.lines.recv().unwrap(), "CONNECT refused.example:2222 HTTP/1.1");
        // Hosts without a rule, exceptions, and this machine do not reach it.
        assert!(session.bash(&tunnel("b.example:443")).contains("HTTP/1.1 403 quackd: b.example"));
        let text = session.bash(&get("http://direct.example/", "direct.example"));
        assert!(text.contains("direct.example cannot be resolved"), "{text}");
        assert!(session.bash(&by_connect(server.port)).contains("served"));
        assert!(upstream.lines.try_recv().is_err());
        let explained = |host: &str| sandbox(daemon, &repo, &["explain", host]);
        let through = format!("through 127.0.0.1:{}, the proxy of this network", upstream.port);
        assert!(explained("a.example:80").contains(&through));
        for host in ["direct.example", &format!("{MACHINE}:{}", server.port)] {
            assert!(!explained(host).contains("through"), "{}", explained(host));
        }
        // A connection ends when its rule is removed.
        let hold = format!("{}; cat <&3; echo ended", tunnel("a.example:2222"));
        session.call("bash", serde_json::json!({"command": hold, "background": true}));
        let wait = |ms: u64| {
            session.call("job_output", serde_json::json!({"job": "job-1", "wait_ms": ms}))
        };
        while !wait(100).contains("banner") {}
        sandbox(daemon, &repo, &["set", "--allow", "other.example"]);
        while !wait(20_000).contains("ended") {}
    });
}

#[test]
fn a_proxy_with_a_password_or_by_choice_is_not_used() {
    let upstream = Upstream::start();
    let with = |user: &str| [format!("HTTPS_PROXY=http://{user}127.0.0.1:{}", upstream.port)];
    let none = "[sandbox]\nupstream_proxy = \"none\"\n";
    for (user, config, expected) in [
        (
            "me:hunter2@",
            "",
            "\nnot used: the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY needs a password",
        ),
        ("", none, "leads to this machine or a local network\n"),
    ] {
        in_session_with(&with(user), config, |daemon, session| {
            let repo = repo_of(session);
            sandbox(daemon, &repo, &["set", "--allow", "a.example"]);
            let text = sandbox(daemon, &repo, &["explain", "a.example"]);
            assert!(text.contains(expected), "{text}");
            let text = session.bash(&tunnel("a.example:443"));
            assert!(text.contains("502 quackd: a.example cannot be resolved"), "{text}");
            assert!(!daemon.log().contains("hunter2"));
        });
    }
    assert!(upstream.lines.try_recv().is_err());
}

#[test]
fn without_the_transparent_path_only_the_proxy_is_served() {
    in_session_with(&[], "[sandbox]\ntransparent = false\n", |daemon, session| {
        let (repo, server) = (repo_of(session), Server::start());
        sandbox(daemon, &repo, &["set", "--allow", &format!("machine:{}", server.port)]);
        assert!(session.bash(&by_connect(server.port)).contains("served"));
        let text = session.bash(&format!("exec 3<>/dev/tcp/{MACHINE}/{}", server.port));
        assert!(text.ends_with("[Exit code: 1]") && !text.contains("served"), "{text}");
    });
}

//! The network by host: allowed hosts are reached by every way that programs take, all others are refused at once, and
//! rules change while commands run. The hosts are servers of this machine, which only rules for `machine` allow.

use crate::caches::another;
use crate::first_hour_network::{PROXY, has, in_session};
use crate::harness::tier::{self, needs};
use crate::harness::{Daemon, Session, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

/// The name of this machine inside of a session.
pub(crate) const MACHINE: &str = "host.quackd.internal";

/// A server of this machine that answers each connection with one line.
pub(crate) struct Server {
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                std::thread::spawn(move || {
                    let mut head = [0; 4096];
                    let n = stream.read(&mut head).unwrap_or(0);
                    let is_http = head[..n].starts_with(b"GET ");
                    let answer: &[u8] = if is_http {
                        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nserved\n"
                    } else {
                        b"served\n"
                    };
                    drop(stream.write_all(answer));
                    // Until the client closes.
                    while matches!(stream.read(&mut head), Ok(1..)) {}
                });
            }
        });
        Self { port }
    }
}

#[track_caller]
pub(crate) fn sandbox(daemon: &Daemon, repo: &Path, args: &[&str]) -> String {
    let at = repo.to_string_lossy().into_owned();
    daemon.quack(&[&["sandbox"], args, &["-C", &at]].concat()).ok()
}

pub(crate) fn repo_of(session: &Session<'_>) -> std::path::PathBuf {
    session.bash("pwd").lines().next().unwrap().into()
}

/// A line that a session sees of a server by this route.
pub(crate) fn by_connect(port: u16) -> String {
    format!(
        "exec 3<>{PROXY}; printf 'CONNECT {MACHINE}:{port} HTTP/1.1\\r\\n\\r\\n' >&3; \
         read -r status <&3; read -r empty <&3; echo \"$status\"; echo hello >&3; head -1 <&3"
    )
}

fn directly(port: u16) -> String {
    format!("exec 3<>/dev/tcp/{MACHINE}/{port} && echo hello >&3 && head -1 <&3")
}

fn denied(host: &str, rule: &str) -> String {
    format!(
        "[Sandbox: the network ({host}) was denied (workspace-write, network hosts). To allow it: quack sandbox \
         allow {rule} --session a]"
    )
}

#[test]
fn an_allowed_host_is_reached_with_and_without_a_proxy_and_all_others_are_not() {
    in_session(|daemon, session| {
        let (server, other) = (Server::start(), Server::start());
        let repo = repo_of(session);
        let rule = format!("machine:{}", server.port);
        sandbox(daemon, &repo, &["set", "--allow", &rule]);
        let text = session.bash(&by_connect(server.port));
        assert_eq!(text, "HTTP/1.1 200 Connection established\r\nserved\n\n[Exit code: 0]");
        // Without a proxy only a network of the session leads to the host.
        let has_network = !tier::is_macos();
        if has_network {
            assert_eq!(session.bash(&directly(server.port)), "served\n\n[Exit code: 0]");
        }
        if has(session, "curl") {
            let url = format!("http://{MACHINE}:{}/", server.port);
            for options in
                ["", "--noproxy '*'", "--proxytunnel", "-x socks5h://127.0.0.1:${http_proxy##*:}"]
            {
                if options.starts_with("--noproxy") && !has_network {
                    continue;
                }
                let text = session.bash(&format!("curl -sS {options} {url}"));
                assert_eq!(text, "served\n\n[Exit code: 0]", "{options}");
            }
        }
        let refused = format!("{MACHINE}:{}", other.port);
        let line = denied(&refused, &refused);
        let text = session.bash(&by_connect(other.port));
        let status = format!("HTTP/1.1 403 quackd: {refused} is not allowed\r\n");
        assert!(text.starts_with(&status), "{text}");
        assert!(text.ends_with(&format!("{line}\n[Exit code: 0]")), "{text}");
        // The exit code and the output of the command do not matter.
        for (end, code) in [("; exit 3", 3), (" | tail -1", 0), (" > /dev/null; true", 0)] {
            let text = session.bash(&format!("({}){end}", by_connect(other.port)));
            assert!(text.ends_with(&format!("{line}\n[Exit code: {code}]")), "{end}: {text}");
            assert_eq!(text.matches("[Sandbox: ").count(), 1, "{text}");
        }
        let text = session.bash("(: < /dev/tcp/other.example/443) 2>/dev/null; true");
        let is_named = text.contains(&denied("other.example", "other.example"));
        assert!(is_named || !has_network, "{text}");
        assert_eq!(session.bash("true"), "\n[Exit code: 0]", "the next call is not affected");
    });
}

#[test]
fn rules_change_while_commands_run_without_a_new_worker() {
    in_session(|daemon, session| {
        let server = Server::start();
        let repo = repo_of(session);
        sandbox(daemon, &repo, &["set", "--network", "hosts"]);
        let port = server.port;
        let rule = format!("machine:{port}");
        assert!(session.bash(&by_connect(port)).starts_with("HTTP/1.1 403 "));
        let pid = session.worker()["pid"].clone();
        let shown = sandbox(daemon, &repo, &["allow", &rule]);
        assert!(shown.contains(&format!("granted        {rule}  g1 for this session")), "{shown}");
        assert!(session.bash(&by_connect(port)).contains("served"));
        // A connection ends when its rule is removed.
        let hold = format!("{}; cat <&3; echo ended", by_connect(port));
        session.call("bash", json!({"command": hold, "background": true}));
        let wait = |ms: u64| session.call("job_output", json!({"job": "job-1", "wait_ms": ms}));
        while !wait(100).contains("served") {}
        sandbox(daemon, &repo, &["revoke", "g1"]);
        while !wait(20_000).contains("ended") {}
        assert!(session.bash(&by_connect(port)).starts_with("HTTP/1.1 403 "));
        assert_eq!(session.worker()["pid"], pid, "the worker was not replaced");
        let refused = daemon.quack(&["sandbox", "revoke", "g1", "-C", &repo.to_string_lossy()]);
        assert!(refused.stderr().contains("No rule and no grant: g1"), "{refused:?}");
        let at = repo.to_string_lossy();
        let shown = sandbox(daemon, &repo, &["allow", "e.example:80", "!e.example:22"]);
        assert!(
            shown.contains("e.example:80  g2 for this session"),
            "no id is used twice: {shown}"
        );
        let shown = sandbox(daemon, &repo, &["show"]);
        assert!(shown.contains("for this session by quack (process "), "{shown}");
        let refused = daemon.quack(&["sandbox", "revoke", "e.example", "-C", &at]);
        let told = "No rule and no grant: e.example; about this host there are e.example:80, !e.example:22; quack";
        assert!(refused.stderr().contains(told), "{refused:?}");
        let refused = daemon.quack(&["sandbox", "revoke", "f.example", "-C", &at]);
        assert!(refused.stderr().contains("No rule and no grant: f.example; quack"), "{refused:?}");
        for args in [&["allow", "bad rule!"][..], &["allow", "*.com"], &["set", "--allow", "a b"]] {
            let refused = daemon.quack(&[&["sandbox"], args, &["-C", &at]].concat());
            assert_eq!(refused.code(), Some(2), "{refused:?}");
        }
        sandbox(daemon, &repo, &["revoke", "e.example:80"]);
        sandbox(daemon, &repo, &["revoke", "!e.example:22"]);
        sandbox(daemon, &repo, &["allow", &rule, "--always"]);
        sandbox(daemon, &repo, &["allow", &format!("!{rule}"), "--workspace"]);
        assert!(session.bash(&by_connect(port)).contains("a rule denies it"));
    });
}

#[test]
fn the_output_of_a_running_job_says_what_was_denied_to_it() {
    needs!(Network);
    in_session(|daemon, session| {
        let command = "(: < /dev/tcp/b.example/80) 2>/dev/null; echo tried; exec sleep 1000";
        session.call("bash", json!({"command": command, "background": true}));
        let so_far = |cursor: u64| {
            session.call("job_output", json!({"job": "job-1", "cursor": cursor, "wait_ms": 20_000}))
        };
        let denied_by = |mode: &str| {
            format!(
                "[Sandbox: the network (b.example) was denied (workspace-write, network {mode}). To allow it: quack \
                 sandbox allow b.example --session a]\n[Job running]"
            )
        };
        let text =
            wait_for("the attempt", || Some(so_far(0)).filter(|text| text.contains("tried")));
        assert!(text.ends_with(&denied_by("off")), "{text}");
        // The text is that of the rules in force now.
        sandbox(daemon, &repo_of(session), &["allow", "a.example"]);
        let text = session.call("job_output", json!("job-1"));
        assert!(text.ends_with("--session a]\n[Job running]"), "{text}");
    });
}

#[test]
fn a_network_that_is_off_is_a_list_without_hosts() {
    needs!(Network);
    in_session(|daemon, session| {
        let server = Server::start();
        let repo = repo_of(session);
        let rule = format!("machine:{}", server.port);
        let worker = session.pid("monitorPid");
        assert!(proxies(daemon).is_empty(), "no command has used the network");
        // The network is off, so an allowed host needs no new worker, not even while a command runs.
        session.call("bash", json!({"command": "sleep 1000", "background": true}));
        let in_force = |shown: &str, network: &str| {
            let line = format!("in force       confined, workspace-write, network {network}\n");
            assert!(shown.contains(&line) && !shown.contains("in force after"), "{shown}");
        };
        in_force(&sandbox(daemon, &repo, &["allow", "a.example"]), "hosts");
        let line = denied("b.example", "b.example")
            .replace("was denied", "was denied to a command of this session");
        let text = session.bash("(: < /dev/tcp/b.example/80) 2>/dev/null; true");
        assert!(text.contains(&line), "{text}");
        assert_eq!(proxies(daemon).len(), 1);
        in_force(&sandbox(daemon, &repo, &["set", "--network", "off"]), "off");
        let shown = sandbox(daemon, &repo, &["allow", &rule, "--always"]);
        in_force(&shown, "hosts");
        assert!(!shown.contains("a.example"), "what was turned off stays off: {shown}");
        assert!(session.bash(&by_connect(server.port)).contains("served"));
        assert_eq!(session.worker()["hosts"], true);
        sandbox(daemon, &repo, &["set", "--network", "off"]);
        assert!(session.bash(&by_connect(server.port)).starts_with("HTTP/1.1 403 "));
        assert_eq!(session.worker()["hosts"], Value::Null);
        assert_eq!(session.pid("monitorPid"), worker, "the worker was not replaced");
        // Other sessions stay off.
        let other_repo = daemon.repo("b");
        let other = session.wire.attach(other_repo.path());
        let third = another(session);
        for session in [&other, &third] {
            assert!(session.bash(&by_connect(server.port)).starts_with("HTTP/1.1 403 "));
        }
        // The proxy of a worker ends with it.
        for of in [session, &other, &third] {
            session
                .wire
                .request("quack.session_delete", json!({"sessionId": of.id, "force": true}));
        }
        wait_for("the proxies to end", || proxies(daemon).is_empty().then_some(()));
    });
}

#[test]
fn a_new_host_is_out_of_reach_of_a_worker_that_sees_what_is_hidden_now() {
    in_session(|daemon, session| {
        let server = Server::start();
        let repo = repo_of(session);
        std::fs::write(repo.join("secret"), "s").unwrap();
        let command = daemon.gated("go", &format!("cat secret; {}", by_connect(server.port)));
        let running = session.begin("bash", json!({ "command": command }));
        wait_for("the command", || {
            let calls = session.worker()["calls"].as_array()?.len();
            (calls == 1).then_some(())
        });
        let rule = format!("machine:{}", server.port);
        let secret = repo.join("secret").display().to_string();
        sandbox(daemon, &repo, &["set", "--hide", &secret, "--allow", &rule]);
        daemon.open_gate("go");
        let text = running.text();
        // In the tier of macOS a worker without network has no proxy.
        let start = if tier::is_macos() { "s" } else { "sHTTP/1.1 403 " };
        assert!(text.starts_with(start) && !text.contains("served"), "{text}");
        let text = session.bash(&format!("cat secret; {}", by_connect(server.port)));
        assert!(text.contains("served") && !text.starts_with('s'), "{text}");
    });
}

#[test]
fn sessions_have_their_own_rules_and_requests_are_counted_and_told() {
    in_session(|daemon, session| {
        let server = Server::start();
        let repo = repo_of(session);
        let rule = format!("machine:{}", server.port);
        sandbox(daemon, &repo, &["set", "--allow", &rule]);
        let other_repo = daemon.repo("b");
        let wire = daemon.wire();
        let other = wire.attach(other_repo.path());
        sandbox(daemon, other_repo.path(), &["set", "--network", "hosts"]);
        let follower = daemon.wire();
        follower.request("follow", json!({"sessionId": other.id}));
        assert!(session.bash(&by_connect(server.port)).contains("served"));
        assert!(other.bash(&by_connect(server.port)).starts_with("HTTP/1.1 403 "));
        let event = follower.events_until("network_denied").pop().unwrap();
        assert_eq!(event["data"]["host"], MACHINE);
        assert_eq!(event["data"]["why"], "not-listed");
        let asked = |session: &Session<'_>| {
            let params = json!({"action": "network", "sessionId": session.id});
            wire.request("quack.sandbox", params)
        };
        // The report of the proxy follows the answer to the command.
        let mine = loop {
            let mine = asked(session);
            if mine["last"] != 0 {
                break mine;
            }
        };
        assert_eq!((&mine["mode"], &mine["hosts"][0]["allowed"]), (&json!("hosts"), &json!(1)));
        assert_eq!(mine["requests"][0]["path"], "connect");
        assert!(mine["requests"][0]["rule"].as_str().unwrap().contains(&rule), "{mine}");
        assert_eq!(asked(&other)["hosts"][0]["denied"], 1);
        let metrics = wire.request("quack.metrics", json!({}))["text"].to_string();
        assert!(
            metrics.contains("quackd_network_requests_total{outcome=\\\"denied\\\"} 1"),
            "{metrics}"
        );
        assert!(!metrics.contains(MACHINE), "no names in metrics");
    });
}

#[test]
fn a_proxy_that_dies_is_replaced_and_costs_its_connections_only() {
    in_session(|daemon, session| {
        let server = Server::start();
        let repo = repo_of(session);
        sandbox(daemon, &repo, &["set", "--allow", &format!("machine:{}", server.port)]);
        assert!(session.bash(&by_connect(server.port)).contains("served"));
        let worker = session.worker()["pid"].clone();
        let proxy = proxy_of(daemon);
        assert!(
            session
                .bash(&format!("kill -9 {proxy} 2>&1; ls /proc | grep -c '^{proxy}$'"))
                .contains("0\n")
        );
        let hold = format!("{}; cat <&3; echo ended", by_connect(server.port));
        session.call("bash", json!({"command": hold, "background": true}));
        let wait = |ms: u64| session.call("job_output", json!({"job": "job-1", "wait_ms": ms}));
        while !wait(100).contains("served") {}
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(proxy),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        while !wait(20_000).contains("ended") {}
        assert!(
            session.bash(&by_connect(server.port)).contains("served"),
            "the next proxy serves the same sockets"
        );
        assert_ne!(proxy_of(daemon), proxy);
        assert_eq!(session.worker()["pid"], worker);
    });
}

/// Process id of the only proxy of this daemon.
pub(crate) fn proxy_of(daemon: &Daemon) -> i32 {
    proxies(daemon)[0]
}

/// Process ids of the proxies of this daemon.
fn proxies(daemon: &Daemon) -> Vec<i32> {
    children_named(daemon, "quack-proxy")
}

/// Process ids of the children of this daemon with this name.
pub(crate) fn children_named(daemon: &Daemon, name: &str) -> Vec<i32> {
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.pid())).unwrap();
    let is_meant = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim_end() == name)
    };
    let meant = children.split_whitespace().filter(is_meant);
    meant.map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_server_of_a_session_is_forwarded_until_the_forward_or_the_session_ends() {
    needs!(Network);
    in_session(|daemon, session| {
        if !has(session, "/usr/bin/python3") {
            return;
        }
        let wire = daemon.wire();
        let serve = "echo from the session > page; exec /usr/bin/python3 -u -m http.server 8000 --bind 127.0.0.1";
        session.call("bash", json!({"command": serve, "background": true}));
        session.bash("until (: < /dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done");
        let open = json!({"sessionId": session.id, "port": 8000, "local": 0});
        let opened = wire.request("quack.forward", open.clone());
        let address = opened["listen"].as_str().unwrap().to_owned();
        let get = || -> Option<String> {
            let mut stream = TcpStream::connect(&address).ok()?;
            stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        };
        // The network is off: a forward reaches in, and nothing reaches out.
        assert!(get().unwrap().ends_with("from the session\n"));
        let listed = daemon.quack(&["forward", "--list"]).ok();
        assert!(listed.contains("8000") && listed.contains(&address), "{listed}");
        assert!(wire.refused("quack.forward", open).contains("is already at 127.0.0.1:"));
        let taken = json!({"sessionId": session.id, "port": 8001, "local": address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap()});
        assert!(wire.refused("quack.forward", taken).contains("is in use on this machine"));
        wire.request(
            "quack.forward",
            json!({"sessionId": session.id, "port": 8000, "close": true}),
        );
        assert_eq!(get(), None, "the forward is closed");
        let again = wire
            .request("quack.forward", json!({"sessionId": session.id, "port": 8000, "local": 0}));
        assert!(again["listen"].is_string());
        wire.request("quack.session_delete", json!({"sessionId": session.id, "force": true}));
        assert_eq!(wire.request("quack.forward", json!({"list": true}))["forwards"], json!([]));
    });
}

#[test]
fn a_proxy_that_keeps_dying_is_back_with_the_next_worker() {
    in_session(|daemon, session| {
        let server = Server::start();
        let repo = repo_of(session);
        sandbox(daemon, &repo, &["set", "--allow", &format!("machine:{}", server.port)]);
        assert!(session.bash(&by_connect(server.port)).contains("served"));
        let worker = session.worker()["pid"].clone();
        wait_for("another worker", || {
            for proxy in proxies(daemon) {
                let pid = nix::unistd::Pid::from_raw(proxy);
                // It may have just ended.
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).ok();
            }
            (session.worker()["pid"] != worker).then_some(())
        });
        assert!(session.bash(&by_connect(server.port)).contains("served"));
    });
}

#[test]
fn a_host_that_is_allowed_in_a_workspace_narrows_no_session_of_it() {
    in_session(|daemon, session| {
        let repo = repo_of(session);
        let other = another(session);
        let of = |session: &Session<'_>| {
            let shown = session.wire.request("quack.sandbox", json!({"sessionId": session.id}));
            shown["policy"].clone()
        };
        let off = json!({"sessionId": session.id, "action": "set", "network": "off"});
        sandbox(daemon, &repo, &["set", "--workspace", "--network", "on"]);
        session.wire.request("quack.sandbox", off.clone());
        let asked = json!({
            "sessionId": session.id, "action": "allow", "rules": ["a.example"], "scope": "workspace"});
        session.wire.request("quack.sandbox", asked);
        assert_eq!(of(&other)["network"], true, "another session of the workspace");
        assert_eq!(of(session)["hosts"], json!([]), "the session has the hosts of its grants");
        // A workspace that is off is turned to hosts for all of its sessions.
        sandbox(daemon, &repo, &["set", "--workspace", "--network", "off"]);
        session.wire.request("quack.sandbox", off.clone());
        let asked = json!({
            "sessionId": session.id, "action": "allow", "rules": ["b.example"], "scope": "workspace"});
        session.wire.request("quack.sandbox", asked);
        assert_eq!(of(&other)["hosts"], json!([]));
    });
}

#[test]
fn rules_are_checked_and_explained() {
    in_session(|daemon, session| {
        let repo = repo_of(session);
        let wire = daemon.wire();
        let ask = |params: Value| {
            let mut params = params;
            params["sessionId"] = session.id.clone().into();
            wire.reply("quack.sandbox", params)
        };
        for (rule, expected) in [
            ("*.com", "covers names of unrelated owners"),
            ("a b", "has a character that no host name has"),
            ("@nothing", "preset is called @nothing"),
            ("2130706433", "is a number but no usual address"),
            ("machine", "name the ports"),
        ] {
            let reply = ask(json!({"action": "allow", "rules": [rule]}));
            assert!(reply["error"].to_string().contains(expected), "{rule}: {reply}");
        }
        let many: Vec<String> = (0..257).map(|n| format!("h{n}.example")).collect();
        assert_eq!(ask(json!({"action": "set", "network": "hosts", "hosts": many}))["ok"], false);
        assert_eq!(ask(json!({"action": "allow", "rules": []}))["ok"], false);
        let full = json!({"action": "set", "profile": "full-access", "network": "hosts"});
        assert!(ask(full)["error"].to_string().contains("list of hosts needs confinement"));
        let set =
            ask(json!({"action": "set", "network": "hosts", "hosts": ["Example.ORG", "@github"]}));
        let policy = &set["data"]["policy"];
        assert_eq!(
            (&policy["network"], &policy["hosts"][0]),
            (&json!(false), &json!("Example.ORG"))
        );
        let explained = |host: &str| sandbox(daemon, &repo, &["explain", host]);
        assert!(
            explained("example.org")
                .starts_with("example.org:443 is allowed by example.org (session), unless")
        );
        assert!(explained("api.github.com").contains("(session, @github)"));
        for own in ["localhost:3000", "x.localhost:3000", "127.0.0.1:3000", "[::1]:3000"] {
            let text = explained(own);
            assert!(
                text.starts_with(&format!("{own} needs no rule"))
                    && text.contains(": quack sandbox allow machine:3000 --session a\n"),
                "{text}"
            );
        }
        let text = explained("example.org:22");
        assert!(
            text.contains("no rule names it")
                && text.contains("quack sandbox allow example.org:22"),
            "{text}"
        );
        assert!(
            daemon.quack(&["sandbox", "presets", "github"]).ok().contains("codeload.github.com")
        );
    });
}

#[test]
fn what_was_allowed_is_kept_over_a_restart() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    sandbox(&daemon, repo.path(), &["allow", "kept.example", "!bad.example", "--always"]);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    daemon.boot();
    let shown = sandbox(&daemon, repo.path(), &["show"]);
    for line in
        ["network        hosts", "granted        kept.example", "granted        !bad.example"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    assert!(
        sandbox(&daemon, repo.path(), &["explain", "bad.example"])
            .contains("is denied by !bad.example")
    );
}

/// Requests that try to get past the rules, from inside. Prints one line for each that succeeded.
const ATTACKS: &str = r#"
import os, socket, struct, sys
PORT = int(os.environ["http_proxy"].rsplit(":", 1)[1])
allowed, port, secret = "host.quackd.internal", int(sys.argv[1]), int(sys.argv[2])

def talk(data, reads=4096, then=b""):
    s = socket.create_connection(("127.0.0.1", PORT), 10)
    s.settimeout(10)
    try:
        s.sendall(data)
        first = s.recv(reads)
        if then:
            s.sendall(then)
            first += s.recv(reads)
        return first
    except OSError as error:
        return repr(error).encode()
    finally:
        s.close()

def check(name, answer):
    if b"served" in answer or b"200 Connection" in answer or answer[:2] == b"\x05\x00" and len(answer) > 2 and answer[3:4] == b"\x00":
        print("passed:", name, answer[:60])

forms = ["127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]",
         "169.254.169.254", "localhost.", "LOCALHOST", "host.quackd.internal@127.0.0.1", "127.0.0.1.", "1.0.0.127.in-addr.arpa"]
for form in forms:
    check("connect " + form, talk(f"CONNECT {form}:{secret} HTTP/1.1\r\n\r\n".encode()))
    check("absolute " + form, talk(f"GET http://{form}:{secret}/ HTTP/1.1\r\nHost: {form}:{secret}\r\n\r\n".encode()))
    name = form.strip("[]").encode()
    check("socks " + form, talk(b"\x05\x01\x00", then=b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", secret)))
check("socks v4", talk(b"\x05\x01\x00", then=b"\x05\x01\x00\x01\x7f\x00\x00\x01" + struct.pack(">H", secret)))
check("socks udp", talk(b"\x05\x01\x00", then=b"\x05\x03\x00\x01\x7f\x00\x00\x01" + struct.pack(">H", secret)))
check("socks bind", talk(b"\x05\x01\x00", then=b"\x05\x02\x00\x01\x7f\x00\x00\x01" + struct.pack(">H", secret)))
for evil in ["%s:%d\r\nX: " % (allowed, secret), "%s\x00.example:%d" % (allowed, secret), "%s.evil.example:%d" % (allowed, secret),
             "evil%s:%d" % (allowed, secret), "a" * 70000 + ":1", "%s:%d:%d" % (allowed, port, secret), "%s:%d" % (allowed, port + 65536)]:
    check("connect " + repr(evil[:40]), talk(b"CONNECT " + evil.encode() + b" HTTP/1.1\r\n\r\n"))
url = f"http://{allowed}:{port}/"
for fields in [f"Host: {allowed}:{secret}", f"Host: {allowed}:{port}\r\nHost: {allowed}:{secret}", "Host: 127.0.0.1",
               f"Host: {allowed}:{port}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
               f"Host: {allowed}:{port}\r\nContent-Length: 0\r\nContent-Length: 5"]:
    check("fields " + repr(fields), talk(f"GET {url} HTTP/1.1\r\n{fields}\r\n\r\n".encode()))
for host in ["127.0.0.1", "10.0.0.1", "192.0.2.1", "::1"]:
    try:
        s = socket.create_connection((host, secret), 3)
        print("passed: raw", host)
    except OSError:
        pass
# Queries with data get no answer, and none leaves the machine.
for n in range(2000):
    try:
        socket.getaddrinfo(f"data{n}.tunnel.example", 443)
        print("passed: name", n)
    except OSError:
        pass
held = []
for n in range(1500):
    try:
        s = socket.create_connection(("127.0.0.1", PORT), 10)
        s.send(b"C")
        held.append(s)
    except OSError:
        break
for s in held:
    s.close()
print("done")
"#;

#[test]
fn attacks_on_the_proxy_reach_nothing_and_leave_it_working() {
    in_session(|daemon, session| {
        if !has(session, "/usr/bin/python3") {
            return;
        }
        let (server, secret) = (Server::start(), Server::start());
        let repo = repo_of(session);
        sandbox(daemon, &repo, &["set", "--allow", &format!("machine:{}", server.port)]);
        std::fs::write(repo.join("attack.py"), ATTACKS).unwrap();
        let command = format!("/usr/bin/python3 attack.py {} {}", server.port, secret.port);
        let text = session.long_bash(&command);
        assert!(text.starts_with("done\n"), "{text}");
        let proxy = proxy_of(daemon);
        assert!(session.bash(&by_connect(server.port)).contains("served"));
        assert_eq!(proxy_of(daemon), proxy, "the proxy did not die");
        assert_eq!(session.worker()["restarts"], 0);
    });
}

/// Starts a server on port 443 of this machine that sends `reached` at once. False if it cannot. One for all tests.
pub(crate) fn serves_tls_port() -> bool {
    static SERVES: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let serves = *SERVES.get_or_init(|| {
        let Ok(listener) = TcpListener::bind("127.0.0.1:443") else { return false };
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    drop(stream.write_all(b"reached"));
                    let mut sink = Vec::new();
                    drop(stream.read_to_end(&mut sink));
                });
            }
        });
        true
    });
    if !serves {
        crate::harness::untested("port 443 cannot be bound here");
    }
    serves
}

#[test]
fn a_tunnel_on_the_port_of_tls_carries_tls_to_its_own_host_only() {
    in_session(|daemon, session| {
        let repo = repo_of(session);
        // The addresses are of this machine, so nothing leaves it: the hello is read before a byte is passed on.
        if !serves_tls_port() {
            return;
        }
        sandbox(daemon, &repo, &["set", "--allow", "machine:443"]);
        let connect = format!(
            "exec 3<>{PROXY}; printf 'CONNECT {MACHINE}:443 HTTP/1.1\\r\\n\\r\\n' >&3; read -r a <&3; read -r b <&3"
        );
        let text = session.bash(&format!("{connect}; printf 'SSH-2.0-x\\r\\n' >&3; cat <&3"));
        assert!(!text.contains("reached"), "{text}");
        assert!(
            text.contains("the name in the connection differs from the requested host"),
            "{text}"
        );
        if has(session, "openssl") {
            let proxy = if tier::is_macos() { "-proxy ${http_proxy#http://}" } else { "" };
            let hello = |name: &str| {
                session.bash(&format!(
                    "timeout 20 openssl s_client {proxy} -connect {MACHINE}:443 -servername {name} -msg </dev/null 2>&1 | head -c 400; true"
                ))
            };
            assert!(hello("other.example").contains("differs from the requested host"));
            assert!(!hello(MACHINE).contains("[Sandbox: "), "the hello was passed on");
        }
        sandbox(daemon, &repo, &["set", "--allow", "machine:443/raw"]);
        let text = session.bash(&format!("{connect}; printf 'SSH-2.0-x\\r\\n' >&3; head -c 7 <&3"));
        assert!(text.starts_with("reached"), "{text}");
    });
}

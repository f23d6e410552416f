//! The first hour without network access: commands that try to use it fail at once. Their answer
//! lists the hosts, regardless of their output and exit code. Servers inside a session stay
//! reachable.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Session, skipped, untested};
use serde_json::{Value, json};
use std::path::Path;

/// The end of the line of a refused command without a host.
const OFF: &str =
    "(workspace-write, network off). To allow it: quack sandbox set --network on --session a]";

/// The end of the line of a refused command that names these hosts.
fn off(hosts: &str) -> String {
    let named = hosts.split(" and ").next().unwrap().replace(", ", " ");
    format!("(workspace-write, network off). To allow it: quack sandbox allow {named} --session a]")
}

fn refused(hosts: &str) -> String {
    format!("[Sandbox: the network ({hosts}) was denied {}", off(hosts))
}

/// Address of the session's proxy, as `bash` opens it. In tier M each worker has another port.
pub(crate) const PROXY: &str = "/dev/tcp/127.0.0.1/${http_proxy##*:}";

/// Returns true if workers have namespaces here, or the tier of macOS. Tier D cannot provide the sockets that answer.
pub(crate) fn can_test_network(session: &Session<'_>) -> bool {
    session.bash("true");
    let has = ["A", "B", "M"].contains(&session.worker()["tier"].as_str().unwrap());
    if !has {
        untested("workers have no namespaces here");
    }
    has
}

pub(crate) fn has(session: &Session<'_>, program: &str) -> bool {
    let has = session.bash(&format!("command -v {program}")).ends_with("[Exit code: 0]");
    if !has {
        skipped(&format!("no {program}"));
    }
    has
}

/// Runs a test in one session with namespaces. Its commands find the toolchains of the user who runs the test.
pub(crate) fn in_session(test: impl FnOnce(&Daemon, &Session<'_>)) {
    let mut daemon = Daemon::absent();
    let home = std::env::var("HOME").unwrap_or_default();
    let rustup = std::env::var("RUSTUP_HOME").unwrap_or_else(|_| format!("{home}/.rustup"));
    daemon.boot_in(&[&format!("RUSTUP_HOME={rustup}")]);
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if can_test_network(&session) {
        test(&daemon, &session);
    }
}

#[track_caller]
fn check(session: &Session<'_>, command: &str, hosts: &str, code: i32) {
    let text = session.bash(command);
    let end = format!("{}\n[Exit code: {code}]", refused(hosts));
    assert!(text.ends_with(&end), "{command}\n{text}");
    assert_eq!(text.matches("[Sandbox: ").count(), 1, "{command}\n{text}");
}

#[test]
fn a_name_that_was_looked_up_is_told_for_every_exit_code_and_through_a_pipe() {
    needs!(Network);
    in_session(|_, session| {
        let look_up = "(: < /dev/tcp/some.example/80) 2>/dev/null";
        check(session, look_up, "some.example", 1);
        check(session, &format!("{look_up} | tail"), "some.example", 0);
        check(session, &format!("{look_up}; true"), "some.example", 0);
        check(session, &format!("{look_up}; exit 3"), "some.example", 3);
        let many =
            "for n in 1 2 3 4 5 6 7 7; do (: < /dev/tcp/h$n.example/80); done 2>/dev/null; true";
        let hosts = "h1.example, h2.example, h3.example, h4.example, h5.example and 2 more";
        check(session, many, hosts, 0);
        if has(session, "getent") {
            check(session, "getent hosts UPPER.example; true", "upper.example", 0);
        }
        assert_eq!(session.bash("true"), "\n[Exit code: 0]", "the next call is not affected");
    });
}

#[test]
fn an_address_that_was_connected_to_is_told_with_the_name_that_the_output_has() {
    needs!(Network);
    in_session(|_, session| {
        let unnamed = format!("[Sandbox: the network was denied {OFF}\n[Exit code: 0]");
        for address in ["192.0.2.1", "2001:db8::1"] {
            let text =
                session.bash(&format!("(: < /dev/tcp/{address}/80) 2>/dev/null | tail; true"));
            assert!(text.ends_with(&unnamed), "{address}: {text}");
        }
        let text = session.bash("(: < /dev/udp/192.0.2.1/53) 2>/dev/null; true");
        assert!(text.ends_with(&unnamed), "{text}");
        let printed = "(: < /dev/tcp/192.0.2.1/22) 2>/dev/null; \
                       echo 'ssh: connect to host 192.0.2.7 port 22: Network is unreachable' | tail -1";
        check(session, printed, "192.0.2.7", 0);
        assert_eq!(
            session.bash("(: < /dev/tcp/127.0.0.1/9) 2>/dev/null; true"),
            "\n[Exit code: 0]"
        );
    });
}

#[test]
fn real_programs_fail_at_once_and_their_answer_has_the_host() {
    needs!(Network);
    in_session(|_, session| {
        let programs = [
            ("curl", "curl -s https://curl.example/", "curl.example"),
            ("curl", "curl -s http://curl.example/a", "curl.example"),
            ("curl", "curl -s --noproxy '*' https://curl.example/", "curl.example"),
            ("npm", "npm view left-pad version", "registry.npmjs.org"),
            ("node", "node -e 'fetch(\"https://node.example\").catch(() => 1)'", "node.example"),
            (
                "/usr/bin/python3",
                "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://py.example\")'",
                "py.example",
            ),
            (
                "/usr/bin/python3",
                "/usr/bin/python3 -c 'import socket; socket.getaddrinfo(\"s.example\", 1)'",
                "s.example",
            ),
            (
                "/usr/bin/python3",
                "/usr/bin/python3 -m pip download --no-cache-dir --disable-pip-version-check six",
                "pypi.org",
            ),
            (
                "cargo",
                "cd $(mktemp -d) && cargo init -q --name x . && echo 'left-pad=\"*\"' >> Cargo.toml && cargo fetch",
                "index.crates.io",
            ),
            ("git", "git ls-remote https://git.example/x", "git.example"),
            ("ssh", "GIT_SSH_COMMAND='ssh -F none' git ls-remote git@ssh.example:x", "ssh.example"),
            ("wget", "wget -q -O - https://wget.example/", "wget.example"),
            ("ping", "ping -c 1 ping.example", "ping.example"),
        ];
        for (program, command, host) in programs {
            if !has(session, program) {
                continue;
            }
            for command in
                [format!("({command}) 2>&1 | tail -1"), format!("({command}) 2>&1; true")]
            {
                let arguments = json!({"command": command, "timeout_ms": 60_000});
                let text = session.call("bash", arguments);
                if ["command not found", "No module named pip", "rustup default"]
                    .iter()
                    .any(|why| text.contains(why))
                {
                    skipped(&format!("{program} does not run here"));
                    break;
                }
                assert!(!text.contains("timed out after"), "{command}\n{text}");
                assert!(
                    text.ends_with(&format!("{}\n[Exit code: 0]", refused(host))),
                    "{command}\n{text}"
                );
            }
        }
    });
}

#[test]
fn a_server_in_the_session_is_reached_with_and_without_the_proxy() {
    needs!(Network);
    in_session(|_, session| {
        if !has(session, "/usr/bin/python3") || !has(session, "curl") {
            return;
        }
        session.call(
            "bash",
            json!({"command": "exec /usr/bin/python3 -u -m http.server 8123 --bind 127.0.0.1", "background": true}),
        );
        session.bash("until curl -s -o /dev/null http://127.0.0.1:8123/; do :; done");
        let by = |options: &str, host: &str| {
            session.bash(&format!("curl -s {options} http://{host}:8123/served"))
        };
        session.bash("echo content > served");
        let expected = "content\n\n[Exit code: 0]";
        for host in ["localhost", "127.0.0.1", "0.0.0.0", "LocalHost"] {
            for options in ["", "--noproxy ''", "--noproxy '' --proxytunnel"] {
                assert_eq!(by(options, host), expected, "{options} {host}");
            }
        }
        let closed =
            session.bash("curl -s --noproxy '' -o /dev/null -w '%{http_code}' http://localhost:9/");
        assert_eq!(closed, "502\n[Exit code: 0]", "a closed port of the session is no refusal");
    });
}

#[test]
fn commands_side_by_side_are_told_that_it_may_have_been_another() {
    needs!(Network);
    in_session(|daemon, session| {
        let gate = daemon.gated("gate", "(: < /dev/tcp/job.example/80) 2>/dev/null; true");
        session.call("bash", json!({"command": gate, "background": true}));
        let line = |host: &str| {
            let end = off(host);
            format!("[Sandbox: the network ({host}) was denied to a command of this session {end}")
        };
        let text = session.bash("(: < /dev/tcp/call.example/80) 2>/dev/null; true");
        assert!(text.ends_with(&format!("{}\n[Exit code: 0]", line("call.example"))), "{text}");
        assert_eq!(session.bash("true"), "\n[Exit code: 0]");
        daemon.open_gate("gate");
        let text = session.call("job_output", json!({"job": "job-1", "wait_ms": 20_000}));
        assert!(text.contains(&line("call.example, job.example")), "{text}");
        let alone = session.bash("(: < /dev/tcp/call.example/80) 2>/dev/null; true");
        assert!(alone.contains(&refused("call.example")), "{alone}");
    });
}

#[test]
fn hostile_clients_of_the_proxy_and_the_resolver_harm_nothing() {
    needs!(Network);
    in_session(|_, session| {
        let open = format!("exec 3<>{PROXY}; ");
        for garbage in
            ["\\026\\003\\001\\r\\n\\r\\n", "GET / HTTP/1.1\\r\\n\\r\\n", "CONNECT\\r\\n\\r\\n"]
        {
            let text = session.bash(&format!("{open}printf '{garbage}' >&3; head -1 <&3"));
            assert_eq!(text, "HTTP/1.1 400 Bad Request\r\n\n[Exit code: 0]", "{garbage}");
        }
        let long = format!(
            "{open}(head -c 100000 /dev/zero | tr '\\0' A >&3) 2>/dev/null; head -c 12 <&3 2>&1; true"
        );
        assert!(session.bash(&long).ends_with("[Exit code: 0]"));
        let hostile =
            format!("{open}printf 'CONNECT a]\\033[31m(b:1 HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3");
        assert_eq!(session.bash(&hostile), "HTTP/1.1 400 Bad Request\r\n\n[Exit code: 0]");
        session.bash("for n in {1..300}; do printf 'x%.0s' {1..40} > /dev/udp/127.0.0.1/53; done");
        // A job holds more connections than the proxy accepts: other connections fail at once.
        let hold = format!(
            "ulimit -n 512; for n in {{1..200}}; do exec {{fd}}<>{PROXY}; done; echo held; sleep 600"
        );
        session.call("bash", json!({"command": hold, "background": true}));
        session.call("job_output", json!({"job": "job-1", "wait_ms": 20_000}));
        if has(session, "curl") {
            let text = session.bash("curl -s https://late.example/; true");
            assert!(text.contains(" was denied to a command of this session "), "{text}");
        }
        session.call("job_kill", json!({"job": "job-1"}));
        check(session, "(: < /dev/tcp/after.example/80) 2>/dev/null; true", "after.example", 0);
        assert_eq!(session.worker()["restarts"], 0);
    });
}

const SHOW: &str = "env | grep -i -E 'proxy|retr' | sort";

fn set(daemon: &Daemon, repo: &Path, args: &[&str]) {
    let at = repo.to_string_lossy().into_owned();
    daemon.quack(&[&["sandbox", "set"], args, &["-C", &at]].concat()).ok();
}

#[test]
fn variables_are_set_without_a_network_only_and_never_over_those_of_the_user() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    let settings = "[tools]\nenv = [\"https_proxy\", \"PIP_RETRIES\"]\n";
    daemon.configure(settings);
    daemon.boot_in(&["https_proxy=http://user.example:1", "PIP_RETRIES=4"]);
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !can_test_network(&session) {
        return;
    }
    let proxy = "http://127.0.0.1:61080";
    let near = "localhost,127.0.0.1,::1";
    let text = session.bash(&format!("export LC_ALL=C; {SHOW}"));
    assert_eq!(
        text,
        format!(
            "CARGO_NET_RETRY=0\nHTTP_PROXY={proxy}\nNODE_USE_ENV_PROXY=1\nNO_PROXY={near}\nPIP_RETRIES=4\nUV_HTTP_RETRIES=0\n\
             http_proxy={proxy}\nhttps_proxy=http://user.example:1\nno_proxy={near}\n\n[Exit code: 0]"
        )
    );
    let given = "PIP_RETRIES=4\nhttps_proxy=http://user.example:1\n\n[Exit code: 0]";
    for args in [&["--network", "on"][..], &["full-access"]] {
        set(&daemon, repo.path(), args);
        assert_eq!(session.bash(&format!("export LC_ALL=C; {SHOW}")), given, "{args:?}");
    }
    let on: Value = session.worker();
    assert_eq!(on["restarts"], 0);
}

#[test]
fn a_session_that_may_only_read_is_told_too() {
    needs!(Network);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    set(&daemon, repo.path(), &["read-only"]);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if can_test_network(&session) && has(&session, "curl") {
        let text = session.bash("curl -s https://read.example/ | tail");
        let line = refused("read.example").replace("workspace-write", "read-only");
        assert!(text.ends_with(&format!("{line}\n[Exit code: 0]")), "{text}");
    }
}

//! Attacks of commands on the network by host. The targets are servers of this machine, which only rules for `machine`
//! allow.

use crate::approvals::connect;
use crate::first_hour_network::{has, in_session};
use crate::harness::tier::{self, needs};
use crate::harness::{Daemon, Session};
use crate::network_hosts::{
    MACHINE, Server, by_connect, proxy_of, repo_of, sandbox, serves_tls_port,
};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

const PYTHON: &str = "/usr/bin/python3";

/// Functions of the attacking programs.
const TOOLS: &str = r#"
import os, re, socket, struct, sys, time
PORT = int(os.environ["http_proxy"].rsplit(":", 1)[1])
machine, port, secret = "host.quackd.internal", int(sys.argv[1]), int(sys.argv[2])

def proxy():
    s = socket.create_connection(("127.0.0.1", PORT), 60)
    s.settimeout(60)
    return s

def read_all(s):
    data = b""
    try:
        while True:
            part = s.recv(65536)
            if not part:
                return data, "end"
            data += part
    except OSError:
        return data, "error"

def talk(data):
    s = proxy()
    try:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    return read_all(s)[0]

def connect(target):
    s = proxy()
    s.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = s.recv(1)
        if not part:
            break
        head += part
    return s, head
"#;

/// Runs a program in the session. It gets two ports, of which the rules allow the first.
fn attack(session: &Session<'_>, program: &str, ports: [u16; 2]) -> String {
    let repo = repo_of(session);
    std::fs::write(repo.join("attack.py"), format!("{TOOLS}{program}")).unwrap();
    let command = format!("{PYTHON} -u attack.py {} {}", ports[0], ports[1]);
    session.long_bash(&command)
}

/// Runs a test in a session that may reach one of two servers.
fn with_servers(test: impl FnOnce(&Daemon, &Session<'_>, [u16; 2])) {
    in_session(|daemon, session| {
        if !has(session, PYTHON) {
            return;
        }
        let (server, secret) = (Server::start(), Server::start());
        let rule = format!("machine:{}", server.port);
        sandbox(daemon, &repo_of(session), &["set", "--allow", &rule]);
        test(daemon, session, [server.port, secret.port]);
        assert!(session.bash(&by_connect(server.port)).contains("served"), "the proxy still works");
        assert_eq!(session.worker()["restarts"], 0);
    });
}

const FORMS: &str = r#"
forms = ["127.0.0.1", "127.0.0.2", "127.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "017700000001", "2130706433", "127.0.0.1.",
         "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[::ffff:0:127.0.0.1]",
         "[fe80::1%lo]", "[::1%25lo]", "0", "0.0.0.0", "[::]", "%31%32%37.0.0.1", "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1",
         "ⓗost.quackd.internal", "host.quackd.internal..", ".host.quackd.internal", "host.quackd.internal.evil.example",
         "host.quackd.internal@127.0.0.1", "127.0.0.1\x00.example", "127.0.0.1\r\nX: y", "127.0.0.1\\@a.example", "a" * 65536]
def is_in(answer):
    return b"served" in answer or b" 200 " in answer
for form in forms:
    bare = form.strip("[]").encode()
    if is_in(talk(f"CONNECT {form}:{secret} HTTP/1.1\r\n\r\nhello\n".encode())):
        print("passed: connect", form[:40])
    if is_in(talk(f"GET http://{form}:{secret}/ HTTP/1.1\r\nHost: {form}:{secret}\r\n\r\n".encode())):
        print("passed: absolute", form[:40])
    for name in [form.encode(), bare]:
        ask = b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name) & 255]) + name + struct.pack(">H", secret)
        if is_in(talk(ask + b"hello\n")):
            print("passed: socks", form[:40])
for kind, address in [(1, socket.inet_aton("127.0.0.1")), (1, bytes(4)), (4, socket.inet_pton(socket.AF_INET6, "::1")), (4, bytes(16)),
                      (4, socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"))]:
    if is_in(talk(b"\x05\x01\x00\x05\x01\x00" + bytes([kind]) + address + struct.pack(">H", secret) + b"hello\n")):
        print("passed: socks address", address)
print("done")
"#;

#[test]
fn no_spelling_of_an_address_reaches_a_server_of_this_machine() {
    with_servers(|_, session, ports| {
        let text = attack(session, FORMS, ports);
        assert!(text.starts_with("done\n"), "{text}");
    });
}

/// A server that answers the first request of each connection with a body without a length, and sends all received bytes
/// to the test.
fn recorder() -> (u16, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = vec![0; 65536];
            let n = stream.read(&mut bytes).unwrap_or(0);
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nserved"));
            drop(stream.shutdown(std::net::Shutdown::Write));
            bytes.truncate(n);
            drop(stream.read_to_end(&mut bytes));
            if sender.send(bytes).is_err() {
                return;
            }
        }
    });
    (port, received)
}

const REQUESTS: &str = r#"
url, host = f"http://{machine}:{port}/", f"Host: {machine}:{port}\r\n"
bad = [f"GET {url} HTTP/1.1\r\nHost: {machine}:{secret}\r\n\r\n", f"GET {url} HTTP/1.1\r\n{host}{host}\r\n",
       f"GET {url} HTTP/1.1\r\n\r\n", f"POST {url} HTTP/1.1\r\n{host}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nbad",
       f"POST {url} HTTP/1.1\r\n{host}Content-Length: 4\r\nContent-Length: 5\r\n\r\nbadxx",
       f"POST {url} HTTP/1.1\r\n{host}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", f"GET {url} HTTP/1.1\r\n{host} folded: x\r\n\r\n",
       f"GET {url} HTTP/1.1\r\n{host}X : y\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", f"GET {url} HTTP/2.0\r\n{host}\r\n",
       f"GET http://{machine}:{port}@evil.example/ HTTP/1.1\r\n{host}\r\n", f"GET ftp://{machine}:{port}/ HTTP/1.1\r\n{host}\r\n"]
for request in bad:
    answer = talk(request.encode())
    if b"served" in answer or not answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 ")):
        print("passed:", repr(request[:80]), answer[:80])
# Each of these sends one request to the server, and nothing of the next one.
second = f"GET http://{machine}:{secret}/second HTTP/1.1\r\nHost: {machine}:{secret}\r\n\r\n"
for first in [f"GET {url} HTTP/1.1\r\n{host}\r\n", f"POST {url} HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabc",
              f"POST {url} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
              f"GET {url} HTTP/1.1\r\n{host}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
              f"GET {url} HTTP/1.1\r\n{host}Expect: 100-continue\r\nConnection: keep-alive\r\n\r\n"]:
    s = proxy()
    s.sendall((first + second).encode())
    data, end = read_all(s)
    if not data.endswith(b"served"):
        print("failed:", repr(first), data, end)
print("done")
"#;

#[test]
fn one_request_of_each_connection_reaches_its_own_host() {
    with_servers(|daemon, session, [_, secret]| {
        let (port, received) = recorder();
        let rule = format!("machine:{port}");
        sandbox(daemon, &repo_of(session), &["allow", &rule]);
        let text = attack(session, REQUESTS, [port, secret]);
        assert!(text.starts_with("done\n"), "{text}");
        let requests: Vec<_> = received.iter().take(5).collect();
        for request in requests {
            let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
            assert_eq!(request.matches(" http/1.1\r\n").count(), 1, "{request}");
            assert_eq!(request.matches("\r\nhost: ").count(), 1, "{request}");
            assert!(request.contains("\r\nconnection: close\r\n"), "{request}");
            for unseen in ["second", "upgrade", "http2-settings"] {
                assert!(!request.contains(unseen), "{request}");
            }
        }
        assert!(received.try_recv().is_err(), "the malformed requests did not arrive");
    });
}

const HELLOS: &str = r#"
import ssl
def hello(name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()
def records(data, size):
    body = data[5:]
    return b"".join(data[:3] + struct.pack(">H", len(body[n:n + size])) + body[n:n + size] for n in range(0, len(body), size))
good = hello(machine)
cases = [("own name", [good], True), ("in two packets", [good[:70], good[70:]], True), ("in one byte each", [bytes([b]) for b in good], True),
         ("in records of 20 bytes", [records(good, 20)], True), ("in records and packets", [bytes([b]) for b in records(good, 7)], True),
         ("other name", [hello("other.example")], False), ("other name in records", [records(hello("other.example"), 20)], False),
         ("name below", [hello("a." + machine)], False), ("no name", [hello(None)], False), ("no TLS", [b"SSH-2.0-x\r\n"], False),
         ("HTTP", [b"GET / HTTP/1.1\r\nHost: " + machine.encode() + b"\r\n\r\n"], False), ("bare record", [b"\x16\x03\x01\x00\x00" * 8], False)]
for name, parts, expected in cases:
    s, head = connect(f"{machine}:443")
    assert b" 200 " in head, head
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for part in parts:
            s.sendall(part)
        first = s.recv(7)
    except OSError:
        first = b""
    s.close()
    if (first == b"reached") != expected:
        print("wrong:", name, first)
print("done")
"#;

#[test]
fn a_tunnel_to_one_host_carries_no_hello_for_another() {
    with_servers(|daemon, session, ports| {
        if !serves_tls_port() {
            return;
        }
        sandbox(daemon, &repo_of(session), &["allow", "machine:443"]);
        let text = attack(session, HELLOS, ports);
        assert!(text.starts_with("done\n"), "{text}");
        assert!(text.contains("the name in the connection differs"), "{text}");
        // A scan of ports, and a program that gives up, are no mismatch.
        let scan = format!("(: < /dev/tcp/{MACHINE}/443) && echo open");
        assert!(tier::is_macos() || session.bash(&scan) == "open\n\n[Exit code: 0]");
    });
}

const FLOOD: &str = r#"
from collections import deque
held, refused = deque(), 0
for n in range(10000):
    if len(held) == 2000:
        held.popleft().close()
    try:
        s = socket.create_connection(("127.0.0.1", PORT), 60)
        s.send(b"C")
        held.append(s)
    except OSError:
        refused += 1
for s in held:
    s.close()
print("done")
"#;

#[test]
fn ten_thousand_connections_hold_no_more_than_their_limit() {
    with_servers(|daemon, session, ports| {
        assert!(session.bash(&by_connect(ports[0])).contains("served"));
        let proxy = proxy_of(daemon);
        let (done, ended) = channel::<()>();
        let counting = std::thread::spawn(move || {
            let mut most = 0;
            while ended.try_recv().is_err() {
                let open = std::fs::read_dir(format!("/proc/{proxy}/fd"));
                most = most.max(open.map_or(0, Iterator::count));
            }
            most
        });
        let text = attack(session, FLOOD, ports);
        done.send(()).unwrap();
        let most = counting.join().unwrap();
        assert!(text.starts_with("done\n"), "{text}");
        // 1,024 connections without a server, and the proxy's own descriptors.
        assert!(most < 1024 + 64, "{most} descriptors");
        // The slots are free again after the proxy has seen that the clients are gone.
        while !session.bash(&by_connect(ports[0])).contains("served") {}
        assert_eq!(proxy_of(daemon), proxy, "the proxy did not die");
    });
}

const SLOW: &str = r#"
def drip(s, data):
    try:
        for byte in data:
            s.sendall(bytes([byte]))
            s.settimeout(1)
            try:
                if not s.recv(1):
                    return
            except TimeoutError:
                pass
    except OSError:
        return
    print("never closed")
drip(proxy(), b"GET http://" + b"a" * 3600)
drip(proxy(), b"\x05\xff" + b"\x01" * 3600)
print("done")
"#;

#[test]
fn a_head_of_one_byte_per_second_ends_at_the_limit() {
    with_servers(|_, session, ports| {
        let text = attack(session, SLOW, ports);
        assert!(text.starts_with("done\n"), "{text}");
    });
}

const DOWNLOAD: &str = r#"
s = proxy()
s.sendall(f"GET http://{machine}:{port}/ HTTP/1.1\r\nHost: {machine}:{port}\r\n\r\n".encode())
data = b""
while not data.endswith(b"half"):
    data += s.recv(100)
print("half", flush=True)
print("then", read_all(s)[1])
"#;

/// A server whose answer has no length, sends its first half and never the second one.
fn half_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf"));
            kept.push(stream);
        }
    });
    port
}

#[test]
fn a_transfer_that_is_cut_short_is_an_error_for_the_program() {
    in_session(|daemon, session| {
        if !has(session, PYTHON) {
            return;
        }
        let (port, repo) = (half_server(), repo_of(session));
        let rule = format!("machine:{port}");
        sandbox(daemon, &repo, &["allow", &rule]);
        std::fs::write(repo.join("get.py"), format!("{TOOLS}{DOWNLOAD}")).unwrap();
        let download = format!("{PYTHON} -u get.py {port} 0");
        let wait =
            |job: &str, ms: u64| session.call("job_output", json!({"job": job, "wait_ms": ms}));
        for (job, kills) in [("job-1", true), ("job-2", false)] {
            session.call("bash", json!({"command": download, "background": true}));
            while !wait(job, 100).contains("half") {}
            if kills {
                let proxy = nix::unistd::Pid::from_raw(proxy_of(daemon));
                nix::sys::signal::kill(proxy, nix::sys::signal::Signal::SIGKILL).unwrap();
            } else {
                sandbox(daemon, &repo, &["revoke", &rule]);
            }
            let text = loop {
                let text = wait(job, 1000);
                if text.contains("then ") {
                    break text;
                }
            };
            assert!(text.contains("then error"), "{kills}: {text}");
        }
    });
}

const INJECT: &str = r#"
evil = "\x1b]0;pwned\x07\x1b[31m.example"
talk(f"CONNECT {evil}:443 HTTP/1.1\r\n\r\n".encode())
talk(f"GET http://{evil}/ HTTP/1.1\r\nHost: {evil}\r\n\r\n".encode())
talk(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(evil)]) + evil.encode() + b"\x01\xbb")
query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + bytes([len(evil) - 8]) + evil[:-8].encode() + b"\x07example\x00\x00\x01\x00\x01"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.sendto(query, ("127.0.0.1", 53))
print("code", s.recv(1024)[3] & 15)
talk(b"CONNECT plain.example:443 HTTP/1.1\r\n\r\n")
"#;

#[test]
fn escape_sequences_in_names_reach_no_log_and_no_answer() {
    needs!(Network);
    with_servers(|daemon, session, ports| {
        let text = attack(session, INJECT, ports);
        assert!(text.starts_with("code 3\n") && text.contains("plain.example"), "{text}");
        let wire = daemon.wire();
        // The report of the proxy follows its answer to the command.
        let report = loop {
            let params = json!({"action": "network", "sessionId": session.id});
            let report = wire.request("quack.sandbox", params).to_string();
            if report.contains("plain.example") {
                break report;
            }
        };
        let shown = sandbox(daemon, &repo_of(session), &["network"]);
        for text in [&text, &report, &shown, &daemon.log()] {
            assert!(!text.contains("pwned") && !text.contains('\u{1b}'), "{text}");
        }
    });
}

const CORPUS: &str = r#"
import json
for line in open("corpus.jsonl"):
    case = json.loads(line)
    args = case["args"]
    if "socks5_host" in args:
        name = args["socks5_host"].encode()
        answer = talk(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", args["port"]))
        # The byte after the version is the result of the request.
        was_refused = len(answer) < 4 or answer[3] != 0
    elif "dns_query" in args:
        try:
            socket.getaddrinfo(args["dns_query"], 443)
            was_refused = False
        except OSError:
            was_refused = True
    elif "http" in args:
        http = args["http"]
        answer = talk(f"POST {http['absolute']} HTTP/1.1\r\nHost: {http['host_header']}\r\nTransfer-Encoding: {http['transfer_encoding']}\r\n\r\n0\r\n\r\n".encode())
        was_refused = answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
    elif "tls_sni" in args or "resolves_to" in args:
        # They need a host that exists: the tests of tunnels and of lookups.
        continue
    else:
        answer = talk(f"CONNECT {args['connect']} HTTP/1.1\r\n\r\n".encode())
        was_refused = answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
    print(case["id"], "refused" if was_refused else answer[:80])
"#;

#[test]
fn the_attacks_of_the_corpus_on_a_proxy_are_refused_before_a_dial() {
    let corpus = include_str!("../escapes/corpus.jsonl");
    let is_case = |line: &&str| line.contains("\"proxy-");
    let cases: Vec<_> = corpus.lines().filter(is_case).collect();
    with_servers(|daemon, session, ports| {
        let (repo, machine) = (repo_of(session), format!("machine:{}", ports[0]));
        let set = |rule: &str| {
            let rules = ["set", "--allow", &machine, "--allow", "*.ok.test:443", "--allow", rule];
            sandbox(daemon, &repo, &rules)
        };
        set("allowed.test:443");
        let told = session.bash(&connect("allowed.test:443"));
        assert!(
            told.starts_with("HTTP/1.1 502 "),
            "a host that does not exist is looked up: {told}"
        );
        set("!allowed.test");
        std::fs::write(repo.join("corpus.jsonl"), cases.join("\n")).unwrap();
        let text = attack(session, CORPUS, ports);
        let refused = text.lines().filter(|line| line.ends_with(" refused")).count();
        assert_eq!(refused, cases.len() - 2, "{text}");
    });
}

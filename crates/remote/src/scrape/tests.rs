//! Tests of the endpoint with real connections and raw bytes.

use super::*;
use bytes::Bytes;
use quackd_testkit::{HttpReply, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream as Stream;
use std::time::Instant;

/// Far longer than any reply takes.
const PATIENCE: Duration = Duration::from_secs(60);

const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
const NUMBERS: &str = "# TYPE a gauge\na 1\n";

/// An endpoint on a free port, and a daemon that always replies with the same metrics.
struct World {
    endpoint: Endpoint,
    at: SocketAddr,
}

impl World {
    fn new() -> Self {
        Self::saying(|| Some(Bytes::from_static(NUMBERS.as_bytes())))
    }

    fn saying(numbers: impl Fn() -> Option<Bytes> + Send + 'static) -> Self {
        let (endpoint, mut asked) = Endpoint::open("127.0.0.1:0".parse().unwrap(), KIND).unwrap();
        std::thread::spawn(move || {
            while let Some(Scrape(answer)) = asked.blocking_recv() {
                if let Some(numbers) = numbers() {
                    answer.send(numbers).ok();
                }
            }
        });
        let at = listening_at(&endpoint);
        Self { endpoint, at }
    }

    fn connect(&self) -> Stream {
        let stream = Stream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads until the endpoint closes. Returns status, head and body.
    fn raw(&self, bytes: &str) -> (u16, String, String) {
        let mut stream = self.connect();
        stream.write_all(bytes.as_bytes()).ok();
        rest(&mut stream)
    }

    fn ask(&self, line: &str, headers: &str) -> (u16, String, String) {
        self.raw(&format!("{line} HTTP/1.1\r\n{headers}\r\n"))
    }

    /// Returns the status of a metrics request with these headers.
    fn status(&self, headers: &str) -> u16 {
        self.ask("GET /metrics", headers).0
    }
}

fn rest(stream: &mut Stream) -> (u16, String, String) {
    let HttpReply { status, head, body } = HttpReply::read(stream);
    (status, head.to_ascii_lowercase(), body)
}

#[track_caller]
fn listening_at(endpoint: &Endpoint) -> SocketAddr {
    wait_for("it to listen", || match endpoint.listening() {
        Listening::At(at) => Some(at),
        _ => None,
    })
}

#[test]
fn the_numbers_are_given_with_their_type_and_to_head_without_a_body() {
    let world = World::new();
    let (status, head, body) = world.ask("GET /metrics?x=y", "Host: localhost\r\n");
    assert_eq!((status, body.as_str()), (200, NUMBERS));
    for line in [
        format!("content-type: {KIND}"),
        format!("content-length: {}", NUMBERS.len()),
        "connection: close".to_owned(),
        "cache-control: no-store".to_owned(),
        "x-content-type-options: nosniff".to_owned(),
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
    assert!(!head.contains("access-control"), "{head}");
    let (status, head, body) = world.ask("HEAD /metrics", "Host: 127.0.0.1\r\n");
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains(&format!("content-length: {}", NUMBERS.len())), "{head}");
    // Further data on the same connection is ignored.
    let twice = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    let (status, _, body) = world.raw(&twice);
    assert_eq!((status, body.as_str()), (200, NUMBERS));
}

#[test]
fn nothing_else_is_served() {
    let world = World::new();
    for path in ["/", "/metrics/", "/Metrics", "//metrics", "/rpc", "/health", "/metrics/../x", "*"]
    {
        let (status, ..) = world.ask(&format!("GET {path}"), "Host: localhost\r\n");
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "METRICS", "get"] {
        let (status, head, _) =
            world.ask(&format!("{method} /metrics"), "Host: localhost\r\nContent-Length: 0\r\n");
        assert_eq!(status, 405, "{method}");
        assert!(head.contains("allow: get, head"), "{head}");
    }
    let (status, ..) = world.ask("CONNECT localhost:1", "Host: localhost\r\n");
    assert_eq!(status, 403);
    // Upgrades and other protocols are refused.
    let upgrade = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(world.status(upgrade), 200, "an upgrade is not taken");
    for garbage in ["\r\n\r\n", "hello\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01"]
    {
        let mut stream = world.connect();
        stream.write_all(garbage.as_bytes()).unwrap();
        let (status, ..) = rest(&mut stream);
        assert!([0, 400].contains(&status), "{garbage:?}: {status}");
    }
}

#[test]
fn a_name_that_is_not_this_machines_is_refused() {
    let world = World::new();
    let port = world.at.port();
    for host in [
        "localhost".to_owned(),
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ] {
        assert_eq!(world.status(&format!("Host: {host}\r\n")), 200, "{host}");
    }
    let other = port ^ 1;
    for headers in [
        String::new(),
        "Host:\r\n".to_owned(),
        format!("Host: evil.example:{port}\r\n"),
        format!("Host: 127.0.0.1.evil.example:{port}\r\n"),
        format!("Host: 127.0.0.1:{other}\r\n"),
        format!("Host: 0.0.0.0:{port}\r\n"),
        format!("Host: user@127.0.0.1:{port}\r\n"),
        "Host: localhost\r\nHost: evil.example\r\n".to_owned(),
        "Host: localhost, evil.example\r\n".to_owned(),
    ] {
        let (status, _, body) = world.ask("GET /metrics", &headers);
        assert_eq!(status, 403, "{headers:?}");
        assert!(!body.contains("TYPE"), "{body}");
    }
    let (status, ..) = world.ask("GET http://evil.example/metrics", "Host: localhost\r\n");
    assert_eq!(status, 403, "this is no proxy");
    assert_eq!(world.raw("GET /metrics HTTP/1.0\r\n\r\n").0, 403);
}

#[test]
fn pages_are_refused_and_a_person_who_looks_is_not() {
    let world = World::new();
    for header in [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://localhost",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: ",
    ] {
        assert_eq!(world.status(&format!("Host: localhost\r\n{header}\r\n")), 403, "{header}");
    }
    for header in ["Sec-Fetch-Site: none", "User-Agent: Prometheus/3.0", "Accept: */*"] {
        assert_eq!(world.status(&format!("Host: localhost\r\n{header}\r\n")), 200, "{header}");
    }
}

#[test]
fn a_daemon_without_numbers_is_said_to_have_none() {
    let world = World::saying(|| None);
    assert_eq!(world.status("Host: localhost\r\n"), 503);
}

#[test]
fn heads_are_bounded_in_size_and_time() {
    let world = World::new();
    let long = format!("Host: localhost\r\nX: {}\r\n", "x".repeat(MAX_METRICS_HEAD_BYTES));
    assert!([0, 431].contains(&world.status(&long)));
    let many = format!("Host: localhost\r\n{}", "X: y\r\n".repeat(1000));
    assert!([0, 431].contains(&world.status(&many)));
    let begun = Instant::now();
    let mut silent = world.connect();
    silent.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap();
    rest(&mut silent);
    assert!(HEAD_TIMEOUT <= begun.elapsed() + Duration::from_millis(50));
    assert_eq!(world.status("Host: localhost\r\n"), 200);
}

#[test]
fn who_says_nothing_holds_a_place_for_a_moment_only() {
    let world = World::new();
    // A busy machine may need several attempts.
    wait_for("a reply before the silent ones have used their time", || {
        // More than the slots, so that some wait in the kernel.
        let mut silent: Vec<_> =
            (0..4 * MAX_METRICS_CONNECTIONS).map(|_| world.connect()).collect();
        silent[0].write_all(b"GET /metrics HTTP/1.1\r\nHost: loc").unwrap();
        let begun = Instant::now();
        assert_eq!(world.status("Host: localhost\r\n"), 200);
        let took = begun.elapsed();
        // The oldest one was closed without a reply.
        assert_eq!(rest(&mut silent[0]).0, 0);
        // A new connection does not wait for the closed ones.
        drop(silent);
        let begun = Instant::now();
        assert_eq!(world.status("Host: localhost\r\n"), 200);
        // If each silent connection used its full timeout, the first one would take four times as long.
        (took.max(begun.elapsed()) < HEAD_TIMEOUT * 2).then_some(())
    });
}

#[test]
fn who_is_being_answered_keeps_its_place() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let world = World::saying(move || {
        gate.recv().ok();
        Some(Bytes::from_static(NUMBERS.as_bytes()))
    });
    let ask = || {
        let mut stream = world.connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream
    };
    let mut all: Vec<_> = (0..=MAX_METRICS_CONNECTIONS).map(|_| ask()).collect();
    // Long enough that a connection without a head would be closed.
    all[0].set_read_timeout(Some(HEAD_GRACE * 10)).unwrap();
    let waits = all[0].read(&mut [0]).unwrap_err();
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    all[0].set_read_timeout(Some(PATIENCE)).unwrap();
    drop(go);
    for stream in &mut all {
        assert_eq!(rest(stream).0, 200);
    }
}

#[test]
fn who_does_not_read_is_given_up() {
    let much = Bytes::from(vec![b'x'; 32 * 1024 * 1024]);
    let world = World::saying(move || Some(much.clone()));
    let mut slow: Vec<_> = (0..MAX_METRICS_CONNECTIONS).map(|_| world.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    let mut stream = world.connect();
    stream.write_all(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(rest(&mut stream).0, 200);
}

#[test]
fn a_port_that_is_taken_is_told_and_had_when_it_is_free() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (endpoint, mut asked) = Endpoint::open(address, KIND).unwrap();
    let why = wait_for("the refusal", || match endpoint.listening() {
        Listening::Refused(why) => Some(why),
        _ => None,
    });
    assert!(why.contains("in use"), "{why}");
    drop(taken);
    assert_eq!(listening_at(&endpoint), address);
    // The port is free again after the endpoint and its connections are closed.
    let mut connected = Stream::connect(address).unwrap();
    connected.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(endpoint);
    assert_eq!(rest(&mut connected).0, 0);
    wait_for("the port to be free", || std::net::TcpListener::bind(address).ok());
    assert!(asked.blocking_recv().is_none(), "no more requests");
}

#[test]
fn an_endpoint_of_ipv6_is_found_there() {
    let Ok((endpoint, mut asked)) = Endpoint::open("[::1]:0".parse().unwrap(), KIND) else {
        return;
    };
    let at = wait_for("an answer", || match endpoint.listening() {
        Listening::Begun => None,
        Listening::At(at) => Some(Some(at)),
        // The machine has no IPv6.
        Listening::Refused(_) => Some(None),
    });
    let Some(at) = at else { return };
    std::thread::spawn(move || {
        while let Some(Scrape(answer)) = asked.blocking_recv() {
            answer.send(Bytes::from_static(NUMBERS.as_bytes())).ok();
        }
    });
    let world = World { endpoint, at };
    assert_eq!(world.status(&format!("Host: [::1]:{}\r\n", at.port())), 200);
    drop(world.endpoint);
}

//! Peers that send invalid data, too much data, or too slowly, or that disconnect. Each gets a reply or is
//! closed, and other clients are not affected.

use super::*;

#[test]
fn malformed_requests_are_answered_and_nothing_else_happens() {
    let world = World::new();
    let long = "x".repeat(40_000);
    let many: String = (0..200).map(|n| format!("H{n}: v\r\n")).collect();
    let requests: Vec<(Vec<u8>, &[u16])> = vec![
        // Hosts.
        (b"GET /health HTTP/1.1\r\nHost: [\r\n\r\n".to_vec(), &[400]),
        (b"GET /health HTTP/1.1\r\nHost: a:99999\r\n\r\n".to_vec(), &[400]),
        (b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n".to_vec(), &[400]),
        (b"GET /health HTTP/1.1\r\nHost: \xff\r\n\r\n".to_vec(), &[400]),
        (b"GET /health HTTP/1.1\r\nHost: \r\n\r\n".to_vec(), &[400]),
        (b"GET /health HTTP/1.1\r\n\r\n".to_vec(), &[400]),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_vec(), &[400]),
        (b"GET / HTTP/1.1\r\nHost: \"><script>\r\n\r\n".to_vec(), &[400]),
        // Targets.
        (b"GET //[ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[400, 401]),
        (b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), &[400]),
        (b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), &[400]),
        (b"GET health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[400, 401]),
        (b"GET \x01 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), &[400]),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[400, 401]),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[204]),
        // Escapes.
        (b"GET /assets/%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[400]),
        (b"GET /assets/% HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[400]),
        (b"GET /%ff.js HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[400]),
        // Heads.
        (b"hello\r\n\r\n".to_vec(), &[400]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), &[400]),
        // HTTP/2 is not supported, and the client could not read a reply in HTTP/1.1.
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), &[0]),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n".to_vec(), &[400, 505]),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX\x00: a\r\n\r\n".to_vec(), &[400]),
        (b"POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n".to_vec(), &[400]),
        (
            b"POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
                .to_vec(),
            &[400],
        ),
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(), &[400, 414, 431]),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n").into_bytes(), &[431]),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n").into_bytes(), &[431]),
    ];
    for (request, statuses) in requests {
        let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
        let answer = world.raw(&request);
        assert!(statuses.contains(&answer.status), "{shown:?}: {answer:?}");
    }
    let chunk = b"POST /rpc HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer the-right-token-0123456789\r\n\r\nzz\r\n";
    assert!([0, 400].contains(&world.raw(chunk).status));
    world.is_well();
}

#[test]
fn bad_handshakes_of_websockets_are_answered() {
    let world = World::new();
    let handshake = |target: &str, headers: &[&str]| {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{lines}\r\n"
        );
        world.raw(request.as_bytes()).status
    };
    let (token, version) = (bearer(TOKEN), "Sec-WebSocket-Version: 13");
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    assert_eq!(handshake("/ws/", &[&token, version, key]), 404);
    assert_eq!(handshake("/", &[&token, version, key]), 404);
    // The first message must have the token then.
    assert_eq!(handshake("/ws", &[version, key]), 101);
    assert_eq!(handshake("/ws", &["Authorization: Basic x", version, key]), 401);
    assert_eq!(handshake("/ws", &[&bearer("wrong"), version, key]), 401);
    assert_eq!(handshake("/ws", &["Origin: http://b", version, key]), 403);
    assert_eq!(handshake("/ws", &[&token, version]), 400);
    assert_eq!(handshake("/ws", &[&token, version, "Sec-WebSocket-Key: short"]), 400);
    assert_eq!(handshake("/ws", &[&token, version, "Sec-WebSocket-Key: \x01"]), 400);
    assert_eq!(handshake("/ws", &[&token, version, key, key]), 400);
    assert_eq!(handshake("/ws", &[&token, key]), 426);
    assert_eq!(handshake("/ws", &[&token, key, "Sec-WebSocket-Version: 8"]), 426);
    let post = world.request("POST", "/ws", &[&token, "Upgrade: websocket", version, key], b"");
    assert_eq!(post.status, 400);
    world.is_well();
}

#[test]
fn slow_peers_are_closed_and_hold_up_nobody() {
    let world = World::new();
    let mut slow: Vec<TcpStream> = Vec::new();
    wait_until("a reply before the first of them is closed", || {
        // A machine may stall until they are closed: then with new ones.
        slow.clear();
        slow.extend((0..100).map(|_| world.connect()));
        for (n, stream) in slow.iter_mut().enumerate() {
            // Nothing, a part of a head, or a head without its body.
            let part = match n % 3 {
                0 => String::new(),
                1 => "GET /status HT".to_owned(),
                _ => head("POST", "/rpc", &[&bearer(TOKEN)], 100) + "{\"a\"",
            };
            stream.write_all(part.as_bytes()).ok();
        }
        let is_answered = world.request("GET", "/health", &[], b"").status == 200;
        is_answered && slow.iter().all(is_open)
    });
    let mut statuses: Vec<u16> =
        slow.iter_mut().map(|stream| HttpReply::read(stream).status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    assert!(statuses.iter().all(|status| [0, 408].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&408), "a client with a slow body gets 408");
}

/// Returns true if the server has sent nothing and has not closed.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn one_address_gets_so_many_connections_and_its_places_back() {
    let world = World::new();
    let held: Vec<TcpStream> = (0..128).map(|_| world.connect()).collect();
    let mut surplus = world.connect();
    // Closed without a reply, while the other connections are still open.
    assert_eq!(HttpReply::read(&mut surplus).status, 0);
    drop(held);
    wait_until("a slot", || world.request("GET", "/health", &[], b"").status == 200);
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let world = World::new();
    for n in 0..300 {
        let mut stream = world.connect();
        let full = head("POST", "/rpc", &[&bearer(TOKEN)], 15) + "{\"method\":\"ok\"}";
        let part = full.len() * (n % 10) / 9;
        stream.write_all(&full.as_bytes()[..part]).unwrap();
    }
    // All slots are free again.
    wait_until("free slots", || {
        let held: Vec<TcpStream> = (0..100).map(|_| world.connect()).collect();
        let is_well = world.request("GET", "/health", &[], b"").status == 200;
        drop(held);
        is_well
    });
}

#[test]
fn wrong_tokens_are_counted_and_slow_down_nobody() {
    // The plain token is unknown, so each attempt would need a slow check.
    let world = World::with(TOKEN, false);
    let flood = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let tries =
                (0..60).map(|_| world.request("GET", "/status", &[&bearer("wrong")], b"").status);
            tries.collect::<Vec<u16>>()
        });
        while !flood.is_finished() {
            world.is_well();
        }
        flood.join().unwrap()
    });
    assert_eq!(flood.first(), Some(&401));
    assert!(flood.contains(&429), "never refused: {flood:?}");
    assert!(flood.iter().all(|status| [401, 429].contains(status)), "{flood:?}");
    // The block of the address ends.
    wait_until("the end of the block", || world.authorized("GET", "/status", b"").status == 200);
}

#[test]
fn who_is_blocked_is_told_when_to_come_back_and_the_right_token_is_no_exception() {
    for (world, token) in [(World::new(), TOKEN), (World::with(SHORT, true), SHORT)] {
        let answer = |token| world.request("GET", "/status", &[&bearer(token)], b"");
        assert_eq!(answer(token).status, 200);
        let answers: Vec<HttpReply> = (0..12).map(|_| answer("wrong")).collect();
        let last = answers.last().unwrap();
        assert_eq!(last.status, 429);
        let wait: u64 = last.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=5).contains(&wait), "{wait}");
        assert_eq!(answer(token).status, 429, "a guesser would know that it is the one");
        world.is_well();
    }
}

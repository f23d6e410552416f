//! All routes: status, headers and body.

use super::*;

#[test]
fn every_route_answers_as_upstream_does() {
    let world = World::new();
    for (method, target, has_token, status) in [
        ("OPTIONS", "/anything", false, 204),
        ("OPTIONS", "/rpc", false, 204),
        ("GET", "/health", false, 200),
        ("GET", "/", false, 200),
        ("GET", "/index.html", false, 200),
        ("GET", "/assets/app.js", false, 200),
        ("GET", "/assets/none", false, 404),
        ("GET", "/some.txt", false, 404),
        ("GET", "/assets/../../../etc/passwd", false, 404),
        ("HEAD", "/", false, 401),
        ("POST", "/health", false, 401),
        ("GET", "/status", false, 401),
        ("GET", "/history?sessionId=a", false, 401),
        ("POST", "/rpc", false, 401),
        ("POST", "/token", false, 400),
        ("GET", "/token", false, 401),
        ("GET", "/nowhere", false, 401),
        ("DELETE", "/status", false, 401),
        ("GET", "/status", true, 200),
        ("GET", "/status?x=1", true, 200),
        ("GET", "/history", true, 400),
        ("GET", "/history?sessionId=a.b", true, 400),
        ("GET", "/history?sessionId=a", true, 404),
        ("GET", "/nowhere", true, 404),
        ("POST", "/status", true, 404),
        ("GET", "/rpc", true, 404),
        ("GET", "/ws", true, 404),
        ("GET", "http://elsewhere/status", true, 200),
    ] {
        let token = bearer(TOKEN);
        let headers: &[&str] = if has_token { &[&token] } else { &[] };
        let answer = world.request(method, target, headers, b"");
        assert_eq!(answer.status, status, "{method} {target}: {answer:?}");
        let is_file = answer.header("content-security-policy").is_some();
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            (
                "access-control-allow-headers",
                "Authorization, Content-Type, X-Rubber-Duck-Client-Id",
            ),
            ("access-control-allow-methods", "GET,POST,OPTIONS"),
            ("permissions-policy", "microphone=(self)"),
            ("referrer-policy", if is_file { "no-referrer" } else { "same-origin" }),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{method} {target}");
        }
        if status == 401 {
            assert_eq!(answer.header("content-type"), Some("application/json"));
            if method != "HEAD" {
                assert_eq!(answer.body, "{\"error\":\"Unauthorized\"}");
            }
        }
    }
}

#[test]
fn the_texts_that_clients_look_for_are_there() {
    let world = World::new();
    let error = |target: &str| super::error(&world.authorized("GET", target, b""));
    assert_eq!(error("/history?sessionId=abc-1_X"), "History not found for session abc-1_X");
    assert_eq!(error("/history?sessionId=a%2Fb"), "A valid sessionId query parameter is required");
    assert_eq!(error("/nowhere"), "Not found");
}

#[test]
fn the_state_has_every_key_in_upstreams_order_and_a_host_that_can_be_dialled() {
    let world = World::new();
    let port = world.port;
    let answer = world.authorized("GET", "/status", b"");
    assert_eq!(
        answer.body,
        format!(
            "{{\"enabled\":true,\"listening\":true,\"host\":\"127.0.0.1\",\"port\":{port},\"protocol\":\"http\",\
             \"tlsEnabled\":false,\"httpUrl\":\"http://127.0.0.1:{port}\",\"wsUrl\":\"ws://127.0.0.1:{port}/ws\",\
             \"tokenConfigured\":true,\"tokenUpdatedAt\":\"2026-01-02T03:04:05.678Z\",\"lastError\":null,\
             \"connectedClients\":0}}"
        )
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let proxied = world.raw(
        format!(
            "GET /status HTTP/1.1\r\nHost: mac.tail.ts.net\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n{}\r\n\r\n",
            bearer(TOKEN)
        )
        .as_bytes(),
    );
    assert_eq!(proxied.json()["wsUrl"], "wss://mac.tail.ts.net/ws");
    let health = world.request("GET", "/health", &[], b"").json();
    assert_eq!(health["status"]["httpUrl"], format!("http://127.0.0.1:{port}"));
}

#[test]
fn only_the_right_token_in_the_right_header_opens() {
    let world = World::new();
    for header in [
        "X: y".to_owned(),
        bearer("wrong"),
        bearer(""),
        bearer(&TOKEN[1..]),
        bearer(&format!("{TOKEN}x")),
        format!("Authorization: bearer {TOKEN}"),
        format!("Authorization: Basic {TOKEN}"),
        format!("Authorization: {TOKEN}"),
        format!("Cookie: token={TOKEN}"),
        format!("{}\r\n{}", bearer(TOKEN), bearer("wrong")),
    ] {
        let answer = world.request("GET", "/status", &[&header], b"");
        assert_eq!(answer.status, 401, "{header}");
    }
    let query = world.request("GET", &format!("/status?token={TOKEN}"), &[], b"");
    assert_eq!(query.status, 401);
    assert_eq!(world.request("GET", "/status", &[&bearer(&format!(" {TOKEN} "))], b"").status, 200);
}

#[test]
fn a_request_in_a_body_gets_the_daemons_reply() {
    let world = World::new();
    let rpc = |headers: &[&str], body: &str| {
        let token = bearer(TOKEN);
        let headers: Vec<&str> = headers.iter().copied().chain([token.as_str()]).collect();
        world.request("POST", "/rpc", &headers, body.as_bytes())
    };
    let answer = rpc(&[], "{\n \"id\": \"a\", \"method\": \"ping\"}");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!(
        answer.body, r#"{"as":null,"id":"a","ok":true,"said":{"id":"a","method":"ping"}}"#,
        "one line, and no line end"
    );
    assert_eq!(rpc(&[], r#"{"id":1,"method":"fail"}"#).status, 400);
    assert_eq!(rpc(&[], "").json()["said"], json!({}));
    assert_eq!(rpc(&[], " \n").json()["said"], json!({}));
    assert_eq!(rpc(&["X-Rubber-Duck-Client-Id: c1"], "{}").json()["as"], "c1");
    assert_eq!(rpc(&["X-Rubber-Duck-Client-Id:  "], "{}").json()["as"], Value::Null);
    let unknown = rpc(&["X-Rubber-Duck-Client-Id: nobody"], "{}");
    assert_eq!((unknown.status, error(&unknown).as_str()), (400, "Unknown client id"));
    for broken in ["{", "hello", "{}{}", "{\"a\":\"\n\"}"] {
        let answer = rpc(&[], broken);
        assert_eq!(answer.status, 400, "{broken}");
        assert!(!error(&answer).is_empty());
    }
}

#[test]
fn a_body_of_the_largest_size_passes_and_one_more_byte_is_answered_with_413() {
    let world = World::new();
    let of_size =
        |size: usize| format!("{{\"method\":\"fail\",\"x\":\"{}\"}}", "y".repeat(size - 24));
    let body = of_size(1_000_000);
    assert_eq!(body.len(), 1_000_000);
    assert_eq!(world.authorized("POST", "/rpc", body.as_bytes()).status, 400);
    for size in [1_000_001, 5_000_000] {
        let answer = world.authorized("POST", "/rpc", of_size(size).as_bytes());
        assert_eq!(answer.status, 413, "{size}");
        assert_eq!(error(&answer), "The request body is larger than 1000000 bytes");
    }
    // Without a Content-Length header.
    let mut chunked = format!(
        "POST /rpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{}\r\n\r\n",
        bearer(TOKEN)
    )
    .into_bytes();
    for _ in 0..11 {
        chunked.extend_from_slice(b"186a0\r\n");
        chunked.extend_from_slice(&[b' '; 100_000]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(world.raw(&chunked).status, 413);
    // A client that sends `Expect` gets the reply before it sends the body.
    let mut asking = world.connect();
    let head = head("POST", "/rpc", &[&bearer(TOKEN), "Expect: 100-continue"], 2_000_000);
    asking.write_all(head.as_bytes()).unwrap();
    assert_eq!(HttpReply::read(&mut asking).status, 413);
    world.is_well();
}

#[test]
fn a_history_is_its_last_events() {
    let world = World::new();
    let lines: String = (0..1500).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    std::fs::write(world.settings.histories.join("s1.jsonl"), lines + "broken\n").unwrap();
    let events = |limit: &str| {
        let target = format!("/history?sessionId=s1{limit}");
        let history = world.authorized("GET", &target, b"").json();
        assert_eq!(history["sessionId"], "s1");
        let events = history["events"].as_array().unwrap().clone();
        (events.len(), events[0]["n"].as_u64().unwrap())
    };
    // A line that is not JSON counts too, because upstream takes the last lines first.
    assert_eq!(events(""), (199, 1301));
    assert_eq!(events("&limit=2"), (1, 1499));
    assert_eq!(events("&limit=100000"), (999, 501));
    let answer = world.authorized("GET", "/history?sessionId=s1&limit=2", b"");
    assert_eq!(answer.body, "{\"events\":[{\"n\":1499}],\"sessionId\":\"s1\"}");
}

#[test]
fn files_have_their_types_and_the_page_runs_only_its_own_scripts() {
    let world = World::new();
    for (target, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/assets/app.js", "text/javascript; charset=utf-8"),
        ("/assets/views/sessions.js", "text/javascript; charset=utf-8"),
        ("/assets/style.css", "text/css; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
        ("/app.webmanifest", "application/manifest+json; charset=utf-8"),
        ("/sw.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = world.request("GET", target, &[], b"");
        for (name, value) in [
            ("content-type", kind),
            ("cache-control", "no-cache"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
            (
                "content-security-policy",
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                 manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            ),
        ] {
            assert_eq!(answer.header(name), Some(value), "{target}");
        }
    }
    let page = world.request("GET", "/", &[], b"").body;
    // Clients recognize the page by its title.
    assert!(page.contains("<title>Rubber Duck Remote</title>"), "{page}");
}

#[test]
fn tls_serves_the_same() {
    let mut world = World::new();
    let (paths, trust) = world.tls();
    world.apply(Settings { tls: Some(paths), ..world.settings.clone() }).unwrap();
    let name = "localhost".try_into().unwrap();
    let connection = rustls::ClientConnection::new(trust, name).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, world.connect());
    stream.write_all(head("GET", "/status", &[&bearer(TOKEN)], 0).as_bytes()).unwrap();
    let status = HttpReply::read(&mut stream).json();
    assert_eq!(status["protocol"], "https");
    assert_eq!(status["wsUrl"], format!("wss://127.0.0.1:{}/ws", world.port));
    // A client that uses plain HTTP gets no reply.
    assert_eq!(world.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").status, 0);
}

//! Pages: the code, the token as first message, other sites, and revocation.

use super::sockets::Socket;
use super::*;
use crate::{PageSecret, PageToken, PageTokenHash, Pages};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const PAGE_TOKEN: &str = "a-page-token-0123456789";
const HOST: &str = "127.0.0.1:7";

fn pages(ids: &[&str]) -> Pages {
    let secret = |text: &str| PageSecret {
        hash: PageTokenHash::of(text),
        host: Some("duck.example".to_owned()),
        expires: SystemTime::now() + Duration::from_secs(600),
    };
    let token = |id: &&str| {
        let page = Page { id: (*id).into(), rights: PageRights::default() };
        PageToken { secret: secret(&format!("{PAGE_TOKEN}{id}")), page }
    };
    let codes = ["right", "full", "late"].map(secret).to_vec();
    Pages { tokens: ids.iter().map(token).collect(), codes }
}

fn first(id: &str) -> String {
    json!({"token": format!("{PAGE_TOKEN}{id}")}).to_string()
}

impl World {
    #[track_caller]
    fn page(&self, first: &str) -> Socket<TcpStream> {
        Socket::begin(self.connect(), HOST, first)
    }

    fn token(&self, headers: &[&str], body: &str) -> HttpReply {
        self.request("POST", "/token", headers, body.as_bytes())
    }
}

#[test]
fn the_first_message_is_the_token_and_a_revoked_one_closes_its_websockets_only() {
    let world = World::new();
    world.remote.set_pages(pages(&["a", "b"]));
    let mut main = world.page(&json!({"token": TOKEN}).to_string());
    assert_eq!(main.json()["page"], Value::Null);
    let (mut a, mut b) = (world.page(&first("a")), world.page(&first("b")));
    assert_eq!((&a.json()["page"], &b.json()["page"]), (&json!("a"), &json!("b")));
    a.is_well();
    world.remote.set_pages(pages(&["b"]));
    assert_eq!(a.closed(), Some(CloseCode::Policy));
    assert_eq!(world.page(&first("a")).closed(), Some(CloseCode::Policy));
    b.is_well();
    main.is_well();
    // The token of remote control does not concern pages.
    let mut world = world;
    let settings = Settings {
        token: hash_of("another-token-0123456789"),
        plain_token: None,
        ..world.settings.clone()
    };
    world.apply(settings).unwrap();
    assert_eq!(main.closed(), Some(CloseCode::Policy));
    b.is_well();
}

#[test]
fn without_a_token_a_websocket_is_closed_and_only_a_wrong_one_counts() {
    let world = World::new();
    for no_token in ["{}", "hello", "[]", "{\"token\":5}", &"x".repeat(10_000)] {
        assert_eq!(world.page(no_token).closed(), Some(CloseCode::Policy), "{no_token:.20}");
    }
    let mut silent = world.page("");
    assert_eq!(silent.closed(), Some(CloseCode::Policy));
    let large = world.page(&"x".repeat(20_000)).closed();
    // It may be complete before it is refused.
    assert!(matches!(large, None | Some(CloseCode::Size | CloseCode::Policy)), "{large:?}");
    assert_eq!(world.remote.connected(), 0);

    let mut n_wrong = 0;
    while world.page("{\"token\":\"wrong\"}").closed() == Some(CloseCode::Policy) && n_wrong < 20 {
        n_wrong += 1;
        if world.request("GET", "/status", &[&bearer(TOKEN)], b"").status == 429 {
            break;
        }
    }
    assert_eq!(n_wrong, 10);
    // It neither keeps a page out, nor who has a code.
    world.remote.set_pages(pages(&["a"]));
    assert_eq!(world.token(&[], "{\"code\":\"right\"}").status, 200);
    assert_eq!(world.page(&first("a")).json()["page"], "a");
    let main = json!({"token": TOKEN}).to_string();
    assert_eq!(world.page(&main).closed(), Some(CloseCode::Again));
}

#[test]
fn clients_without_a_token_keep_nobody_out() {
    let world = World::new();
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\n{key}\r\n\r\n"
    );
    // The machine may stall until their time is over: then with new ones.
    wait_until("the oldest to make room", || {
        let begin = || {
            let mut stream = world.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            assert_eq!(&status, b"HTTP/1.1 101");
            stream
        };
        let silent: Vec<TcpStream> = (0..40).map(|_| begin()).collect();
        let mut page = world.page(&json!({"token": TOKEN}).to_string());
        page.json();
        page.is_well();
        silent.into_iter().take(24).all(|mut stream| {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            String::from_utf8_lossy(&rest).contains("too many clients that send no token")
        })
    });
    world.socket(TOKEN).is_well();
}

#[test]
fn a_code_gives_a_token_and_a_wrong_one_counts() {
    let world = World::new();
    world.remote.set_pages(pages(&[]));
    let reply = world.token(&["User-Agent: Duck\tFox 1.0"], "{\"code\":\"right\"}");
    let rights = json!({"approvals": false, "apply": false, "terminals": false});
    let expected = json!({"token": "token of DuckFox 1.0", "id": "new", "rights": rights});
    assert_eq!((reply.status, reply.json()), (200, expected));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    for bad in ["", "{}", "{\"code\":1}", "right"] {
        assert_eq!(world.token(&[], bad).status, 400, "{bad}");
    }
    assert_eq!(world.token(&[], &format!("{{\"code\":\"{}\"}}", "x".repeat(2000))).status, 413);
    assert_eq!(world.token(&[], "{\"code\":\"full\"}").status, 503);
    let statuses: Vec<u16> =
        (0..11).map(|_| world.token(&[], "{\"code\":\"wrong\"}").status).collect();
    assert_eq!(statuses, [&[401; 10][..], &[429]].concat());
    let blocked = world.token(&[], "{\"code\":\"wrong\"}");
    assert!(blocked.header("retry-after").is_some());
    assert_eq!(world.token(&[], "{\"code\":\"right\"}").status, 200);
}

#[test]
fn a_page_gives_up_its_own_token_only() {
    let world = World::new();
    world.remote.set_pages(pages(&["a", "locked"]));
    let end = |token: &str| {
        world.request("DELETE", "/token", &[&format!("Authorization: Bearer {token}")], b"").status
    };
    assert_eq!((end("wrong"), end(TOKEN)), (401, 403));
    assert_eq!(end(&format!("{PAGE_TOKEN}locked")), 503);
    assert_eq!(end(&format!("{PAGE_TOKEN}a")), 204);
}

#[test]
fn another_site_gets_nothing_and_its_attempts_do_not_count() {
    let world = World::new();
    world.remote.set_pages(pages(&["a"]));
    let port = world.port;
    let raw = |method: &str, target: &str, host: &str, origin: &str, more: &str, body: &str| {
        let length = body.len();
        world
            .raw(
                format!(
                    "{method} {target} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: close\r\n\
                     Content-Length: {length}\r\n{more}\r\n{body}"
                )
                .as_bytes(),
            )
            .status
    };
    let own = format!("127.0.0.1:{port}");
    let page = format!("{}\r\n", bearer(&format!("{PAGE_TOKEN}a")));
    let code = "{\"code\":\"right\"}";
    for (host, origin) in [
        (own.as_str(), "https://evil.example"),
        (own.as_str(), "http://127.0.0.1:1"),
        (own.as_str(), "null"),
        // A name that the site has pointed to this machine.
        ("evil.example", "http://evil.example"),
    ] {
        for _ in 0..12 {
            assert_eq!(raw("POST", "/token", host, origin, "", "{\"code\":\"wrong\"}"), 403);
        }
        assert_eq!(raw("POST", "/token", host, origin, "", code), 403, "{host} {origin}");
        assert_eq!(raw("GET", "/status", host, origin, &page, ""), 403, "{host} {origin}");
        assert_eq!(raw("POST", "/rpc", host, origin, &page, "{}"), 403, "{host} {origin}");
        // Upstream's app is another site too.
        let main = format!("{}\r\n", bearer(TOKEN));
        assert_eq!(raw("GET", "/status", host, origin, &main, ""), 200, "{host} {origin}");
        let upgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        assert_eq!(raw("GET", "/ws", host, origin, upgrade, ""), 403, "{host} {origin}");
        let with_page = format!("{upgrade}{page}");
        assert_eq!(raw("GET", "/ws", host, origin, &with_page, ""), 403, "{host} {origin}");
    }
    for (host, origin) in [
        (own.as_str(), format!("http://{own}")),
        ("duck.example", "https://duck.example".to_owned()),
    ] {
        assert_eq!(raw("POST", "/token", host, &origin, "", code), 200, "{host}");
        assert_eq!(raw("GET", "/status", host, &origin, &page, ""), 200, "{host}");
        assert_eq!(raw("POST", "/rpc", host, &origin, &page, "{}"), 200, "{host}");
    }
    let reply = world.request("POST", "/rpc", &[page.trim()], b"{}").json();
    assert_eq!(reply["page"], "a");
}

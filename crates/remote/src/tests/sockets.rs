//! WebSockets with an independent client implementation.

use super::*;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket, client};

/// A client with an open WebSocket.
pub(super) struct Socket<S>(WebSocket<S>);

impl<S: Read + Write> Socket<S> {
    #[track_caller]
    pub(super) fn open(stream: S, host: &str, token: &str) -> Self {
        let mut request = format!("ws://{host}/ws").into_client_request().unwrap();
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("Authorization", value);
        let (socket, answer) = client(request, stream).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.status(), 101);
        let mut socket = Self(socket);
        assert_eq!(socket.json()["event"], "remote_ready");
        socket
    }

    /// Opens a WebSocket whose first message is this text. Sends an `Origin` like a browser.
    #[track_caller]
    pub(super) fn begin(stream: S, host: &str, first: &str) -> Self {
        let mut request = format!("ws://{host}/ws").into_client_request().unwrap();
        let origin = format!("http://{host}").parse().unwrap();
        request.headers_mut().insert("Origin", origin);
        let (socket, _) = client(request, stream).unwrap_or_else(|error| panic!("{error}"));
        let mut socket = Self(socket);
        // The server may have closed already.
        socket.0.send(Message::text(first)).ok();
        socket
    }

    pub(super) fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    #[track_caller]
    pub(super) fn text(&mut self) -> String {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return text.to_string(),
                Ok(Message::Ping(_)) => {}
                other => panic!("no text: {other:?}"),
            }
        }
    }

    #[track_caller]
    pub(super) fn json(&mut self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// Waits until the server closes the socket.
    #[track_caller]
    pub(super) fn closed(&mut self) -> Option<CloseCode> {
        loop {
            match self.0.read() {
                Ok(Message::Close(frame)) => return frame.map(|frame| frame.code),
                Ok(_) => {}
                Err(Error::ConnectionClosed | Error::Protocol(_) | Error::Io(_)) => return None,
                Err(error) => panic!("not closed: {error}"),
            }
        }
    }

    /// Checks that the socket is still open.
    #[track_caller]
    pub(super) fn is_well(&mut self) {
        self.send("ping");
        assert_eq!(self.text(), "pong");
    }
}

impl World {
    #[track_caller]
    pub(super) fn socket(&self, token: &str) -> Socket<TcpStream> {
        Socket::open(self.connect(), "duck.example:7", token)
    }
}

#[test]
fn a_websocket_is_a_client_that_speaks_in_frames() {
    let world = World::new();
    let mut socket = world.socket(TOKEN);
    assert_eq!(world.remote.connected(), 1);
    assert_eq!(world.authorized("GET", "/status", b"").json()["connectedClients"], 1);
    socket.send("{\n\"id\": 1}");
    assert_eq!(socket.text(), "{\t\"id\": 1}");
    socket.is_well();
    socket.0.send(Message::binary(&b" {\"id\":2} "[..])).unwrap();
    assert_eq!(socket.text(), "{\"id\":2}");
    // The maximum length of a line.
    let large = "x".repeat(8 * 1024 * 1024);
    socket.send(&large);
    assert!(socket.text() == large);
    socket.0.close(None).unwrap();
    socket.closed();
    wait_until("the client to be forgotten", || world.remote.connected() == 0);
}

#[test]
fn the_first_event_says_where_the_client_has_dialled() {
    let world = World::new();
    let mut stream = world.connect();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: duck.example:7\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n\r\n",
        bearer(TOKEN)
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&bytes).contains("duck.example") {
        let n = stream.read(&mut buffer).unwrap();
        assert_ne!(n, 0, "closed");
        bytes.extend_from_slice(&buffer[..n]);
    }
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    // The example of RFC 6455.
    assert!(
        text.to_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{text}"
    );
    assert!(text.contains("ws://duck.example:7/ws"), "{text}");
}

#[test]
fn a_message_that_is_too_large_costs_its_sender_the_connection() {
    let world = World::new();
    let (mut bad, mut good) = (world.socket(TOKEN), world.socket(TOKEN));
    let large = "x".repeat(8 * 1024 * 1024 + 1);
    // The server may close before the whole message is sent.
    bad.0.send(Message::text(large)).ok();
    assert!(matches!(bad.closed(), None | Some(CloseCode::Size)));
    good.is_well();
}

#[test]
fn there_is_room_for_so_many_and_a_place_is_given_back() {
    let world = World::new();
    let mut sockets: Vec<_> = (0..64).map(|_| world.socket(TOKEN)).collect();
    let handshake = [
        &bearer(TOKEN),
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let request = |connection: &str| {
        let lines: String = handshake.iter().map(|line| format!("{line}\r\n")).collect();
        format!("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n{lines}\r\n")
    };
    let answer = world.raw(request("Upgrade").as_bytes());
    assert_eq!((answer.status, error(&answer).as_str()), (503, "Too many clients"));
    // The client disconnects without a close frame.
    drop(sockets.pop());
    wait_until("a slot", || world.remote.connected() == 63);
    world.socket(TOKEN).is_well();
}

#[test]
fn tls_carries_websockets() {
    let mut world = World::new();
    let (paths, trust) = world.tls();
    world.apply(Settings { tls: Some(paths), ..world.settings.clone() }).unwrap();
    let name = "localhost".try_into().unwrap();
    let connection = rustls::ClientConnection::new(trust, name).unwrap();
    let stream = rustls::StreamOwned::new(connection, world.connect());
    Socket::open(stream, "localhost", TOKEN).is_well();
}

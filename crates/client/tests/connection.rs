//! Tests the client against well-behaved and misbehaving daemons, over real sockets.

#[cfg(test)]
mod tests {
    use quackd_client::{Client, ClientError};
    use quackd_protocol::client::Method;
    use quackd_protocol::limits::MAX_LINE_BYTES;
    use serde::Serialize;
    use serde_json::{Value, json};
    use std::path::PathBuf;
    use std::time::Duration;
    use tempfile::TempDir;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{UnixListener, UnixStream};

    /// Timeout of each expected event.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A daemon on a separate socket, which plays `script` to its first client.
    struct Daemon {
        _dir: TempDir,
        socket: PathBuf,
    }

    impl Daemon {
        fn playing<F: Future<Output = ()> + Send + 'static>(
            script: impl FnOnce(Peer) -> F + Send + 'static,
        ) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("d.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                script(Peer(BufReader::new(stream))).await;
            });
            Self { _dir: dir, socket }
        }

        async fn connect(&self) -> Client {
            Client::connect(&self.socket, PATIENCE).await.unwrap()
        }
    }

    /// The daemon's end of the connection.
    struct Peer(BufReader<UnixStream>);

    impl Peer {
        async fn request(&mut self) -> Value {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            serde_json::from_str(&line).unwrap()
        }

        async fn say(&mut self, line: &str) {
            self.0.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        }

        async fn reply(&mut self, request: &Value, data: Value) {
            self.say(&json!({"id": request["id"], "ok": true, "data": data}).to_string()).await;
        }

        async fn wait_for_hang_up(&mut self) {
            let mut rest = Vec::new();
            self.0.read_to_end(&mut rest).await.unwrap();
        }
    }

    /// Methods with any parameters and any reply.
    macro_rules! methods {
        ($($params:ident = $name:literal),+) => {$(
            #[derive(Serialize)]
            struct $params(Value);

            impl Method for $params {
                const NAME: &'static str = $name;
                type Reply = Value;
            }
        )+};
    }

    methods! {
        A = "a", B = "b", C = "c", Slow = "slow", Quick = "quick",
        Ping = "ping", Attach = "attach", Follow = "follow", Unfollow = "unfollow", Say = "say"
    }

    async fn call<M: Method<Reply = Value>>(
        client: &Client,
        method: impl Fn(Value) -> M,
        limit: Duration,
    ) -> Result<Value, ClientError> {
        client.call_within(method(json!({})), limit).await
    }

    #[tokio::test]
    async fn replies_are_matched_by_id_in_any_order() {
        let daemon = Daemon::playing(|mut peer| async move {
            let (a, b) = (peer.request().await, peer.request().await);
            peer.reply(&b, b["method"].clone()).await;
            peer.reply(&a, a["method"].clone()).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let (a, b) = tokio::join!(call(&client, A, PATIENCE), call(&client, B, PATIENCE));
        assert_eq!((a.unwrap(), b.unwrap()), (json!("a"), json!("b")));
    }

    #[tokio::test]
    async fn a_request_has_exactly_this_shape() {
        let daemon = Daemon::playing(|mut peer| async move {
            let request = peer.request().await;
            peer.reply(&request, request.clone()).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let seen = client.call(Attach(json!({"path": "/x"}))).await.unwrap();
        assert_eq!(seen, json!({"id": "1", "method": "attach", "params": {"path": "/x"}}));
    }

    #[tokio::test]
    async fn a_refusal_carries_the_daemons_text_and_costs_nothing_else() {
        let daemon = Daemon::playing(|mut peer| async move {
            let request = peer.request().await;
            let refusal =
                json!({"id": request["id"], "ok": false, "error": "Session not found: x"});
            peer.say(&refusal.to_string()).await;
            let request = peer.request().await;
            peer.say(&json!({"id": request["id"], "ok": true}).to_string()).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let refused = call(&client, Follow, PATIENCE).await;
        assert!(
            matches!(&refused, Err(ClientError::Refused { text: t, .. }) if t == "Session not found: x")
        );
        assert_eq!(call(&client, Unfollow, PATIENCE).await.unwrap(), Value::Null);
    }

    #[tokio::test]
    async fn a_late_reply_is_dropped_and_the_next_request_works() {
        let daemon = Daemon::playing(|mut peer| async move {
            let late = peer.request().await;
            let next = peer.request().await;
            peer.reply(&late, json!("late")).await;
            peer.reply(&next, json!("next")).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let limit = Duration::from_millis(50);
        let late = call(&client, Slow, limit).await;
        assert!(
            matches!(&late, Err(ClientError::Timeout { method, after }) if method == "slow" && *after == limit),
            "{late:?}"
        );
        assert_eq!(call(&client, Quick, PATIENCE).await.unwrap(), json!("next"));
    }

    #[tokio::test]
    async fn a_daemon_that_dies_fails_every_call_at_once_and_all_later_ones() {
        let daemon = Daemon::playing(|mut peer| async move {
            peer.request().await;
            peer.request().await;
            // An incomplete reply, as a killed daemon may leave it.
            peer.0.write_all(br#"{"id":"1","ok":tr"#).await.unwrap();
        });
        let client = daemon.connect().await;
        let (a, b) = tokio::join!(call(&client, A, PATIENCE), call(&client, B, PATIENCE));
        for answer in [a, b, call(&client, C, PATIENCE).await] {
            assert!(matches!(answer, Err(ClientError::Disconnected)), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_daemon_without_room_is_heard_before_and_after_the_first_request() {
        let daemon = Daemon::playing(|mut peer| async move {
            peer.say(r#"{"ok":false,"error":"Too many connections"}"#).await;
        });
        let client = daemon.connect().await;
        for _ in 0..2 {
            let answer = call(&client, Ping, PATIENCE).await;
            assert!(
                matches!(&answer, Err(ClientError::Refused { text: t, .. }) if t == "Too many connections"),
                "{answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_stranger_protocol_is_named() {
        let daemon = Daemon::playing(|mut peer| async move {
            peer.say("220 mail.example ESMTP").await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let answer = call(&client, Ping, PATIENCE).await;
        assert!(matches!(answer, Err(ClientError::Protocol(_))), "{answer:?}");
    }

    #[tokio::test]
    async fn a_line_over_the_limit_ends_the_connection_and_not_the_memory() {
        let daemon = Daemon::playing(|mut peer| async move {
            let endless = vec![b'x'; 1024 * 1024];
            while peer.0.write_all(&endless).await.is_ok() {}
        });
        let client = daemon.connect().await;
        let answer = call(&client, Ping, PATIENCE).await;
        assert!(matches!(answer, Err(ClientError::Protocol(_))), "{answer:?}");
    }

    #[tokio::test]
    async fn a_request_over_the_limit_is_refused_before_it_is_sent() {
        let daemon = Daemon::playing(|mut peer| async move {
            let request = peer.request().await;
            peer.reply(&request, request["method"].clone()).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let text = "x".repeat(MAX_LINE_BYTES);
        let answer = client.call(Say(json!({"message": text}))).await;
        assert!(matches!(answer, Err(ClientError::TooLong { .. })), "{answer:?}");
        assert_eq!(call(&client, Ping, PATIENCE).await.unwrap(), json!("ping"));
    }

    #[tokio::test]
    async fn neither_side_waits_for_the_other_to_read_first() {
        const BIG: usize = 4 * 1024 * 1024;
        let daemon = Daemon::playing(|mut peer| async move {
            // Writes more than a socket buffer before it reads the request, which is equally large.
            let event = json!({"event": "big", "sessionId": "s", "data": "x".repeat(BIG)});
            peer.say(&event.to_string()).await;
            let request = peer.request().await;
            peer.reply(&request, json!(request["params"]["message"].as_str().unwrap().len())).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let params = json!({"message": "y".repeat(BIG)});
        assert_eq!(client.call_within(Say(params), PATIENCE).await.unwrap(), json!(BIG));
    }

    #[tokio::test]
    async fn events_reach_the_follower_and_end_with_the_connection() {
        let daemon = Daemon::playing(|mut peer| async move {
            let request = peer.request().await;
            peer.say(
                r#"{"event":"agent_end","sessionId":"s1","data":{"type":"agent_end"},"seq":4}"#,
            )
            .await;
            peer.reply(&request, json!({})).await;
            peer.say(r#"{"ok":false,"error":"Disconnected as a slow client"}"#).await;
        });
        let client = daemon.connect().await;
        let mut events = client.events().await.unwrap();
        call(&client, Follow, PATIENCE).await.unwrap();
        let event = events.recv().await.unwrap();
        assert_eq!((event.name.as_str(), event.seq), ("agent_end", Some(4)));
        assert_eq!(event.session_id.as_deref(), Some("s1"));
        assert_eq!(event.data.as_ref().unwrap().get(), r#"{"type":"agent_end"}"#);
        let end = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap();
        assert!(end.is_none(), "{end:?}");
        let reason = client.why_closed().to_string();
        assert_eq!(reason, "Disconnected as a slow client");
    }

    #[tokio::test]
    async fn a_follower_that_takes_nothing_stops_the_daemon_and_loses_nothing() {
        const EVENTS: u64 = 20_000;
        let (said, mut is_said) = tokio::sync::watch::channel(0);
        let daemon = Daemon::playing(move |mut peer| async move {
            let data = "x".repeat(1000);
            for seq in 1..=EVENTS {
                peer.say(
                    &json!({"event": "e", "sessionId": "s", "data": data, "seq": seq}).to_string(),
                )
                .await;
                said.send_replace(seq);
            }
        });
        let client = daemon.connect().await;
        let mut events = client.events().await.unwrap();
        assert_eq!(events.recv().await.unwrap().seq, Some(1));
        // Much less than the queue and the socket can hold.
        is_said.wait_for(|said| 500 <= *said).await.unwrap();
        // Everything runs on one thread. In each round every task that can continue does, and the daemon sends at least
        // one event.
        for _ in 0..EVENTS {
            tokio::task::yield_now().await;
        }
        let ahead = *is_said.borrow();
        assert!(ahead < EVENTS / 2, "{ahead} events were read ahead");
        for seq in 2..=EVENTS {
            assert_eq!(events.recv().await.unwrap().seq, Some(seq));
        }
        assert!(events.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_reply_behind_many_events_reaches_a_follower_that_waits_for_it() {
        const EVENTS: u64 = 4000;
        let daemon = Daemon::playing(|mut peer| async move {
            let request = peer.request().await;
            let data = "x".repeat(1000);
            for seq in 1..=EVENTS {
                peer.say(
                    &json!({"event": "e", "sessionId": "s", "data": data, "seq": seq}).to_string(),
                )
                .await;
            }
            peer.reply(&request, json!("reply")).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        let mut events = client.events().await.unwrap();
        assert_eq!(call(&client, Follow, PATIENCE).await.unwrap(), json!("reply"));
        for seq in 1..=EVENTS {
            assert_eq!(events.recv().await.unwrap().seq, Some(seq));
        }
    }

    #[tokio::test]
    async fn without_a_follower_events_are_dropped_and_replies_come() {
        let daemon = Daemon::playing(|mut peer| async move {
            let event = json!({"event": "e", "sessionId": "s", "data": "x".repeat(1 << 20)});
            for _ in 0..8 {
                peer.say(&event.to_string()).await;
            }
            let request = peer.request().await;
            peer.reply(&request, json!("reply")).await;
            peer.wait_for_hang_up().await;
        });
        let client = daemon.connect().await;
        drop(client.events().await.unwrap());
        assert_eq!(call(&client, Ping, PATIENCE).await.unwrap(), json!("reply"));
    }

    #[tokio::test]
    async fn dropping_the_client_hangs_up() {
        let (gone, is_gone) = tokio::sync::oneshot::channel();
        let daemon = Daemon::playing(|mut peer| async move {
            peer.wait_for_hang_up().await;
            gone.send(()).unwrap();
        });
        drop(daemon.connect().await);
        tokio::time::timeout(PATIENCE, is_gone).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_missing_and_an_abandoned_socket_both_mean_not_running() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let missing = Client::connect(&socket, PATIENCE).await;
        assert!(matches!(&missing, Err(ClientError::NotRunning { path }) if *path == socket));
        drop(UnixListener::bind(&socket).unwrap());
        let abandoned = Client::connect(&socket, PATIENCE).await;
        assert!(matches!(&abandoned, Err(ClientError::NotRunning { path }) if *path == socket));
    }

    #[tokio::test]
    async fn a_path_that_is_no_socket_is_an_error_and_no_reason_to_start_a_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(200));
        let answer = Client::connect(&long, PATIENCE).await;
        assert!(matches!(answer, Err(ClientError::Connect { .. })), "{answer:?}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_full_accept_queue_is_waited_for_and_never_taken_for_a_connection() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let _first = Client::connect(&path, PATIENCE).await.unwrap();

        let refused = Client::connect(&path, Duration::from_millis(100)).await;
        assert!(matches!(refused, Err(ClientError::Timeout { .. })), "{refused:?}");

        let waiting = tokio::spawn(async move { Client::connect(&path, PATIENCE).await });
        rustix::net::accept(&listener).unwrap();
        waiting.await.unwrap().unwrap();
    }
}

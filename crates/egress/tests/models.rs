//! Model requests over real sockets, to a provider that behaves well or badly on purpose.

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use quackd_egress::{Egress, EgressConfig, Key, ModelEndpoints, Route, RouteSettings};
    use quackd_protocol::model::{
        MAX_MODEL_ERROR_BYTES, MODEL_PIECES, ModelApi, ModelFailureKind, ModelHead, ModelPart,
        ModelRequest,
    };
    use quackd_testkit::Request;
    use serde_json::value::RawValue;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::sync::mpsc::Receiver;

    const KEY: &str = "hush-hush-key";
    /// Far longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(60);
    const OK: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

    /// A request as the provider got it.
    struct Received {
        head: String,
        body: String,
        stream: TcpStream,
    }

    fn receive(mut stream: TcpStream) -> Received {
        let Request { head, body } = Request::read(&mut stream).unwrap();
        Received { head: head + "\r\n", body, stream }
    }

    /// Starts a provider that runs `serve` for one connection. Returns its address and the result.
    fn provider<T: Send + 'static>(
        serve: impl FnOnce(Received) -> T + Send + 'static,
    ) -> (String, mpsc::Receiver<T>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let (done, result) = mpsc::channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            done.send(serve(receive(stream))).ok();
        });
        (base, result)
    }

    fn egress(base: &str, idle: Duration) -> Egress {
        let egress = Egress::start(EgressConfig::new("https://unused.example/", None)).unwrap();
        let settings = RouteSettings {
            base_url: base.to_owned(),
            key: Key::parse(KEY).unwrap(),
            ..RouteSettings::default()
        };
        let mut endpoints = ModelEndpoints::new(idle);
        endpoints.insert("p", Route::new(settings).unwrap(), Vec::new());
        egress.set_models(endpoints);
        egress
    }

    fn request(api: ModelApi) -> ModelRequest {
        ModelRequest {
            number: 1,
            provider: "p".to_owned(),
            api,
            model: "m".to_owned(),
            betas: Vec::new(),
            body: RawValue::from_string("{\"model\":\"m\"}".to_owned()).unwrap(),
        }
    }

    async fn next(parts: &mut Receiver<ModelPart>) -> ModelPart {
        tokio::time::timeout(PATIENCE, parts.recv()).await.unwrap().expect("a last part")
    }

    fn bytes(piece: &ModelPart) -> Vec<u8> {
        match piece {
            ModelPart::Piece(piece) => {
                assert!(piece.is_sound());
                STANDARD.decode(piece.bytes.get().trim_matches('"')).unwrap()
            }
            other => panic!("not a piece: {other:?}"),
        }
    }

    /// Reads all parts: the head, the bytes and the last part.
    async fn all(mut parts: Receiver<ModelPart>) -> (Option<ModelHead>, Vec<u8>, ModelPart) {
        let (mut head, mut body) = (None, Vec::new());
        loop {
            match next(&mut parts).await {
                ModelPart::Head(first) => head = Some(first),
                piece @ ModelPart::Piece(_) => body.extend(bytes(&piece)),
                last => {
                    assert!(parts.recv().await.is_none());
                    return (head, body, last);
                }
            }
        }
    }

    async fn ask(base: &str) -> (Option<ModelHead>, Vec<u8>, ModelPart) {
        all(egress(base, PATIENCE).model(request(ModelApi::OpenAiCompletions))).await
    }

    fn failure(last: &ModelPart) -> (ModelFailureKind, &str) {
        match last {
            ModelPart::Failed(failure) => (failure.kind, &failure.text),
            other => panic!("no failure: {other:?}"),
        }
    }

    #[tokio::test]
    async fn the_request_has_the_key_in_its_header_only() {
        for (api, path, header) in [
            (
                ModelApi::OpenAiCompletions,
                "/v1/chat/completions",
                "authorization: Bearer hush-hush-key",
            ),
            (ModelApi::OpenAiResponses, "/v1/responses", "authorization: Bearer hush-hush-key"),
            (ModelApi::AnthropicMessages, "/v1/messages", "x-api-key: hush-hush-key"),
        ] {
            let (base, received) = provider(|mut it| {
                it.stream.write_all(format!("{OK}data: x\n\n").as_bytes()).unwrap();
                (it.head, it.body)
            });
            let egress = egress(&base, PATIENCE);
            let (head, body, last) = all(egress.model(request(api))).await;
            let content_type = Some("text/event-stream".to_owned());
            assert_eq!(head, Some(ModelHead { status: 200, content_type, ..ModelHead::default() }));
            assert_eq!(
                (body.as_slice(), matches!(last, ModelPart::Done {})),
                (&b"data: x\n\n"[..], true)
            );
            let (head, body) = received.recv_timeout(PATIENCE).unwrap();
            assert!(head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{head}");
            for line in [header, "accept: text/event-stream", "accept-encoding: identity"] {
                assert!(head.contains(&format!("{line}\r\n")), "{line} is not in {head}");
            }
            assert_eq!(head.matches(KEY).count(), 1);
            assert_eq!(body, "{\"model\":\"m\"}");
            assert!(!format!("{egress:?}").contains("hush"));
        }
    }

    #[tokio::test]
    async fn bytes_split_anywhere_arrive_in_order() {
        let answer: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let sent = answer.clone();
        let (base, _received) = provider(move |mut it| {
            it.stream.set_nodelay(true).unwrap();
            it.stream.write_all(OK.as_bytes()).unwrap();
            for piece in [&sent[..1], &sent[1..2], &sent[2..100_000], &sent[100_000..]] {
                it.stream.write_all(piece).unwrap();
            }
        });
        let (_, body, last) = ask(&base).await;
        assert!(body == answer && matches!(last, ModelPart::Done {}));
    }

    #[tokio::test]
    async fn a_reader_that_stops_makes_the_providers_writes_block() {
        /// Much more than the sockets, the library and the channel can hold.
        const LENGTH: usize = 64 * 1024 * 1024;
        let (blocked, is_blocked) = mpsc::channel();
        let (base, received) = provider(move |mut it| {
            it.stream.write_all(OK.as_bytes()).unwrap();
            it.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let piece = vec![b'x'; 64 * 1024];
            let mut written = 0;
            while written < LENGTH {
                match it.stream.write(&piece[..piece.len().min(LENGTH - written)]) {
                    Ok(n) => written += n,
                    Err(error) => {
                        assert!(matches!(
                            error.kind(),
                            ErrorKind::WouldBlock | ErrorKind::TimedOut
                        ));
                        blocked.send(written).ok();
                    }
                }
            }
            written
        });
        let egress = egress(&base, PATIENCE);
        let mut parts = egress.model(request(ModelApi::OpenAiCompletions));
        assert!(matches!(next(&mut parts).await, ModelPart::Head(_)));
        let written = tokio::task::spawn_blocking(move || is_blocked.recv_timeout(PATIENCE));
        let written = written.await.unwrap().unwrap();
        assert!(written < LENGTH && parts.len() <= MODEL_PIECES, "{written}");
        let (_, body, last) = all(parts).await;
        assert!(body.len() == LENGTH && matches!(last, ModelPart::Done {}));
        assert_eq!(received.recv_timeout(PATIENCE), Ok(LENGTH));
    }

    #[tokio::test]
    async fn chunks_that_wait_for_a_slow_reader_become_one_piece() {
        const N_CHUNKS: usize = 4000;
        let (base, received) = provider(|mut it| {
            let head = OK.replace("\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n");
            let body = "8\r\nabcdefgh\r\n".repeat(N_CHUNKS) + "0\r\n\r\n";
            it.stream.write_all((head + &body).as_bytes()).unwrap();
            // The client closes the connection when it has read everything.
            it.stream.read(&mut [0]).map_or(0, |n| n)
        });
        let egress = egress(&base, PATIENCE);
        let mut parts = egress.model(request(ModelApi::OpenAiCompletions));
        let end = tokio::task::spawn_blocking(move || received.recv_timeout(PATIENCE));
        end.await.unwrap().unwrap();
        assert!(matches!(next(&mut parts).await, ModelPart::Head(_)));
        let (mut n_pieces, mut length) = (0, 0);
        while let piece @ ModelPart::Piece(_) = next(&mut parts).await {
            n_pieces += 1;
            length += bytes(&piece).len();
        }
        assert_eq!(length, 8 * N_CHUNKS);
        assert!(n_pieces <= MODEL_PIECES, "{n_pieces}");
    }

    #[tokio::test]
    async fn dropping_the_receiver_closes_the_connection() {
        let (base, received) = provider(|mut it| {
            it.stream.write_all(OK.as_bytes()).unwrap();
            it.stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // Returns when the other end is closed.
            it.stream
                .read(&mut [0])
                .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |n| n == 0)
        });
        let egress = egress(&base, PATIENCE);
        let mut parts = egress.model(request(ModelApi::OpenAiCompletions));
        assert!(matches!(next(&mut parts).await, ModelPart::Head(_)));
        drop(parts);
        assert_eq!(received.recv_timeout(PATIENCE), Ok(true));
    }

    #[tokio::test]
    async fn a_silent_provider_is_given_up() {
        for has_head in [true, false] {
            let (base, _received) = provider(move |mut it| {
                if has_head {
                    it.stream.write_all(format!("{OK}data: x").as_bytes()).unwrap();
                }
                // Silent until the client closes the connection.
                it.stream.read_to_end(&mut Vec::new()).ok();
            });
            let egress = egress(&base, Duration::from_millis(200));
            let (head, body, last) = all(egress.model(request(ModelApi::OpenAiCompletions))).await;
            assert_eq!((head.is_some(), body.len()), (has_head, if has_head { 7 } else { 0 }));
            assert_eq!(
                failure(&last),
                (ModelFailureKind::Idle, "127.0.0.1: nothing came for 0.2 s")
            );
        }
    }

    #[tokio::test]
    async fn an_error_status_comes_with_its_wait_and_a_cut_body_without_the_key() {
        let (base, _received) = provider(|mut it| {
            let head =
                "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nx-should-retry: true\r\n\r\n";
            it.stream.write_all(format!("{head}wrong key {KEY}").as_bytes()).unwrap();
            let long = "x".repeat(MAX_MODEL_ERROR_BYTES * 2);
            // The client closes the connection when it has enough.
            it.stream.write_all(long.as_bytes()).ok();
        });
        let (head, body, last) = ask(&base).await;
        let expected = ModelHead {
            status: 429,
            retry_after_ms: Some(7000),
            should_retry: Some(true),
            content_type: None,
        };
        assert_eq!(head, Some(expected));
        assert_eq!(body.len(), MAX_MODEL_ERROR_BYTES);
        assert!(
            body.starts_with(b"wrong key *************x") && matches!(last, ModelPart::Done {})
        );
    }

    #[tokio::test]
    async fn redirects_and_compressed_answers_are_not_followed() {
        for (head, kind) in [
            ("302 Found\r\nlocation: http://127.0.0.1:1/", ModelFailureKind::Refused),
            ("307 Temporary Redirect\r\nlocation: /x", ModelFailureKind::Refused),
            ("200 OK\r\ncontent-encoding: gzip", ModelFailureKind::Broken),
        ] {
            let (base, _received) = provider(move |mut it| {
                let answer = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
                it.stream.write_all(answer.as_bytes()).unwrap();
            });
            let (head, _, last) = ask(&base).await;
            assert_eq!((head, failure(&last).0), (None, kind));
        }
    }

    #[tokio::test]
    async fn a_lost_connection_is_told_apart_from_none() {
        for (answer, has_head) in [
            ("", false),
            ("nonsense", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", true),
        ] {
            let (base, _received) =
                provider(move |mut it| it.stream.write_all(answer.as_bytes()).unwrap());
            let (head, _, last) = ask(&base).await;
            assert_eq!(
                (head.is_some(), failure(&last).0),
                (has_head, ModelFailureKind::Broken),
                "{answer}"
            );
        }
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (_, _, last) = ask(&format!("http://user:secret@{unused}/path?key=secret")).await;
        let (kind, text) = failure(&last);
        assert_eq!(kind, ModelFailureKind::NotConnected);
        assert!(text.starts_with("127.0.0.1: ") && !text.contains("secret"), "{text}");
        assert!(!text.contains("path"), "{text}");
    }

    #[tokio::test]
    async fn too_many_requests_and_unknown_providers_fail_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let egress = egress(&format!("http://{}", listener.local_addr().unwrap()), PATIENCE);
        let other = ModelRequest { provider: "q".into(), ..request(ModelApi::OpenAiCompletions) };
        let (_, _, last) = all(egress.model(other)).await;
        assert_eq!(failure(&last).0, ModelFailureKind::NotConfigured);
        assert!(!egress.is_running());
        let running: Vec<_> =
            (0..64).map(|_| egress.model(request(ModelApi::OpenAiCompletions))).collect();
        let (_, _, last) = all(egress.model(request(ModelApi::OpenAiCompletions))).await;
        assert_eq!(failure(&last).0, ModelFailureKind::Busy);
        assert_eq!(running.len(), 64);
    }

    #[tokio::test]
    async fn the_models_of_a_server_are_listed() {
        for (body, expected) in [
            (r#"{"data": [{"id": "a"}, {"id": "b\n"}, {"id": ""}]}"#, Some(vec!["a"])),
            (r#"{"models": [{"name": "q:1"}]}"#, Some(vec!["q:1"])),
            // llama.cpp, and providers with names for display.
            (r#"{"models": [{"name": "m"}], "data": [{"id": "m.gguf"}]}"#, Some(vec!["m.gguf"])),
            (r#"{"data": [{"id": "a/b", "name": "A: B"}]}"#, Some(vec!["a/b"])),
            ("<html>", None),
            ("{}", None),
        ] {
            let (base, received) = provider(move |mut it| {
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                it.stream.write_all(answer.as_bytes()).unwrap();
                it.head
            });
            let listed = egress(&base, PATIENCE).list_models("p", None).await;
            let listed =
                listed.map(|models| models.into_iter().map(|it| it.id).collect::<Vec<_>>());
            let expected =
                expected.map(|ids| ids.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(listed.ok(), expected);
            let head = received.recv_timeout(PATIENCE).unwrap();
            assert!(head.starts_with("GET /v1/models HTTP/1.1\r\n"), "{head}");
        }
    }

    #[tokio::test]
    async fn windows_and_limits_of_a_list_are_read() {
        for (fields, window, max_tokens) in [
            (r#""max_model_len": 8192"#, Some(8192), None),
            (r#""meta": {"n_ctx": 4096, "n_ctx_train": 131072}"#, Some(4096), None),
            (r#""meta": {"n_ctx_train": 131072}"#, None, None),
            (
                r#""context_length": 200000, "top_provider": {"max_completion_tokens": 64000}"#,
                Some(200_000),
                Some(64_000),
            ),
            (
                r#""context_window": 131072, "max_completion_tokens": 65536"#,
                Some(131_072),
                Some(65_536),
            ),
            (
                r#""max_input_tokens": 1000000, "max_tokens": 128000"#,
                Some(1_000_000),
                Some(128_000),
            ),
            (r#""max_model_len": -1, "max_tokens": "many""#, None, None),
            (r#""max_model_len": 0"#, None, None),
        ] {
            let body = format!(r#"{{"data": [{{"id": "m", {fields}}}]}}"#);
            let (base, _received) = provider(move |mut it| {
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                it.stream.write_all(answer.as_bytes()).unwrap();
                it.head
            });
            let listed = egress(&base, PATIENCE).list_models("p", None).await.unwrap();
            assert_eq!((listed[0].window, listed[0].max_tokens), (window, max_tokens), "{fields}");
        }
    }
}

//! Searches over real sockets, to a provider that behaves well or badly on purpose.

#[cfg(test)]
mod tests {
    use quackd_egress::{Egress, EgressConfig, Key};
    use quackd_protocol::limits::{MAX_WEB_BODY_BYTES, MAX_WEB_SEARCHES};
    use quackd_protocol::worker::{WebOutcome, WebSearch};
    use quackd_testkit::{Answer, FakeExa, answer, block_on};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const KEY: &str = "hush-hush-key";
    const LATE: Duration = Duration::from_millis(300);
    /// Far longer than any outcome takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn config(endpoint: &str) -> EgressConfig {
        EgressConfig::new(endpoint, Key::parse(KEY).unwrap())
    }

    fn egress_to(endpoint: &str) -> Egress {
        Egress::start(config(endpoint)).unwrap()
    }

    fn impatient(endpoint: &str) -> Egress {
        Egress::start(EgressConfig { timeout: LATE, ..config(endpoint) }).unwrap()
    }

    fn search() -> WebSearch {
        WebSearch {
            query: "rust".into(),
            num_results: 3,
            include_text: true,
            include_domains: vec!["docs.rs".into()],
            exclude_domains: vec![],
        }
    }

    fn reply(status: u16, status_text: &str, body: &str) -> WebOutcome {
        let (status_text, body) = (status_text.to_owned(), body.to_owned());
        WebOutcome::Reply { status, status_text, body }
    }

    fn failed(reason: &str) -> WebOutcome {
        WebOutcome::Failed { reason: reason.to_owned() }
    }

    /// Returns the result of one search if the provider sends this answer.
    async fn outcome(answer: Answer) -> WebOutcome {
        egress_to(&FakeExa::start(&[answer]).endpoint()).web_search(search()).await
    }

    async fn outcome_of(bytes: impl AsRef<[u8]>) -> WebOutcome {
        outcome(Answer::Says(bytes.as_ref().to_vec())).await
    }

    #[tokio::test]
    async fn a_search_is_posted_with_the_key_and_its_answer_comes_back() {
        let exa = FakeExa::start(&[Answer::Says(answer("200 OK", r#"{"results":[]}"#))]);
        let egress = egress_to(&exa.endpoint());
        assert_eq!(egress.web_search(search()).await, reply(200, "OK", r#"{"results":[]}"#));

        let request = exa.request();
        assert_eq!(request.head.lines().next(), Some("POST /search HTTP/1.1"));
        assert_eq!(request.header("x-api-key"), Some(KEY));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("accept-encoding"), None, "nothing compressed is wanted");
        assert!(request.header("user-agent").unwrap().starts_with("quackd/"));
        let body = r#"{"query":"rust","numResults":3,"type":"auto","text":true,"includeDomains":["docs.rs"]}"#;
        assert_eq!(request.body, body);
    }

    #[tokio::test]
    async fn every_answer_comes_back_as_it_is() {
        let cases: &[(&[u8], WebOutcome)] = &[
            (&answer("200 OK", ""), reply(200, "OK", "")),
            (&answer("201 Created", "{}"), reply(201, "Created", "{}")),
            (&answer("401 Unauthorized", "no"), reply(401, "Unauthorized", "no")),
            (&answer("429 Too Many Requests", "later"), reply(429, "Too Many Requests", "later")),
            (&answer("500 Internal Server Error", "x"), reply(500, "Internal Server Error", "x")),
            (&answer("400 No Way", "x"), reply(400, "No Way", "x")),
            (&answer("400 ", "x"), reply(400, "", "x")),
            (&answer("299 ", "x"), reply(299, "", "x")),
            (&answer(&format!("400 {}", "y".repeat(300)), "x"), reply(400, &"y".repeat(100), "x")),
            (&answer("200 OK", b"caf\xe9"), reply(200, "OK", "caf\u{fffd}")),
            (b"HTTP/1.1 200 OK\r\n\r\nto the end", reply(200, "OK", "to the end")),
            (b"HTTP/1.0 200 OK\r\n\r\nold", reply(200, "OK", "old")),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
                reply(200, "OK", "abcd"),
            ),
            (
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
                reply(200, "OK", "x"),
            ),
            (
                b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00",
                reply(200, "OK", "\u{1f}\u{fffd}\u{8}\0"),
            ),
        ];
        for (bytes, expected) in cases {
            let told = String::from_utf8_lossy(bytes);
            assert_eq!(outcome_of(bytes).await, *expected, "{told}");
        }
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_the_key_does_not_go_elsewhere() {
        for status in [301, 302, 303, 307, 308] {
            let other = FakeExa::start(&[Answer::Says(answer("200 OK", "stolen"))]);
            let place = other.endpoint();
            let bytes = format!(
                "HTTP/1.1 {status} Moved\r\nlocation: {place}\r\ncontent-length: 1\r\n\r\nx"
            );
            assert_eq!(outcome_of(bytes).await, reply(status, "Moved", "x"));
            assert!(other.is_untouched(), "{status}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_up_to_its_limit() {
        let limit = u64::try_from(MAX_WEB_BODY_BYTES).unwrap();
        let longest = "x".repeat(MAX_WEB_BODY_BYTES);
        assert_eq!(outcome_of(answer("200 OK", &longest)).await, reply(200, "OK", &longest));
        let too_long = WebOutcome::TooLong { limit };
        assert_eq!(outcome_of(answer("200 OK", longest + "x")).await, too_long);
        assert_eq!(outcome_of(answer("500 Oh", vec![b'x'; 2 * 1024 * 1024])).await, too_long);
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        let chunk = [b"40000\r\n".to_vec(), vec![b'x'; 0x40000], b"\r\n".to_vec()].concat();
        assert_eq!(outcome(Answer::Drips(head, chunk)).await, too_long, "without an end");
    }

    #[tokio::test]
    async fn an_answer_that_is_none_is_told_in_words() {
        let closed = "the connection was closed before the answer was complete";
        let cases: &[(&[u8], &str)] = &[
            (b"", closed),
            (b"HTTP/1.1 200 OK\r\ncontent-le", closed),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", closed),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf", closed),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", closed),
            (b"SSH-2.0-OpenSSH_9.9\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 20 OK\r\n\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 200 OK\r\na: \0\r\n\r\n", "the answer is not HTTP"),
        ];
        for (bytes, reason) in cases {
            let told = String::from_utf8_lossy(bytes);
            assert_eq!(outcome_of(bytes).await, failed(reason), "{told}");
        }
        let endless = [b"HTTP/1.1 200 OK\r\na: ".to_vec(), vec![b'x'; 1024 * 1024]].concat();
        assert_eq!(outcome_of(endless).await, failed("the answer is not HTTP"));
        let reset = outcome(Answer::Resets).await;
        let expected = "the connection was lost: Connection reset by peer";
        assert!(
            matches!(&reset, WebOutcome::Failed { reason } if reason.starts_with(expected)),
            "{reset:?}"
        );
        let closed_port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let refused = std::net::TcpStream::connect(closed_port).unwrap_err();
        let outcome = egress_to(&format!("http://{closed_port}")).web_search(search()).await;
        assert_eq!(outcome, failed(&format!("no connection: {refused}")));
    }

    #[tokio::test]
    async fn a_search_ends_with_its_time_however_the_provider_delays() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n".to_vec();
        let delays = [
            Answer::Hangs(vec![]),
            Answer::Hangs(b"HTTP/1.1 200 OK\r\n".to_vec()),
            Answer::Hangs(head.clone()),
            Answer::Drips(head, b"x".to_vec()),
            Answer::Drips(vec![], b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
        ];
        for delay in delays {
            let exa = FakeExa::start(std::slice::from_ref(&delay));
            let (egress, start) = (impatient(&exa.endpoint()), Instant::now());
            let outcome = tokio::time::timeout(PATIENCE, egress.web_search(search())).await;
            assert_eq!(outcome, Ok(WebOutcome::TimedOut { after_ms: 300 }), "{delay:?}");
            assert!(LATE <= start.elapsed(), "{delay:?}");
            exa.request();
            exa.connection_ends();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_search_too_many_is_refused_and_a_dropped_one_makes_room() {
        let hangs = vec![Answer::Hangs(vec![]); MAX_WEB_SEARCHES];
        let says = Answer::Says(answer("200 OK", "at last"));
        let exa = FakeExa::start(&[hangs, vec![says]].concat());
        let egress = Arc::new(egress_to(&exa.endpoint()));
        let mut running = Vec::new();
        for _ in 0..MAX_WEB_SEARCHES {
            let egress = Arc::clone(&egress);
            running.push(tokio::spawn(async move { egress.web_search(search()).await }));
        }
        tokio::task::block_in_place(|| running.iter().for_each(|_| drop(exa.request())));
        assert_eq!(egress.web_search(search()).await, WebOutcome::Busy);

        running.pop().unwrap().abort();
        tokio::task::block_in_place(|| exa.connection_ends());
        let start = Instant::now();
        let outcome = loop {
            match egress.web_search(search()).await {
                WebOutcome::Busy => tokio::task::yield_now().await,
                outcome => break outcome,
            }
            assert!(start.elapsed() < PATIENCE, "the place is never free");
        };
        assert_eq!(outcome, reply(200, "OK", "at last"));
    }

    #[tokio::test]
    async fn connections_are_used_again_and_end_with_their_owner() {
        let exa = FakeExa::start(&[Answer::Keeps(answer("200 OK", "x"))]);
        let egress = egress_to(&exa.endpoint());
        for _ in 0..3 {
            assert_eq!(egress.web_search(search()).await, reply(200, "OK", "x"));
            exa.request();
        }
        drop(egress);
        exa.connection_ends();
        assert!(exa.is_untouched(), "more than one connection");
    }

    #[tokio::test]
    async fn a_kept_connection_that_the_provider_closed_harms_no_search() {
        let exa = FakeExa::start(&[Answer::Says(answer("200 OK", "x"))]);
        let egress = egress_to(&exa.endpoint());
        for _ in 0..20 {
            assert_eq!(egress.web_search(search()).await, reply(200, "OK", "x"));
            exa.request();
            exa.connection_ends();
        }
    }

    #[tokio::test]
    async fn nobody_is_called_without_a_key_or_for_a_search_against_the_rules() {
        let exa = FakeExa::start(&[Answer::Says(answer("200 OK", "x"))]);
        let keyless = Egress::start(EgressConfig::new(exa.endpoint(), None)).unwrap();
        assert_eq!(keyless.web_search(search()).await, WebOutcome::NoKey);
        let greedy = WebSearch { num_results: 11, ..search() };
        let refused = failed("the number of results is not between 1 and 10");
        assert_eq!(egress_to(&exa.endpoint()).web_search(greedy).await, refused);
        assert!(exa.is_untouched());
    }

    #[tokio::test]
    async fn what_is_told_holds_no_secret() {
        let bad = [Answer::Resets, Answer::Says(b"SSH".to_vec()), Answer::Hangs(vec![])];
        let mut told = Vec::new();
        for answer in bad {
            let exa = FakeExa::start(&[answer]);
            let place = exa.endpoint().replace("http://", "http://user:word@") + "?token=secret";
            let egress = impatient(&place);
            told.push(format!("{:?} {egress:?}", egress.web_search(search()).await));
        }
        let unknown = egress_to("https://user:word@nowhere.invalid/search?token=secret");
        told.push(format!("{:?} {unknown:?}", unknown.web_search(search()).await));
        told.push(format!("{:?}", Key::parse(KEY)));
        for told in told {
            let found =
                [KEY, "user", "word@", "token", "secret"].iter().find(|s| told.contains(**s));
            assert_eq!(found, None, "{told}");
        }
    }

    #[test]
    fn searches_come_from_any_runtime() {
        let exa = FakeExa::start(&[Answer::Keeps(answer("200 OK", "x"))]);
        let egress = Arc::new(egress_to(&exa.endpoint()));
        let callers = [0; 4].map(|_| {
            let egress = Arc::clone(&egress);
            std::thread::spawn(move || block_on(egress.web_search(search())))
        });
        for caller in callers {
            assert_eq!(caller.join().unwrap(), reply(200, "OK", "x"));
        }
    }
}

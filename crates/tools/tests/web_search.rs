//! Tests every answer text of web_search with tables of requests and outcomes. The network part is tested with
//! real sockets in `crates/egress`.

#[cfg(test)]
mod tests {
    use quackd_protocol::CallId;
    use quackd_protocol::worker::{CallSpec, WebOutcome, WebSearch};
    use quackd_testkit::block_on;
    use quackd_tools::{Call, Output, Toolbox, Web, execute};
    use serde_json::{Value, json};
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;
    use tempfile::TempDir;

    const NO_KEY: &str = "Error: EXA_API_KEY not configured. Set EXA_API_KEY (or RUBBER_DUCK_EXA_API_KEY) \
                          to enable web_search.";

    fn call(arguments: &str) -> Call {
        Call {
            spec: CallSpec {
                call_id: "c7".into(),
                tool: "web_search".into(),
                arguments: arguments.into(),
                deadline_ms: 30_000,
                safe_mode: true,
                ..CallSpec::default()
            },
            ..Call::default()
        }
    }

    fn toolbox(dir: &TempDir) -> Toolbox {
        Toolbox::new(dir.path().into(), dir.path().join("run"), vec![], true)
    }

    /// Runs a call whose search has this outcome. Also returns the requested searches.
    fn run(arguments: &str, outcome: &WebOutcome) -> (Output, Vec<(CallId, WebSearch)>) {
        let dir = tempfile::tempdir().unwrap();
        let (asked, outcome) = (Rc::new(RefCell::new(Vec::new())), outcome.clone());
        let seen = Rc::clone(&asked);
        let web = Web::new(move |call_id, search| {
            seen.borrow_mut().push((call_id, search));
            let outcome = outcome.clone();
            async move { outcome }
        });
        let toolbox = Rc::new(Toolbox { web: Some(web), ..toolbox(&dir) });
        let output = block_on(execute(toolbox, call(arguments)));
        (output, asked.take())
    }

    /// Returns the requested search, or the answer text if nothing was requested.
    fn asked(arguments: &str) -> Result<WebSearch, String> {
        let (output, mut asked) = run(arguments, &WebOutcome::Busy);
        match asked.pop() {
            None => Err(output.text),
            Some((call_id, search)) => {
                assert!(call_id.as_str() == "c7" && asked.is_empty(), "{arguments}");
                Ok(search)
            }
        }
    }

    fn search(query: &str, num_results: u32) -> WebSearch {
        WebSearch {
            query: query.into(),
            num_results,
            include_text: false,
            include_domains: vec![],
            exclude_domains: vec![],
        }
    }

    #[test]
    fn the_query_is_the_first_text_with_something_in_it_as_it_was_given() {
        let cases = [
            (json!("rust"), "rust"),
            (json!({"query": " a "}), " a "),
            (json!({"prompt": "d", "search": "c", "q": "b", "query": "a"}), "a"),
            (json!({"prompt": "d", "search": "c", "q": "b"}), "b"),
            (json!({"prompt": "d", "search": "c", "query": " \u{feff}"}), "c"),
            (json!({"prompt": "d", "query": 5, "q": null}), "d"),
            (json!({"query": "\u{85}"}), "\u{85}"),
        ];
        for (arguments, query) in cases {
            let arguments = arguments.to_string();
            assert_eq!(asked(&arguments), Ok(search(query, 10)), "{arguments}");
        }
        let missing = "Error: Missing required parameter 'query'".to_owned();
        for arguments in ["{}", r#"{"query":" "}"#, r#"{"query":["a"]}"#, r#"{"pattern":"a"}"#] {
            assert_eq!(asked(arguments), Err(missing.clone()), "{arguments}");
        }
    }

    #[test]
    fn the_number_of_results_is_read_as_javascript_reads_it() {
        let cases = [
            (json!({}), 10),
            (json!({"num_results": 3}), 3),
            (json!({"num_results": 3, "numResults": 4}), 3),
            (json!({"numResults": 4}), 4),
            (json!({"num_results": null, "numResults": 4}), 4),
            (json!({"num_results": "x", "numResults": 4}), 10),
            (json!({"num_results": true, "numResults": 4}), 10),
            (json!({"num_results": [3]}), 10),
            (json!({"num_results": 3.99}), 3),
            (json!({"num_results": 0}), 1),
            (json!({"num_results": -7}), 1),
            (json!({"num_results": -0.5}), 1),
            (json!({"num_results": 10.5}), 10),
            (json!({"num_results": 11}), 10),
            (json!({"num_results": 1e300}), 10),
            (json!({"num_results": u64::MAX}), 10),
            (json!({"num_results": i64::MIN}), 1),
            (json!({"num_results": "3abc"}), 3),
            (json!({"num_results": " \u{feff}7"}), 7),
            (json!({"num_results": "-2"}), 1),
            (json!({"num_results": "2.9"}), 2),
            (json!({"num_results": "99"}), 10),
            (json!({"num_results": "9".repeat(400)}), 10),
            (json!({"num_results": ""}), 10),
        ];
        for (mut arguments, expected) in cases {
            arguments["query"] = "x".into();
            assert_eq!(asked(&arguments.to_string()), Ok(search("x", expected)), "{arguments}");
        }
    }

    #[test]
    fn texts_and_domains_are_asked_for_as_the_caller_says() {
        let base = || search("x", 10);
        let texts = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let with_text = || WebSearch { include_text: true, ..base() };
        let only = |domains: &[&str]| WebSearch { include_domains: texts(domains), ..base() };
        let without = |domains: &[&str]| WebSearch { exclude_domains: texts(domains), ..base() };
        let cases = [
            (json!({"include_text": true}), with_text()),
            (json!({"includeText": true}), with_text()),
            (json!({"include_text": false, "includeText": true}), with_text()),
            (json!({"include_text": "true"}), base()),
            (json!({"include_text": 1}), base()),
            (json!({"include_domains": ["a"], "domains": ["b"]}), only(&["a"])),
            (json!({"include_domains": [" ", 5], "includeDomains": ["b"]}), only(&["b"])),
            (
                json!({"include_domains": "a", "domains": ["\u{feff} b\n", "", null, "c"]}),
                only(&["b", "c"]),
            ),
            (json!({"include_domains": []}), base()),
            (json!({"exclude_domains": ["a"], "excludeDomains": ["b"]}), without(&["a"])),
            (json!({"excludeDomains": ["b"]}), without(&["b"])),
        ];
        for (mut arguments, expected) in cases {
            arguments["query"] = "x".into();
            assert_eq!(asked(&arguments.to_string()), Ok(expected), "{arguments}");
        }
    }

    #[test]
    fn what_is_longer_than_the_limits_is_not_asked() {
        let long = |n: usize| "x".repeat(n);
        let domains = |n: usize| vec!["d"; n];
        assert_eq!(asked(&json!(long(8192)).to_string()), Ok(search(&long(8192), 10)));
        let cases = [
            (json!({"query": long(8193)}), "query exceeds 8192 bytes"),
            (json!({"q": "x", "domains": domains(65)}), "include_domains exceeds 64 domains"),
            (
                json!({"q": "x", "exclude_domains": domains(65)}),
                "exclude_domains exceeds 64 domains",
            ),
            (
                json!({"q": "x", "domains": [long(254)]}),
                "include_domains holds a domain that exceeds 253 bytes",
            ),
        ];
        for (arguments, reason) in cases {
            assert_eq!(asked(&arguments.to_string()), Err(format!("Error: {reason}")));
        }
        assert!(asked(&json!({"q": "x", "domains": domains(64)}).to_string()).is_ok());
    }

    fn reply(status: u16, status_text: &str, body: &str) -> WebOutcome {
        let (status_text, body) = (status_text.to_owned(), body.to_owned());
        WebOutcome::Reply { status, status_text, body }
    }

    #[test]
    fn every_failure_has_its_words() {
        let missing = "Error: web_search response missing expected 'results' array";
        let cases = [
            (WebOutcome::NoKey, NO_KEY),
            (WebOutcome::Busy, "Error: web_search is busy: too many searches are running"),
            (
                WebOutcome::TimedOut { after_ms: 30_000 },
                "Error: web_search request timed out after 30000ms",
            ),
            (
                WebOutcome::TooLong { limit: 1_048_576 },
                "Error: web_search response exceeds 1048576 bytes",
            ),
            (
                WebOutcome::Failed { reason: "no connection".into() },
                "Error: web_search request failed: no connection",
            ),
            (
                reply(401, "Unauthorized", "\u{feff} Invalid API key\n"),
                "Error: web_search failed (401 Unauthorized): Invalid API key",
            ),
            (
                reply(429, "Too Many Requests", " "),
                "Error: web_search failed (429 Too Many Requests)",
            ),
            (reply(302, "Found", "x"), "Error: web_search failed (302 Found): x"),
            (reply(500, "", ""), "Error: web_search failed (500)"),
            (
                reply(200, "OK", "<html>"),
                "Error: web_search returned invalid JSON: expected value at line 1 column 1",
            ),
            (
                reply(204, "No Content", ""),
                "Error: web_search returned invalid JSON: EOF while parsing a value at line 1 column 0",
            ),
            (reply(200, "OK", "[]"), missing),
            (reply(200, "OK", "null"), missing),
            (reply(200, "OK", r#""results""#), missing),
            (reply(200, "OK", "{}"), missing),
            (reply(200, "OK", r#"{"results":{}}"#), missing),
            (reply(200, "OK", r#"{"results":null}"#), missing),
        ];
        for (outcome, expected) in cases {
            let (output, _) = run(r#""x""#, &outcome);
            assert_eq!(output.text, expected);
            assert!(output.report.is_error && output.data.is_none(), "{expected}");
            assert_eq!(output.report.timed_out, expected.contains("timed out"));
        }
        let (output, _) = run(r#""x""#, &reply(500, "Oh", &"[".repeat(1_000_000)));
        let head = format!("Error: web_search failed (500 Oh): {}", "[".repeat(102_400));
        assert_eq!(output.text, format!("{}\n[Output truncated at 100KB]", &head[..102_400]));
        assert!(output.report.truncated);
        let (output, _) = run(r#""x""#, &reply(200, "OK", &"[".repeat(1_000_000)));
        assert!(output.text.starts_with("Error: web_search returned invalid JSON: "));
    }

    /// Returns the answer for a body, with page texts requested.
    fn answered(body: &Value) -> Output {
        run(r#"{"query":"x y","include_text":true}"#, &reply(200, "OK", &body.to_string())).0
    }

    #[test]
    fn results_are_told_as_the_documentation_shows_them() {
        let body = json!({"requestId": "r", "results": [
            {"title": "Rust Async Book", "url": "https://rust-lang.github.io/async-book/",
             "publishedDate": "2023-11-15", "score": 0.892, "id": "1", "author": null,
             "text": " a\n\n\tb\u{a0}\u{feff}c "},
            {"url": "https://tokio.rs", "score": 1},
            {"title": " \n", "url": " https://c.example\n", "publishedDate": " ", "score": "0.5", "text": ""},
        ]});
        let output = answered(&body);
        let expected = "1. Rust Async Book\n   URL: https://rust-lang.github.io/async-book/\n   \
                        Published: 2023-11-15\n   Score: 0.892\n   Snippet: a b c\n\n\
                        2. (untitled)\n   URL: https://tokio.rs\n   Score: 1.000\n\n\
                        3. (untitled)\n   URL: https://c.example";
        assert_eq!(output.text, expected);
        assert!(!output.report.is_error);
        let data = json!({"results": [
            {"rank": 1, "title": "Rust Async Book", "url": "https://rust-lang.github.io/async-book/",
             "published": "2023-11-15", "score": 0.892, "snippet": "a b c"},
            {"rank": 2, "title": "(untitled)", "url": "https://tokio.rs", "score": 1.0},
            {"rank": 3, "title": "(untitled)", "url": "https://c.example"},
        ]});
        assert_eq!(output.data, Some(data.into()));

        let (plain, _) = run(r#""x""#, &reply(200, "OK", &body.to_string()));
        assert_eq!(plain.text, expected.replace("   Snippet: a b c\n", ""));
    }

    #[test]
    fn what_is_no_result_is_left_out_and_not_counted() {
        let body = json!({"results": [
            null, 5, [], "https://a", {}, {"title": "t"}, {"url": " "}, {"url": 5},
            {"url": "u", "title": 5, "publishedDate": 2023, "score": true, "text": ["x"]},
        ]});
        let output = answered(&body);
        assert_eq!(output.text, "1. (untitled)\n   URL: u");
        let data = json!({"results": [{"rank": 1, "title": "(untitled)", "url": "u"}]});
        assert_eq!(output.data, Some(data.into()));

        for nothing in [json!({"results": []}), json!({"results": [{}]})] {
            let output = answered(&nothing);
            assert_eq!(output.text, "No web results found for 'x y'");
            assert_eq!(
                (output.report.is_error, output.data),
                (false, Some(json!({"results": []}).into()))
            );
        }
    }

    #[test]
    fn a_snippet_ends_after_400_units() {
        let snippet = |text: &str| {
            let output = answered(&json!({"results": [{"url": "u", "text": text}]}));
            output.text.strip_prefix("1. (untitled)\n   URL: u\n   Snippet: ").unwrap().to_owned()
        };
        let exact = "y".repeat(400);
        assert_eq!(snippet(&exact), exact);
        assert_eq!(snippet(&format!("{exact}z")), format!("{exact}..."));
        assert_eq!(snippet(&"🦆".repeat(200)), "🦆".repeat(200));
        assert_eq!(snippet(&format!("y{}", "🦆".repeat(200))), format!("y{}...", "🦆".repeat(199)));
        assert_eq!(snippet(&format!("{}  z", "y".repeat(399))), format!("{} ...", "y".repeat(399)));
    }

    #[test]
    fn a_text_that_javascript_cut_inside_of_a_character_is_read() {
        let body = r#"{"results":[{"url":"u","title":"half \ud83e","text":"\ud83e\udd86"}]}"#;
        let (output, _) = run(r#"{"q":"x","include_text":true}"#, &reply(200, "OK", body));
        assert_eq!(output.text, "1. half \u{fffd}\n   URL: u\n   Snippet: 🦆");
        let marked = format!("\u{feff}{body}");
        let (output, _) = run(r#""x""#, &reply(200, "OK", &marked));
        assert_eq!(output.text, "1. half \u{fffd}\n   URL: u");
    }

    #[test]
    fn long_results_are_cut_and_so_is_their_data() {
        let result = json!({"url": "https://u", "title": "t".repeat(10_000)});
        let output = answered(&json!({"results": vec![result; 50]}));
        let cut = output.text.strip_suffix("\n[Output truncated at 100KB]").unwrap();
        assert_eq!((cut.len(), output.report.truncated), (102_400, true));
        assert_eq!(output.data.unwrap().value()["results"].as_array().unwrap().len(), 11);
    }

    #[tokio::test]
    async fn a_worker_without_a_way_has_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let output = execute(Rc::new(toolbox(&dir)), call(r#""x""#)).await;
        assert_eq!(output.text, NO_KEY);
        let output = execute(Rc::new(toolbox(&dir)), call("{}")).await;
        assert_eq!(output.text, "Error: Missing required parameter 'query'");
    }

    /// Records that it was dropped.
    struct Guard(Rc<RefCell<bool>>);

    impl Drop for Guard {
        fn drop(&mut self) {
            *self.0.borrow_mut() = true;
        }
    }

    /// A client that never answers, and whether a search on it was dropped.
    fn hanging(when_asked: impl Fn() + 'static) -> (Web, Rc<RefCell<bool>>) {
        let is_dropped = Rc::new(RefCell::new(false));
        let told = Rc::clone(&is_dropped);
        let web = Web::new(move |_, _| {
            let guard = Guard(Rc::clone(&told));
            when_asked();
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        });
        (web, is_dropped)
    }

    #[tokio::test]
    async fn a_search_ends_with_its_call() {
        let dir = tempfile::tempdir().unwrap();
        let (web, is_dropped) = hanging(|| ());
        let mut late = call(r#""x""#);
        late.spec.deadline_ms = 150;
        let asked = execute(Rc::new(Toolbox { web: Some(web), ..toolbox(&dir) }), late);
        let output = tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
        assert_eq!(output.text, "Error: web_search request timed out after 150ms");
        assert!(output.report.timed_out && *is_dropped.borrow());

        let call = call(r#""x""#);
        let cancel = call.cancel.clone();
        let (web, is_dropped) = hanging(move || cancel.cancel());
        let output =
            execute(Rc::new(Toolbox { web: Some(web), ..toolbox(&dir) }), call.clone()).await;
        assert_eq!(output.text, "Error: web_search was aborted");
        assert!(output.report.aborted && !output.report.timed_out && *is_dropped.borrow());

        let (web, is_dropped) = hanging(|| ());
        let output = execute(Rc::new(Toolbox { web: Some(web), ..toolbox(&dir) }), call).await;
        assert_eq!(output.text, "Error: web_search was aborted");
        assert!(!*is_dropped.borrow(), "who is cancelled before does not ask");
    }
}

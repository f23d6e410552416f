//! Tests of all tools that search and replace, also of those in `crates/tools`: early ends, refusals, and answers at the
//! size limit.

#![cfg(unix)]

#[cfg(test)]
mod tests {
    use quackd_facades::execute;
    use quackd_protocol::denial::DenialKind;
    use quackd_protocol::policy::{Policy, Profile};
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::TestDir;
    use quackd_tools::{Call, Confinement, Output, Toolbox};
    use serde_json::{Value, json};
    use std::fs;
    use std::rc::Rc;
    use std::sync::Arc;

    /// Every read-only tool, with a call that finds something.
    const SEARCHING: [(&str, &str); 6] = [
        ("search", r#"{"pattern":"needle"}"#),
        ("find", r#"{"pattern":"*"}"#),
        ("grep_search", r#"{"pattern":"needle"}"#),
        ("search_content", r#"{"pattern":"needle","glob_pattern":"**/*"}"#),
        ("search_glob_files", r#"{"pattern":"**/*"}"#),
        ("ripgrep_search", r#"{"pattern":"needle"}"#),
    ];

    /// Every tool that replaces.
    const REPLACING: [(&str, &str); 3] = [
        ("replace", r#"{"pattern":"needle","replacement":"x"}"#),
        ("replace_content", r#"{"pattern":"needle","replacement":"x","glob_pattern":"**/*"}"#),
        ("undo", "{}"),
    ];

    struct Bench {
        toolbox: Rc<Toolbox>,
        base: TestDir,
    }

    impl Bench {
        fn new() -> Self {
            Self::of(Confinement::default())
        }

        fn empty() -> Self {
            let bench = Self::new();
            fs::remove_file(bench.base.join("ws/f")).unwrap();
            bench
        }

        fn of(confinement: Confinement) -> Self {
            let base = TestDir::with(&["run"]);
            base.write("ws/f", "needle\n");
            let toolbox = Rc::new(Toolbox {
                confinement: Arc::new(confinement),
                ..Toolbox::new(base.join("ws"), base.join("run"), Vec::new(), false)
            });
            Self { toolbox, base }
        }

        async fn run(&self, tool: &str, arguments: &str, with: impl FnOnce(&mut Call)) -> Output {
            let mut call = Call {
                spec: CallSpec {
                    call_id: "c1".into(),
                    tool: tool.into(),
                    arguments: arguments.into(),
                    deadline_ms: 30_000,
                    ..CallSpec::default()
                },
                ..Call::default()
            };
            with(&mut call);
            execute(Rc::clone(&self.toolbox), call).await
        }

        async fn answer(&self, tool: &str, arguments: &Value) -> Output {
            self.run(tool, &arguments.to_string(), |_| ()).await
        }

        fn file(&self) -> String {
            self.base.read("ws/f")
        }
    }

    #[tokio::test]
    async fn an_abort_is_answered_as_one() {
        let bench = Bench::new();
        for (tool, arguments) in SEARCHING.into_iter().chain(REPLACING) {
            let output = bench.run(tool, arguments, |call| call.cancel.cancel()).await;
            let text = format!("{tool} was aborted");
            assert!(output.text.contains(&text) && output.report.aborted, "{}", output.text);
        }
        assert_eq!(bench.file(), "needle\n");
    }

    #[tokio::test]
    async fn a_search_that_runs_out_of_time_says_so_and_a_replacement_changes_nothing() {
        let bench = Bench::new();
        for (tool, arguments) in SEARCHING {
            let output = bench.run(tool, arguments, |call| call.spec.deadline_ms = 0).await;
            assert!(output.text.contains("timed out after 0s"), "{tool}: {}", output.text);
            assert!(output.report.timed_out, "{tool}");
        }
        for (tool, arguments) in &REPLACING[..2] {
            let output = bench.run(tool, arguments, |call| call.spec.deadline_ms = 0).await;
            assert!(
                output.text.starts_with(&format!("Error: {tool} timed out after 0s")),
                "{}",
                output.text
            );
            assert!(output.report.timed_out && output.report.is_error, "{tool}");
        }
        let dry = |call: &mut Call| call.spec.deadline_ms = 0;
        let arguments = r#"{"pattern":"needle","replacement":"x","dry_run":true}"#;
        let output = bench.run("replace", arguments, dry).await;
        assert!(
            output.text.contains("results are incomplete]") && !output.text.contains("plan_id"),
            "{}",
            output.text
        );
        assert_eq!(bench.file(), "needle\n");
    }

    #[tokio::test]
    async fn what_replaces_is_refused_where_nothing_may_be_written() {
        let of = |profile, is_confined| {
            let policy = Policy { profile, ..Policy::default() };
            Bench::of(Confinement::new(policy, is_confined, String::new()))
        };
        let (read_only, unconfined) =
            (of(Profile::ReadOnly, true), of(Profile::WorkspaceWrite, false));
        for (tool, arguments) in REPLACING {
            let safe = read_only.run(tool, arguments, |call| call.spec.safe_mode = true).await;
            assert_eq!(safe.text, format!("Error: {tool} is disabled in safe mode"));
            let refused = read_only.run(tool, arguments, |_| ()).await;
            let first = refused.text.lines().next();
            assert_eq!(first, Some("Error: Files cannot be written in the profile read-only"));
            assert_eq!(refused.report.denials[0].kind, DenialKind::Write);
            let refused = unconfined.run(tool, arguments, |_| ()).await;
            let text =
                format!("Error: {tool} needs confinement, and there is none on this system\n");
            assert!(refused.text.starts_with(&text), "{}", refused.text);
        }
        for (tool, arguments) in SEARCHING {
            let found = read_only.run(tool, arguments, |call| call.spec.safe_mode = true).await;
            assert!(!found.report.is_error && found.text.contains('f'), "{tool}: {}", found.text);
        }
        assert_eq!(read_only.file(), "needle\n");
        assert_eq!(unconfined.file(), "needle\n");
    }

    /// A character of three bytes is before, across and after the limit.
    #[tokio::test]
    async fn grep_search_fills_its_limit_to_the_byte_and_tears_no_character() {
        const LIMIT: usize = 102_400;
        let bench = Bench::new();
        for n_bytes in LIMIT - 1..=LIMIT + 3 {
            // `f:1:`, the line, and its end together have `n_bytes` bytes.
            let line = format!("{}€", "x".repeat(n_bytes - "f:1:€\n".len()));
            fs::write(bench.base.join("ws/f"), &line).unwrap();
            let output = bench.answer("grep_search", &json!("€")).await;
            let whole = format!("f:1:{line}\n");
            if n_bytes <= LIMIT {
                assert!(output.text == whole && !output.report.truncated, "{n_bytes}");
                continue;
            }
            let shown = output.text.strip_suffix("\n[Output truncated at 100KB]").unwrap();
            assert!(whole.starts_with(shown) && output.report.truncated, "{n_bytes}");
            assert!((LIMIT - 3..=LIMIT).contains(&shown.len()), "{n_bytes}: {}", shown.len());
        }
        // With two rows, the second one is omitted completely.
        let rows = format!("{}€\n€\n", "x".repeat(LIMIT - "f:1:€\n".len()));
        fs::write(bench.base.join("ws/f"), rows).unwrap();
        let output = bench.answer("grep_search", &json!("€")).await;
        assert!(output.text.ends_with("x€\n[Output truncated at 100KB]"));
        assert_eq!(output.text.len(), LIMIT - 1 + "\n[Output truncated at 100KB]".len());
    }

    /// One search returns 10,000 rows. The answer has space for more if they are short.
    #[tokio::test]
    async fn grep_search_is_cut_by_its_bytes_and_not_by_the_number_of_its_rows() {
        let bench = Bench::new();
        fs::write(bench.base.join("ws/f"), "x\n".repeat(12_000)).unwrap();
        let output = bench.answer("grep_search", &json!("x")).await;
        let cut = output.text.strip_suffix("\n[Output truncated at 100KB]").unwrap();
        assert!((102_400 - 10..102_400).contains(&cut.len()), "{}", cut.len());
        assert!((1..).zip(cut.lines()).all(|(n, line)| line == format!("f:{n}:x")));
        fs::write(bench.base.join("ws/f"), "x\n".repeat(10_001)).unwrap();
        let output = bench.answer("grep_search", &json!("x")).await;
        assert_eq!((output.text.lines().count(), output.report.truncated), (10_001, false));
    }

    #[tokio::test]
    async fn a_search_that_runs_out_of_time_keeps_what_it_found() {
        let bench = Bench::empty();
        fs::write(bench.base.join("ws/a"), "needle\n").unwrap();
        // 8 GB in size, 4 MB on the disk.
        let big = bench.base.join("ws/b");
        fs::write(&big, "some line without it\n".repeat(200_000)).unwrap();
        for n in 0..2000 {
            fs::hard_link(&big, bench.base.join(format!("ws/b{n}"))).unwrap();
        }
        // The longer time is for a machine that is too slow to begin within the first one.
        for (time, told) in [(100, "0.1s"), (3100, "3.1s")] {
            let deadline = |call: &mut Call| call.spec.deadline_ms = time;
            let output = bench.run("grep_search", "\"needle\"", deadline).await;
            if !output.text.starts_with("a:") && time < 1000 {
                continue;
            }
            let end = format!("[Search timed out after {told}; results are incomplete]");
            assert_eq!(output.text, format!("a:1:needle\n{end}"));
            assert!(output.report.timed_out && !output.report.is_error);
            break;
        }
    }

    #[tokio::test]
    async fn a_long_result_is_cut_on_a_row_boundary() {
        let bench = Bench::empty();
        fs::write(bench.base.join("ws/a"), format!("{}\n", "x".repeat(990)).repeat(200)).unwrap();
        let output = bench.answer("grep_search", &json!("x")).await;
        let lines: Vec<&str> = output.text.split('\n').collect();
        let (last, rows) = lines.split_last().unwrap();
        assert_eq!(*last, "[Output truncated at 100KB]");
        assert!(rows.iter().all(|row| row.starts_with("a:") && row.ends_with("xxx")));
        let n_bytes = output.text.len() - last.len();
        assert!((102_400 - 1_000..=102_400).contains(&n_bytes), "{n_bytes}");
        assert!(output.report.truncated);

        fs::write(bench.base.join("ws/a"), "€".repeat(100_000)).unwrap();
        let text = bench.answer("grep_search", &json!("€")).await.text;
        let expected = format!("a:1:{}\n[Output truncated at 100KB]", "€".repeat(34_132));
        assert!(text == expected, "{} bytes", text.len());
    }

    #[tokio::test]
    async fn a_search_tells_what_it_saw() {
        let bench = Bench::empty();
        fs::write(bench.base.join("ws/a"), "x\n").unwrap();
        fs::write(bench.base.join("ws/b"), "x\0").unwrap();
        let output = bench.answer("grep_search", &json!("x")).await;
        let expected = json!({
            "matches": 1, "truncated": false, "timedOut": false, "filesSearched": 1, "dialect": "rust",
            "skipped": {"binary": 1, "unreadable": 0, "tooLong": 0},
        });
        assert_eq!(output.data, Some(expected.into()));
    }

    /// Control characters take six times their size in JSON. The answer must still fit into a frame.
    #[tokio::test]
    async fn an_answer_fits_into_a_frame_whatever_is_in_it() {
        let bench = Bench::new();
        let line = format!("needle{}\n", "\u{1}".repeat(1000));
        fs::write(bench.base.join("ws/f"), line.repeat(1100)).unwrap();
        let size = |output: &Output| {
            let text = Value::from(output.text.as_str()).to_string().len();
            text + output.data.clone().unwrap().into_json().get().len()
        };
        let asked = json!({"pattern": "needle", "limit": 0, "max_line": 0, "max_bytes": 1_048_576});
        let output = bench.answer("search", &asked).await;
        assert!(output.text.contains("go on with"), "it is a page of more");
        assert!(size(&output) < 7 * 1024 * 1024, "{}", size(&output));
        let asked = json!({"pattern": "needle", "replacement": "x", "dry_run": true, "max_bytes": 1_048_576});
        let output = bench.answer("replace", &asked).await;
        assert!(!output.report.is_error, "{}", output.text.lines().next().unwrap());
        assert!(size(&output) < 7 * 1024 * 1024, "{}", size(&output));
    }

    /// The other tools ignore parameters with an undocumented form.
    #[tokio::test]
    async fn odd_values_are_told_or_ignored_and_never_break_a_tool() {
        let bench = Bench::new();
        let odd = [
            "null",
            "-1",
            "1.5",
            "\"\"",
            "\"x\"",
            "true",
            "[]",
            "{}",
            "[null]",
            "1e400",
            "18446744073709551616",
        ];
        for tool in quackd_protocol::tools::all() {
            let searches = SEARCHING.iter().any(|(name, _)| *name == tool.name);
            if !searches && tool.name != "find_files" {
                continue;
            }
            for parameter in tool.parameters.iter().flat_map(|it| it.names()) {
                for value in odd {
                    let call = format!(
                        r#"{{"pattern":"needle","glob_pattern":"*","{parameter}":{value}}}"#
                    );
                    let call = match tool.parameter("glob_pattern") {
                        None if tool.is_strict => call.replacen(r#""glob_pattern":"*","#, "", 1),
                        _ => call,
                    };
                    let output =
                        bench.run(tool.name, &call, |call| call.spec.deadline_ms = 5000).await;
                    let text = &output.text;
                    assert!(
                        !text.is_empty() && !text.contains("unexpectedly"),
                        "{} {call}: {text}",
                        tool.name
                    );
                }
            }
        }
    }
}

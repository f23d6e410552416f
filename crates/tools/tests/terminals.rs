//! Tests of terminals: the tools of a model, the messages to the supervisor, and the limits.

// Processes can be counted on Linux only.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use quackd_process::{Role, harden};
    use quackd_protocol::CallId;
    use quackd_protocol::limits::MAX_TERMINALS_PER_SESSION;
    use quackd_protocol::terminal::{
        CellSize, FromTerminal, OpenTerminal, Recording, TerminalExit, ToTerminal,
    };
    use quackd_protocol::tools::OPEN_TERMINAL;
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, Turn, alone};
    use quackd_tools::{Call, NewTerminal, Output, Terminal, Toolbox, execute};
    use serde_json::value::RawValue;
    use serde_json::{Value, json};
    use std::fs;
    use std::rc::Rc;
    use std::time::Duration;
    use tokio::time::timeout;

    /// Far longer than any answer takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A session with exclusive execution, as a command that runs alone kills orphans of unknown origin.
    struct Bench {
        toolbox: Rc<Toolbox>,
        base: TestDir,
        _turn: Turn,
    }

    impl Bench {
        async fn new() -> Self {
            let turn = alone(|| harden(Role::Worker).unwrap()).await;
            let base = TestDir::with(&["ws", "run"]);
            let env = vec![
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                ("NO_COLOR".to_owned(), "1".to_owned()),
            ];
            let toolbox = Rc::new(Toolbox::new(base.join("ws"), base.join("run"), env, false));
            Self { toolbox, base, _turn: turn }
        }

        async fn call(&self, tool: &str, arguments: Value, safe_mode: bool) -> Output {
            let spec = CallSpec {
                call_id: CallId(format!("c{tool}{arguments}")),
                tool: tool.into(),
                arguments: arguments.to_string(),
                deadline_ms: 30_000,
                safe_mode,
                ..CallSpec::default()
            };
            execute(Rc::clone(&self.toolbox), Call { spec, ..Call::default() }).await
        }

        async fn text(&self, tool: &str, arguments: Value) -> String {
            self.call(tool, arguments, false).await.text
        }

        /// Starts a command on a terminal.
        async fn start(&self, command: &str) -> Output {
            self.call("bash", json!({"command": command, "tty": true}), false).await
        }

        /// Waits until the screen has `word`, and returns it.
        async fn screen(&self, terminal: &str, word: &str) -> String {
            let reading = async {
                loop {
                    let ask = json!({"terminal": terminal, "wait_ms": 20_000});
                    let text = self.text("term_read", ask).await;
                    if text.contains(word) {
                        return text;
                    }
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, reading).await.unwrap()
        }

        async fn new_terminal(&self) -> NewTerminal {
            timeout(PATIENCE, self.toolbox.jobs().next_terminal()).await.unwrap()
        }
    }

    fn input(text: &str) -> ToTerminal {
        let bytes = RawValue::from_string(format!("\"{}\"", STANDARD.encode(text))).unwrap();
        ToTerminal::Input { bytes }
    }

    fn decoded(bytes: &RawValue) -> String {
        let text: String = serde_json::from_str(bytes.get()).unwrap();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    }

    async fn next(terminal: &Terminal) -> Option<FromTerminal> {
        timeout(PATIENCE, terminal.next()).await.unwrap()
    }

    #[tokio::test]
    async fn a_model_types_and_sees_the_screen_until_the_program_has_ended() {
        let bench = Bench::new().await;
        let started = bench.start("cat; exit 3").await;
        assert_eq!(
            started.text,
            "Started background job term-1 on a terminal\n[Its screen: term_read term-1. To type: term_write term-1. \
             To end it: job_kill term-1]"
        );
        assert_eq!(started.data, Some(json!({"jobId": "term-1"}).into()));
        let typed = json!({"terminal": 1, "text": "hello", "keys": ["Enter"]});
        let typed = bench.text("term_write", typed).await;
        assert!(typed.starts_with("hello\n"), "{typed}");
        let text = bench.screen("term-1", "hello\nhello\n").await;
        assert_eq!(text, "hello\nhello\n[term-1: 80\u{d7}24, cursor row 3, column 1]");
        assert!(bench.text("jobs", json!({})).await.starts_with("term-1  running for "));
        let data = bench.call("term_read", json!("term-1"), false).await.data.unwrap().value();
        assert_eq!(data["cursor"], json!({"row": 2, "col": 0, "visible": true}));
        assert_eq!((&data["running"], &data["text"]), (&json!(true), &json!("hello\nhello")));

        bench.text("term_write", json!({"terminal": "term-1", "keys": "C-d"})).await;
        let text = bench.screen("term-1", "[Exit code: 3]").await;
        assert!(text.starts_with("hello\nhello\n"), "{text}");
        let late = bench.text("term_write", json!({"terminal": "term-1", "text": "x"})).await;
        assert!(late.starts_with("Error: term-1 has ended; nothing was typed\nhello\n"), "{late}");
        let output = bench.text("job_output", json!("term-1")).await;
        assert!(output.ends_with("[Exit code: 3]"), "{output}");
        assert_eq!(bench.start("true").await.data, Some(json!({"jobId": "term-2"}).into()));
    }

    #[tokio::test]
    async fn what_is_wrong_is_told() {
        let bench = Bench::new().await;
        bench.start("cat").await;
        bench.text("bash", json!({"command": "sleep 60", "background": true})).await;
        let cases = [
            ("term_read", json!({}), "Missing required parameter 'terminal'"),
            ("term_read", json!("term-9"), "No background job 'term-9'; jobs end with"),
            ("term_read", json!("job-2"), "'job-2' has no terminal; bash with \"tty\": true"),
            ("term_read", json!({"terminal": 1, "wait_ms": "x"}), "Parameter 'wait_ms' must be"),
            ("term_write", json!({"terminal": 1}), "term_write needs 'text' or 'keys'"),
            ("term_write", json!({"terminal": 1, "keys": ["Entr"]}), "Unknown key 'Entr'; keys"),
        ];
        for (tool, arguments, reason) in cases {
            let text = bench.text(tool, arguments.clone()).await;
            assert!(text.starts_with(&format!("Error: {reason}")), "{tool} {arguments}: {text}");
        }
        for (tool, arguments) in [
            ("bash", json!({"command": "cat", "tty": true})),
            ("term_write", json!({"terminal": 1, "text": "x"})),
            (OPEN_TERMINAL, json!({})),
        ] {
            let refused = bench.call(tool, arguments, true).await.text;
            assert_eq!(refused, "Error: Terminals are disabled in safe mode", "{tool}");
        }
        bench.text("job_kill", json!("job-2")).await;
        bench.text("job_kill", json!("1")).await;
    }

    #[tokio::test]
    async fn a_fifth_terminal_is_refused_and_a_killed_one_gets_hup() {
        let bench = Bench::new().await;
        bench.start("trap 'echo closed; exit' HUP; echo up; while :; do sleep 0.05; done").await;
        for _ in 1..MAX_TERMINALS_PER_SESSION {
            bench.start("sleep 60").await;
        }
        assert_eq!(
            bench.start("true").await.text,
            "Error: 4 terminals are running, and a session may have no more; end one with job_kill first"
        );
        bench.screen("term-1", "up").await;
        let killed = bench.text("job_kill", json!("term-1")).await;
        assert!(killed.starts_with("Ended background job term-1: "), "{killed}");
        let closed = bench.text("term_read", json!("term-1")).await;
        assert!(closed.contains("closed\n[term-1: "), "{closed}");

        // The supervisor still has it until it gets the last message.
        assert!(bench.start("true").await.text.starts_with("Error: 4 terminals are running"));
        let NewTerminal { terminal, .. } = bench.new_terminal().await;
        while next(&terminal).await.is_some() {}
        let started = bench.start("true").await.text;
        assert!(started.starts_with("Started background job term-5 "), "{started}");
        for n in 2..=MAX_TERMINALS_PER_SESSION {
            bench.text("job_kill", json!(n.to_string())).await;
        }
    }

    #[tokio::test]
    async fn the_supervisor_gets_output_with_credits_then_the_screen_and_the_end_last() {
        let bench = Bench::new().await;
        let mut reports = bench.toolbox.jobs().reports();
        bench.start("read -r a; echo got $a; read -r b; seq 1 20000; read -r c; exit 7").await;
        let NewTerminal { id, terminal } = bench.new_terminal().await;
        assert_eq!(id, "term-1");
        assert!(bench.toolbox.jobs().terminal("term-1").is_some());
        assert!(bench.toolbox.jobs().terminal("job-1").is_none());
        let started = reports.take().unwrap();
        assert_eq!(started.running[0].terminal, Some(CellSize { cols: 80, rows: 24 }));

        terminal.handle(ToTerminal::Watch { raw: true, rows: false, lagging: false });
        let refresh = ToTerminal::Refresh { viewer: 5, scrollback: true, as_rows: false };
        terminal.handle(refresh);
        let first = next(&terminal).await;
        assert!(matches!(first, Some(FromTerminal::Redraw { viewer: Some(5), .. })), "{first:?}");

        terminal.handle(input("one\n"));
        let (mut text, mut n_taken) = (String::new(), 0);
        while !text.contains("got one\r\n") || n_taken == 0 {
            match next(&terminal).await.unwrap() {
                FromTerminal::Output { bytes } => {
                    text.push_str(&decoded(&bytes));
                    terminal.handle(ToTerminal::Taken {});
                }
                FromTerminal::InputTaken {} => n_taken += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(n_taken, 1);

        // Without credits, output that is longer than one message is dropped.
        terminal.handle(input("two\n"));
        bench.screen("term-1", "20000").await;
        let missed = loop {
            match next(&terminal).await.unwrap() {
                FromTerminal::InputTaken {} => {}
                other => break other,
            }
        };
        assert!(matches!(missed, FromTerminal::Redraw { viewer: None, .. }), "{missed:?}");

        terminal.handle(input("three\n"));
        let exit = loop {
            match next(&terminal).await.unwrap() {
                FromTerminal::Exited(exit) => break exit,
                FromTerminal::Output { .. } => terminal.handle(ToTerminal::Taken {}),
                _ => {}
            }
        };
        assert_eq!(exit, TerminalExit { exit_code: Some(7), ..TerminalExit::default() });
        assert!(reports.take().is_none_or(|report| report.ended.is_empty()), "told too early");
        assert!(next(&terminal).await.is_none());
        let mut changes = reports.clone();
        let report = loop {
            if let Some(report) = reports.take().filter(|report| !report.ended.is_empty()) {
                break report;
            }
            timeout(PATIENCE, changes.changed()).await.unwrap();
        };
        assert_eq!((report.running.len(), report.ended.len()), (0, 1));
        assert_eq!((&*report.ended[0].info.id, report.ended[0].exit_code), ("term-1", Some(7)));
        let last = bench.text("term_read", json!("term-1")).await;
        assert!(last.contains("20000") && last.ends_with("[Exit code: 7]"), "{last}");
    }

    #[tokio::test]
    async fn programs_can_end_themselves_when_the_worker_hangs_up() {
        let bench = Bench::new().await;
        bench.start("trap 'echo bye > bye; exit' HUP; echo up; while :; do sleep 0.05; done").await;
        bench.screen("term-1", "up").await;
        timeout(PATIENCE, bench.toolbox.jobs().hang_up()).await.unwrap();
        assert_eq!(fs::read_to_string(bench.base.join("ws/bye")).unwrap(), "bye\n");
    }

    #[tokio::test]
    async fn the_size_changes_and_rows_are_reported() {
        let bench = Bench::new().await;
        bench.start("trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done").await;
        bench.screen("term-1", "up").await;
        let NewTerminal { terminal, .. } = bench.new_terminal().await;
        terminal.handle(ToTerminal::Watch { raw: false, rows: true, lagging: false });
        terminal.handle(ToTerminal::Resize(CellSize { cols: 30, rows: 5000 }));
        let size = loop {
            match next(&terminal).await.unwrap() {
                FromTerminal::Rows { viewer: None, screen } if screen.get().contains("500 30") => {
                    break serde_json::from_str::<Value>(screen.get()).unwrap();
                }
                _ => terminal.handle(ToTerminal::Taken {}),
            }
        };
        assert_eq!((&size["cols"], &size["rows"]), (&json!(30), &json!(500)));
        bench.text("job_kill", json!("1")).await;
    }

    #[tokio::test]
    async fn a_program_of_the_supervisor_gets_its_variables_and_is_recorded() {
        let bench = Bench::new().await;
        let script = "echo $TERM $COLORTERM${NO_COLOR+ none}; stty size; exit 4";
        let request = OpenTerminal {
            argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
            cols: 90,
            rows: 20,
            env: vec![("COLORTERM".to_owned(), "truecolor".to_owned())],
            scrollback_bytes: 1000,
            record: Some(Recording::Output),
            colors: None,
        };
        let opened = bench.call(OPEN_TERMINAL, json!(request), false).await;
        let data = opened.data.unwrap_or_else(|| panic!("{}", opened.text)).value();
        let file = bench.base.join("run/term-1.cast");
        assert_eq!(data, json!({"terminalId": "term-1", "recording": file}));
        let text = bench.screen("term-1", "[Exit code: 4]").await;
        assert!(text.starts_with("xterm-256color truecolor\n20 90\n"), "{text}");
        let is_recorded = || {
            let recorded = fs::read_to_string(&file).unwrap_or_default();
            let header: Value = serde_json::from_str(recorded.lines().next().unwrap_or_default())
                .unwrap_or_default();
            header["width"] == 90 && recorded.contains("20 90")
        };
        let recording = async {
            while !is_recorded() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, recording).await.unwrap();

        let missing = OpenTerminal { argv: vec!["no-such".to_owned()], ..OpenTerminal::default() };
        let missing = bench.call(OPEN_TERMINAL, json!(missing), false).await;
        assert_eq!(missing.text, "Error: no-such not found in PATH");
    }
}

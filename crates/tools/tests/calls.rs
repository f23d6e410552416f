//! Tests of calls beyond their answers: limits, cancellation, spill files, and workspaces that disappear and
//! return.

// Background processes can be counted on Linux only.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_process::{Role, harden};
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, Turn, alone};
    use quackd_tools::{Call, Output, Toolbox, execute};
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    /// Far longer than any answer takes. A wait for the wrong thing takes longer.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A session with exclusive execution. A command that runs alone also kills orphans of unknown origin,
    /// which would be other tests' children.
    struct Bench {
        _turn: Turn,
        base: TestDir,
        toolbox: Rc<Toolbox>,
    }

    impl Bench {
        async fn new() -> Self {
            let turn = alone(|| harden(Role::Worker).unwrap()).await;
            let base = TestDir::with(&["ws", "run"]);
            let path = format!("bin:{}/ws/bin:/usr/bin:/bin", base.display());
            let env = vec![("PATH".to_owned(), path), ("GREETING".to_owned(), "hello".to_owned())];
            let toolbox = Rc::new(Toolbox::new(base.join("ws"), base.join("run"), env, false));
            Self { _turn: turn, base, toolbox }
        }

        fn call(tool: &str, arguments: serde_json::Value) -> Call {
            Call {
                spec: CallSpec {
                    call_id: "c1".into(),
                    tool: tool.into(),
                    arguments: arguments.to_string(),
                    deadline_ms: 600_000,
                    ..CallSpec::default()
                },
                ..Call::default()
            }
        }

        async fn run(&self, call: Call) -> Output {
            execute(Rc::clone(&self.toolbox), call).await
        }

        async fn text(&self, tool: &str, arguments: serde_json::Value) -> String {
            self.run(Self::call(tool, arguments)).await.text
        }
    }

    #[tokio::test]
    async fn a_workspace_that_is_gone_is_told_and_found_again_when_it_is_back() {
        let bench = Bench::new().await;
        let (ws, arguments) = (bench.base.join("ws"), json!({"path": "a"}));
        fs::write(ws.join("a"), "1").unwrap();
        assert_eq!(bench.text("read_file", arguments.clone()).await, "1");

        fs::remove_dir_all(&ws).unwrap();
        let gone = format!("Error: Workspace not accessible: '{}'", ws.display());
        for tool in ["read_file", "bash", "search", "nothing"] {
            assert_eq!(bench.text(tool, arguments.clone()).await, gone, "{tool}");
        }

        fs::create_dir(&ws).unwrap();
        fs::write(ws.join("a"), "2").unwrap();
        assert_eq!(bench.text("read_file", arguments).await, "2");
        assert_eq!(bench.text("bash", json!("cat a")).await, "2\n[Exit code: 0]");
    }

    #[tokio::test]
    async fn long_output_is_spilled_and_read_file_may_read_it() {
        let bench = Bench::new().await;
        let command = "head -c 300000 /dev/zero | tr '\\0' x; echo; echo err >&2";
        let output = bench.run(Bench::call("bash", json!(command))).await;
        let spill = bench.base.join("run/bash-c1.log");
        let expected = format!(
            "{}\n[... 197606 bytes omitted; full output: {}]\n{}\n\nerr\n\
             \n[Output truncated at 100KB]\n[Exit code: 0]",
            "x".repeat(51_200),
            spill.display(),
            "x".repeat(51_194),
        );
        assert!(output.text == expected, "{}", output.text.replace("xxxxxxxxxx", ""));
        assert!(output.report.truncated && !output.report.is_error);
        assert_eq!(output.report.full_output_path.as_deref(), spill.to_str());
        let read = bench.text("read_file", json!({"path": spill})).await;
        assert_eq!(read.len(), 300_005);

        // The run directory is accessible by its absolute path only, and nothing next to it.
        let outside = "Error: Path escapes workspace root";
        assert_eq!(bench.text("read_file", json!("../run/bash-c1.log")).await, outside);
        fs::write(bench.base.join("beside"), "x").unwrap();
        let beside = bench.base.join("run/../beside");
        assert_eq!(bench.text("read_file", json!({"path": beside})).await, outside);
    }

    #[tokio::test]
    async fn a_command_has_the_given_environment_and_no_input() {
        let bench = Bench::new().await;
        let text = bench.text("bash", json!("echo $GREETING; cat; env | grep -c ^HOME=")).await;
        assert_eq!(text, "hello\n0\n\n[Exit code: 1]");
    }

    #[tokio::test]
    async fn a_command_ends_at_its_deadline_and_says_so() {
        let bench = Bench::new().await;
        // The longer times are for a machine that is too slow to begin within the first one.
        for (time, told) in [(200, "0.2s"), (2200, "2.2s"), (20_200, "20.2s")] {
            let mut call = Bench::call("bash", json!("echo before; sleep 600; echo after"));
            call.spec.deadline_ms = time;
            let output = bench.run(call).await;
            if !output.text.starts_with("before") && time < 20_000 {
                continue;
            }
            let end = format!("[Process timed out after {told} and was terminated]");
            assert_eq!(output.text, format!("before\n\n{end}\n[Exit code: unknown]"));
            assert!(output.report.is_error && output.report.timed_out && !output.report.aborted);
            assert_eq!(output.report.signal, Some(15));
            assert!(time <= output.report.duration_ms, "{:?}", output.report);
            break;
        }
    }

    #[tokio::test]
    async fn an_aborted_command_keeps_its_output_and_an_aborted_read_says_so() {
        let bench = Bench::new().await;
        let call = Bench::call("bash", json!("echo before; touch printed; sleep 600"));
        let (cancel, printed) = (call.cancel.clone(), bench.base.join("ws/printed"));
        let begin = Instant::now();
        let watch = async {
            while !printed.exists() {
                assert!(begin.elapsed() < PATIENCE, "the command did not start");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            cancel.cancel();
        };
        let (output, ()) = tokio::join!(bench.run(call), watch);
        assert_eq!(output.text, "before\n\n[Process aborted]\n[Exit code: unknown]");
        assert!(output.report.is_error && output.report.aborted && !output.report.timed_out);

        for tool in ["read_file", "search", "bash"] {
            let call = Bench::call(tool, json!("x"));
            call.cancel.cancel();
            let output = bench.run(call).await;
            assert_eq!(output.text, format!("Error: {tool} was aborted"));
            assert!(output.report.aborted && output.report.is_error);
        }
    }

    #[tokio::test]
    async fn background_processes_end_with_their_call() {
        let bench = Bench::new().await;
        let quiet = json!("(sleep 61 & sleep 62 &) >/dev/null 2>&1; echo hi");
        let text = bench.text("bash", quiet).await;
        assert_eq!(text, "hi\n\n[2 background processes were ended]\n[Exit code: 0]");
    }

    #[tokio::test]
    async fn who_holds_the_output_open_is_named() {
        let bench = Bench::new().await;
        let output = bench.run(Bench::call("bash", json!("sleep 61 & echo $!"))).await;
        let (pid, rest) = output.text.split_once('\n').unwrap();
        let expected = format!(
            "\n[Output was still held open by: sleep 61 (pid {pid})]\n\
             [1 background process was ended]\n[Exit code: 0]"
        );
        assert_eq!(rest, expected);
        assert!(output.report.output_open && !output.report.is_error);
        assert_eq!(output.report.background_pids, [pid.parse::<u32>().unwrap()]);
        // A process that passes the output on in time is not named.
        let text = bench.text("bash", json!("exec > >(sed s/a/b/); echo a")).await;
        assert_eq!(text, "b\n\n[Exit code: 0]");
    }

    #[tokio::test]
    async fn safe_mode_of_the_session_and_of_the_call_both_count() {
        let bench = Bench::new().await;
        let refused = "Error: Command not allowed in safe mode";
        let mut call = Bench::call("bash", json!("id"));
        call.spec.safe_mode = true;
        assert_eq!(bench.run(call).await.text, refused);

        let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let toolbox = Toolbox::new(bench.base.join("ws"), bench.base.join("run"), env, true);
        let output = execute(Rc::new(toolbox), Bench::call("bash", json!("id"))).await;
        assert_eq!(output.text, refused);
        assert!(output.report.is_error);
    }

    #[tokio::test]
    async fn safe_mode_runs_no_program_from_the_workspace() {
        let bench = Bench::new().await;
        let planted = bench.base.join("ws/bin/ls");
        fs::create_dir(bench.base.join("ws/bin")).unwrap();
        fs::write(&planted, "#!/bin/sh\necho planted\n").unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(bench.text("bash", json!("ls")).await, "planted\n\n[Exit code: 0]");
        let mut call = Bench::call("bash", json!("ls"));
        call.spec.safe_mode = true;
        assert_eq!(bench.run(call).await.text, "bin\n\n[Exit code: 0]");
    }
}

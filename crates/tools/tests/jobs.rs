//! Tests of background jobs: every text, cursors over all kinds of output, limits, and retention.

// Processes can be counted on Linux only.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_process::{Role, harden};
    use quackd_protocol::CallId;
    use quackd_protocol::limits::{MAX_ENDED_JOBS, MAX_JOBS_PER_SESSION};
    use quackd_protocol::worker::{CallSpec, JobInfo};
    use quackd_testkit::{TestDir, Turn, alone};
    use quackd_tools::{Call, Output, Toolbox, execute};
    use serde_json::{Value, json};
    use std::fs;
    use std::path::PathBuf;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    /// Closing lines of a killed job.
    /// Far longer than any answer takes. A wait for the wrong thing takes longer.
    const PATIENCE: Duration = Duration::from_secs(60);
    const KILLED: &str = "[Process aborted]\n[Exit code: unknown]";

    /// A session with exclusive execution. A command that runs alone also kills orphans of unknown origin,
    /// which would be other tests' children.
    struct Bench {
        toolbox: Rc<Toolbox>,
        base: TestDir,
        _turn: Turn,
    }

    impl Bench {
        async fn new() -> Self {
            let turn = alone(|| harden(Role::Worker).unwrap()).await;
            let base = TestDir::with(&["ws", "run"]);
            let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
            let toolbox = Rc::new(Toolbox::new(base.join("ws"), base.join("run"), env, false));
            Self { toolbox, base, _turn: turn }
        }

        fn call(tool: &str, arguments: &Value) -> Call {
            Call {
                spec: CallSpec {
                    call_id: CallId(format!("c{tool}{arguments}")),
                    tool: tool.into(),
                    arguments: arguments.to_string(),
                    deadline_ms: 30_000,
                    ..CallSpec::default()
                },
                ..Call::default()
            }
        }

        async fn run(&self, tool: &str, arguments: Value) -> Output {
            execute(Rc::clone(&self.toolbox), Self::call(tool, &arguments)).await
        }

        async fn text(&self, tool: &str, arguments: Value) -> String {
            self.run(tool, arguments).await.text
        }

        /// Starts a job and returns its id.
        async fn start(&self, command: &str) -> String {
            let started = self.run("bash", json!({"command": command, "background": true})).await;
            let data = started.data.unwrap_or_else(|| panic!("{}", started.text)).value();
            data["jobId"].as_str().unwrap().to_owned()
        }

        /// Waits until a job has ended and returns its output.
        async fn ended(&self, job: &str) -> Output {
            let mut cursor = 0;
            loop {
                let ask = json!({"job": job, "cursor": cursor, "wait_ms": 20_000});
                let output = self.run("job_output", ask).await;
                let data =
                    output.data.as_ref().unwrap_or_else(|| panic!("{}", output.text)).value();
                if data["running"] == false {
                    return self.run("job_output", json!(job)).await;
                }
                cursor = data["cursor"].as_u64().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_job_is_started_looked_at_and_has_the_closing_lines_of_bash() {
        let bench = Bench::new().await;
        assert_eq!(bench.text("jobs", json!({})).await, "No background jobs");
        let gate = |n| format!("until [ -e gate{n} ]; do sleep 0.01; done");
        let command = format!("echo one; {}; echo err >&2; {}; echo two; exit 3", gate(1), gate(2));
        let started = bench.run("bash", json!({"command": command, "background": true})).await;
        assert_eq!(
            started.text,
            "Started background job job-1\n[Its output: job_output job-1. To end it: job_kill job-1]"
        );
        assert_eq!(started.data, Some(json!({"jobId": "job-1"}).into()));

        let first = bench.run("job_output", json!({"id": "job-1", "wait_ms": 20_000})).await;
        assert_eq!(first.text, "one\n\n[Cursor: 4]\n[Job running]");
        fs::write(bench.base.join("ws/gate1"), "").unwrap();
        let ask = json!({"job": 1, "cursor": "4", "wait_ms": "20000"});
        let second = bench.run("job_output", ask).await;
        assert_eq!(second.text, "err\n\n[Cursor: 8]\n[Job running]");
        let facts = json!({"jobId": "job-1", "running": true, "cursor": 8, "totalBytes": 8});
        assert_eq!(second.data, Some(facts.into()));
        assert!(!second.report.truncated && !second.report.is_error);
        // No new output: at once, and after a wait.
        for ask in [
            json!({"job": "1", "cursor": "8"}),
            json!({"job_id": "job-1", "cursor": 8, "wait_ms": 50}),
        ] {
            assert_eq!(bench.text("job_output", ask).await, "\n[Cursor: 8]\n[Job running]");
        }
        let list = bench.text("jobs", json!({})).await;
        let command_shown = command.as_str();
        assert_eq!(list, format!("job-1  running for 0s  8 bytes  {command_shown}"));

        fs::write(bench.base.join("ws/gate2"), "").unwrap();
        let last = bench.ended("job-1").await;
        assert_eq!(last.text, "one\nerr\ntwo\n\n[Exit code: 3]");
        assert_eq!(
            last.data,
            Some(
                json!({"jobId": "job-1", "running": false, "cursor": 12, "totalBytes": 12,
                        "exitCode": 3})
                .into()
            )
        );
        let list = bench.run("jobs", json!({})).await;
        assert_eq!(
            list.text,
            format!("job-1  ended 0s ago: exit code 3  12 bytes  {command_shown}")
        );
        let row = &list.data.unwrap().value()["jobs"][0];
        assert_eq!((&row["jobId"], &row["exitCode"]), (&json!("job-1"), &json!(3)));
        assert!(row["ageMs"].is_u64());
    }

    #[tokio::test]
    async fn what_is_wrong_is_told() {
        let bench = Bench::new().await;
        let none = "; jobs end with their session's worker";
        let cases = [
            ("job_output", json!({}), "Missing required parameter 'job'".to_owned()),
            ("job_kill", json!({"job": "  "}), "Missing required parameter 'job'".to_owned()),
            ("job_kill", json!("job-3"), format!("No background job 'job-3'{none}")),
            ("job_output", json!("x"), format!("No background job 'x'{none}")),
            ("job_output", json!("0"), format!("No background job '0'{none}")),
            ("jobs", json!("x"), "Tool arguments must be a JSON object".to_owned()),
            (
                "bash",
                json!({"background": true}),
                "Missing required parameter 'command'".to_owned(),
            ),
        ];
        for (tool, arguments, reason) in cases {
            let text = bench.text(tool, arguments.clone()).await;
            assert_eq!(text, format!("Error: {reason}"), "{tool} {arguments}");
        }
        bench.start("echo hi").await;
        bench.ended("job-1").await;
        let cases = [
            (json!({"job": "job-1", "cursor": -1}), "Parameter 'cursor' must be a whole number"),
            (json!({"job": "job-1", "wait_ms": [1]}), "Parameter 'wait_ms' must be a whole number"),
            (
                json!({"job": "job-1", "cursor": 4}),
                "Cursor 4 is beyond the output of 'job-1', which has 3 bytes",
            ),
        ];
        for (arguments, reason) in cases {
            let text = bench.text("job_output", arguments.clone()).await;
            assert_eq!(text, format!("Error: {reason}"), "{arguments}");
        }
        // Only the literal `true` counts, as for every flag.
        let text = bench.text("bash", json!({"command": "echo hi", "background": "true"})).await;
        assert_eq!(text, "hi\n\n[Exit code: 0]");
    }

    #[tokio::test]
    async fn a_job_that_cannot_be_launched_is_told_at_once_and_uses_up_no_number() {
        let bench = Bench::new().await;
        let mut call = Bench::call("bash", &json!({"command": "pytest", "background": true}));
        call.spec.safe_mode = true;
        let output = execute(Rc::clone(&bench.toolbox), call).await;
        assert_eq!(output.text, "Error: Failed to launch process: spawn pytest ENOENT");
        let mut call = Bench::call("bash", &json!({"command": "rm x", "background": true}));
        call.spec.safe_mode = true;
        let output = execute(Rc::clone(&bench.toolbox), call).await;
        assert_eq!(output.text, "Error: Command not allowed in safe mode");
        assert_eq!(bench.text("jobs", json!({})).await, "No background jobs");
        assert_eq!(bench.start("true").await, "job-1");
    }

    #[tokio::test]
    async fn a_job_outlives_its_workspace_and_can_be_ended_then() {
        let bench = Bench::new().await;
        bench.start("sleep 60").await;
        fs::remove_dir_all(bench.base.join("ws")).unwrap();
        assert!(bench.text("jobs", json!({})).await.starts_with("job-1  running"));
        let text = bench.text("job_kill", json!("job-1")).await;
        assert_eq!(text, format!("Ended background job job-1: 1 process\n{KILLED}"));
    }

    #[tokio::test]
    async fn a_killed_job_is_gone_with_what_escaped_it_and_may_clean_up() {
        let bench = Bench::new().await;
        let escapee = "setsid bash -c 'trap \"\" TERM; echo $$ > pid; sleep 600' &";
        let command = format!(
            "trap 'echo cleaned' EXIT; {escapee} until [ -s pid ]; do sleep 0.01; done; echo up; \
             while :; do sleep 0.05; done"
        );
        bench.start(&command).await;
        bench.run("job_output", json!({"job": "job-1", "wait_ms": 20_000})).await;
        let pid = fs::read_to_string(bench.base.join("ws/pid")).unwrap();
        let escapee = PathBuf::from(format!("/proc/{}", pid.trim()));
        assert!(escapee.exists());
        let killing = tokio::time::timeout(PATIENCE, bench.run("job_kill", json!("job-1")));
        let killed = killing.await.unwrap();
        assert!(!escapee.exists(), "answered before it was gone");
        assert!(killed.text.starts_with("Ended background job job-1: "));
        assert_eq!(killed.data.unwrap().value()["running"], false);
        assert!(bench.text("job_output", json!("job-1")).await.starts_with("up\ncleaned\n"));
        let again = bench.text("job_kill", json!("job-1")).await;
        assert!(again.starts_with("Background job job-1 had ended already\n[Process aborted]\n"));
        assert!(bench.text("jobs", json!({})).await.contains("ended 0s ago: ended on request"));
    }

    #[tokio::test]
    async fn a_burst_is_there_at_once_and_in_the_file_too() {
        let bench = Bench::new().await;
        bench.start("seq 10000; sleep 60").await;
        let mut seq: String = (1..=10_000).fold(String::new(), |text, n| text + &format!("{n}\n"));
        assert_eq!(seq.len(), 48_894);
        let (mut text, mut cursor) = (String::new(), 0);
        while text.len() < seq.len() {
            let ask = json!({"job": "job-1", "cursor": cursor, "wait_ms": 20_000});
            let page = bench.run("job_output", ask).await;
            cursor = page.data.unwrap().value()["cursor"].as_u64().unwrap();
            let closing = format!("\n[Cursor: {cursor}]\n[Job running]");
            text.push_str(page.text.strip_suffix(&closing).unwrap());
        }
        assert!(text == seq, "{} bytes", text.len());
        let file = bench.base.join("run/job-1.log");
        let until = Instant::now() + PATIENCE;
        while fs::read_to_string(&file).unwrap_or_default() != seq {
            assert!(Instant::now() < until, "not in the file");
            tokio::task::yield_now().await;
        }
        seq.clear();
        bench.text("job_kill", json!("job-1")).await;
    }

    #[tokio::test]
    async fn a_job_ends_at_its_time_limit() {
        let bench = Bench::new().await;
        let limited = json!({"command": "sleep 60", "background": true, "timeout_ms": 200});
        bench.run("bash", limited).await;
        let output = bench.ended("job-1").await;
        assert_eq!(
            output.text,
            "\n[Process timed out after 0.2s and was terminated]\n[Exit code: unknown]"
        );
        assert_eq!(output.data.unwrap().value()["signal"], 15);
    }

    #[tokio::test]
    async fn an_aborted_wait_does_not_end_the_job() {
        let bench = Bench::new().await;
        bench.start("sleep 60").await;
        let call = Bench::call("job_output", &json!({"job": "job-1", "wait_ms": 60_000}));
        let cancel = call.cancel.clone();
        let toolbox = Rc::clone(&bench.toolbox);
        let abort = async {
            tokio::task::yield_now().await;
            cancel.cancel();
        };
        let (output, ()) = tokio::join!(execute(toolbox, call), abort);
        assert_eq!(output.text, "Error: job_output was aborted");
        assert!(bench.text("jobs", json!({})).await.contains("running"));
        // A wait never exceeds the time of its call.
        let mut call = Bench::call("job_output", &json!({"job": "job-1", "wait_ms": 60_000}));
        call.spec.deadline_ms = 100;
        let output = execute(Rc::clone(&bench.toolbox), call).await;
        assert_eq!(output.text, "\n[Cursor: 0]\n[Job running]");
        bench.text("job_kill", json!("job-1")).await;
    }

    #[tokio::test]
    async fn a_cursor_reads_every_byte_once_and_tears_no_character() {
        let bench = Bench::new().await;
        // The lines contain characters of all lengths and invalid UTF-8.
        let line = "aé€🦆\u{fffd}";
        fs::write(bench.base.join("ws/line"), [line.as_bytes(), b"\xff\xe2\x82\n"].concat())
            .unwrap();
        bench.start("yes \"$(cat line)\" | head -n 30000").await;
        bench.ended("job-1").await;
        let expected = format!("{line}\u{fffd}\u{fffd}\n").repeat(30_000);
        let (mut read, mut cursor, mut pages) = (String::new(), 0, 0);
        loop {
            let page = bench.run("job_output", json!({"job": "job-1", "cursor": cursor})).await;
            let data = page.data.unwrap().value();
            cursor = data["cursor"].as_u64().unwrap();
            let total = data["totalBytes"].as_u64().unwrap();
            assert_eq!(page.report.truncated, cursor < total);
            let closing = if cursor < total {
                format!("\n[Cursor: {cursor} of {total} bytes]\n[Exit code: 0]")
            } else {
                "\n[Exit code: 0]".to_owned()
            };
            let text = page.text.strip_suffix(&closing).unwrap_or_else(|| panic!("{}", page.text));
            assert!(text.len() <= 102_400);
            read.push_str(text);
            pages += 1;
            if cursor == total {
                break;
            }
        }
        assert!(read == expected, "{} bytes instead of {}", read.len(), expected.len());
        assert!(5 < pages);
    }

    #[tokio::test]
    async fn a_long_output_shows_its_last_part_and_where_the_rest_is() {
        let bench = Bench::new().await;
        bench.start("seq 1 100000; echo é").await;
        let file = bench.base.join("run/job-1.log");
        let output = bench.ended("job-1").await;
        let note = format!(
            "[... 486498 bytes before this; cursor 0 shows them; full output: {}]\n",
            file.display()
        );
        assert!(output.text.starts_with(&note), "{}", output.text.get(..200).unwrap());
        assert!(output.text.ends_with("100000\né\n\n[Exit code: 0]"));
        assert!(output.report.truncated);
        assert_eq!(output.report.full_output_path.as_deref(), file.to_str());
        let read = bench.text("read_file", json!({"path": file})).await;
        assert!(read.starts_with("1\n2\n") && read.ends_with("100000\né\n"));
    }

    #[tokio::test]
    async fn a_ninth_job_is_refused_and_a_call_runs_beside_eight() {
        let bench = Bench::new().await;
        let mut reports = bench.toolbox.jobs().reports();
        for n in 1..=MAX_JOBS_PER_SESSION {
            assert_eq!(bench.start("sleep 60").await, format!("job-{n}"));
        }
        let refused = bench.text("bash", json!({"command": "true", "background": true})).await;
        assert_eq!(
            refused,
            "Error: 8 background jobs are running, and a session may have no more; \
             end one with job_kill first"
        );
        let running = reports.take().unwrap().running;
        assert_eq!(running.len(), 8);
        assert_eq!(
            running[0],
            JobInfo { id: "job-1".into(), command: "sleep 60".into(), terminal: None }
        );
        assert_eq!(reports.take(), None, "told once");
        // Processes left by a call are killed, and processes of jobs are not.
        let text =
            bench.text("bash", json!("(setsid sleep 61 & sleep 62 &) >/dev/null 2>&1; echo done"));
        let text = text.await;
        assert_eq!(text, "done\n\n[2 background processes were ended]\n[Exit code: 0]");
        bench.text("job_kill", json!("job-5")).await;
        let report = reports.take().unwrap();
        assert_eq!((report.running.len(), report.ended.len()), (7, 1));
        assert_eq!((&*report.ended[0].info.id, report.ended[0].aborted), ("job-5", true));
        assert_eq!(bench.start("sleep 60").await, "job-9");
        let list = bench.text("jobs", json!({})).await;
        assert_eq!(list.matches("running for").count(), 8, "{list}");
        for n in 1..=9 {
            bench.text("job_kill", json!(n.to_string())).await;
        }
    }

    #[tokio::test]
    async fn the_oldest_ended_jobs_are_forgotten_with_their_files() {
        let bench = Bench::new().await;
        // A file of an earlier worker.
        fs::write(bench.base.join("run/job-1.log"), "stale").unwrap();
        fs::write(bench.base.join("run/job-77.log"), "stale").unwrap();
        let long = bench.start("sleep 60").await;
        let n_ended = u64::try_from(MAX_ENDED_JOBS).unwrap() + 2;
        assert_eq!(long, "job-78", "a number of an earlier worker is not given again");
        for n in 79..n_ended + 79 {
            bench.start(&format!("echo {n}")).await;
            bench.ended(&format!("job-{n}")).await;
        }
        let forgotten = "ended too long ago; the last 32 are remembered";
        let earlier = "jobs end with their session's worker";
        for (job, expected) in [
            (77, format!("Error: No background job 'job-77'; {earlier}")),
            (79, format!("Error: Background job 'job-79' {forgotten}")),
            (80, format!("Error: Background job 'job-80' {forgotten}")),
            (81, "81\n\n[Exit code: 0]".to_owned()),
        ] {
            assert_eq!(bench.text("job_output", json!(format!("job-{job}"))).await, expected);
        }
        let mut files: Vec<_> = fs::read_dir(bench.base.join("run"))
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter(|name| name.starts_with("job-"))
            .collect();
        files.sort();
        assert_eq!(files.len(), MAX_ENDED_JOBS, "{files:?}");
        assert!(!files.contains(&"job-77.log".to_owned()));
        // A running job is never removed, regardless of its age.
        bench.text("job_kill", json!(long)).await;
    }
}

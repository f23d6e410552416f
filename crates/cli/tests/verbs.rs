//! Tests of the subcommands as scripts use them: exit codes, stdout, stderr, and the requests to the daemon. The daemon
//! is a socket with fixed replies. Other tests use the real daemon.

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;
    use std::process::{Child, Command, Output, Stdio};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;
    use tempfile::TempDir;

    /// Timeout for an expected event.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A state directory with or without a listening socket.
    struct Scene {
        dir: TempDir,
        requests: Receiver<Value>,
    }

    impl Scene {
        fn without_daemon() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), requests: channel().1 }
        }

        fn with_daemon() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("daemon.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            let (seen, requests) = channel();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (socket, seen) = (socket.clone(), seen.clone());
                    thread::spawn(move || serve(&stream.unwrap(), &socket, &seen));
                }
            });
            Self { dir, requests }
        }

        fn quack(&self, args: &[&str]) -> Command {
            let mut command = quackd_testkit::program(env!("CARGO_BIN_EXE_quack"));
            command.args(args).stdin(Stdio::null()).current_dir(self.dir.path());
            command.env("RUBBER_DUCK_APP_SUPPORT", self.dir.path()).env("NO_COLOR", "1");
            command
        }

        fn run(&self, args: &[&str]) -> Output {
            self.quack(args).output().unwrap()
        }

        /// Returns the parameters of the only request of `method`.
        fn params_of(&self, method: &str) -> Value {
            let mut seen = self.requests.try_iter().filter(|request| request["method"] == method);
            seen.next().unwrap()["params"].clone()
        }
    }

    fn serve(stream: &UnixStream, socket: &PathBuf, seen: &Sender<Value>) {
        for line in BufReader::new(stream).lines() {
            let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if seen.send(request.clone()).is_err() {
                return;
            }
            if request["method"] == "quack.shutdown" {
                std::fs::remove_file(socket).unwrap();
            }
            if request["params"]["tool"] == "endless" {
                continue;
            }
            let mut reply = answer(&request);
            reply["id"] = request["id"].clone();
            let mut stream = stream;
            if writeln!(stream, "{reply}").is_err() {
                return;
            }
        }
    }

    fn answer(request: &Value) -> Value {
        match request["method"].as_str().unwrap() {
            "ping" => json!({"ok": true, "data": {
                "version": env!("CARGO_PKG_VERSION"), "uptime": 5, "clients": 1, "pid": 4_000_000,
                "startedAt": "2026-03-10T12:00:00Z", "protocol": 1, "build": "test"
            }}),
            "quack.tool" => tool_answer(request["params"]["tool"].as_str().unwrap()),
            "sessions" => json!({"ok": true, "data": {"sessions": [{
                "id": "s1", "name": "duck-1", "workspacePath": "/src/app", "isActive": true,
                "isRunning": false, "lastActiveAt": "2026-03-10T12:00:00Z"
            }]}}),
            "quack.find" => json!({"ok": true, "data": {"session": {
                "sessionId": "s1", "sessionName": "duck-1", "label": "app",
                "workspacePath": "/src/app", "by": "directory"
            }}}),
            "quack.cancel" => json!({"ok": true, "data": {"found": true}}),
            "abort" => json!({"ok": false, "error": "No running operation to abort"}),
            "quack.shutdown" => json!({"ok": true}),
            other => {
                json!({"ok": false, "error": format!("Unknown method: {other}"), "code": "unknown_method"})
            }
        }
    }

    fn tool_answer(tool: &str) -> Value {
        let data = match tool {
            "fine" => json!({"text": "a\tb", "exitCode": 0}),
            "read_file" => json!({"text": "a\tb"}),
            "failing" => json!({"text": "\n[Exit code: 3]", "exitCode": 3, "isError": true}),
            "missing" => json!({"text": "Error: File not found at 'x'"}),
            "late" => json!({"text": "…", "timedOut": true, "isError": true}),
            "busy" => json!({"text": "Error: busy", "busy": true, "isError": true}),
            other => panic!("unexpected tool {other}"),
        };
        json!({"ok": true, "data": data})
    }

    fn stdout(output: &Output) -> &str {
        std::str::from_utf8(&output.stdout).unwrap()
    }

    /// Without the line that names the session.
    fn stderr(output: &Output) -> &str {
        let text = std::str::from_utf8(&output.stderr).unwrap();
        text.strip_prefix("session app  /src/app\n").unwrap_or(text)
    }

    #[test]
    fn a_tools_answer_reaches_stdout_byte_by_byte_and_decides_the_exit_code() {
        let scene = Scene::with_daemon();
        for (tool, text, code) in [
            // Only the content of a file may end without a newline.
            ("read_file", "a\tb", 0),
            ("fine", "a\tb\n", 0),
            ("failing", "\n[Exit code: 3]\n", 1),
            ("missing", "Error: File not found at 'x'\n", 1),
            ("late", "…\n", 4),
            ("busy", "Error: busy\n", 4),
        ] {
            let output = scene.run(&["tool", tool, "x"]);
            assert_eq!((stdout(&output), output.status.code()), (text, Some(code)), "{tool}");
            let warns = stderr(&output).contains("`--timeout 5m` gives more time");
            assert_eq!((warns, warns || stderr(&output).is_empty()), (tool == "late", true));
        }
    }

    #[test]
    fn a_tool_call_carries_what_was_asked_for() {
        let scene = Scene::with_daemon();
        let args = r#"tool fine {"a":[1]} --session duck-1 --safe --timeout 3m"#;
        scene.run(&args.split(' ').collect::<Vec<_>>());
        let requests: Vec<Value> = scene.requests.try_iter().collect();
        let params_of = |method: &str| {
            let found = requests.iter().find(|request| request["method"] == method);
            found.unwrap()["params"].clone()
        };
        assert_eq!(params_of("quack.find")["sessionId"], "duck-1");
        let params = params_of("quack.tool");
        for (key, expected) in [
            ("tool", json!("fine")),
            ("arguments", json!({"a": [1]})),
            ("sessionId", json!("s1")),
            ("safeMode", json!(true)),
            ("timeoutMs", json!(180_000)),
        ] {
            assert_eq!(params[key], expected, "{key}");
        }
        scene.run(&["tool", "fine", "two words"]);
        let here = scene.dir.path().canonicalize().unwrap();
        let requests: Vec<Value> = scene.requests.try_iter().collect();
        let params = |method: &str| {
            let found = requests.iter().find(|request| request["method"] == method);
            let mut params = found.unwrap()["params"].clone();
            // The caller chooses any unused id.
            params.as_object_mut().unwrap().remove("callId");
            params
        };
        assert_eq!(params("quack.find"), json!({"path": here, "own": true}));
        assert_eq!(
            params("quack.tool"),
            json!({"tool": "fine", "arguments": "two words", "sessionId": "s1",
                   "defaultTimeoutMs": 120_000})
        );
    }

    #[test]
    fn a_dash_reads_the_argument_from_stdin() {
        let scene = Scene::with_daemon();
        let mut child = scene
            .quack(&["tool", "fine", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"echo 'a\nb'\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(scene.params_of("quack.tool")["arguments"], "echo 'a\nb'");
    }

    #[test]
    fn json_is_one_document_and_nothing_else() {
        let scene = Scene::with_daemon();
        let output = scene.run(&["tool", "failing", "x", "--json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&document["exitCode"], &document["isError"]), (&json!(3), &json!(true)));

        let output = scene.run(&["--json", "sessions"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let time = document[0]["lastActiveAt"].as_str().unwrap();
        assert!(time.len() == "2026-03-10T12:00:00+00:00".len(), "{time}");

        let output = scene.run(&["abort", "--json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["message"], "No running operation to abort");
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("No running operation to abort"), "{}", stderr(&output));
    }

    #[test]
    fn what_an_older_daemon_does_not_know_comes_with_the_way_to_a_newer_one() {
        let scene = Scene::with_daemon();
        let output = scene.run(&["metrics"]);
        assert_eq!((stdout(&output), output.status.code()), ("", Some(1)));
        let told = "error: Unknown method: quack.metrics; the daemon is another build of version ";
        assert!(stderr(&output).starts_with(told), "{}", stderr(&output));
        assert!(stderr(&output).contains("`quack restart` starts the program that is installed"));
    }

    #[test]
    fn without_a_daemon_each_verb_says_so_in_its_own_way() {
        let scene = Scene::without_daemon();
        for args in [&["ps"][..], &["abort"], &["ps", "--json"]] {
            let output = scene.run(args);
            assert_eq!(output.status.code(), Some(3), "{args:?}");
            assert!(stderr(&output).contains("the daemon is not running"), "{}", stderr(&output));
        }
        let output = scene.run(&["stop"]);
        assert_eq!(
            (stdout(&output), output.status.code()),
            ("The daemon is not running.\n", Some(0))
        );
        let output = scene.run(&["version"]);
        let version = format!("quack {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!((stdout(&output), output.status.code()), (version.as_str(), Some(0)));
    }

    #[test]
    fn what_cannot_work_is_refused_before_anything_is_done() {
        let scene = Scene::without_daemon();
        for (args, part) in [
            (&["/"][..], "name a directory in it"),
            (&["tool", "fine", "x", "-C", "/"], "name a directory in it"),
            (&["demo", "/"], "name a directory in it"),
            (&["follow", "-C", "/"], "name a directory in it"),
            (&["new", "/"], "name a directory in it"),
            (&["delete", "duck-1"], "--yes"),
            (&["run", "--", "true"], "-d starts the program without one, and `quack tool bash`"),
            (&["run", "-d", "--env", "NOT_SET_HERE"], "this shell has no such variable"),
            (&["run", "-d", "--network", "off", "--allow", "@github"], "--network hosts"),
            (&["attach"], "needs a terminal"),
            (&["play", "x.cast"], "needs a terminal"),
            (&["sesions"], "neither a subcommand nor a directory"),
            (&["tool", "fine", "x", "-C", "/no/such/directory"], "not a directory"),
            (&["tool"], "required"),
            (&["ps", "--colour"], "--color"),
        ] {
            let output = scene.run(args);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
        }
        assert_eq!(std::fs::read_dir(scene.dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn stop_waits_until_nobody_listens() {
        let scene = Scene::with_daemon();
        let output = scene.run(&["stop", "--json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((document["wasRunning"].as_bool(), output.status.code()), (Some(true), Some(0)));
        assert!(!scene.dir.path().join("daemon.sock").exists());
    }

    #[test]
    fn a_reader_that_goes_away_changes_nothing() {
        let scene = Scene::with_daemon();
        for (args, code) in
            [(&["tool", "failing", "x"][..], 1), (&["sessions"], 0), (&["version", "--json"], 0)]
        {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let child = scene.quack(args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!((stderr(&output), output.status.code()), ("", Some(code)), "{args:?}");
        }
    }

    #[test]
    fn an_interrupt_ends_the_verb_and_no_call_of_the_session() {
        let scene = Scene::with_daemon();
        let mut child = scene.quack(&["tool", "endless", "x"]).spawn().unwrap();
        let mut methods = Vec::new();
        while methods.last() != Some(&json!("quack.tool")) {
            methods.push(scene.requests.recv_timeout(PATIENCE).unwrap()["method"].clone());
        }
        interrupt(&child);
        // The first interrupt cancels this call only. The second one does not wait for its end.
        assert_eq!(scene.requests.recv_timeout(PATIENCE).unwrap()["method"], "quack.cancel");
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(scene.requests.try_iter().next().is_none(), "nothing else may be ended");
    }

    fn interrupt(child: &Child) {
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }
}

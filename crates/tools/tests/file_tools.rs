//! Tests of write_file and edit_file: every answer text, and the files afterwards.

// The texts of the system are those of Linux.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_protocol::CallId;
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, block_on, write_file};
    use quackd_tools::{Call, Output, Toolbox, execute};
    use serde_json::{Value, json};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use std::rc::Rc;
    use std::time::Duration;

    /// A session in a workspace next to a directory that no tool may change.
    struct Bench {
        base: TestDir,
        toolbox: Rc<Toolbox>,
    }

    impl Bench {
        fn new() -> Self {
            let base = TestDir::with(&["ws/src/deep", "run"]);
            base.write("outside/secret", "secret");
            let toolbox = Toolbox::new(base.join("ws"), base.join("run"), Vec::new(), false);
            let bench = Self { base, toolbox: Rc::new(toolbox) };
            bench.put("a.txt", b"one\ntwo\ntwo\n");
            for (target, link) in [
                ("a.txt", "link"),
                ("../outside/secret", "out"),
                ("../outside/new", "dangling-out"),
                ("made/by/link", "dangling-in"),
                ("../outside", "out-dir"),
            ] {
                symlink(target, bench.ws(link)).unwrap();
            }
            let read = rustix::fs::Mode::RUSR;
            rustix::fs::mkfifoat(rustix::fs::CWD, bench.ws("fifo"), read).unwrap();
            bench
        }

        fn ws(&self, name: &str) -> PathBuf {
            self.base.join("ws").join(name)
        }

        fn put(&self, name: &str, content: &[u8]) {
            write_file(self.ws(name), content);
        }

        /// Returns the content of a file. Invalid UTF-8 becomes U+FFFD.
        fn get(&self, name: &str) -> Option<String> {
            Some(String::from_utf8_lossy(&fs::read(self.ws(name)).ok()?).into_owned())
        }

        fn run(&self, tool: &str, arguments: &str, change: impl FnOnce(&mut Call)) -> Output {
            let mut call = Call {
                spec: CallSpec {
                    call_id: "c1".into(),
                    tool: tool.into(),
                    arguments: arguments.replace("BASE", self.base.to_str().unwrap()),
                    deadline_ms: 30_000,
                    ..CallSpec::default()
                },
                ..Call::default()
            };
            change(&mut call);
            block_on(execute(Rc::clone(&self.toolbox), call))
        }

        fn text(&self, tool: &str, arguments: &Value) -> String {
            self.run(tool, &arguments.to_string(), |_| ()).text
        }

        #[track_caller]
        fn check(&self, tool: &str, arguments: &str, expected: &str) {
            let output = self.run(tool, arguments, |_| ());
            let expected = expected.replace("BASE", self.base.to_str().unwrap());
            assert_eq!(output.text, expected, "{tool} {arguments}");
            assert_eq!(output.report.is_error, expected.starts_with("Error: "), "{arguments}");
        }

        /// Checks that nothing outside changed, and that no temporary file is left.
        #[track_caller]
        fn check_clean(&self) {
            let outside = fs::read_dir(self.base.join("outside")).unwrap();
            assert_eq!(outside.count(), 1);
            assert_eq!(fs::read_to_string(self.base.join("outside/secret")).unwrap(), "secret");
            let arguments = r#"{"pattern":"*quackd*","hidden":true,"ignore":"none"}"#;
            let left = self.run("find", arguments, |_| ()).data.unwrap().value();
            assert_eq!(left["entries"], json!([]));
        }
    }

    const NO_PATH: &str = "Error: Missing required parameter 'path'";
    const NO_CONTENT: &str = "Error: Missing required parameter 'content'";
    const NO_OLD: &str = "Error: Missing required parameter 'old_text'";
    const EDITED: &str = "Successfully edited a.txt";
    const NO_NEW: &str = "Error: Missing required parameter 'new_text'";
    const ESCAPES: &str = "Error: Path escapes workspace root";

    /// Arguments, the answer, and a file with its content afterwards.
    const WRITES: &[(&str, &str, &str, Option<&str>)] = &[
        (
            r#"{"path":"new","content":"é\n"}"#,
            "Successfully wrote 3 bytes to new",
            "new",
            Some("é\n"),
        ),
        (r#"{"file":"new","content":""}"#, "Successfully wrote 0 bytes to new", "new", Some("")),
        (r#"{"filepath":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", "n", Some("x")),
        (r#"{"file_path":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", "n", Some("x")),
        (r#"{"filename":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", "n", Some("x")),
        (
            r#"{"path":" ","file":"n","content":"x"}"#,
            "Successfully wrote 1 bytes to n",
            "n",
            Some("x"),
        ),
        (
            r#"{"path":"a.txt","content":"x"}"#,
            "Successfully wrote 1 bytes to a.txt",
            "a.txt",
            Some("x"),
        ),
        (
            r#"{"path":"x/y/../z/f","content":"x"}"#,
            "Successfully wrote 1 bytes to x/y/../z/f",
            "x/z/f",
            Some("x"),
        ),
        (
            r#"{"path":"BASE/ws/n","content":"x"}"#,
            "Successfully wrote 1 bytes to BASE/ws/n",
            "n",
            Some("x"),
        ),
        (
            r#"{"path":"link","content":"x"}"#,
            "Successfully wrote 1 bytes to link",
            "a.txt",
            Some("x"),
        ),
        (
            r#"{"path":"dangling-in","content":"x"}"#,
            "Successfully wrote 1 bytes to dangling-in",
            "made/by/link",
            Some("x"),
        ),
        (
            r#"{"path":"n","content":"a\r\n\u0000\ufeff"}"#,
            "Successfully wrote 7 bytes to n",
            "n",
            Some("a\r\n\0\u{feff}"),
        ),
        (r#"{"content":"x"}"#, NO_PATH, "n", None),
        (r#"{"path":" ","content":"x"}"#, NO_PATH, "n", None),
        (r#"{"path":"n"}"#, NO_CONTENT, "n", None),
        (r#"{"path":"n","content":5}"#, NO_CONTENT, "n", None),
        (r#"{"path":"n","content":null}"#, NO_CONTENT, "n", None),
        (r#"{"path":"n","text":"x"}"#, NO_CONTENT, "n", None),
        (r#"{"path":"../outside/n","content":"x"}"#, ESCAPES, "n", None),
        (r#"{"path":"BASE/outside/secret","content":"x"}"#, ESCAPES, "n", None),
        (r#"{"path":"out","content":"x"}"#, ESCAPES, "n", None),
        (r#"{"path":"dangling-out","content":"x"}"#, ESCAPES, "n", None),
        (r#"{"path":"out-dir/n","content":"x"}"#, ESCAPES, "n", None),
        (r#"{"path":"/etc/quackd-test","content":"x"}"#, ESCAPES, "n", None),
        (
            r#"{"path":"src","content":"x"}"#,
            "Error: Failed to write file: Error: EISDIR: illegal operation on a directory, open 'BASE/ws/src'",
            "n",
            None,
        ),
        (
            r#"{"path":".","content":"x"}"#,
            "Error: Failed to write file: Error: EISDIR: illegal operation on a directory, open 'BASE/ws/.'",
            "n",
            None,
        ),
        (
            r#"{"path":"a.txt/n","content":"x"}"#,
            "Error: Failed to write file: Error: ENOTDIR: not a directory, open 'BASE/ws/a.txt/n'",
            "a.txt",
            Some("one\ntwo\ntwo\n"),
        ),
        (
            r#"{"path":"fifo","content":"x"}"#,
            "Error: Failed to write file: not a regular file (fifo)",
            "n",
            None,
        ),
        (
            r#"{"path":"a\u0000b","content":"x"}"#,
            "Error: Failed to write file: Error: path contains a NUL byte, open 'BASE/ws/a\0b'",
            "n",
            None,
        ),
        (r#""n""#, "Error: Tool arguments must be a JSON object", "n", None),
    ];

    #[test]
    fn write_file_answers_and_writes() {
        for (arguments, expected, file, content) in WRITES {
            let bench = Bench::new();
            bench.check("write_file", arguments, expected);
            assert_eq!(bench.get(file).as_deref(), *content, "{arguments}");
            assert!(fs::symlink_metadata(bench.ws("link")).unwrap().is_symlink());
            bench.check_clean();
        }
        let long = "x".repeat(300);
        let expected = format!(
            "Error: Failed to write file: Error: ENAMETOOLONG: name too long, open 'BASE/ws/{long}'"
        );
        let arguments = json!({"path": long, "content": "x"}).to_string();
        Bench::new().check("write_file", &arguments, &expected);
    }

    /// Arguments, the answer, and the content of `a.txt` afterwards.
    const EDITS: &[(&str, &str, &str)] = &[
        (r#"{"path":"a.txt","old_text":"one","new_text":"1"}"#, EDITED, "1\ntwo\ntwo\n"),
        (r#"{"path":"a.txt","oldText":"one","newText":"1"}"#, EDITED, "1\ntwo\ntwo\n"),
        (r#"{"path":"a.txt","find":"one","replace":"1"}"#, EDITED, "1\ntwo\ntwo\n"),
        (
            r#"{"filename":"a.txt","old_text":"","find":"one","new_text":5,"replace":"1"}"#,
            EDITED,
            "1\ntwo\ntwo\n",
        ),
        (r#"{"path":"a.txt","old_text":"one\n","new_text":""}"#, EDITED, "two\ntwo\n"),
        (
            r#"{"path":"a.txt","old_text":"x\nt","new_text":" "}"#,
            "Error: old_text not found in file",
            "one\ntwo\ntwo\n",
        ),
        (r#"{"path":"a.txt","old_text":"e\nt","new_text":" "}"#, EDITED, "on wo\ntwo\n"),
        (
            r#"{"path":"a.txt","old_text":"one","new_text":"$& $$ $' \\1"}"#,
            EDITED,
            "$& $$ $' \\1\ntwo\ntwo\n",
        ),
        (r#"{"path":"a.txt","old_text":"two\ntwo","new_text":"\t"}"#, EDITED, "one\n\t\n"),
        (
            r#"{"path":"link","old_text":"one","new_text":"1"}"#,
            "Successfully edited link",
            "1\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"a.txt","old_text":"two","new_text":"x"}"#,
            "Error: old_text found 2 times (ambiguous edit)",
            "one\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"a.txt","old_text":"\n","new_text":"x"}"#,
            "Error: old_text found 3 times (ambiguous edit)",
            "one\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"a.txt","old_text":"ONE","new_text":"x"}"#,
            "Error: old_text not found in file",
            "one\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"a.txt","old_text":"one\r\n","new_text":"x"}"#,
            "Error: old_text not found in file",
            "one\ntwo\ntwo\n",
        ),
        (r#"{"old_text":"one","new_text":"x"}"#, NO_PATH, "one\ntwo\ntwo\n"),
        (r#"{"path":"a.txt","new_text":"x"}"#, NO_OLD, "one\ntwo\ntwo\n"),
        (r#"{"path":"a.txt","old_text":"","new_text":"x"}"#, NO_OLD, "one\ntwo\ntwo\n"),
        (r#"{"path":"a.txt","old_text":"one"}"#, NO_NEW, "one\ntwo\ntwo\n"),
        (r#"{"path":"a.txt","old_text":"one","new_text":null}"#, NO_NEW, "one\ntwo\ntwo\n"),
        (
            r#"{"path":"../outside/secret","old_text":"s","new_text":"x"}"#,
            ESCAPES,
            "one\ntwo\ntwo\n",
        ),
        (r#"{"path":"out","old_text":"secret","new_text":"x"}"#, ESCAPES, "one\ntwo\ntwo\n"),
        (
            r#"{"path":"no","old_text":"one","new_text":"x"}"#,
            "Error: Failed to edit file: Error: ENOENT: no such file or directory, open 'BASE/ws/no'",
            "one\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"no/no","old_text":"one","new_text":"x"}"#,
            "Error: Failed to edit file: Error: ENOENT: no such file or directory, open 'BASE/ws/no/no'",
            "one\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"dangling-in","old_text":"one","new_text":"x"}"#,
            "Error: Failed to edit file: Error: ENOENT: no such file or directory, open 'BASE/ws/dangling-in'",
            "one\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"src","old_text":"one","new_text":"x"}"#,
            "Error: Failed to edit file: Error: EISDIR: illegal operation on a directory, read",
            "one\ntwo\ntwo\n",
        ),
        (
            r#"{"path":"fifo","old_text":"one","new_text":"x"}"#,
            "Error: Failed to edit file: not a regular file (fifo)",
            "one\ntwo\ntwo\n",
        ),
    ];

    #[test]
    fn edit_file_answers_and_edits() {
        for (arguments, expected, content) in EDITS {
            let bench = Bench::new();
            bench.check("edit_file", arguments, expected);
            assert_eq!(bench.get("a.txt").as_deref(), Some(*content), "{arguments}");
            assert_eq!(bench.get("made/by/link"), None);
            bench.check_clean();
        }
    }

    #[test]
    fn edit_file_leaves_all_other_bytes_alone_and_has_a_limit() {
        let bench = Bench::new();
        bench.put("mixed", b"\xef\xbb\xbfa\r\n\xff\xfe\0b\n");
        fs::set_permissions(bench.ws("mixed"), fs::Permissions::from_mode(0o750)).unwrap();
        bench.check(
            "edit_file",
            r#"{"path":"mixed","old_text":"a\r\n","new_text":"c\n"}"#,
            "Successfully edited mixed",
        );
        assert_eq!(fs::read(bench.ws("mixed")).unwrap(), b"\xef\xbb\xbfc\n\xff\xfe\0b\n");
        let mode = fs::metadata(bench.ws("mixed")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o750);

        let arguments = r#"{"path":"big","old_text":"end","new_text":"x"}"#;
        let mut big = vec![b'.'; 16 * 1024 * 1024 - 3];
        big.extend(b"end");
        bench.put("big", &big);
        bench.check("edit_file", arguments, "Successfully edited big");
        big.push(b'.');
        bench.put("big", &big);
        bench.check("edit_file", arguments, "Error: File exceeds 16MB limit (16777217 bytes)");
    }

    #[test]
    fn safe_mode_comes_first() {
        let bench = Bench::new();
        for tool in ["write_file", "edit_file"] {
            let refused = format!("Error: {tool} is disabled in safe mode");
            let arguments = r#"{"path":"a.txt","content":"x","old_text":"one","new_text":"1"}"#;
            for arguments in [arguments, "{}"] {
                let output = bench.run(tool, arguments, |call| call.spec.safe_mode = true);
                assert_eq!(
                    (output.text.as_str(), output.report.is_error),
                    (refused.as_str(), true)
                );
            }
        }
        let found = bench.run("find", r#""a.txt""#, |call| call.spec.safe_mode = true);
        assert_eq!(found.text, "a.txt");
        assert_eq!(bench.get("a.txt").as_deref(), Some("one\ntwo\ntwo\n"));

        let toolbox = Toolbox::new(bench.base.join("ws"), bench.base.join("run"), Vec::new(), true);
        let safe = Bench { toolbox: Rc::new(toolbox), ..bench };
        safe.check("write_file", "{}", "Error: write_file is disabled in safe mode");
    }

    #[test]
    fn a_file_that_changed_since_this_session_saw_it_is_not_overwritten() {
        let stale =
            "Error: File changed since it was last read: 'a.txt'. Read it again before writing.";
        let write = json!({"path": "a.txt", "content": "ours"});
        let wrote = "Successfully wrote 4 bytes to a.txt";
        let bench = Bench::new();
        // A file that was never read is overwritten, and counts as read from then on.
        bench.put("a.txt", b"by an editor");
        assert_eq!(bench.text("write_file", &write), wrote);
        assert_eq!(bench.text("write_file", &write), wrote);
        bench.put("a.txt", b"by an editor!");
        assert_eq!(bench.text("write_file", &write), stale);
        assert_eq!(bench.get("a.txt").as_deref(), Some("by an editor!"));
        // Refused again, also by another name, until it is read by any name.
        assert_eq!(bench.text("write_file", &write), stale);
        let by_link = bench.text("write_file", &json!({"path": "link", "content": "ours"}));
        assert_eq!(by_link, stale.replace("a.txt", "link"));
        assert_eq!(bench.text("read_file", &json!({"path": "link"})), "by an editor!");
        assert_eq!(bench.text("write_file", &write), wrote);
        // An edit reads the file, so the file counts as read.
        bench.put("a.txt", b"by an editor!!");
        let edit = json!({"path": "a.txt", "old_text": "by an", "new_text": "by our"});
        assert_eq!(bench.text("edit_file", &edit), "Successfully edited a.txt");
        assert_eq!(bench.get("a.txt").as_deref(), Some("by our editor!!"));
        assert_eq!(bench.text("write_file", &write), wrote);
        // A deleted file is created again.
        fs::remove_file(bench.ws("a.txt")).unwrap();
        assert_eq!(bench.text("write_file", &write), wrote);
        bench.check_clean();
    }

    /// The second read of a file may be answered from memory, with the same texts.
    #[test]
    fn a_file_that_is_read_again_is_read_as_it_is_now() {
        let bench = Bench::new();
        let later = std::time::SystemTime::now() + Duration::from_secs(3600);
        let seem_read = |name: &str| {
            let times = fs::FileTimes::new().set_accessed(later);
            fs::File::open(bench.ws(name)).unwrap().set_times(times).unwrap();
        };
        let read = json!({"path": "a.txt"});
        for content in ["one\n", "two\n", "caf\u{e9} \u{1f986}\n", ""] {
            bench.put("a.txt", content.as_bytes());
            for _ in 0..3 {
                assert_eq!(bench.text("read_file", &read), content);
                seem_read("a.txt");
            }
        }
        bench.put("a.txt", b"one\ncaf\xe9\nthree\n");
        for _ in 0..2 {
            assert_eq!(bench.text("read_file", &read), "one\ncaf\u{fffd}\nthree\n");
            let line = json!({"path": "a.txt", "offset": 2, "limit": 1, "line_numbers": true});
            assert!(bench.text("read_file", &line).contains("caf\u{fffd}"));
            let beyond = json!({"path": "a.txt", "offset": 9});
            let refused = "Error: The file has 3 lines; offset 9 is beyond its end";
            assert_eq!(bench.text("read_file", &beyond), refused);
            seem_read("a.txt");
        }
        let aborted = bench.run("read_file", r#""a.txt""#, |call| call.cancel.cancel());
        assert_eq!(
            (aborted.text.as_str(), aborted.report.aborted),
            ("Error: read_file was aborted", true)
        );
        // A file that another program changed was not seen, although an older version was.
        bench.put("a.txt", b"by an editor");
        let write = json!({"path": "a.txt", "content": "ours"});
        assert!(bench.text("write_file", &write).starts_with("Error: File changed since"));
        fs::remove_file(bench.ws("a.txt")).unwrap();
        assert_eq!(bench.text("read_file", &read), "Error: File not found at 'a.txt'");
    }

    #[test]
    fn a_file_that_is_too_large_to_read_does_not_count_as_seen() {
        let bench = Bench::new();
        bench.put("big", &vec![b'x'; 1_048_577]);
        let refused = bench.text("read_file", &json!({"path": "big"}));
        assert_eq!(refused, "Error: File exceeds 1MB limit (1048577 bytes)");
        bench.put("big", b"changed");
        let text = bench.text("write_file", &json!({"path": "big", "content": "x"}));
        assert_eq!(text, "Successfully wrote 1 bytes to big");
    }

    #[test]
    fn calls_of_one_session_at_the_same_time_do_not_refuse_each_other() {
        let bench = Bench::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let call = |n: usize| Call {
            spec: CallSpec {
                call_id: CallId(format!("c{n}")),
                tool: "write_file".into(),
                arguments: json!({"path": "shared", "content": format!("{n:04}")}).to_string(),
                deadline_ms: 30_000,
                ..CallSpec::default()
            },
            ..Call::default()
        };
        let outputs = tokio::task::LocalSet::new().block_on(&runtime, async {
            let begun = (0..8)
                .map(|n| tokio::task::spawn_local(execute(Rc::clone(&bench.toolbox), call(n))));
            let mut outputs = Vec::new();
            for output in begun.collect::<Vec<_>>() {
                outputs.push(output.await.unwrap().text);
            }
            outputs
        });
        assert_eq!(outputs, ["Successfully wrote 4 bytes to shared"; 8]);
        assert_eq!(bench.get("shared").unwrap().len(), 4);
        bench.check_clean();
    }

    #[test]
    fn a_file_that_another_worker_holds_is_told_and_an_aborted_write_does_nothing() {
        let bench = Bench::new();
        let root = quackd_sandbox::Root::open(&bench.ws("")).unwrap();
        let write = r#"{"path":"a.txt","content":"ours"}"#;
        let held = root.open_target("a.txt", quackd_sandbox::Purpose::Write, &|| false).unwrap();
        bench.check(
            "write_file",
            write,
            "Error: Failed to write file: Error: EBUSY: resource busy or locked, open 'BASE/ws/a.txt'",
        );
        let late = bench.run("write_file", write, |call| call.spec.deadline_ms = 200);
        assert_eq!(late.text, "Error: write_file timed out after 0.2s");
        assert!(late.report.timed_out && late.report.is_error);
        drop(held);
        let aborted = bench.run("write_file", write, |call| call.cancel.cancel());
        assert_eq!(aborted.text, "Error: write_file was aborted");
        assert_eq!(bench.get("a.txt").as_deref(), Some("one\ntwo\ntwo\n"));
        bench.check("write_file", write, "Successfully wrote 4 bytes to a.txt");
    }

    #[test]
    fn a_file_that_may_not_be_written_is_refused_as_an_editor_would() {
        let bench = Bench::new();
        fs::set_permissions(bench.ws("a.txt"), fs::Permissions::from_mode(0o444)).unwrap();
        if fs::File::options().append(true).open(bench.ws("a.txt")).is_ok() {
            // Root can write everything, so the test is skipped.
            return;
        }
        let denied = "Error: EACCES: permission denied, open 'BASE/ws/a.txt'";
        bench.check(
            "write_file",
            r#"{"path":"a.txt","content":"x"}"#,
            &format!("Error: Failed to write file: {denied}"),
        );
        bench.check(
            "edit_file",
            r#"{"path":"a.txt","old_text":"one","new_text":"x"}"#,
            &format!("Error: Failed to edit file: {denied}"),
        );
    }
}

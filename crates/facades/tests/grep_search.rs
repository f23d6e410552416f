//! Tests of grep_search with a table: its arguments and the exact answer.

// The texts of the system are those of Linux.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_facades::execute;
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, write_file};
    use quackd_tools::{Call, Toolbox};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::rc::Rc;

    /// Creates a workspace with every file that the table names.
    fn workspace() -> TestDir {
        let dir = TestDir::with(&["run"]);
        let ws = dir.join("ws");
        let files: &[(&str, &[u8])] = &[
            ("a.txt", b"one\ntwo\nneedle 1\n"),
            ("src/b.rs", b"fn needle() {}\nfoo\n"),
            ("src/c.ts", b"needle // ts\r\nbar\n"),
            ("src/deep/d.ts", b"-V needle\n"),
            (".hidden", b"needle hidden\n"),
            (".gitignore", b"src\n"),
            (".git/config", b"needle\n"),
            (".build/x", b"needle\n"),
            ("src/node_modules/x.ts", b"needle\n"),
            ("binary", b"needle\0\n"),
            ("latin1", b"caf\xe9\n"),
            ("-dash", b"dash\n"),
        ];
        for (name, content) in files {
            write_file(ws.join(name), content);
        }
        dir.write("secret", "secret\n");
        for (target, link) in [
            ("../secret", "out"),
            ("../nowhere", "dangling-out"),
            ("a.txt", "link"),
            ("src", "link-dir"),
        ] {
            symlink(target, ws.join(link)).unwrap();
        }
        let read = rustix::fs::Mode::RUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, ws.join("fifo"), read).unwrap();
        dir
    }

    async fn check(base: &Path, arguments: &str, expected: &str) {
        let toolbox = Toolbox::new(base.join("ws"), base.join("run"), Vec::new(), true);
        let call = Call {
            spec: CallSpec {
                call_id: "c1".into(),
                tool: "grep_search".into(),
                arguments: arguments.replace("BASE", base.to_str().unwrap()),
                deadline_ms: 30_000,
                ..CallSpec::default()
            },
            ..Call::default()
        };
        let output = execute(Rc::new(toolbox), call).await;
        assert_eq!(output.text, expected, "{arguments}");
        assert_eq!(output.report.is_error, expected.starts_with("Error: "), "{arguments}");
    }

    #[tokio::test]
    async fn grep_search_answers_also_in_safe_mode() {
        let everywhere = ".hidden:1:needle hidden\na.txt:3:needle 1\nsrc/b.rs:1:fn needle() {}\n\
                          src/c.ts:1:needle // ts\r\nsrc/deep/d.ts:1:-V needle\n";
        let rows: &[(&str, &str)] = &[
            (r#"{"pattern":"needle"}"#, everywhere),
            (r#""needle""#, everywhere),
            (r#"{"query":"two"}"#, "a.txt:2:two\n"),
            (r#"{"pattern":1,"query":"","regex":"two"}"#, "a.txt:2:two\n"),
            (r#"{"pattern":"foo|bar$|^two"}"#, "a.txt:2:two\nsrc/b.rs:2:foo\nsrc/c.ts:2:bar\n"),
            (r#"{"pattern":"needle","path":"src/deep"}"#, "src/deep/d.ts:1:-V needle\n"),
            (
                r#"{"pattern":"needle","directory":"BASE/ws/src/deep"}"#,
                "src/deep/d.ts:1:-V needle\n",
            ),
            (r#"{"pattern":"needle","dir":"link-dir/deep"}"#, "src/deep/d.ts:1:-V needle\n"),
            (r#"{"pattern":"needle","path":"a.txt"}"#, "a.txt:3:needle 1\n"),
            (r#"{"pattern":"needle","path":"link"}"#, "a.txt:3:needle 1\n"),
            (r#"{"pattern":"needle","path":".git"}"#, ".git/config:1:needle\n"),
            (
                r#"{"pattern":"needle","include":"*.ts"}"#,
                "src/c.ts:1:needle // ts\r\nsrc/deep/d.ts:1:-V needle\n",
            ),
            (
                r#"{"pattern":"needle","include":"*.{rs,txt}"}"#,
                "a.txt:3:needle 1\nsrc/b.rs:1:fn needle() {}\n",
            ),
            (r#"{"pattern":"needle","include":"src/*.ts"}"#, "src/c.ts:1:needle // ts\r\n"),
            (
                r#"{"pattern":"needle","path":"src","include":"deep/*"}"#,
                "src/deep/d.ts:1:-V needle\n",
            ),
            (r#"{"pattern":"needle","include":""}"#, "No matches found"),
            (r#"{"pattern":"needle","include":5,"path":"a.txt"}"#, "a.txt:3:needle 1\n"),
            (r#"{"pattern":"-V"}"#, "src/deep/d.ts:1:-V needle\n"),
            (r#"{"pattern":"dash"}"#, "-dash:1:dash\n"),
            (r#"{"pattern":"caf"}"#, "latin1:1:caf\u{fffd}\n"),
            (r#"{"pattern":"NEEDLE"}"#, "No matches found"),
            (r#"{"pattern":"secret"}"#, "No matches found"),
            (
                r#"{"pattern":"foo\\|two"}"#,
                "a.txt:2:two\nsrc/b.rs:2:foo\n[Note: read as a basic regular expression, because \
                 the pattern matches nothing in Rust syntax]",
            ),
            ("{}", "Error: Missing required parameter 'pattern'"),
            (r#"{"pattern":"x","path":"../"}"#, "Error: Path escapes workspace root"),
            (r#"{"pattern":"x","path":"out"}"#, "Error: Path escapes workspace root"),
            (r#"{"pattern":"foo("}"#, "Error: grep failed with exit code 2: unclosed group"),
            (
                r#"{"pattern":"x","include":"["}"#,
                "Error: grep failed with exit code 2: invalid include pattern '[': \
                 unclosed character class; missing ']'",
            ),
            (
                r#"{"pattern":"x","path":"no/such"}"#,
                "Error: grep failed with exit code 2: grep: no/such: No such file or directory",
            ),
            (
                r#"{"pattern":"x","path":"fifo"}"#,
                "Error: grep failed with exit code 2: grep: fifo: not a regular file (fifo)",
            ),
        ];
        let base = workspace();
        for (arguments, expected) in rows {
            check(&base, arguments, expected).await;
        }
    }
}

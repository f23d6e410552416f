//! Tests every answer text with tables: a tool, its arguments and the exact answer.

// The texts of the commands in the tables are those of Linux.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_process::{Role, harden};
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, alone_blocking, block_on, write_file};
    use quackd_tools::{Call, Output, Toolbox, execute};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::rc::Rc;

    /// Creates a workspace with every file that the tables name.
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
            ("bom", b"\xef\xbb\xbfx\r\n"),
            ("empty", b""),
            ("-dash", b"dash\n"),
            ("with space", b"space\n"),
            ("Error", b"Error: this is only content\n"),
        ];
        for (name, content) in files {
            write_file(ws.join(name), content);
        }
        fs::write(ws.join("1MiB"), vec![b'x'; 1_048_576]).unwrap();
        fs::write(ws.join("1MiB+1"), vec![b'x'; 1_048_577]).unwrap();
        dir.write("secret", "secret\n");
        symlink("../secret", ws.join("out")).unwrap();
        symlink("../nowhere", ws.join("dangling-out")).unwrap();
        symlink("nowhere", ws.join("dangling-in")).unwrap();
        symlink("a.txt", ws.join("link")).unwrap();
        symlink("src", ws.join("link-dir")).unwrap();
        let read = rustix::fs::Mode::RUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, ws.join("fifo"), read).unwrap();
        dir
    }

    fn run(dir: &Path, safe_mode: bool, tool: &str, arguments: &str) -> Output {
        let env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let toolbox = Toolbox::new(dir.join("ws"), dir.join("run"), env, false);
        let call = Call {
            spec: CallSpec {
                call_id: "c1".into(),
                tool: tool.into(),
                arguments: arguments.into(),
                deadline_ms: 30_000,
                safe_mode,
                ..CallSpec::default()
            },
            ..Call::default()
        };
        block_on(execute(Rc::new(toolbox), call))
    }

    /// Runs every row. `BASE` in arguments and answers is the parent directory of the workspace.
    fn check(safe_mode: bool, rows: &[(&str, &str, &str)]) {
        // A command that runs alone also kills orphans of unknown origin, such as other tests' children.
        let _turn = alone_blocking(|| harden(Role::Worker).unwrap());
        let base = workspace();
        let base_text = base.to_str().unwrap();
        for (tool, arguments, expected) in rows {
            let arguments = arguments.replace("BASE", base_text);
            let output = run(&base, safe_mode, tool, &arguments);
            assert_eq!(output.text, expected.replace("BASE", base_text), "{tool} {arguments}");
            if *tool != "bash" {
                let is_error =
                    output.text.starts_with("Error: ") && !arguments.contains("\"Error\"");
                assert_eq!(output.report.is_error, is_error, "{tool} {arguments}");
            }
        }
    }

    #[test]
    fn the_dispatcher_checks_in_its_order() {
        check(
            false,
            &[
                ("read_file", "", "Error: Invalid JSON arguments"),
                ("nothing", "{", "Error: Invalid JSON arguments"),
                ("read_file", "[]", "Error: Tool arguments must be a JSON object"),
                ("read_file", "null", "Error: Tool arguments must be a JSON object"),
                ("nothing", r#""x""#, "Error: Tool arguments must be a JSON object"),
                ("write_file", r#""x""#, "Error: Tool arguments must be a JSON object"),
                ("nothing", "{}", "Error: Unknown tool 'nothing'"),
                ("", "{}", "Error: Unknown tool ''"),
                ("Bash", "{}", "Error: Unknown tool 'Bash'"),
            ],
        );
    }

    #[test]
    fn read_file_answers() {
        let mebibyte = "x".repeat(1_048_576);
        check(
            false,
            &[
                ("read_file", r#"{"path":"a.txt"}"#, "one\ntwo\nneedle 1\n"),
                ("read_file", r#""a.txt""#, "one\ntwo\nneedle 1\n"),
                ("read_file", r#"{"file":"empty"}"#, ""),
                ("read_file", r#"{"filepath":"empty"}"#, ""),
                ("read_file", r#"{"file_path":"empty"}"#, ""),
                ("read_file", r#"{"filename":"empty"}"#, ""),
                ("read_file", r#"{"path":5,"file":" ","filename":"empty","x":1}"#, ""),
                ("read_file", r#"{"path":"./src/../a.txt"}"#, "one\ntwo\nneedle 1\n"),
                ("read_file", r#"{"path":"BASE/ws/a.txt"}"#, "one\ntwo\nneedle 1\n"),
                ("read_file", r#"{"path":"link"}"#, "one\ntwo\nneedle 1\n"),
                ("read_file", r#"{"path":"with space"}"#, "space\n"),
                ("read_file", r#"{"path":"latin1"}"#, "caf\u{fffd}\n"),
                ("read_file", r#"{"path":"bom"}"#, "\u{feff}x\r\n"),
                ("read_file", r#"{"path":"binary"}"#, "needle\0\n"),
                ("read_file", r#"{"path":"Error"}"#, "Error: this is only content\n"),
                ("read_file", r#"{"path":"1MiB"}"#, &mebibyte),
                (
                    "read_file",
                    r#"{"path":"1MiB+1"}"#,
                    "Error: File exceeds 1MB limit (1048577 bytes)",
                ),
                ("read_file", "{}", "Error: Missing required parameter 'path'"),
                ("read_file", r#"{"path":"  "}"#, "Error: Missing required parameter 'path'"),
                ("read_file", r#"{"Path":"a.txt"}"#, "Error: Missing required parameter 'path'"),
                (
                    "read_file",
                    r#"{"path":"x/../no.txt"}"#,
                    "Error: File not found at 'x/../no.txt'",
                ),
                ("read_file", r#"{"path":" a.txt"}"#, "Error: File not found at ' a.txt'"),
                ("read_file", r#"{"path":"~/a.txt"}"#, "Error: File not found at '~/a.txt'"),
                (
                    "read_file",
                    r#"{"path":"dangling-in"}"#,
                    "Error: File not found at 'dangling-in'",
                ),
                ("read_file", r#"{"path":"../secret"}"#, "Error: Path escapes workspace root"),
                ("read_file", r#"{"path":"../missing"}"#, "Error: Path escapes workspace root"),
                ("read_file", r#"{"path":"/etc/passwd"}"#, "Error: Path escapes workspace root"),
                ("read_file", r#"{"path":"out"}"#, "Error: Path escapes workspace root"),
                ("read_file", r#"{"path":"dangling-out"}"#, "Error: Path escapes workspace root"),
                ("read_file", r#"{"path":"BASE/ws2/a"}"#, "Error: Path escapes workspace root"),
                (
                    "read_file",
                    r#"{"path":"src"}"#,
                    "Error: Failed to read file: Error: EISDIR: illegal operation on a directory, read",
                ),
                (
                    "read_file",
                    r#"{"path":"fifo"}"#,
                    "Error: Failed to read file: not a regular file (fifo)",
                ),
                (
                    "read_file",
                    r#"{"path":"a\u0000b"}"#,
                    "Error: Failed to read file: Error: path contains a NUL byte, open 'BASE/ws/a\0b'",
                ),
            ],
        );
    }

    #[test]
    fn bash_answers() {
        check(
            false,
            &[
                ("bash", r#""true""#, "\n[Exit code: 0]"),
                ("bash", r#"{"command":"printf hi"}"#, "hi\n[Exit code: 0]"),
                ("bash", r#"{"cmd":"echo hi; echo err >&2"}"#, "hi\n\nerr\n\n[Exit code: 0]"),
                ("bash", r#"{"command":" ","cmd":"exit 3"}"#, "\n[Exit code: 3]"),
                ("bash", r#"{"command":"kill -9 $$"}"#, "\n[Exit code: unknown]"),
                ("bash", r#"{"command":"pwd"}"#, "BASE/ws\n\n[Exit code: 0]"),
                ("bash", r#"{"command":"cat; echo eof"}"#, "eof\n\n[Exit code: 0]"),
                ("bash", r#"{"command":"echo ${BASH_VERSION:+bash}"}"#, "bash\n\n[Exit code: 0]"),
                ("bash", r#"{"command":"printf '\\377'"}"#, "\u{fffd}\n[Exit code: 0]"),
                ("bash", r#"{"command":"echo ok","timeout_ms":100000}"#, "ok\n\n[Exit code: 0]"),
                (
                    "bash",
                    r#"{"command":"sleep 30","timeout_ms":100}"#,
                    "\n[Process timed out after 0.1s and was terminated]\n[Exit code: unknown]",
                ),
                ("bash", "{}", "Error: Missing required parameter 'command'"),
                ("bash", r#"{"command":["ls"]}"#, "Error: Missing required parameter 'command'"),
            ],
        );
    }

    #[test]
    fn bash_answers_in_safe_mode() {
        check(
            true,
            &[
                ("bash", r#"{"command":"cat a.txt"}"#, "one\ntwo\nneedle 1\n\n[Exit code: 0]"),
                ("bash", r#"{"command":"cat 'with space'"}"#, "space\n\n[Exit code: 0]"),
                (
                    "bash",
                    r#"{"command":"cat empty && echo $HOME"}"#,
                    "cat: '&&': No such file or directory\ncat: echo: No such file or directory\n\
                 cat: '$HOME': No such file or directory\n\n[Exit code: 1]",
                ),
                ("bash", r#"{"command":"rm a.txt"}"#, "Error: Command not allowed in safe mode"),
                ("bash", r#"{"command":"/bin/ls"}"#, "Error: Command not allowed in safe mode"),
                ("bash", r#"{"command":"ls; id"}"#, "Error: Command not allowed in safe mode"),
                (
                    "bash",
                    r#"{"command":"find . -delete"}"#,
                    "Error: Command not allowed in safe mode",
                ),
                ("bash", r#"{"command":"ls 'a"}"#, "Error: Invalid command syntax in safe mode"),
                ("bash", "{}", "Error: Missing required parameter 'command'"),
                (
                    "bash",
                    r#"{"command":"xcodebuild test"}"#,
                    "Error: Failed to launch process: spawn xcodebuild ENOENT",
                ),
                ("read_file", r#"{"path":"empty"}"#, ""),
                ("search", r#"{"pattern":"two"}"#, "a.txt:2:two"),
            ],
        );
    }
}

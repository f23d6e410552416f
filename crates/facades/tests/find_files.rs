//! Tests of find_files: its arguments and the exact answer.

// The texts of the system are those of Linux.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_facades::execute;
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, block_on, write_file};
    use quackd_tools::{Call, Output, Toolbox};
    use serde_json::json;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::rc::Rc;

    /// A session in a workspace next to a directory that no tool may read.
    struct Bench {
        base: TestDir,
        toolbox: Rc<Toolbox>,
    }

    impl Bench {
        fn new() -> Self {
            let base = TestDir::with(&["ws/src/deep", "run"]);
            base.write("outside/secret", "secret");
            let toolbox = Toolbox::new(base.join("ws"), base.join("run"), Vec::new(), true);
            let bench = Self { base, toolbox: Rc::new(toolbox) };
            bench.put("a.txt");
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

        fn put(&self, name: &str) {
            write_file(self.ws(name), "");
        }

        fn run(&self, arguments: &str, change: impl FnOnce(&mut Call)) -> Output {
            let mut call = Call {
                spec: CallSpec {
                    call_id: "c1".into(),
                    tool: "find_files".into(),
                    arguments: arguments.replace("BASE", self.base.to_str().unwrap()),
                    deadline_ms: 30_000,
                    ..CallSpec::default()
                },
                ..Call::default()
            };
            change(&mut call);
            block_on(execute(Rc::clone(&self.toolbox), call))
        }

        #[track_caller]
        fn check(&self, arguments: &str, expected: &str) {
            let output = self.run(arguments, |_| ());
            assert_eq!(output.text, expected, "{arguments}");
            assert_eq!(output.report.is_error, expected.starts_with("Error: "), "{arguments}");
        }
    }

    #[test]
    fn find_files_answers() {
        let bench = Bench::new();
        for name in [
            "src/b.rs",
            "src/c.ts",
            "src/deep/D.TS",
            "src/node_modules/x.ts",
            ".hidden",
            ".git/config",
            ".build/x",
            ".github/ci.yml",
            "x y.md",
            "é.md",
            "a-b/f",
            "a/f",
            "Z",
        ] {
            bench.put(name);
        }
        let none = "Workspace scan complete: no non-hidden files found. Try include_hidden=true to list dotfiles.";
        let everything = "Z\na-b/f\na.txt\na/f\ndangling-in\ndangling-out\nlink\nout\nout-dir\n\
                          src/b.rs\nsrc/c.ts\nsrc/deep/D.TS\nx y.md\né.md";
        bench.put("empty/.keep");
        let rows: &[(&str, &str)] = &[
            ("{}", everything),
            (r#"{"pattern":" "}"#, everything),
            (r#"{"pattern":"**"}"#, everything),
            (r#"{"pattern":"*.ts"}"#, "src/c.ts\nsrc/deep/D.TS"),
            (r#""*.ts""#, "src/c.ts\nsrc/deep/D.TS"),
            (r#"{"glob":" *.ts "}"#, "src/c.ts\nsrc/deep/D.TS"),
            (r#"{"pattern":"*.{ts,md}"}"#, "src/c.ts\nsrc/deep/D.TS\nx y.md\né.md"),
            (r#"{"pattern":"!*.ts","path":"src"}"#, "src/b.rs"),
            (r#"{"pattern":"!(*.ts)","path":"src"}"#, "src/b.rs"),
            (r#"{"pattern":"src\\*.rs"}"#, "src/b.rs"),
            (r#"{"pattern":"deep/*","path":"src"}"#, "src/deep/D.TS"),
            (r#"{"pattern":"/c.ts","directory":"src"}"#, "src/c.ts"),
            (r#"{"pattern":"*","dir":"BASE/ws/a"}"#, "a/f"),
            (r#"{"pattern":"a","include_directories":true}"#, "a"),
            (r#"{"pattern":"a","include_directories":"true"}"#, "No files found matching 'a'"),
            (r#"{"pattern":".*","include_hidden":true}"#, ".hidden\nempty/.keep"),
            (r#"{"pattern":".*","include_hidden":1}"#, "No files found matching '.*'"),
            (r#"{"pattern":"*.yml","include_hidden":true}"#, ".github/ci.yml"),
            (r#"{"pattern":"*","path":".github"}"#, ".github/ci.yml"),
            (r#"{"pattern":"config","include_hidden":true}"#, "No files found matching 'config'"),
            (r#"{"path":".git"}"#, ".git/config"),
            (r#"{"path":"empty"}"#, none),
            (r#"{"pattern":" **/* ","path":"empty"}"#, none),
            (r#"{"pattern":" *.zig "}"#, "No files found matching ' *.zig '"),
            (r##"{"pattern":"#a"}"##, "No files found matching '#a'"),
            (r#"{"pattern":"./a.txt"}"#, "No files found matching './a.txt'"),
            (r#"{"pattern":"[b"}"#, "No files found matching '[b'"),
            (r#"{"pattern":"secret"}"#, "No files found matching 'secret'"),
            (r#"{"path":"none"}"#, "Error: Search path not found: 'none'"),
            (r#"{"path":"a.txt"}"#, "Error: Search path is not a directory: 'a.txt'"),
            (r#"{"path":"fifo"}"#, "Error: Search path is not a directory: 'fifo'"),
            (
                r#"{"path":"a\u0000b"}"#,
                "Error: Failed to access search path: path contains a NUL byte",
            ),
            (r#"{"path":".."}"#, "Error: Path escapes workspace root"),
            (r#"{"path":"out-dir"}"#, "Error: Path escapes workspace root"),
            (
                r#"{"pattern":"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"}"#,
                "Error: Invalid pattern: pattern stands for more than 1024 patterns",
            ),
        ];
        for (arguments, expected) in rows {
            bench.check(arguments, expected);
        }
    }

    #[test]
    fn find_files_cuts_after_sorting_and_only_when_more_exist() {
        let bench = Bench::new();
        let names: Vec<String> = (0..201).map(|n| format!("many/{n:03}")).collect();
        for name in names.iter().skip(1) {
            bench.put(name);
        }
        let arguments = json!({"path": "many"}).to_string();
        bench.check(&arguments, &names[1..].join("\n"));
        bench.put(&names[0]);
        let cut = names[..200].join("\n") + "\n[Results truncated at 200 entries]";
        bench.check(&arguments, &cut);
        let output = bench.run(&arguments, |_| ());
        let data = json!({"files": 200, "truncated": true, "timedOut": false, "unreadable": 0});
        assert_eq!((output.data, output.report.truncated), (Some(data.into()), true));
    }

    #[test]
    fn find_files_that_runs_out_of_time_keeps_what_it_found() {
        let bench = Bench::new();
        let late = bench.run("{}", |call| call.spec.deadline_ms = 0);
        let told = "Workspace scan complete: no non-hidden files found. Try include_hidden=true to list \
                    dotfiles.\n[Search timed out after 0s; results are incomplete]";
        assert_eq!(late.text, told);
        assert!(late.report.timed_out && !late.report.is_error);
        let aborted = bench.run("{}", |call| call.cancel.cancel());
        assert_eq!(aborted.text, "Error: find_files was aborted");
    }
}

//! Kills a process at any moment while it changes files and takes changes back. Afterwards every file is whole, and undoing
//! everything restores the files as they were before the first change.
//!
//! `QUACKD_KILLS=1000 cargo test -p quackd-tools --release --test undo_kills` is the long run.

#[cfg(test)]
mod tests {
    #![expect(clippy::print_stdout, reason = "output of the child, which the parent reads")]

    use quackd_protocol::worker::{CallOrigin, CallSpec, TurnOrigin};
    use quackd_testkit::{Random, TestDir, block_on, this_test};
    use quackd_tools::{Call, Output, Toolbox, execute};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::fs;
    use std::io::{BufRead as _, BufReader};
    use std::path::{Path, PathBuf};
    use std::process::Stdio;
    use std::rc::Rc;

    const DIRECTORY: &str = "QUACKD_TEST_CHANGING_IN";
    const N_FILES: u64 = 5;
    /// Changes of one child. A few lives stay below the limits of the journal.
    const N_STEPS: u64 = 60;

    /// A worker's tools in a directory with a workspace and a run directory.
    struct Worker {
        toolbox: Rc<Toolbox>,
    }

    impl Worker {
        fn at(base: &Path) -> Self {
            let toolbox = Toolbox::new(base.join("ws"), base.join("run"), Vec::new(), false);
            Self { toolbox: Rc::new(toolbox) }
        }

        fn run(&self, tool: &str, arguments: &Value, turn: u64) -> Output {
            let call = Call {
                spec: CallSpec {
                    call_id: "c".into(),
                    tool: tool.into(),
                    arguments: arguments.to_string(),
                    deadline_ms: 600_000,
                    origin: CallOrigin {
                        call: format!("call{turn}"),
                        turn: Some(TurnOrigin { number: turn, daemon: "d".into() }),
                    },
                    ..CallSpec::default()
                },
                ..Call::default()
            };
            block_on(execute(Rc::clone(&self.toolbox), call))
        }
    }

    fn content(text: &str, n: u64) -> String {
        format!("{text} {n}\n").repeat(200)
    }

    /// The child process. Does nothing when it runs as a normal test.
    #[test]
    fn child_that_is_killed() {
        let Some(base) = std::env::var_os(DIRECTORY) else { return };
        let seed = std::env::var("QUACKD_TEST_SEED").unwrap().parse().unwrap();
        let (worker, mut random) = (Worker::at(Path::new(&base)), Random::from_seed(seed));
        for step in 0..N_STEPS {
            let (turn, file) = (1 + step / 8, format!("f{}", random.below(2 * N_FILES)));
            let arguments = match random.below(5) {
                0 => json!({"undo_id": "last"}),
                1 => json!({"turn": 0}),
                _ => {
                    json!({"path": file, "content": content("agent", seed.wrapping_add(step) % 1_000_000)})
                }
            };
            let tool = if arguments.get("path").is_some() { "write_file" } else { "undo" };
            let _answer = worker.run(tool, &arguments, turn);
            println!("step {step}");
        }
    }

    /// The files of a workspace with their contents.
    fn contents(workspace: &Path) -> BTreeMap<PathBuf, String> {
        let entries = fs::read_dir(workspace).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
    }

    #[test]
    fn a_kill_at_any_moment_of_changes_and_undos_loses_nothing() {
        let n_kills = std::env::var("QUACKD_KILLS").ok().and_then(|text| text.parse().ok());
        let base = TestDir::empty();
        for n in 0..N_FILES {
            base.write(format!("ws/f{n}"), content("person", n));
        }
        let before = contents(&base.join("ws"));
        let seed = u64::from(std::process::id());
        let mut random = Random::from_seed(seed);
        let mut n_changed = 0;
        for kill in 0..n_kills.unwrap_or(12_u64) {
            // The journal of the last round is full of undone changes.
            drop(fs::remove_dir_all(base.join("run")));
            fs::create_dir(base.join("run")).unwrap();
            let mut command = this_test("tests::child_that_is_killed");
            command
                .env(DIRECTORY, base.path())
                .env("QUACKD_TEST_SEED", random.below(1 << 30).to_string());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let last = format!("step {}", random.below(N_STEPS - 1));
            // The first line begins with the name of the test.
            let is_there = lines.map_while(Result::ok).any(|line| line.ends_with(&last));
            assert!(is_there, "the child ended before {last}");
            // Some instructions of the next step.
            for _ in 0..random.below(2000) {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            child.wait().unwrap();

            let told = format!("seed {seed}, kill {kill}");
            let now = contents(&base.join("ws"));
            for (path, text) in now.iter().filter(|(path, _)| !is_staged(path)) {
                let mut lines: Vec<_> = text.lines().collect();
                assert_eq!(lines.len(), 200, "{told}: {}", path.display());
                lines.dedup();
                assert_eq!(lines.len(), 1, "{told}: {}", path.display());
            }
            n_changed += u32::from(now != before);

            let worker = Worker::at(&base);
            let mut n_undone = 0;
            loop {
                let answer = worker.run("undo", &json!({}), 99);
                if answer.text.starts_with("Error: There is nothing to undo") {
                    break;
                }
                n_undone += 1;
                assert!(n_undone <= 2 * N_STEPS, "{told}: {}", answer.text);
            }
            let mut after = contents(&base.join("ws"));
            // A killed write may leave its temporary file.
            after.retain(|path, _| !is_staged(path) || fs::remove_file(path).is_err());
            assert!(after == before, "{told}: {:?}", after.keys());
        }
        assert!(0 < n_changed, "nothing was changed at any kill");
    }

    fn is_staged(path: &Path) -> bool {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".quackd-"))
    }
}

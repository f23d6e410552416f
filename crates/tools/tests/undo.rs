//! Tests of undo after write_file, edit_file and replace: restored files, skipped files, and the list.

#[cfg(test)]
mod tests {
    use quackd_protocol::CallId;
    use quackd_protocol::worker::{CallOrigin, CallSpec, TurnOrigin};
    use quackd_testkit::{TestDir, block_on};
    use quackd_tools::{Call, Output, Toolbox, execute};
    use serde_json::{Value, json};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use std::rc::Rc;

    /// A session, whose calls are numbered.
    struct Bench {
        base: TestDir,
        toolbox: Rc<Toolbox>,
        turn: Option<u64>,
        daemon: &'static str,
        n_calls: u64,
    }

    impl Bench {
        fn new() -> Self {
            let base = TestDir::with(&["ws", "run"]);
            let toolbox =
                Rc::new(Toolbox::new(base.join("ws"), base.join("run"), Vec::new(), false));
            Self { base, toolbox, turn: None, daemon: "d1", n_calls: 0 }
        }

        /// The next worker of the session.
        fn next_worker(self) -> Self {
            let (ws, run) = (self.base.join("ws"), self.base.join("run"));
            Self { toolbox: Rc::new(Toolbox::new(ws, run, Vec::new(), false)), ..self }
        }

        fn ws(&self, name: &str) -> PathBuf {
            self.base.join("ws").join(name)
        }

        fn put(&self, name: &str, content: &str) {
            fs::write(self.ws(name), content).unwrap();
        }

        fn get(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.ws(name)).ok()
        }

        fn run(&mut self, tool: &str, arguments: &Value) -> Output {
            self.n_calls += 1;
            let turn = self.turn;
            let turn = turn.map(|number| TurnOrigin { number, daemon: self.daemon.to_owned() });
            let call = Call {
                spec: CallSpec {
                    call_id: CallId(format!("c{}", self.n_calls)),
                    tool: tool.into(),
                    arguments: arguments.to_string(),
                    deadline_ms: 60_000,
                    origin: CallOrigin { call: format!("call{}", self.n_calls), turn },
                    ..CallSpec::default()
                },
                ..Call::default()
            };
            block_on(execute(Rc::clone(&self.toolbox), call))
        }

        #[track_caller]
        fn ok(&mut self, tool: &str, arguments: &Value) -> Output {
            let output = self.run(tool, arguments);
            assert!(!output.report.is_error, "{tool} {arguments}: {}", output.text);
            output
        }

        #[track_caller]
        fn write(&mut self, path: &str, content: &str) {
            self.ok("write_file", &json!({"path": path, "content": content}));
        }

        #[track_caller]
        fn edit(&mut self, path: &str, old: &str, new: &str) {
            self.ok("edit_file", &json!({"path": path, "old_text": old, "new_text": new}));
        }

        /// Undoes, and returns the text.
        fn undo(&mut self, arguments: &Value) -> String {
            self.run("undo", arguments).text
        }

        fn list(&mut self) -> Vec<Value> {
            let output = self.ok("undo", &json!({"list": true}));
            let data = output.data.unwrap().value();
            data["entries"].as_array().unwrap().clone()
        }
    }

    #[test]
    fn changes_are_taken_back_one_by_one_and_can_be_made_again() {
        let mut bench = Bench::new();
        bench.put("a", "one\n");
        fs::set_permissions(bench.ws("a"), fs::Permissions::from_mode(0o640)).unwrap();
        bench.write("a", "two\n");
        bench.edit("a", "two", "three");
        bench.write("dir/new", "content");
        bench.ok("replace", &json!({"pattern": "three", "replacement": "four"}));
        // What changes nothing is not a change.
        bench.write("a", "four\n");
        assert!(bench.run("write_file", &json!({"path": "../out", "content": ""})).report.is_error);
        let mut bench = bench.next_worker();

        let first = bench.undo(&json!({}));
        assert_eq!(bench.get("a").unwrap(), "three\n", "{first}");
        let second = bench.undo(&json!({}));
        assert!(
            second.contains("\nDeleted, because the change had created it: dir/new\n"),
            "{second}"
        );
        assert_eq!(bench.get("dir/new"), None);
        bench.undo(&json!({}));
        assert_eq!(bench.get("a").unwrap(), "two\n");
        let last = bench.undo(&json!({}));
        assert_eq!(bench.get("a").unwrap(), "one\n");
        let mode = fs::metadata(bench.ws("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(bench.undo(&json!({})), "Error: There is nothing to undo");

        // An undo is undone by its id, also one that deleted a file.
        let redo = |text: &str| {
            let (_, id) = text.rsplit_once("undo_id ").unwrap();
            json!({"undo_id": id.trim_end_matches(']')})
        };
        bench.undo(&redo(&last));
        assert_eq!(bench.get("a").unwrap(), "two\n");
        bench.undo(&redo(&second));
        assert_eq!(bench.get("dir/new").unwrap(), "content");
        // The redone change is the last one again.
        bench.undo(&json!({}));
        assert_eq!(bench.get("dir/new"), None);
    }

    #[test]
    fn what_others_wrote_since_is_left() {
        let mut bench = Bench::new();
        bench.put("a", "old");
        bench.write("a", "agent");
        bench.write("new", "agent");
        bench.put("new", "person");
        let text = bench.undo(&json!({}));
        assert!(text.contains("[Not restored: new (changed since)]"), "{text}");
        assert_eq!(bench.get("new").unwrap(), "person");
        // The refused one stays the last; the older one is reachable by its id.
        let entries = bench.list();
        let older =
            &entries.iter().find(|entry| entry["changes"][0]["path"] == "a").unwrap()["undoId"];
        assert!(text.contains(older.as_str().unwrap()), "{text}");
        bench.undo(&json!({"undo_id": older}));
        assert_eq!(bench.get("a").unwrap(), "old");
    }

    #[test]
    fn a_turn_and_a_call_are_taken_back_as_a_whole() {
        let mut bench = Bench::new();
        bench.put("a", "1");
        bench.put("b", "1");
        bench.put("gone", "1");
        bench.turn = Some(1);
        bench.write("a", "turn 1");
        bench.turn = Some(2);
        bench.write("a", "2");
        bench.write("a", "3");
        bench.write("b", "2");
        bench.put("b", "person");
        bench.ok("read_file", &json!({"path": "b"}));
        bench.write("b", "3");
        bench.write("gone", "2");
        fs::remove_file(bench.ws("gone")).unwrap();
        bench.write("made", "x");
        bench.edit("made", "x", "y");
        bench.turn = None;
        bench.write("other", "by a client");

        let text = bench.undo(&json!({"turn": 0}));
        assert!(text.starts_with("Undid turn 2: restored 3 files\n"), "{text}");
        assert_eq!(bench.get("a").unwrap(), "turn 1");
        assert_eq!(bench.get("b").unwrap(), "person", "{text}");
        assert!(text.contains("another program had written between the changes: b"), "{text}");
        assert!(text.contains("[Not restored: gone (is gone)]"), "{text}");
        assert_eq!((bench.get("made"), bench.get("gone")), (None, None));
        assert_eq!(bench.get("other").unwrap(), "by a client");

        // Only the file that was left is still in force.
        let again = bench.undo(&json!({"turn": 0}));
        assert!(
            again.starts_with(
                "Error: None of the files of turn 2 could be restored\n[Not restored: gone"
            ),
            "{again}"
        );
        assert!(!again.contains("made"), "{again}");
        assert!(bench.undo(&json!({"turn": 7})).starts_with("Error: Turn 7 changed no file"));
        bench.undo(&json!({"turn": 1}));
        assert_eq!(bench.get("a").unwrap(), "1");
        let text = bench.undo(&json!({"turn": 1}));
        assert!(text.starts_with("Error: 'turn 1' is undone already"), "{text}");
        // Another daemon counts its turns anew.
        (bench.daemon, bench.turn) = ("d2", Some(1));
        bench.write("a", "today");
        bench.undo(&json!({"turn": 1}));
        assert_eq!(bench.get("a").unwrap(), "1");

        let call = json!({"call_id": bench.list().iter().find(|it| it["tool"] == "write_file"
            && it["changes"][0]["path"] == "other").unwrap()["callId"]});
        bench.undo(&call);
        assert_eq!(bench.get("other"), None);
        let both = bench.undo(&json!({"call_id": "x", "turn": 1}));
        assert!(
            both.starts_with("Error: Parameters 'undo_id', 'call_id' and 'turn' exclude"),
            "{both}"
        );
        assert!(bench.undo(&json!({"call_id": "x"})).starts_with("Error: Call x changed no file"));
    }

    #[test]
    fn what_is_listed_has_the_call_the_kind_and_the_diff() {
        let mut bench = Bench::new();
        bench.put("a", "one\ntwo\n");
        bench.put("binary", "\0one");
        bench.edit("a", "two", "three");
        bench.write("a", "four\n");
        bench.write("binary", "\0two");
        bench.turn = Some(3);
        bench.write("new", "x\n");
        bench.put("new", "y\n");
        let output = bench.ok("undo", &json!({"list": true, "diff": true}));
        let data = output.data.unwrap().value();
        let entries = data["entries"].as_array().unwrap();
        let file = |at: usize| &entries[at]["changes"][0];
        assert_eq!((&file(0)["change"], &entries[0]["turn"]), (&json!("created"), &json!(3)));
        assert_eq!(file(0)["noDiff"], "the file was changed since");
        assert_eq!(file(1)["noDiff"], "the file is binary");
        assert!(file(2)["diff"].as_str().unwrap().contains("-one\n-three\n+four\n"), "{data}");
        assert!(file(3)["diff"].as_str().unwrap().contains("-two\n+three\n"), "{data}");
        assert_eq!(
            (&entries[3]["tool"], &entries[3]["callId"]),
            (&json!("edit_file"), &json!("call1"))
        );
        assert!(entries[3]["atMs"].as_i64().unwrap() > 1_700_000_000_000);
        assert!(output.text.contains("new: created by write_file, turn 3"), "{}", output.text);

        let only = bench.ok("undo", &json!({"list": true, "diff": true, "call_id": "call1"}));
        assert!(only.text.contains("-two\n+three"), "{}", only.text);
        assert!(!only.text.contains("four"), "{}", only.text);
    }

    #[test]
    fn what_cannot_be_kept_is_told_and_written_all_the_same() {
        let mut bench = Bench::new();
        bench.put("large", &"x".repeat(17 * 1024 * 1024));
        let output = bench.ok("write_file", &json!({"path": "large", "content": "small"}));
        assert_eq!(output.text, "Successfully wrote 5 bytes to large");
        let hint = output.report.hint.unwrap();
        assert!(
            hint.contains("undo cannot take this change back: the old content has more"),
            "{hint}"
        );
        let refused = bench.undo(&json!({}));
        assert!(refused.contains("was made without a backup and cannot be undone"), "{refused}");
        assert_eq!(bench.get("large").unwrap(), "small");

        // A run directory that cannot be written.
        fs::remove_dir_all(bench.base.join("run")).unwrap();
        bench.put("run", "");
        fs::write(bench.base.join("run"), "a file").unwrap();
        let mut bench = bench.next_worker();
        let output = bench.ok("write_file", &json!({"path": "a", "content": "x"}));
        assert!(output.report.hint.unwrap().contains("the originals cannot be kept"));
        assert_eq!(bench.get("a").unwrap(), "x");
    }

    /// Commands of the session can write the journal. An undo of a forged change can only do what they can do.
    #[test]
    fn forged_changes_reach_nothing_outside_and_no_protected_name() {
        let mut bench = Bench::new();
        bench.put("a", "old");
        bench.write("a", "new");
        bench.base.write("outside/kept", "new");
        symlink("../outside", bench.ws("link")).unwrap();
        let journal = bench.base.join("run/journal");
        let segment = fs::read_dir(&journal).unwrap().next().unwrap().unwrap().path();
        let file = segment.join("changes");
        let real = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        for path in ["../outside/kept", "link/kept", "/etc/hostname", "a/../../outside/kept", ""] {
            fs::write(&file, real.replace("\"path\":\"a\"", &format!("\"path\":{path:?}")))
                .unwrap();
            bench.n_calls = 0;
            let text = bench.undo(&json!({}));
            assert!(text.starts_with("Error: None of the files"), "{path}: {text}");
            assert_eq!(bench.base.read("outside/kept"), "new", "{path}");
        }
        // A change whose old content was exchanged is not restored.
        fs::write(&file, real.replace("\nold\n", "\nbad\n")).unwrap();
        let text = bench.undo(&json!({}));
        assert!(text.contains("its original in the journal is damaged"), "{text}");
        assert_eq!(bench.get("a").unwrap(), "new");
    }
}

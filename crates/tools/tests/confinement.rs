//! Tests of refusals and explanations under each profile, and of git in safe mode. The kernel confines nothing
//! here: the test sets whether the worker is confined, and commands print typical errors.

// Processes can be counted on Linux only.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_process::{Role, harden};
    use quackd_protocol::denial::{Denial, DenialKind};
    use quackd_protocol::policy::{Policy, Profile};
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, Turn, alone};
    use quackd_tools::{Call, Confinement, Output, Toolbox, execute};
    use serde_json::{Value, json};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::rc::Rc;
    use std::sync::Arc;

    /// A session with exclusive execution. A command that runs alone also kills orphans of unknown origin,
    /// which would be other tests' children.
    struct Bench {
        toolbox: Rc<Toolbox>,
        base: TestDir,
        _turn: Turn,
    }

    impl Bench {
        async fn new(profile: Profile, is_confined: bool) -> Self {
            let turn = alone(|| harden(Role::Worker).unwrap()).await;
            let base = TestDir::with(&["run", "home"]);
            base.write("ws/f", "one\n");
            let env = [
                ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("HOME".to_owned(), base.join("home").display().to_string()),
            ];
            let policy = Policy { profile, ..Policy::default() };
            let confinement = Confinement::new(policy, is_confined, String::new());
            let toolbox = Toolbox {
                confinement: Arc::new(confinement),
                ..Toolbox::new(base.join("ws"), base.join("run"), env.into(), false)
            };
            Self { toolbox: Rc::new(toolbox), base, _turn: turn }
        }

        async fn call(&self, tool: &str, arguments: Value, safe_mode: bool) -> Output {
            let call = Call {
                spec: CallSpec {
                    call_id: "c1".into(),
                    tool: tool.into(),
                    arguments: arguments.to_string(),
                    deadline_ms: 30_000,
                    safe_mode,
                    ..CallSpec::default()
                },
                ..Call::default()
            };
            execute(Rc::clone(&self.toolbox), call).await
        }

        async fn run(&self, tool: &str, arguments: Value) -> Output {
            self.call(tool, arguments, false).await
        }

        fn ws(&self, name: &str) -> PathBuf {
            self.base.join("ws").join(name)
        }
    }

    fn calls_that_change_something(path: &str) -> [(&'static str, Value); 2] {
        [
            ("write_file", json!({"path": path, "content": "x"})),
            ("edit_file", json!({"path": path, "old_text": "one", "new_text": "1"})),
        ]
    }

    #[tokio::test]
    async fn without_confinement_nothing_is_changed_or_run_and_everything_is_read() {
        for profile in [Profile::WorkspaceWrite, Profile::ReadOnly] {
            let bench = Bench::new(profile, false).await;
            let [write, edit] = calls_that_change_something("f");
            let background = json!({"command": "echo x > made", "background": true});
            for (tool, arguments) in
                [write, edit, ("bash", json!("echo x > made")), ("bash", background)]
            {
                let output = bench.run(tool, arguments.clone()).await;
                let expected = format!(
                    "Error: {tool} needs confinement, and there is none on this system\n\
                     [Sandbox: running unconfined was denied ({profile}, network off). To \
                     allow it, without any confinement: quack sandbox set full-access]"
                );
                assert_eq!(output.text, expected);
                let denial = Denial::new(DenialKind::Unconfined, None, false);
                assert!(output.report.is_error);
                assert_eq!(output.report.denials, [denial]);
            }
            assert_eq!(bench.run("read_file", json!("f")).await.text, "one\n");
            assert_eq!(bench.run("search", json!("one")).await.text, "f:1:one");
            assert_eq!(bench.run("find", json!("*")).await.text, "f");
            assert_eq!(bench.run("jobs", json!({})).await.text, "No background jobs");
            assert!(!bench.ws("made").exists());
            assert_eq!(fs::read_to_string(bench.ws("f")).unwrap(), "one\n");
            // Safe mode has its own texts.
            let safe = bench.call("write_file", json!({}), true).await.text;
            assert_eq!(safe, "Error: write_file is disabled in safe mode");
        }
    }

    #[tokio::test]
    async fn the_profile_read_only_refuses_to_write_and_says_how_to_allow_it() {
        let bench = Bench::new(Profile::ReadOnly, true).await;
        for (tool, arguments) in calls_that_change_something("f") {
            let output = bench.run(tool, arguments).await;
            assert_eq!(
                output.text,
                "Error: Files cannot be written in the profile read-only\n\
                 [Sandbox: writing f was denied (read-only, network off). To allow it: \
                 quack sandbox set workspace-write]"
            );
            assert!(output.report.is_error);
            assert_eq!(output.report.denials, [Denial::new(DenialKind::Write, Some("f"), false)]);
        }
        assert_eq!(fs::read_to_string(bench.ws("f")).unwrap(), "one\n");
        // Errors in the arguments still come first. The kernel confines commands.
        let text = bench.run("write_file", json!({"content": "x"})).await.text;
        assert_eq!(text, "Error: Missing required parameter 'path'");
        assert_eq!(bench.run("bash", json!("cat f")).await.text, "one\n\n[Exit code: 0]");
    }

    #[tokio::test]
    async fn names_that_make_later_programs_run_code_are_refused_wherever_the_path_leads_there() {
        let bench = Bench::new(Profile::WorkspaceWrite, true).await;
        fs::create_dir_all(bench.ws(".git/hooks")).unwrap();
        fs::write(bench.ws(".git/config"), "one\n").unwrap();
        fs::write(bench.ws(".git/hooks/pre-push"), "one\n").unwrap();
        symlink(".git/hooks", bench.ws("scripts")).unwrap();
        symlink(".git/config", bench.ws("settings")).unwrap();
        symlink(".vscode/new/tasks.json", bench.ws("dangling")).unwrap();
        symlink(bench.ws(".git"), bench.ws("absolute")).unwrap();
        let absolute = bench.ws(".git/config");
        let cases = [
            (".git/hooks/pre-push", ".git/hooks/pre-push", "decides what git runs"),
            ("scripts/pre-push", ".git/hooks/pre-push", "decides what git runs"),
            ("scripts/new", ".git/hooks/new", "decides what git runs"),
            ("absolute/config", ".git/config", "decides what git runs"),
            ("settings", ".git/config", "decides what git runs"),
            (absolute.to_str().unwrap(), ".git/config", "decides what git runs"),
            (".git//hooks/./pre-push/", ".git/hooks/pre-push", "decides what git runs"),
            ("a/../.git/config", ".git/config", "decides what git runs"),
            (".GIT/config", ".GIT/config", "decides what git runs"),
            ("lib/.git", "lib/.git", "decides what git runs"),
            ("dangling", ".vscode/new/tasks.json", "decides what an editor runs"),
            ("pkg/.envrc", "pkg/.envrc", "is run when a shell or a tool starts"),
            (".claude/settings.json", ".claude/settings.json", "decides what an agent may do"),
        ];
        for (path, name, why) in cases {
            for (tool, arguments) in calls_that_change_something(path) {
                let output = bench.run(tool, arguments).await;
                let expected = format!(
                    "Error: '{name}' is protected: it {why}\n\
                     [Sandbox: writing {name} was denied (workspace-write, network off). Later \
                     programs of yours would run what stands there; a person can write it by hand]"
                );
                assert_eq!(output.text, expected, "{tool} {path}");
                let denial = Denial::new(DenialKind::Protected, Some(name), false);
                assert!(output.report.is_error);
                assert_eq!(output.report.denials, [denial]);
            }
        }
        for name in [".git/config", ".git/hooks/pre-push"] {
            assert_eq!(fs::read_to_string(bench.ws(name)).unwrap(), "one\n");
        }
        // No directory was created.
        for name in [".GIT", "lib", ".vscode", "pkg", ".claude", ".git/hooks/new"] {
            assert!(!bench.ws(name).exists(), "{name}");
        }
        // A path that leads out is refused with its own text, and ordinary names are written.
        let out = json!({"path": "../.git/config", "content": "x"});
        let text = bench.run("write_file", out).await.text;
        assert_eq!(text, "Error: Path escapes workspace root");
        for path in [".gitignore", "git/config", ".git/COMMIT_EDITMSG"] {
            let text = bench.run("write_file", json!({"path": path, "content": "x"})).await.text;
            assert_eq!(text, format!("Successfully wrote 1 bytes to {path}"));
        }
    }

    #[tokio::test]
    async fn full_access_refuses_nothing() {
        let bench = Bench::new(Profile::FullAccess, false).await;
        let hook = json!({"path": ".git/hooks/pre-push", "content": "x"});
        let output = bench.run("write_file", hook).await;
        assert_eq!(output.text, "Successfully wrote 1 bytes to .git/hooks/pre-push");
        assert_eq!(output.report.denials, []);
        let command = "echo \"touch: cannot touch '/etc/q': Read-only file system\"; exit 1";
        let output = bench.run("bash", json!(command)).await;
        assert_eq!(
            output.text,
            "touch: cannot touch '/etc/q': Read-only file system\n\n[Exit code: 1]"
        );
        assert_eq!(output.report.denials, []);
    }

    const LINE: &str = "[Sandbox: writing /etc/q was probably denied (workspace-write, network off). \
                        `quack sandbox explain /etc/q` shows the reason]";

    /// Two errors, of which the first is explained.
    const COMPLAINING: &str = "echo \"touch: cannot touch '/etc/q': Read-only file system\" >&2; \
                               echo 'curl: (6) Could not resolve host: example.com' >&2";

    fn complained() -> [Denial; 2] {
        [
            Denial::new(DenialKind::Write, Some("/etc/q"), true),
            Denial::new(DenialKind::Network, Some("example.com"), true),
        ]
    }

    #[tokio::test]
    async fn what_a_failed_command_was_denied_is_told_in_one_line_before_the_exit_code() {
        let bench = Bench::new(Profile::WorkspaceWrite, true).await;
        let output = bench.run("bash", json!(format!("{COMPLAINING}; sleep 60 & exit 3"))).await;
        let ended = "[1 background process was ended]";
        let expected = format!("{ended}\n{LINE}\n[Exit code: 3]");
        assert!(output.text.ends_with(&expected), "{}", output.text);
        assert_eq!(output.text.matches("[Sandbox: ").count(), 1);
        assert_eq!(output.report.denials, complained());
        assert_eq!(output.report.exit_code, Some(3));

        let succeeded = bench.run("bash", json!(COMPLAINING)).await;
        assert!(!succeeded.text.contains("[Sandbox: "), "{}", succeeded.text);
        assert_eq!(succeeded.report.denials, []);
    }

    #[tokio::test]
    async fn a_job_tells_it_at_its_end_and_reports_it_once() {
        let bench = Bench::new(Profile::WorkspaceWrite, true).await;
        let command = json!({"command": format!("{COMPLAINING}; exit 3"), "background": true});
        assert!(bench.run("bash", command).await.text.starts_with("Started background job job-1"));
        let mut cursor = 0;
        let ended = loop {
            let ask = json!({"job": "job-1", "cursor": cursor, "wait_ms": 20_000});
            let output = bench.run("job_output", ask).await;
            let data = output.data.clone().unwrap().value();
            cursor = data["cursor"].as_u64().unwrap();
            if data["running"] == false {
                break output;
            }
        };
        assert!(ended.text.ends_with(&format!("\n{LINE}\n[Exit code: 3]")), "{}", ended.text);
        assert_eq!(ended.report.denials, complained());
        for tool in ["job_output", "job_kill"] {
            let again = bench.run(tool, json!("job-1")).await;
            assert!(again.text.ends_with(&format!("\n{LINE}\n[Exit code: 3]")), "{}", again.text);
            assert_eq!(again.report.denials, []);
        }
    }

    #[tokio::test]
    async fn git_in_safe_mode_runs_no_program_that_settings_name() {
        let bench = Bench::new(Profile::FullAccess, false).await;
        let prepare = "git --version >&2 || exit 9; git init -q . && printf '*.txt diff=evil\\n' > .gitattributes && \
                       echo hello > a.txt && git add . && git -c user.name=a -c user.email=a@b commit -q -m x && \
                       echo dirty >> a.txt && \
                       git config --global diff.evil.textconv 'touch ../pwned; cat' && \
                       git config diff.evil.command 'touch ../pwned;:' && \
                       git config core.fsmonitor 'touch ../pwned;false' && \
                       git config core.pager 'touch ../pwned; cat' && \
                       printf '#!/bin/sh\\ntouch ../pwned\\n' > .git/hooks/post-index-change && \
                       chmod +x .git/hooks/post-index-change && touch a.txt";
        let prepared = bench.run("bash", json!(prepare)).await;
        if prepared.report.exit_code == Some(9) {
            // git is not installed, so the test is skipped.
            return;
        }
        assert_eq!(prepared.report.exit_code, Some(0), "{}", prepared.text);
        let (pwned, mut shown) = (bench.base.join("pwned"), Vec::new());
        for line in [
            "git diff",
            "git log -p",
            "git show",
            "git blame a.txt",
            "git annotate a.txt",
            "git reflog -p",
            "git reflog show -p",
            "git -p log -1",
            "git status",
            "git diff --no-index a.txt .gitattributes",
        ] {
            let output = bench.call("bash", json!(line), true).await;
            assert!(!pwned.exists(), "{line}: {}", output.text);
            let code = output.report.exit_code;
            let is_fine = code == Some(0) || (line.contains("--no-index") && code == Some(1));
            assert!(is_fine, "{line}: {}", output.text);
            shown.push(output.text);
        }
        assert!(shown[0].contains("\n+dirty\n"), "{}", shown[0]);
        for line in [
            "git grep -O'touch ../pwned;:' hello",
            "git grep -nO'touch ../pwned;:' hello",
            "git grep --open-files='touch ../pwned;:' hello",
            "git diff --ext-diff",
            "git log -p --textc",
            "git difftool -y -x 'touch ../pwned;:'",
        ] {
            let text = bench.call("bash", json!(line), true).await.text;
            assert_eq!(text, "Error: Command not allowed in safe mode", "{line}");
        }
        // Without safe mode, the same settings run a program, so the test can fail.
        bench.run("bash", json!("git diff")).await;
        assert!(pwned.exists());
    }
}

//! The command line in the first hour of a new user: empty references, completion in the real shells, the
//! prompt of `quack`, errors with `--json`, mistyped subcommands and arguments, and safe mode.

use crate::harness::{Daemon, Terminal, skipped, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// Runs a subcommand in a directory. Returns the exit code, stdout and stderr.
fn ran(daemon: &Daemon, dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = daemon.command(args);
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_empty_reference_means_no_session_in_every_verb() {
    let daemon = Daemon::start();
    let (one, other) = (daemon.repo("one"), daemon.repo("other"));
    let wire = daemon.wire();
    wire.attach(other.path());
    wire.attach(one.path());
    let known = || -> Vec<Value> {
        let all = wire.request("sessions", json!({"all": true}));
        let rows = all["sessions"].as_array().unwrap().iter();
        rows.map(|row| json!([row["id"], row["name"], row["isActive"]])).collect()
    };
    let before = known();
    for empty in ["", " ", "\t"] {
        for verb in [
            &["delete", "-y"][..],
            &["activate"],
            &["pin"],
            &["unpin"],
            &["tool", "bash", "touch acted", "--session"],
            &["sandbox", "set", "--network", "on", "--session"],
            &["sandbox", "show", "--session"],
            &["abort", "--session"],
            &["say", "hello", "--session"],
            &["follow", "--session"],
            &["state", "--session"],
            &["logs", "--session"],
            &["grep", "needle", "--session"],
            &["find", "--session"],
            &["replace", "needle", "thread", "--session"],
            &["undo", "--session"],
        ] {
            let (code, stdout, stderr) = ran(&daemon, other.path(), &[verb, &[empty]].concat());
            assert_eq!((code, stdout.as_str()), (Some(2), ""), "{verb:?} {empty:?}: {stderr}");
            assert!(stderr.contains("the reference is empty"), "{verb:?} {empty:?}: {stderr}");
        }
    }
    for verb in [&["tool", "bash", "touch acted", "-C", ""][..], &["new", ""], &[""]] {
        assert_eq!(ran(&daemon, one.path(), verb).0, Some(2), "{verb:?}");
    }
    assert_eq!(known(), before);
    assert!(!one.path().join("acted").exists() && !other.path().join("acted").exists());
    assert!(one.read("src/main.rs").contains("needle"));
}

#[test]
fn an_empty_reference_means_no_session_in_every_method_of_quackd() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call = json!({"tool": "bash", "arguments": {"command": "touch acted"}});
    for (method, more) in [
        ("quack.tool", call.clone()),
        ("quack.sandbox", json!({"action": "set", "network": true})),
        ("quack.sandbox", json!({"action": "show"})),
        ("quack.sandbox", json!({"action": "audit"})),
        ("quack.pin", json!({"pinned": true})),
        ("quack.kill", json!({})),
        ("quack.session_delete", json!({"force": true})),
    ] {
        for empty in ["", "  "] {
            let mut params = more.clone();
            params["sessionId"] = Value::from(empty);
            // A directory argument does not replace the empty reference.
            for has_path in [false, true] {
                if has_path && matches!(method, "quack.tool" | "quack.sandbox") {
                    params["path"] = Value::from(repo.path().to_str().unwrap());
                }
                let why = wire.refused(method, params.clone());
                let expected = match method {
                    "quack.session_delete" if empty == "  " => "Session not found:   ",
                    _ => "Session reference is required",
                };
                assert_eq!(why, expected, "{method} {params}");
            }
        }
    }
    for (method, mut params) in
        [("quack.tool", call), ("quack.sandbox", json!({})), ("quack.session_new", json!({}))]
    {
        params["path"] = Value::from("");
        assert_eq!(wire.refused(method, params), "The path is empty");
    }
    // Upstream's methods treat an empty reference as missing. The method that requires a reference
    // finds no session.
    assert_eq!(wire.request("get_state", json!({"sessionId": ""}))["sessionId"], session.id);
    let why = wire.refused("activate_session", json!({"sessionId": ""}));
    assert_eq!(why, "Session not found: ");
    assert!(!repo.path().join("acted").exists());
}

/// A world with two sessions and a job, and a directory with `quack` that is on the `PATH` of
/// shells.
struct Completing {
    daemon: Daemon,
    repo: std::path::PathBuf,
    path: String,
}

impl Completing {
    fn new(daemon: Daemon) -> Self {
        let bin = daemon.home().join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(QUACK, bin.join("quack")).unwrap();
        let repo = daemon.repo("one").path().to_owned();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        Self { daemon, repo, path }
    }

    fn with_sessions() -> Self {
        let daemon = Daemon::start();
        let wire = daemon.wire();
        wire.attach(daemon.repo("other").path());
        wire.request(
            "quack.session_new",
            json!({"path": daemon.repo("other").path(), "name": "review"}),
        );
        let world = Self::new(daemon);
        let wire = world.daemon.wire();
        let job = json!({"command": "sleep 600", "background": true});
        let call = json!({"tool": "bash", "arguments": job, "path": world.repo});
        let started = wire.request("quack.tool", call);
        assert!(started["text"].as_str().unwrap().contains("job-1"), "{started}");
        world
    }

    /// Command of a shell in this world; `None` if the shell is not installed.
    fn shell(&self, name: &str, args: &[&str]) -> Option<Command> {
        let found = std::env::split_paths(&self.path).find(|dir| dir.join(name).is_file());
        if found.is_none() {
            skipped(&format!("{name} is not installed"));
            return None;
        }
        let mut command = self.daemon.program_for_tests(name);
        command.args(args).env("PATH", &self.path).current_dir(&self.repo);
        Some(command)
    }

    fn script(&self, shell: &str) -> String {
        self.daemon.quack(&["completions", shell]).ok()
    }

    /// Candidates of bash or fish for the last of `words`; `None` if the shell is not installed.
    fn offered(&self, shell: &str, words: &[&str]) -> Option<Vec<String>> {
        let script = self.daemon.home().join(format!("script.{shell}"));
        std::fs::write(&script, self.script(shell)).unwrap();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (args, line) = match shell {
            "bash" => (
                &["--noprofile", "--norc", "-c"],
                format!(
                    ". '{}'; COMP_WORDS=({}); COMP_CWORD={}; \
                     \"$(complete -p quack | sed 's/.* -F \\([^ ]*\\) .*/\\1/')\" quack '{}' '{}'; \
                     printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                    script.display(),
                    quoted.join(" "),
                    words.len() - 1,
                    words[words.len() - 1],
                    words[words.len() - 2],
                ),
            ),
            _ => (
                &["--no-config", "--private", "-c"],
                format!("source '{}'; complete -C '{}'", script.display(), words.join(" ")),
            ),
        };
        let mut command = self.shell(shell, args)?;
        let output = command.arg(line).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{shell} {words:?}: {text}");
        let values = text.lines().filter_map(|line| line.split('\t').next());
        let mut values: Vec<String> =
            values.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect();
        values.sort();
        Some(values)
    }
}

/// Command lines whose last word is completed, and the candidates.
const COMPLETED: &[(&[&str], &[&str])] = &[
    (&["quack", "doct"], &["doctor"]),
    (&["quack", "sandbox", "se"], &["set"]),
    (&["quack", "config", "show", "--or"], &["--origin"]),
    (&["quack", "tool", "read"], &["read_file"]),
    (&["quack", "sandbox", "set", "w"], &["workspace-write"]),
    (&["quack", "sandbox", "set", "--web-search", "as"], &["ask"]),
    (&["quack", "state", "--session", "other/rev"], &["other/review"]),
    (&["quack", "delete", "oth"], &["other", "other/review"]),
    (&["quack", "pin", "on"], &["one"]),
    (&["quack", "tool", "job_kill", "j"], &["job-1"]),
    (&["quack", "models", "us"], &["use"]),
    (&["quack", "models", "use", "--ses"], &["--session"]),
    (&["quack", "use", "--eng"], &["--engine"]),
    (&["quack", "use", "--engine", "na"], &["native"]),
    (&["quack", "mcp", "install", "--excl"], &["--exclusive"]),
    (&["quack", "config", "set", "agent.max_t"], &["agent.max_turns"]),
    (&["quack", "schema", "tools", "write"], &["write_file"]),
    (&["quack", "login", "anth"], &["anthropic"]),
];

#[test]
fn bash_and_fish_complete_verbs_sessions_tools_jobs_and_profiles() {
    let world = Completing::with_sessions();
    for shell in ["bash", "fish"] {
        for (words, expected) in COMPLETED {
            // If the daemon does not reply in time, there are no candidates.
            wait_for(&format!("{shell} to complete {words:?} to {expected:?}"), || {
                let Some(offered) = world.offered(shell, words) else { return Some(()) };
                (offered == *expected).then_some(())
            });
        }
        if let Some(offered) = world.offered(shell, &["quack", "worke"]) {
            assert!(offered.is_empty(), "hidden verbs: {offered:?}");
        }
    }
}

#[test]
fn zsh_completes_verbs_sessions_tools_jobs_and_profiles() {
    let world = Completing::with_sessions();
    let functions = world.daemon.home().join("functions");
    std::fs::create_dir(&functions).unwrap();
    std::fs::write(functions.join("_quack"), world.script("zsh")).unwrap();
    let Some(zsh) = world.shell("zsh", &["-f", "-i"]) else { return };
    let zsh = Terminal::sized(zsh, Some((200, 50)));
    zsh.type_line(&format!("fpath=('{}' $fpath)", functions.display()));
    zsh.type_line("autoload -U compinit; compinit -u -D; setopt no_auto_menu no_beep; PS1=");
    zsh.type_line(
        "show() { zle -I; print -r -- \"BUFFER\"\"<$BUFFER>\" }; zle -N show; bindkey '^X' show",
    );
    zsh.type_line("print READ\"\"Y");
    zsh.see("READY");
    let mut is_first = true;
    for (words, expected) in COMPLETED {
        let begun = words.join(" ");
        let whole = format!("{} {}", words[..words.len() - 1].join(" "), expected[0]);
        wait_for(&format!("zsh to complete {begun:?}"), || {
            // Ctrl-U clears the line.
            zsh.press(&format!("\u{15}{begun}\t\u{18}"));
            zsh.see("BUFFER<");
            let shown = zsh.see(">");
            let shown = shown.trim_end_matches('>').trim_end();
            // The first TAB loads the file of the completion function, and completes as well.
            assert!(!is_first || shown == whole, "the first TAB: {shown:?}");
            is_first = false;
            (shown == whole).then_some(())
        });
    }
}

#[test]
fn a_completion_neither_starts_a_daemon_nor_waits_for_one_that_hangs() {
    let world = Completing::new(Daemon::absent());
    let words = ["quack", "state", "--session", ""];
    assert_eq!(world.offered("bash", &words).unwrap_or_default(), Vec::<String>::new());
    assert!(!world.daemon.app().exists(), "a completion makes no directory");

    let world = Completing::with_sessions();
    world.daemon.signal(Signal::SIGSTOP);
    let offered = world.offered("bash", &words);
    world.daemon.signal(Signal::SIGCONT);
    assert_eq!(offered.unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn the_help_of_a_tool_says_where_commands_start() {
    let world = Daemon::absent();
    let help = world.quack(&["tool", "bash", "--help"]).ok();
    assert!(help.contains("Commands start in the current directory"), "{help}");
    assert!(!help.contains("root of the workspace") && !help.contains("Answers"), "{help}");
    let help = world.quack(&["tool", "--help"]).ok();
    assert!(
        help.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("`exitCode` of the document"),
        "{help}"
    );
}

#[test]
fn quack_without_an_agent_has_no_prompt_and_names_no_key_of_an_app() {
    let mut daemon = Daemon::absent();
    let args = ["RUBBER_DUCK_PI_BINARY=/nonexistent/pi", QUACK, "daemon"];
    daemon.boot_with("/usr/bin/env", &args);
    let mut command = daemon.command(&[]);
    command.current_dir(daemon.repo("one").path());
    let person = Terminal::start(command);
    let mut shown = person.see("no prompt, because no agent can answer: ");
    shown += &person.see("/nonexistent/pi");
    // The events of the session are shown.
    let wire = daemon.wire();
    wire.attach(daemon.repo("one").path()).bash("echo hello");
    shown += &person.see("echo hello");
    person.interrupt();
    let (rest, code) = person.end();
    shown += &rest;
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Option+D") && !shown.contains("Enter=send"), "{shown}");
    assert!(!shown.contains("\n> "), "{shown:?}");

    // Ctrl-D leaves as well, also after lines that nobody reads.
    let mut command = daemon.command(&[]);
    command.current_dir(daemon.repo("one").path());
    let person = Terminal::start(command);
    person.see("Ctrl+C or Ctrl+D=leave");
    person.see("/nonexistent/pi");
    person.type_line("hello");
    person.ctrl_d();
    let (rest, code) = person.end();
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn with_json_every_error_is_one_document_on_stdout() {
    let daemon = Daemon::absent();
    let repo = daemon.repo("one");
    let refused = |args: &[&str], exit: i32, code: &str, part: &str| {
        let (ended, stdout, stderr) = ran(&daemon, repo.path(), args);
        assert_eq!(ended, Some(exit), "{args:?}: {stdout}{stderr}");
        let document: Value = serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {stdout:?} {stderr}"));
        let error = &document["error"];
        assert_eq!(document.as_object().unwrap().len(), 1, "{args:?}: {document}");
        assert_eq!(error["code"], code, "{args:?}: {document}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(part), "{args:?}: {document}");
        assert!(error["hint"].is_null() || error["hint"].is_string(), "{args:?}: {document}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
        error.clone()
    };
    let error = refused(&["ps", "--json"], 3, "no_daemon", "not running");
    assert!(error["hint"].as_str().unwrap().contains("quack"), "{error}");
    refused(&["--json", "tool"], 2, "usage", "required");
    refused(&["tool", "bash", "ls", "--timeout", "soon", "--json"], 2, "usage", "soon");
    refused(&["ps", "--jsn", "--json"], 2, "usage", "--jsn");
    refused(&["delete", "x", "--json"], 2, "usage", "--yes");
    refused(&["/nonexistent", "--json"], 2, "usage", "/nonexistent");
    refused(&["grep", "--json", "x", "-C", "/nonexistent"], 2, "usage", "/nonexistent");
    ran(&daemon, repo.path(), &["new"]);
    for verb in [
        &["state", "--session"][..],
        &["delete", "-y"],
        &["activate"],
        &["pin"],
        &["abort", "--session"],
        &["follow", "--session"],
        &["tool", "bash", "ls", "--session"],
        &["sandbox", "show", "--session"],
        &["logs", "--session"],
    ] {
        let args = [verb, &["duk-1", "--json"]].concat();
        let error = refused(&args, 1, "failed", "Session not found: duk-1");
        if verb[0] != "logs" {
            assert_eq!(error["hint"], "did you mean `one`?", "{verb:?}: {error}");
        }
    }
    refused(&["config", "--json"], 2, "usage", "");
    // Help is not an error.
    let (code, stdout, _) = ran(&daemon, repo.path(), &["ps", "--help", "--json"]);
    assert!(code == Some(0) && stdout.contains("Usage: quack ps"), "{stdout}");
}

#[test]
fn a_mistyped_verb_is_named_with_and_without_arguments() {
    let daemon = Daemon::absent();
    let repo = daemon.repo("one");
    for (line, near) in [
        (&["sesions"][..], "quack sessions"),
        (&["sesions", "--all"], "quack sessions"),
        (&["tol", "bash", "ls"], "quack tool"),
        (&["--color", "never", "delte", "-y", "x"], "quack delete"),
        (&["stte", "--session", "x"], "quack state"),
        (&["grp", "-i", "todo"], "quack grep"),
        (&["pss", "ps"], "quack ps"),
        (&["list"], "quack sessions"),
        (&["exec", "make", "test"], "quack tool bash"),
        (&["status"], "quack ps"),
        (&["sandbx", "set", "read-only"], "quack sandbox"),
    ] {
        let (code, stdout, stderr) = ran(&daemon, repo.path(), line);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{line:?}: {stderr}");
        let expected = format!("is neither a subcommand nor a directory; did you mean `{near}`?");
        assert!(stderr.contains(&expected), "{line:?}: {stderr}");
    }
    // A directory keeps its meaning.
    let (_, _, stderr) = ran(&daemon, repo.path(), &["src", "--all"]);
    assert!(stderr.contains("--all") && !stderr.contains("neither"), "{stderr}");
    assert!(!daemon.app().exists(), "nothing was started");
}

#[test]
fn broken_json_is_an_error_and_is_never_run() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    for arguments in [
        r#"{"command":"touch acted""#,
        r#"{"command":"touch acted"} x"#,
        r#"{"command" "touch acted"}"#,
        r#"{"a";touch acted"#,
        "{'command';touch acted}",
        "{command;touch acted",
        r#"["touch", "acted"]"#,
        r#"["a"; touch acted"#,
    ] {
        let (code, stdout, stderr) = ran(&daemon, repo.path(), &["tool", "bash", arguments]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments}: {stderr}");
        assert!(stderr.contains("JSON"), "{arguments}: {stderr}");
        let params = json!({"tool": "bash", "arguments": arguments, "path": repo.path()});
        let result = daemon.wire().request("quack.tool", params);
        let text = result["text"].as_str().unwrap();
        assert!(text.starts_with("Error: ") && text.contains("JSON"), "{arguments}: {result}");
    }
    assert!(!repo.path().join("acted").exists());
    // Shell groups, globs and patterns are not JSON.
    let (_, stdout, _) = ran(&daemon, repo.path(), &["tool", "bash", "{ echo hi; }"]);
    assert_eq!(stdout, "hi\n\n[Exit code: 0]\n");
    let (_, stdout, _) = ran(&daemon, repo.path(), &["tool", "find_files", "{main,x}.rs"]);
    assert_eq!(stdout, "src/main.rs\n");
}

#[test]
fn unknown_parameters_are_errors_except_on_upstreams_method() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    for (tool, arguments, text) in [
        (
            "bash",
            json!({"comand": "touch acted"}),
            "Error: Unknown parameter 'comand', did you mean 'command'?",
        ),
        (
            "bash",
            json!({"command": "touch acted", "backgroud": true}),
            "Error: Unknown parameter 'backgroud', did you mean 'background'?",
        ),
        (
            "read_file",
            json!({"path": "README.md", "encoding_of_it": "x"}),
            "Error: Unknown parameter 'encoding_of_it'",
        ),
        (
            "search",
            json!({"patern": "x"}),
            "Error: Unknown parameter 'patern', did you mean 'pattern'?",
        ),
    ] {
        let given = arguments.to_string();
        let (code, stdout, stderr) = ran(&daemon, repo.path(), &["tool", tool, &given]);
        assert_eq!((code, stdout.trim_end()), (Some(1), text), "{tool} {given}: {stderr}");
    }
    assert!(!repo.path().join("acted").exists());
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let text = session.call("bash", json!({"command": "echo hi", "backgroud": true}));
    assert_eq!(text, "hi\n\n[Exit code: 0]", "a voice model's slips stay allowed");
}

#[test]
fn a_deadline_is_seconds_and_its_end_says_what_to_do() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    // The deadline must not end during the start of the worker.
    assert_eq!(ran(&daemon, repo.path(), &["tool", "bash", "true"]).0, Some(0));
    let line = ["tool", "bash", "sleep 600", "--timeout", "1", "--color", "never"];
    let (code, stdout, stderr) = ran(&daemon, repo.path(), &line);
    assert_eq!(code, Some(4), "{stdout}{stderr}");
    assert!(stdout.contains("[Process timed out after "), "{stdout}");
    assert!(stderr.contains("--timeout 5m") && stderr.contains("background"), "{stderr}");
    let help = daemon.quack(&["tool", "--help"]).ok();
    assert!(help.contains("otherwise 2m"), "{help}");
    // The client sends the default to the daemon.
    let mut call = daemon.command(&["tool", "bash", "sleep 600"]);
    let mut call = call.current_dir(repo.path()).stdout(Stdio::null()).spawn().unwrap();
    let asked = wait_for("the call to run", || {
        let ps = daemon.wire().request("quack.ps", json!({}));
        let calls =
            ps["workers"].as_array()?.iter().find_map(|worker| worker["calls"].get(0).cloned());
        calls?["deadlineMs"].as_u64()
    });
    call.kill().unwrap();
    call.wait().unwrap();
    assert!((100_000..=120_000).contains(&asked), "{asked}");
}

#[test]
fn safe_mode_pipes_allowed_commands_and_names_its_rule() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let safe = |line: &str| ran(&daemon, repo.path(), &["tool", "bash", line, "--safe"]);
    let (code, stdout, stderr) = safe("cat src/main.rs | grep needle | wc -l");
    assert_eq!((code, stdout.as_str()), (Some(0), "1\n\n[Exit code: 0]\n"), "{stderr}");
    for line in
        ["cat README.md | sh", "ls | rm README.md", "rm README.md", "cat x | find . -delete"]
    {
        let (code, stdout, stderr) = safe(line);
        let refused = "Error: Command not allowed in safe mode";
        assert_eq!((code, stdout.trim_end()), (Some(1), refused), "{line}: {stderr}");
        assert!(stderr.contains("git, grep, rg") && stderr.contains("--help"), "{line}: {stderr}");
    }
    let (_, stdout, _) = safe("cat README.md '$(touch x)' | grep '|' ; touch x");
    assert!(!repo.path().join("x").exists(), "{stdout}");
}

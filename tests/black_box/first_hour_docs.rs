//! The README in the first hour of a new user: every command of its shell blocks runs, in order, in a fresh home.

use crate::harness::tier;
use crate::harness::{Daemon, Running, Terminal, wait_for, write_program};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

const QUACK: &str = env!("CARGO_BIN_EXE_quack");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_agent.py");
const PI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_pi.py");

/// Special treatment of a command that a shell without a terminal cannot run to its end.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Runs another command, for the given reason.
    Instead(&'static str, &'static str),
    /// Not run, for the given reason.
    Not(&'static str),
    /// Runs until it prints a line, then gets Ctrl-C.
    UntilCtrlC,
    /// Runs on a terminal and waits for the first text. Then the test types the second.
    Terminal(&'static str, &'static str),
    /// Needs a call that runs in this session.
    WithCallIn(&'static str),
}

/// The commands of the README that do not simply run and exit with 0. Each must be in the README.
const SPECIAL: &[(&str, How)] = &[
    ("cargo run --release -- demo", How::Instead("quack demo", "the program is built already")),
    ("cargo test --workspace", How::Not("this test is one of them")),
    ("quack", How::UntilCtrlC),
    ("quack follow --session review --json", How::UntilCtrlC),
    ("quack follow --session claude-code", How::UntilCtrlC),
    ("quack logs -f", How::UntilCtrlC),
    ("quack top", How::Terminal("MEMORY", "q")),
    (
        "quack run --isolated --allow @anthropic --allow @registries -- claude",
        How::Instead(
            "quack run --isolated --allow @anthropic -d -- true",
            "a real agent needs an account, and the registries need the tools of the user",
        ),
    ),
    ("quack tool bash 'make test' --session big", How::Not("there is no host build1")),
    ("quack delete review", How::Terminal("[y/N]", "y\n")),
    ("quack abort --session review", How::WithCallIn("review")),
    (
        "quack service install",
        How::Instead("quack service install --dry-run", "the home has no service manager"),
    ),
];

/// A fenced block: the word behind the fence, and the lines.
struct Block {
    tag: String,
    lines: Vec<String>,
}

impl Block {
    fn all_of(text: &str) -> Vec<Self> {
        let mut blocks: Vec<Self> = Vec::new();
        let mut fence: Option<&str> = None;
        for line in text.lines() {
            let bare = line.trim_start();
            let mark = ["```", "~~~"].into_iter().find(|mark| bare.starts_with(mark));
            match (fence, mark) {
                (None, Some(mark)) => {
                    let tag = bare.trim_start_matches(['`', '~']).trim().to_owned();
                    blocks.push(Self { tag, lines: Vec::new() });
                    fence = Some(mark);
                }
                (Some(open), Some(mark)) if open == mark => fence = None,
                (Some(_), _) => blocks.last_mut().unwrap().lines.push(line.to_owned()),
                (None, None) => (),
            }
        }
        assert_eq!(fence, None, "a fence is open at the end");
        blocks
    }

    /// The commands and the output that the block shows for each. Without prompts every line is a command.
    fn commands(&self) -> Vec<(String, Vec<String>)> {
        let prompts = self.lines.iter().any(|line| line.starts_with("$ "));
        let mut commands: Vec<(String, Vec<String>)> = Vec::new();
        for line in self.lines.iter().filter(|line| !line.trim().is_empty()) {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
                (None, Some((_, shown))) if prompts => shown.push(line.clone()),
                (None, _) if prompts => panic!("output before the first command: {line}"),
                (None, _) => commands.push((line.clone(), Vec::new())),
            }
        }
        commands
    }
}

/// The line without its comment and the spaces before it.
fn uncommented(line: &str) -> &str {
    line.split(" #").next().unwrap_or(line).trim()
}

/// The line with `#` for each number and each duration.
fn masked(line: &str) -> String {
    let number =
        |word: &str| word.trim_end_matches(',').chars().all(|c| c.is_ascii_digit() || c == '.');
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        let is_unit = matches!(word, "ms" | "s" | "µs") && words.last() == Some(&"#");
        if !is_unit {
            words.push(if number(word) { "#" } else { word });
        }
    }
    words.join(" ")
}

/// A fresh home with a small repository, in which quackd never ran.
struct World {
    daemon: Daemon,
}

impl World {
    fn new() -> Self {
        let world = Self { daemon: Daemon::absent() };
        let home = world.daemon.home();
        for dir in ["bin", "app/src", "src/app", "fake"] {
            fs::create_dir_all(home.join(dir)).unwrap();
        }
        symlink(QUACK, home.join("bin/quack")).unwrap();
        let fake = home.join("fake");
        world.program("pi", &format!("FAKE_PI_DIR={} exec {PI} \"$@\"", fake.display()));
        let agent = |name, file| format!("exec python3 {AGENT} {name} \"$HOME/{file}\"");
        world.program("claude", &agent("claude-code", ".claude.json"));
        world.program("codex", &agent("codex-mcp-client", ".codex/config.toml"));
        world.program("npm", "echo ready; exec sleep 600");
        let app = home.join("app");
        fs::write(app.join("src/main.rs"), "// TODO: old\nfn main() {}\n").unwrap();
        fs::write(app.join("Makefile"), "test:\n\t@echo tested\n").unwrap();
        fs::write(home.join("src/app/lib.rs"), "fn main() {}\n").unwrap();
        let git = "git init -q . && git add -A && \
            git -c user.name=a -c user.email=a@example.org commit -q -m first";
        assert_eq!(world.run(git).0, Some(0), "git");
        fs::write(app.join("src/main.rs"), "// TODO: an old thing\nfn main() {}\n").unwrap();
        world
    }

    fn program(&self, name: &str, script: &str) {
        let file = self.daemon.home().join("bin").join(name);
        write_program(&file, format!("#!/bin/sh\n{script}\n"));
    }

    /// The command in a shell in the repository, with the default state directory of the home.
    fn shell(&self, line: &str) -> Command {
        let home = self.daemon.home();
        let mut shell = self.daemon.program_for_tests("bash");
        let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap());
        shell.args(["-c", line]).current_dir(home.join("app")).env("PATH", path);
        shell.env_remove("RUBBER_DUCK_APP_SUPPORT").env_remove("EXA_API_KEY");
        // Otherwise the agent of quackd would ask a server outside, because there is a key.
        shell.env("OPENAI_API_KEY", "sk-test").env("RUBBER_DUCK_PI_BINARY", home.join("bin/pi"));
        shell
    }

    /// The exit code, stdout and stderr.
    fn run(&self, line: &str) -> (Option<i32>, String, String) {
        let output = self.shell(line).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Runs a line of the README and returns its output.
    fn run_as_shown(&self, line: &str, how: Option<How>) -> String {
        match how {
            None => self.succeeds(line),
            Some(How::Instead(other, _)) => self.succeeds(other),
            Some(How::Not(_)) => String::new(),
            Some(How::UntilCtrlC) => self.until_ctrl_c(line),
            Some(How::Terminal(shown, keys)) => self.on_a_terminal(line, shown, keys),
            Some(How::WithCallIn(session)) => {
                let call = Running::start(self.shell(&format!(
                    "exec quack tool bash 'tail -f Makefile' --session {session} --timeout 5m"
                )));
                let state = format!("quack state --session {session} --json");
                wait_for("the call to run", || {
                    let state: Value = serde_json::from_str(&self.run(&state).1).ok()?;
                    (state["worker"]["state"] == "busy").then_some(())
                });
                let text = self.succeeds(line);
                assert_eq!(call.wait().0, Some(1), "{line}");
                text
            }
        }
    }

    #[track_caller]
    fn succeeds(&self, line: &str) -> String {
        let (code, stdout, stderr) = self.run(line);
        assert_eq!(code, Some(0), "{line}\n{stdout}\n{stderr}");
        stdout
    }

    fn until_ctrl_c(&self, line: &str) -> String {
        let verb = Running::start(self.shell(&format!("exec {line}")));
        // A follower prints only later events, so repeat events until it prints one.
        let first = wait_for("a line", || {
            for session in ["review", "claude-code"] {
                self.succeeds(&format!(
                    "quack tool read_file Makefile --session {session} || quack ps"
                ));
            }
            verb.line_within(std::time::Duration::from_millis(100))
        });
        let (code, stderr) = verb.interrupt();
        assert!(matches!(code, Some(0 | 130)), "{line}: {code:?} {stderr}");
        first
    }

    fn on_a_terminal(&self, line: &str, shown: &str, keys: &str) -> String {
        let shell = self.shell(&format!("exec {line}"));
        let terminal = Terminal::sized(shell, Some((100, 30)));
        let text = terminal.see(shown);
        terminal.press(keys);
        let (rest, code) = terminal.end();
        assert_eq!(code, Some(0), "{line}: {text}{shown}{rest}");
        text + &rest
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.run("quack stop"));
    }
}

fn readme() -> String {
    fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap()
}

#[test]
fn the_readmes_commands_run_in_order_in_a_fresh_home() {
    let world = World::new();
    let mut left: BTreeSet<&str> = SPECIAL.iter().map(|(line, _)| *line).collect();
    let mut outputs = Vec::new();
    for block in Block::all_of(&readme()).iter().filter(|block| block.tag != "text") {
        for (line, shown) in block.commands() {
            let line = uncommented(&line);
            let special = SPECIAL.iter().find(|(special, _)| *special == line);
            left.remove(line);
            let output = world.run_as_shown(line, special.map(|(_, how)| *how));
            let plain: Vec<String> = output.lines().map(masked).collect();
            for expected in shown {
                assert!(plain.contains(&masked(&expected)), "{line}: no {expected:?} in\n{output}");
            }
            outputs.push((line.to_owned(), output));
        }
    }
    assert_eq!(left, BTreeSet::new(), "no longer in the README");
    assert_eq!(world.run("quack ps").0, Some(3), "the last command stops the daemon");
    let of = |command: &str| &outputs.iter().find(|(line, _)| line == command).unwrap().1;
    shows_what_the_readme_shows(of("cargo run --release -- demo"), of("quack top"));
}

/// Asserts that this test covers every README block that shows output.
fn shows_what_the_readme_shows(demo: &str, top: &str) {
    let mut known = BTreeSet::new();
    for block in Block::all_of(&readme()).iter().filter(|block| block.tag == "text") {
        let text = block.lines.join("\n");
        let expected = block.lines.iter().map(|line| masked(&line.replace("/home/me/app", "DIR")));
        if text.contains("quack-monitor") {
            known.insert("diagram");
        } else if text.contains("✓ kill -9") {
            known.insert("demo");
            let line = |line: &str| -> Vec<String> {
                // The directory of the repository differs.
                let words = line
                    .split_whitespace()
                    .map(|word| if word.ends_with("/app,") { "DIR," } else { word });
                vec![masked(&words.collect::<Vec<_>>().join(" "))]
            };
            let shown: Vec<String> = demo.lines().flat_map(line).collect();
            for expected in expected {
                assert!(shown.contains(&expected), "no {expected:?} in\n{demo}");
            }
        } else if text.contains("loop lag") {
            known.insert("top");
            let words: BTreeSet<&str> = top.split(|c: char| !c.is_alphanumeric()).collect();
            for part in block
                .lines
                .iter()
                .filter(|line| line.contains("SESSION") || line.contains("q quit"))
            {
                for word in part.split_whitespace().map(|word| word.trim_matches(['[', ']', '%'])) {
                    assert!(words.contains(word) || top.contains(word), "no {word:?} in\n{top}");
                }
            }
        } else if text.contains("Nothing was written: 1 conflict.") {
            // `isolated::` runs such sessions without a model.
            known.insert("two agents");
        } else if text.contains("CONNECT tunnel failed") {
            // `agent::` runs such turns with a scripted model server; the README's test has none.
            known.insert("turn");
        } else {
            panic!("a block of text that this test does not know:\n{text}");
        }
    }
    assert_eq!(known, BTreeSet::from(["diagram", "demo", "top", "turn", "two agents"]));
}

/// Returns true if the text contains names or numbers of system errors, which texts for users must
/// not contain.
fn has_codes(text: &str) -> bool {
    let codes =
        ["EISDIR", "ENOENT", "EACCES", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "EPERM", "EEXIST"];
    codes.iter().any(|code| text.contains(code)) || text.contains("os error")
}

/// Paths in a repository that are not readable files, each with words that explain the reason.
fn bad_paths(repo: &Path) -> Vec<(String, &'static str)> {
    fs::create_dir(repo.join("d")).unwrap();
    fs::write(repo.join("f"), "x").unwrap();
    fs::write(repo.join("closed"), "x").unwrap();
    fs::set_permissions(repo.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::create_dir(repo.join("shut")).unwrap();
    fs::set_permissions(repo.join("shut"), fs::Permissions::from_mode(0o0)).unwrap();
    symlink("loop", repo.join("loop")).unwrap();
    vec![
        ("d".to_owned(), "is a directory"),
        ("loop".to_owned(), "link"),
        ("f/x".to_owned(), "through a file"),
        ("closed".to_owned(), "permission denied"),
        ("shut/x".to_owned(), "permission denied"),
        ("n".repeat(300), "is too long"),
        ("none/x".to_owned(), "does not exist"),
    ]
}

#[test]
fn file_tools_explain_a_failure_in_plain_words() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let mut paths = bad_paths(repo.path());
    // In the tier of macOS a worker of user 0 may read every file.
    paths.retain(|(_, words)| !(tier::is_macos() && *words == "permission denied"));
    let wire = daemon.wire();
    wire.attach(repo.path());
    for (path, words) in &paths {
        for (tool, more) in [
            ("read_file", json!({})),
            ("edit_file", json!({"old_text": "x", "new_text": "y"})),
            ("write_file", json!({"content": "x"})),
        ] {
            let mut arguments = more.clone();
            arguments["path"] = json!(path);
            if tool == "write_file" && path == "none/x" {
                continue; // `write_file` creates the directory.
            }
            let params = json!({"tool": tool, "arguments": arguments, "path": repo.path()});
            let reply = wire.request("quack.tool", params);
            let text = reply["text"].as_str().unwrap();
            let cli = daemon.quack(&[
                "tool",
                tool,
                &arguments.to_string(),
                "-C",
                repo.path().to_str().unwrap(),
            ]);
            let shown = cli.stdout() + &cli.stderr();
            assert_eq!(cli.code(), Some(1), "{tool} {path}: {shown}");
            assert!(shown.starts_with("Error: ") && !has_codes(&shown), "{tool} {path}: {shown}");
            // Upstream's own texts are fine if they contain no error code.
            if !has_codes(text) {
                continue;
            }
            let hint = reply["hint"].as_str().unwrap_or_else(|| panic!("no hint: {reply}"));
            // For a path inside a file, upstream's edit reports that the file does not exist.
            let is_missing = tool == "edit_file" && hint.contains("does not exist");
            assert!(hint.contains(words) || is_missing, "{tool} {path}: {hint}");
            assert!(!has_codes(hint), "{tool} {path}: {hint}");
            assert!(hint.starts_with(&format!("`{}", &path[..path.len().min(200)])), "{hint}");
            assert!(shown.contains(hint), "{tool} {path}: {shown}");
            let voice = wire.request(
                "voice_tool_call",
                json!({"toolName": tool, "arguments": arguments.to_string()}),
            );
            assert_eq!((&voice["result"], &voice["hint"]), (&reply["text"], &reply["hint"]));
        }
    }
    let fine = wire.request(
        "quack.tool",
        json!({"tool": "read_file", "arguments": {"path": "README.md"}, "path": repo.path()}),
    );
    assert_eq!(fine.get("hint"), None, "{fine}");
}

#[test]
fn verbs_explain_a_path_that_cannot_be_used_in_plain_words() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let own = daemon.repo("own");
    for (path, _) in bad_paths(repo.path()) {
        let file = repo.path().join(&path);
        let at = file.to_str().unwrap();
        for line in [
            &["tool", "bash", "true", "-C", at][..],
            &["grep", "x", &path],
            &["find", "x", &path],
            &["replace", "x", "y", &path],
            &["tool", "search", &json!({"pattern": "x", "path": path}).to_string()],
            &["tool", "grep_search", &json!({"pattern": "x", "path": path}).to_string()],
            &["tool", "find_files", &json!({"pattern": "x", "path": path}).to_string()],
            &["grep", "x", "-C", at],
            &["new", &format!("{at}/x")],
            &["demo", &format!("{at}/x")],
            &["man", &format!("{at}/x")],
            &["sandbox", "show", "-C", at],
            &["sandbox", "explain", &path],
            &["remote", "enable", "--tls-cert", at, "--tls-key", at],
            &["remote", "status"],
            &["doctor"],
        ] {
            for json in [false, true] {
                let mut command = daemon.command(line);
                command.args(json.then_some("--json")).current_dir(repo.path());
                let output = command.stdin(Stdio::null()).output().unwrap();
                let shown = [output.stdout, output.stderr].concat();
                let shown = String::from_utf8_lossy(&shown).into_owned();
                assert!(!has_codes(&shown), "{line:?}: {shown}");
            }
        }
        for (name, verb) in [
            ("QUACKD_CONFIG", &["config", "show"][..]),
            ("QUACKD_CONFIG", &["doctor"]),
            ("QUACKD_CONFIG", &["restart"]),
            ("RUBBER_DUCK_APP_SUPPORT", &["ps"]),
            ("RUBBER_DUCK_APP_SUPPORT", &["doctor"]),
            ("RUBBER_DUCK_APP_SUPPORT", &["gc"]),
            ("RUBBER_DUCK_APP_SUPPORT", &["logs"]),
            ("RUBBER_DUCK_APP_SUPPORT", &["service", "status"]),
        ] {
            let mut command = daemon.command(verb);
            let output = command.env(name, file.join("x")).current_dir(own.path());
            let output = output.stdin(Stdio::null()).output().unwrap();
            let shown = [output.stdout, output.stderr].concat();
            let shown = String::from_utf8_lossy(&shown).into_owned();
            assert!(!has_codes(&shown), "{name}={at} {verb:?}: {shown}");
        }
    }
}

#[test]
fn safe_mode_tells_clients_its_rule_and_its_list() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let wire = daemon.wire();
    wire.attach(repo.path());
    for command in ["rm f", "ls; id", "find . -delete", "cat 'x", "| ls"] {
        for background in [false, true] {
            let arguments = json!({"command": command, "background": background});
            let call = json!({"tool": "bash", "arguments": arguments, "path": repo.path(), "safeMode": true});
            let reply = wire.request("quack.tool", call);
            let text = reply["text"].as_str().unwrap();
            assert!(text.ends_with(" in safe mode"), "{command}: {reply}");
            let hint = reply["hint"].as_str().unwrap_or_else(|| panic!("no hint: {reply}"));
            for part in ["runs only commands that begin with", "rg", "pytest", "quack tool --help"]
            {
                assert!(hint.contains(part), "{command}: {hint}");
            }
            let call =
                json!({"toolName": "bash", "arguments": arguments.to_string(), "safeMode": true});
            let voice = wire.request("voice_tool_call", call);
            assert_eq!((&voice["result"], &voice["hint"]), (&reply["text"], &reply["hint"]));
        }
    }
    let cli =
        daemon.quack(&["tool", "bash", "cat 'x", "--safe", "-C", repo.path().to_str().unwrap()]);
    assert!(cli.stderr().contains("runs only commands that begin with"), "{cli:?}");
}

#[test]
fn every_manual_page_has_files_environment_and_exit_status() {
    let world = Daemon::absent();
    let dir = world.home().join("pages");
    world.quack(&["man", dir.to_str().unwrap()]).ok();
    let pages = fs::read_dir(&dir).unwrap().map(|page| page.unwrap().path());
    let mut all: Vec<String> = pages.map(|page| fs::read_to_string(page).unwrap()).collect();
    all.push(world.quack(&["man"]).ok());
    assert!(30 < all.len());
    for page in all {
        let (_, rest) = page.split_once(".SH \"EXIT STATUS\"\n").expect(&page);
        let (codes, rest) = rest.split_once(".SH \"ENVIRONMENT\"\n").expect(&page);
        let (variables, files) = rest.split_once(".SH \"FILES\"\n").expect(&page);
        for code in ["0", "1", "2", "3", "4", "130"] {
            assert!(codes.contains(&format!("\\fB{code}\\fR\n")), "{codes}");
        }
        assert!(variables.contains("\\fBQUACKD_CONFIG\\fR\n"), "{variables}");
        assert!(files.contains("\\fBquackd.toml\\fR\n"), "{files}");
    }
}

#[test]
fn options_of_the_search_verbs_are_in_the_order_of_their_names() {
    let world = Daemon::absent();
    for verb in ["grep", "find", "replace"] {
        for help in ["-h", "--help"] {
            let text = world.quack(&[verb, help]).ok();
            let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
            for line in text.lines() {
                if let Some(title) = line.strip_suffix(':').filter(|title| !title.starts_with(' '))
                {
                    groups.push((title, Vec::new()));
                } else if line.trim_start().starts_with('-')
                    && let Some((_, name)) = line.split_once("--")
                    && let Some((_, names)) = groups.last_mut()
                {
                    names.push(name.split([' ', '.']).next().unwrap());
                }
            }
            let groups: Vec<_> = groups.into_iter().filter(|(_, names)| 2 < names.len()).collect();
            for (title, names) in &groups {
                // Options of every subcommand come first in the general group.
                let names = names.iter().filter(|name| !["json", "color", "help"].contains(*name));
                let names: Vec<_> = names.collect();
                assert!(names.is_sorted(), "{verb} {help}: {title}: {names:?}");
            }
            let titles: Vec<&str> = groups.iter().map(|(title, _)| *title).collect();
            if verb == "grep" {
                let expected =
                    ["Search options", "Filter options", "Output options", "Output modes"];
                assert!(expected.iter().all(|title| titles.contains(title)), "{titles:?}");
            }
        }
    }
}

/// Writes a workspace with a session into the metadata, like an earlier version or another program.
fn record(world: &Daemon, id: &str, path: &str) {
    let file = world.app().join("metadata.json");
    let mut metadata: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let at = "2026-01-01T00:00:00Z";
    let workspaces = metadata["workspaces"].as_array_mut().unwrap();
    workspaces.push(json!({"id": format!("w-{id}"), "path": path, "createdAt": at}));
    metadata["sessions"].as_array_mut().unwrap().push(json!({
        "id": id, "workspaceId": format!("w-{id}"), "name": "duck-1", "piSessionFile": "",
        "createdAt": at, "lastActiveAt": at,
    }));
    fs::write(file, metadata.to_string()).unwrap();
}

#[test]
fn a_recorded_session_of_a_refused_directory_is_named_and_does_not_fail_doctor() {
    let mut world = Daemon::absent();
    let repo = world.repo("one");
    let here = repo.path().to_str().unwrap().to_owned();
    world.quack(&["tool", "bash", "true", "-C", &here]).ok();
    world.quack(&["stop"]).ok();
    record(&world, "OfTheSystemsOwnDir0000", "/usr/lib");
    record(&world, "OfADirThatIsGone000000", "/no/such/directory");
    let shown = world.quack(&["gc"]).ok();
    assert!(shown.contains("/no/such/directory"), "{shown}");
    assert!(shown.contains("`quack sessions prune` starts one"), "{shown}");
    world.boot();
    let wire = world.wire();
    // The error is the same as in an earlier version.
    let call = json!({"tool": "bash", "arguments": "true", "sessionId": "OfTheSystemsOwnDir0000"});
    assert_eq!(wire.request("quack.tool", call)["isError"], true);
    let doctor = world.quack(&["doctor"]);
    let shown = doctor.ok();
    for part in ["2 sessions do not exist or are refused to sessions", "`quack sessions prune`"] {
        assert!(shown.contains(part), "{shown}");
    }
    let ids = || {
        let all = wire.request("sessions", json!({"all": true}));
        let rows = all["sessions"].as_array().unwrap().iter();
        rows.map(|row| row["workspacePath"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    // The refused directory may belong to another program.
    world.quack(&["gc"]).ok();
    assert_eq!(ids(), BTreeSet::from([here.clone(), "/usr/lib".to_owned()]));
    let shown = world.quack(&["doctor"]).ok();
    assert!(shown.contains("1 session is refused to sessions: /usr/lib"), "{shown}");
    let shown = world.quack(&["sessions", "prune"]).ok();
    assert!(shown.contains("Deleted 1 session without a directory to work in"), "{shown}");
    assert_eq!(ids(), BTreeSet::from([here]));
    assert!(!world.quack(&["doctor"]).ok().contains("refused to sessions"));
}

#[test]
fn a_deletion_removes_a_large_tree_of_private_files() {
    const FILES: usize = 20_000;
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let private = daemon.app().join("run").join(&session.id);
    let many = private.join("tmp");
    fs::create_dir_all(&many).unwrap();
    (0..FILES).for_each(|file| fs::write(many.join(file.to_string()), "").unwrap());
    let deleted = wire.request("quack.session_delete", json!({"sessionId": session.id}));
    assert_eq!(deleted["session"]["id"], json!(session.id));
    // The reply waits only a short time for the files.
    wait_for("the private files to go", || (!private.exists()).then_some(()));
    assert!(repo.path().join("README.md").exists());
}

#[test]
fn a_tool_that_is_given_as_a_verb_is_suggested_as_a_tool() {
    let world = Daemon::absent();
    for line in [&["bash", "ls"][..], &["bash"], &["read_file", "a"]] {
        let run = world.quack(line);
        assert_eq!(run.code(), Some(2), "{run:?}");
        let meant = format!("did you mean `quack tool {}`?", line[0]);
        assert!(run.stderr().contains(&meant), "{run:?}");
    }
}

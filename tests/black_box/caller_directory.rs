//! `quack tool` and `quack mcp` in a subdirectory: commands run there, tools read relative paths and globs from there, and
//! answer with such paths.

use crate::harness::{Daemon, Repo, wait_for};
use crate::mcp::{Agent, command, text};
use serde_json::json;
use std::path::Path;

fn ran(daemon: &Daemon, directory: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = daemon.command(args);
    let output =
        command.current_dir(directory).stdin(std::process::Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn world() -> (Daemon, Repo) {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("src/deep/here.txt", "of the subdirectory\n");
    repo.write("here.txt", "of the root\n");
    (daemon, repo)
}

#[test]
fn commands_and_file_tools_start_in_the_directory_of_the_caller() {
    let (daemon, repo) = world();
    let deep = repo.path().join("src/deep");
    let shown = |text: &str| format!("{text}\n\n[Exit code: 0]\n");
    assert_eq!(ran(&daemon, &deep, &["tool", "bash", "pwd"]).1, shown(deep.to_str().unwrap()));
    assert_eq!(
        ran(&daemon, repo.path(), &["tool", "bash", "cat here.txt"]).1,
        shown("of the root")
    );
    let at = ["tool", "bash", "cat here.txt", "-C", deep.to_str().unwrap()];
    assert_eq!(ran(&daemon, &daemon.home(), &at).1, shown("of the subdirectory"));
    let safe = ["tool", "bash", "--safe", "cat here.txt"];
    assert_eq!(ran(&daemon, &deep, &safe).1, shown("of the subdirectory"));
    let (_, text) = ran(&daemon, &deep, &["tool", "read_file", "here.txt"]);
    assert!(text.contains("of the subdirectory"), "{text}");
    let (_, text) = ran(&daemon, &deep, &["tool", "read_file", "../../here.txt"]);
    assert!(text.contains("of the root"), "{text}");
    let whole = repo.path().join("here.txt");
    let (_, text) = ran(&daemon, &deep, &["tool", "read_file", whole.to_str().unwrap()]);
    assert!(text.contains("of the root"), "{text}");
    let write = r#"{"path":"new.txt","content":"x"}"#;
    assert_eq!(ran(&daemon, &deep, &["tool", "write_file", write]).0, Some(0));
    assert_eq!(repo.read("src/deep/new.txt"), "x");
    let edit = r#"{"path":"new.txt","old_text":"x","new_text":"y"}"#;
    assert_eq!(ran(&daemon, &deep, &["tool", "edit_file", edit]).0, Some(0));
    assert_eq!(repo.read("src/deep/new.txt"), "y");
    // A job too.
    ran(&daemon, &deep, &["tool", "bash", "--detach", "cat here.txt"]);
    let (_, text) = ran(&daemon, &deep, &["jobs", "-f", "job-1"]);
    assert!(text.starts_with("of the subdirectory\n"), "{text}");
    // The session of another directory is used from its root.
    let other = daemon.repo("b");
    assert_eq!(
        ran(&daemon, other.path(), &["tool", "bash", "pwd", "--session", "a"]).1,
        shown(repo.path().to_str().unwrap())
    );
}

#[test]
fn searches_and_replacements_begin_in_the_directory_of_the_caller() {
    let (daemon, repo) = world();
    repo.write("docs/guide.txt", "of the guide\n");
    let deep = repo.path().join("src/deep");
    let first_line = |tool: &str, arguments: &str| {
        let (_, text) = ran(&daemon, &deep, &["tool", tool, arguments]);
        text.lines().next().unwrap_or_default().to_owned()
    };
    for (tool, arguments, expected) in [
        ("search", "of the", "here.txt:1:of the subdirectory"),
        (
            "search",
            r#"{"pattern":"of the","path":"../../docs"}"#,
            "../../docs/guide.txt:1:of the guide",
        ),
        (
            "search",
            r#"{"pattern":"of the","path":"../..","include":"../../docs/*"}"#,
            "../../docs/guide.txt:1:of the guide",
        ),
        (
            "search",
            r#"{"pattern":"of the","path":"../..","exclude":["../../docs/*","./*.txt"]}"#,
            "../../here.txt:1:of the root",
        ),
        ("search", r#"{"pattern":"of the","output":"files"}"#, "here.txt"),
        ("find", "*.txt", "here.txt"),
        ("find", r#"{"path":"../../docs"}"#, "../../docs/guide.txt"),
        ("grep_search", "of the", "here.txt:1:of the subdirectory"),
        (
            "grep_search",
            r#"{"pattern":"of","path":"../../docs"}"#,
            "../../docs/guide.txt:1:of the guide",
        ),
        ("find_files", "*.txt", "here.txt"),
        ("search_glob_files", r#"{"pattern":"../../*.txt"}"#, "Glob results:"),
        (
            "replace",
            r#"{"pattern":"of","replacement":"by","path":["here.txt","../../docs"],"dry_run":true}"#,
            "Would replace 2 matches in 2 lines of 2 files",
        ),
    ] {
        assert_eq!(first_line(tool, arguments), expected, "{tool} {arguments}");
    }
    let (_, text) = ran(
        &daemon,
        &deep,
        &["tool", "search_content", r#"{"pattern":"of","glob_pattern":"*.txt"}"#],
    );
    assert!(
        text.contains("\nhere.txt:1: of the subdirectory\n") && !text.contains("root"),
        "{text}"
    );
    let (_, text) = ran(
        &daemon,
        &deep,
        &["tool", "ripgrep_search", r#"{"pattern":"of","include_paths":["../../docs"]}"#],
    );
    assert!(text.contains(r#""output":"../../docs/guide.txt\n1:of the guide\n""#), "{text}");
    // The files that are written are those that were named, and the record has their names from the workspace.
    let replace = r#"{"pattern":"of","replacement":"by","path":["here.txt","../../docs"]}"#;
    let (_, text) = ran(&daemon, &deep, &["tool", "replace", replace]);
    assert!(
        text.contains("\n../../docs/guide.txt: 1 match in 1 line\nhere.txt: 1 match"),
        "{text}"
    );
    assert_eq!(repo.read("src/deep/here.txt"), "by the subdirectory\n");
    assert_eq!(repo.read("docs/guide.txt"), "by the guide\n");
    assert_eq!(repo.read("here.txt"), "of the root\n");
    wait_for("the record of the replacement", || {
        let (_, log) = ran(&daemon, &deep, &["log", "--json"]);
        log.contains(r#"["docs/guide.txt","src/deep/here.txt"]"#).then_some(())
    });
    ran(&daemon, &deep, &["tool", "undo", "{}"]);
    assert_eq!(repo.read("src/deep/here.txt"), "of the subdirectory\n");
}

#[test]
fn an_agent_that_is_started_in_a_subdirectory_works_there() {
    let (daemon, repo) = world();
    let deep = repo.path().join("src/deep");
    let mut agent = Agent::spawn(command(&daemon, &deep, &["--any-workspace"]));
    agent.initialize(json!({}));
    let pwd = text(&agent.call("bash", json!({"command": "pwd; cat here.txt"}))).to_owned();
    assert_eq!(pwd, format!("{}\nof the subdirectory\n\n[Exit code: 0]", deep.display()));
    let read = text(&agent.call("read_file", json!({"path": "here.txt"}))).to_owned();
    assert_eq!(read, "of the subdirectory\n");
    let found = text(&agent.call("search", json!({"pattern": "of the"}))).to_owned();
    assert_eq!(found, "here.txt:1:of the subdirectory");
    // A call that names a directory starts in that one.
    let at = json!({"command": "pwd", "workspace": repo.path().join("src")});
    let pwd = text(&agent.call("bash", at)).to_owned();
    assert_eq!(pwd, format!("{}/src\n\n[Exit code: 0]", repo.path().display()));
    agent.leave();
}

#[test]
fn without_git_the_user_and_an_agent_mean_the_same_workspace_in_a_subdirectory() {
    let daemon = Daemon::start();
    let notes = daemon.home().join("notes");
    let sub = notes.join("sub");
    std::fs::create_dir_all(&sub).unwrap();
    let session_of = |agent: &mut Agent, directory: &Path| {
        let pwd = text(&agent.call("bash", json!({"command": "pwd"}))).to_owned();
        assert_eq!(pwd, format!("{}\n\n[Exit code: 0]", directory.display()));
        let sessions = daemon.wire().request("sessions", json!({"all": true}));
        let all = sessions["sessions"].as_array().unwrap().clone();
        let agents = all.iter().filter(|it| it["label"].as_str().unwrap().ends_with("test-agent"));
        agents.map(|it| it["workspacePath"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The session of an agent alone is not the user's: each subdirectory is a separate workspace for both.
    let mut above = Agent::spawn(command(&daemon, &notes, &[]));
    above.initialize(json!({}));
    assert_eq!(session_of(&mut above, &notes), [notes.to_str().unwrap()]);
    above.leave();
    let other = notes.join("other");
    std::fs::create_dir_all(&other).unwrap();
    let mut agent = Agent::spawn(command(&daemon, &other, &[]));
    agent.initialize(json!({}));
    assert!(session_of(&mut agent, &other).contains(&other.to_str().unwrap().to_owned()));
    agent.leave();
    // With a session of the user above, both mean that workspace, and start in the subdirectory.
    ran(&daemon, &notes, &["tool", "bash", "true"]);
    let shown = ran(&daemon, &sub, &["tool", "bash", "pwd"]).1;
    assert_eq!(shown, format!("{}\n\n[Exit code: 0]\n", sub.display()));
    let mut agent = Agent::spawn(command(&daemon, &sub, &[]));
    agent.initialize(json!({}));
    let workspaces = session_of(&mut agent, &sub);
    assert!(!workspaces.contains(&sub.to_str().unwrap().to_owned()), "{workspaces:?}");
    agent.leave();
    let acp = ran(&daemon, &sub, &["new", "--json"]).1;
    let made: serde_json::Value = serde_json::from_str(&acp).unwrap();
    assert_eq!(made["workspace"]["path"], notes.to_str().unwrap());
}

#[test]
fn a_directory_outside_of_the_workspace_is_refused_and_a_missing_one_is_named() {
    let (daemon, repo) = world();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call = |cwd: &str| json!({"sessionId": session.id, "tool": "bash", "arguments": "pwd", "cwd": cwd});
    let root = repo.path().to_str().unwrap();
    for cwd in
        ["/", "src", "", &format!("{root}/.."), &format!("{root}/src/../../b"), &format!("{root}x")]
    {
        let error = wire.refused("quack.tool", call(cwd));
        assert!(error.contains("cwd must be an absolute path in the workspace"), "{cwd}: {error}");
    }
    let gone = wire.request("quack.tool", call(&format!("{root}/src/gone")));
    let text = gone["text"].as_str().unwrap();
    assert!(gone["isError"] == true && text.contains("src/gone"), "{text}");
    // A link that leads out of the workspace does not lead a file tool out.
    std::os::unix::fs::symlink("/etc", repo.path().join("out")).unwrap();
    let read = json!({"sessionId": session.id, "tool": "read_file", "arguments": "hostname",
        "cwd": format!("{root}/out")});
    assert_eq!(wire.request("quack.tool", read)["isError"], true);
}

//! `quack tool` in a subdirectory: commands run there, and file tools read relative paths from there.

use crate::harness::{Daemon, Repo};
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
    let shown = |text: &str| format!("{text}\n\n[Exit code: 0]");
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

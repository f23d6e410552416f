//! The first command that a new user runs.

use crate::harness::Daemon;
use serde_json::json;

#[test]
fn the_demo_shows_the_promise_in_a_repository() {
    let daemon = Daemon::start();
    let mine = daemon.wire().attach(daemon.repo("mine").path()).id;
    let repo = daemon.repo("a");
    let before = std::fs::read_dir(repo.path()).unwrap().count();
    let run = daemon.quack(&["demo", repo.path().to_str().unwrap()]);
    let shown = run.ok();
    assert!(
        shown.contains(
            "Error: Worker died during bash (signal 9). It may have run; it was not retried."
        ),
        "{shown}"
    );
    assert!(shown.contains("src/main.rs:1:fn main() {"), "{shown}");
    assert_eq!(std::fs::read_dir(repo.path()).unwrap().count(), before, "nothing was added");
    let sessions = daemon.wire().request("sessions", json!({"all": true}));
    let active = sessions["sessions"].as_array().unwrap().iter().find(|s| s["isActive"] == true);
    assert_eq!(active.unwrap()["id"], mine.as_str(), "the active session was not moved");
}

#[test]
fn the_demo_shows_no_ignored_file_and_finds_the_python_file() {
    let daemon = Daemon::start();
    let repo = daemon.repo("py");
    let at = |name: &str| repo.path().join(name);
    std::fs::remove_dir_all(at("src")).unwrap();
    for entry in std::fs::read_dir(repo.path()).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    std::fs::create_dir(at("venv")).unwrap();
    std::fs::write(at(".gitignore"), "*.log\nvenv\nREADME.md\n").unwrap();
    for ignored in ["a.log", "README.md", "venv/lib.py"] {
        std::fs::write(at(ignored), "def secret_of_a_log():\n").unwrap();
    }
    std::fs::write(at("main.py"), "def main():\n    return 1\n").unwrap();
    let shown = daemon.quack(&["demo", repo.path().to_str().unwrap()]).ok();
    assert!(shown.contains("main.py:1:def main():") && shown.contains("main.py, "), "{shown}");
    assert!(!shown.contains("secret_of_a_log"), "{shown}");
}

#[test]
fn the_demo_works_where_there_is_nothing() {
    let world = Daemon::absent();
    let empty = world.home().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let run = world.quack(&["demo", empty.to_str().unwrap(), "--json"]);
    assert_eq!(run.code(), Some(0), "{run:?}");
    assert!(run.json().is_object());
    world.quack(&["stop"]).ok();
}

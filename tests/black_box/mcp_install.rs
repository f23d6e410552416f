//! `quack mcp install` and `uninstall` edit the configuration of other programs, in a private home.

use crate::harness::{Daemon, write_file};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Clients, their files in the home directory, a file that already has content, and the settings of `--exclusive`.
const CLIENTS: [(&str, &str, &str, &str); 10] = [
    ("claude-code", ".claude.json", "{\n  \"numStartups\": 3\n}", "\"NotebookEdit\""),
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", "{\"mcpServers\": {}}\n", ""),
    ("codex", ".codex/config.toml", "# mine\nmodel = \"x\"", "shell_tool = false"),
    ("cursor", ".cursor/mcp.json", "{\"mcpServers\":{\"a\":{\"url\":\"b\"},}}", ""),
    ("vscode", ".config/Code/User/mcp.json", "{\r\n\t\"inputs\": []\r\n}\r\n", ""),
    (
        "zed",
        ".config/zed/settings.json",
        "// mine\n{\n  \"theme\": \"One\", // dark\n}\n",
        "\"deny\"",
    ),
    ("gemini", ".gemini/settings.json", "{\"ui\":{}}", "\"ShellTool\""),
    ("opencode", ".config/opencode/opencode.jsonc", "{ /* mine */ }", "\"bash\": \"deny\""),
    (
        "goose",
        ".config/goose/config.yaml",
        "# mine\nextensions:\n  developer:\n    enabled: true\n",
        "",
    ),
    ("windsurf", ".codeium/windsurf/mcp_config.json", "", ""),
];

/// Creates `path` in the home directory with `text`.
fn write(daemon: &Daemon, path: &str, text: &str) -> PathBuf {
    let path = daemon.home().join(path);
    write_file(&path, text);
    path
}

fn document(daemon: &Daemon, args: &[&str]) -> Value {
    let ran = daemon.quack(args);
    assert_eq!(ran.code(), Some(0), "{args:?} {}", ran.stderr());
    serde_json::from_str(&ran.stdout()).unwrap()
}

#[test]
fn every_client_gets_an_entry_and_loses_it_again() {
    let daemon = Daemon::absent();
    for (client, file, text, exclusive) in CLIENTS {
        let path = daemon.home().join(file);
        for before in [None, Some(text)] {
            if let Some(text) = before {
                fs::set_permissions(write(&daemon, file, text), fs::Permissions::from_mode(0o640))
                    .unwrap();
            }
            let content = || fs::read_to_string(&path).ok();
            let printed = daemon.quack(&["mcp", "install", client, "--exclusive", "--print"]);
            assert!(printed.stdout().contains("+++ /"), "{client} {}", printed.stdout());
            assert_eq!(content().as_deref(), before, "{client}");

            let made =
                document(&daemon, &["mcp", "install", client, "--exclusive", "--safe", "--json"]);
            let patch = made["diff"].as_str().unwrap();
            assert_eq!((&made["client"], &made["changed"]), (&json!(client), &json!(true)));
            assert_eq!(made["file"], json!(path));
            assert!(patch.contains("quackd") && patch.contains(exclusive), "{client} {patch}");
            assert!(made["entry"]["value"].to_string().contains("--safe"), "{made}");
            let installed = content().unwrap();
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if before.is_some() { 0o640 } else { 0o600 }, "{client}");

            let again = daemon.quack(&["mcp", "install", client, "--exclusive", "--safe"]);
            assert!(
                again.stdout().starts_with("quackd is already in ~/"),
                "{client} {}",
                again.stdout()
            );
            assert_eq!((again.code(), content()), (Some(0), Some(installed)));

            let gone = daemon.quack(&["mcp", "uninstall", client]);
            assert!(gone.stdout().contains("Removed quackd"), "{client} {}", gone.stdout());
            assert_eq!(content().as_deref(), before, "{client}");
            assert!(!daemon.home().join(".claude/settings.json").exists());
            let nothing = daemon.quack(&["mcp", "uninstall", client]);
            assert!(
                nothing.stdout().starts_with("quackd is not in"),
                "{client} {}",
                nothing.stdout()
            );
            assert_eq!(nothing.code(), Some(0));
        }
    }
    assert!(!daemon.socket().exists(), "no daemon is started");
}

#[test]
fn an_uninstall_keeps_what_other_programs_changed() {
    let daemon = Daemon::absent();
    let settings =
        write(&daemon, ".claude/settings.json", "{\"permissions\":{\"deny\":[\"Bash\"]}}");
    document(&daemon, &["mcp", "install", "claude-code", "--exclusive", "--json"]);
    // Claude Code writes its files again.
    let path = daemon.home().join(".claude.json");
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    value["numStartups"] = json!(1);
    fs::write(&path, value.to_string()).unwrap();
    let denied: Value = serde_json::from_str(&fs::read_to_string(&settings).unwrap()).unwrap();
    assert_eq!(denied["permissions"]["deny"], json!(["Bash", "Edit", "Write", "NotebookEdit"]));
    fs::write(&settings, denied.to_string()).unwrap();

    document(&daemon, &["mcp", "uninstall", "claude-code", "--json"]);
    let read = |path: &PathBuf| -> Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    assert_eq!(read(&path), json!({"numStartups": 1}));
    assert_eq!(read(&settings), json!({"permissions": {"deny": ["Bash"]}}));
}

#[test]
fn a_file_that_cannot_be_edited_stays_as_it_is() {
    let daemon = Daemon::absent();
    let broken = "{\"mcpServers\": {";
    let large = format!("{{}}{}", " ".repeat(4 << 20));
    for (text, why) in
        [(broken, "cannot edit"), ("[]", "not an object"), (&large, "larger than 4 MiB")]
    {
        let path = write(&daemon, ".cursor/mcp.json", text);
        for verb in ["install", "uninstall"] {
            let ran = daemon.quack(&["mcp", verb, "cursor"]);
            // `[]` has no entry to remove.
            assert!(
                ran.code() == Some(1) || (text, verb) == ("[]", "uninstall"),
                "{}",
                ran.stdout()
            );
            assert!(ran.stderr().contains(why) || ran.code() == Some(0), "{}", ran.stderr());
            assert!(fs::read_to_string(&path).unwrap() == text);
        }
    }
    fs::remove_file(daemon.home().join(".cursor/mcp.json")).unwrap();
    fs::create_dir(daemon.home().join(".cursor/mcp.json")).unwrap();
    let ran = daemon.quack(&["mcp", "install", "cursor"]);
    assert!(ran.stderr().contains("not a regular file"), "{}", ran.stderr());

    // A directory of that name is also where no new file can be created, for root too.
    write(&daemon, ".codeium", "a file");
    let ran = daemon.quack(&["mcp", "install", "windsurf"]);
    assert_eq!(ran.code(), Some(1), "{}", ran.stdout());
}

#[test]
fn a_linked_configuration_stays_a_link() {
    let daemon = Daemon::absent();
    let real = write(&daemon, "dotfiles/gemini.json", "{}\n");
    fs::create_dir(daemon.home().join(".gemini")).unwrap();
    let link = daemon.home().join(".gemini/settings.json");
    symlink(&real, &link).unwrap();
    document(&daemon, &["mcp", "install", "gemini", "--json"]);
    assert!(link.is_symlink() && fs::read_to_string(&real).unwrap().contains("quackd"));
    document(&daemon, &["mcp", "uninstall", "gemini", "--json"]);
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "{}\n");
}

#[test]
fn the_clients_variables_and_the_options_are_used() {
    let daemon = Daemon::absent();
    let dir = daemon.home().join("elsewhere");
    let mut command =
        daemon.command(&["mcp", "install", "codex", "--tools", "search,bash", "--keep", "--json"]);
    let output = command.env("CODEX_HOME", &dir).output().unwrap();
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["entry"]["value"]["args"], json!(["mcp", "--tools=search,bash", "--keep"]));
    assert!(dir.join("config.toml").exists());

    let desktop = document(&daemon, &["mcp", "install", "claude-desktop", "--json"]);
    assert_eq!(desktop["entry"]["value"]["args"], json!(["mcp", "--any-workspace"]));
    assert!(desktop["notes"][0].as_str().unwrap().contains("outside of any project"), "{desktop}");
    let repo = daemon.repo("project");
    let path = repo.path();
    let one = document(
        &daemon,
        &["mcp", "install", "claude-desktop", "--json", "--workspace", path.to_str().unwrap()],
    );
    assert_eq!(one["entry"]["value"]["args"], json!(["mcp", "--workspace", path]));

    let http = daemon.quack(&["mcp", "install", "codex", "--http", "127.0.0.1:0"]);
    assert_eq!(http.code(), Some(2), "{}", http.stderr());
}

#[test]
fn a_project_gets_its_own_configuration_and_every_removal_takes_it_back() {
    let daemon = Daemon::absent();
    let projects = [
        ("claude-code", ".mcp.json", ".claude/settings.json"),
        ("codex", ".codex/config.toml", ".codex/config.toml"),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json", ".vscode/mcp.json"),
        ("gemini", ".gemini/settings.json", ".gemini/settings.json"),
        ("opencode", "opencode.json", "opencode.json"),
    ];
    let before = snapshot(&daemon.home());
    for removes_all in [false, true] {
        let repo = daemon.repo("project");
        let clean = snapshot(repo.path());
        let dir = repo.path().to_str().unwrap();
        for (client, file, settings) in projects {
            let made = document(
                &daemon,
                &["mcp", "install", client, "--exclusive", "--project", dir, "--json"],
            );
            assert_eq!(made["file"], json!(repo.path().join(file)), "{made}");
            let text = fs::read_to_string(repo.path().join(file)).unwrap();
            assert!(text.contains("quackd"), "{client} {text}");
            assert!(repo.path().join(settings).exists(), "{client}");
        }
        assert_eq!(
            snapshot(&daemon.home()).keys().filter(|path| path.ends_with(".claude.json")).count(),
            0
        );
        if removes_all {
            daemon.quack(&["uninstall", "--purge", "--yes"]).ok();
        } else {
            for (client, ..) in projects {
                // The verb of the user's configuration does not touch it.
                assert_eq!(
                    document(&daemon, &["mcp", "uninstall", client, "--json"])["changed"],
                    false
                );
                document(&daemon, &["mcp", "uninstall", client, "--project", dir, "--json"]);
            }
        }
        assert_eq!(snapshot(repo.path()), clean);
    }
    assert!(before.keys().all(|path| path.exists()));
}

#[test]
fn a_link_that_leads_out_of_the_project_is_not_followed() {
    let daemon = Daemon::absent();
    let repo = daemon.repo("project");
    let mine = write(&daemon, ".cursor/mcp.json", "{}\n");
    symlink(mine.parent().unwrap(), repo.path().join(".cursor")).unwrap();
    symlink(&mine, repo.path().join(".mcp.json")).unwrap();
    for client in ["cursor", "claude-code"] {
        let dir = repo.path().to_str().unwrap();
        let refused = daemon.quack(&["mcp", "install", client, "--project", dir]);
        assert_eq!(refused.code(), Some(1), "{refused:?}");
        assert!(refused.stderr().contains("leads out of the project"), "{refused:?}");
    }
    assert_eq!(fs::read_to_string(&mine).unwrap(), "{}\n");
    let none = daemon.quack(&["mcp", "install", "goose", "--project"]);
    assert_eq!(none.code(), Some(2), "{none:?}");
    assert!(none.stderr().contains("without --project"), "{none:?}");
}

/// Paths below a directory with their modes and contents.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let mode = entry.metadata().unwrap().permissions().mode();
        let content = match entry.file_type().unwrap() {
            kind if kind.is_dir() => {
                found.extend(snapshot(&path));
                Vec::new()
            }
            kind if kind.is_file() => fs::read(&path).unwrap(),
            _ => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
        };
        found.insert(path, (mode, content));
    }
    found
}

#[test]
fn the_removal_of_quackd_takes_it_out_of_every_agent_and_leaves_nothing() {
    let mut daemon = Daemon::start();
    for (_, file, text, _) in CLIENTS {
        write(&daemon, file, text);
    }
    write(&daemon, ".claude/settings.json", "{\"permissions\": {\"deny\": [\"WebFetch\"]}}\n");
    let before = snapshot(&daemon.home());
    for (client, ..) in CLIENTS {
        document(&daemon, &["mcp", "install", client, "--exclusive", "--json"]);
    }
    assert_ne!(snapshot(&daemon.home()), before);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("work").path());
    session.bash("seq 1 60000; curl -sS https://example.com");
    session.call("replace", json!({"pattern": "needle", "replacement": "x"}));

    // Nothing is removed by a dry run, which names every agent and its file.
    let dry = daemon.quack(&["uninstall", "--purge", "--dry-run"]).ok();
    for name in ["Claude Code", "Codex", ".claude/settings.json", ".codex/config.toml"] {
        assert!(dry.contains(name), "{name}: {dry}");
    }
    assert!(daemon.app().join("mcp-install.json").exists());

    // A file that cannot be edited stops the removal before it changes anything.
    let codex = daemon.home().join(".codex/config.toml");
    let installed = fs::read_to_string(&codex).unwrap();
    fs::write(&codex, format!("{installed}\n[broken")).unwrap();
    let refused = daemon.quack(&["uninstall", "--purge", "--yes"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    assert!(refused.stderr().contains(".codex/config.toml"), "{refused:?}");
    assert!(daemon.app().join("mcp-install.json").exists());
    fs::write(&codex, installed).unwrap();

    let removed = daemon.quack(&["uninstall", "--purge", "--yes"]);
    assert_eq!(removed.code(), Some(0), "{removed:?}");
    daemon.wait();
    assert_eq!(snapshot(&daemon.home()), before);
    assert!(!daemon.app().exists(), "{removed:?}");
}

#[test]
fn a_removal_leaves_no_directory_that_an_install_created() {
    let daemon = Daemon::absent();
    fs::create_dir(daemon.home().join(".codex")).unwrap();
    let before = snapshot(&daemon.home());
    for (client, ..) in CLIENTS {
        document(&daemon, &["mcp", "install", client, "--exclusive", "--json"]);
        // A second install finds the directories, and the removal still knows them.
        document(&daemon, &["mcp", "install", client, "--json"]);
    }
    let mine = write(&daemon, ".gemini/notes", "mine");
    for (client, ..) in CLIENTS {
        document(&daemon, &["mcp", "uninstall", client, "--json"]);
    }
    assert!(mine.exists());
    fs::remove_file(&mine).unwrap();
    fs::remove_dir(mine.parent().unwrap()).unwrap();
    assert_eq!(snapshot(&daemon.home()), before);
}

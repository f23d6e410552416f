//! Contract of every tool, tested through the daemon: tables of a workspace's content, a call, and
//! the exact answer.
//!
//! One file per tool, and files for their common rules. Every row is called twice, by
//! `voice_tool_call` and by `quack.tool`. The answers must be identical, except for unknown
//! parameters. In arguments and answers `{ws}` is the workspace. `{base}` is the directory around
//! it, where no tool may change anything.

mod bash;
mod dispatcher;
mod documentation;
mod edit_file;
mod find;
mod find_files;
mod grep_search;
mod nixcode;
mod paths;
mod read_file;
mod replace;
mod ripgrep_search;
mod safe_mode;
mod search;
mod write_file;

use crate::harness::{Daemon, Wire, wait_for, write_file};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// A row: tool, arguments and answer.
type Row<'a> = (&'a str, &'a str, &'a str);

/// A file and its content after a call; `None` if the file must not exist.
type After<'a> = (&'a str, Option<&'a str>);

/// An entry of a workspace, by its name there.
#[derive(Debug, Clone, Copy)]
enum Put {
    File(&'static str, &'static [u8]),
    /// A file with this number of letters `x`.
    Sized(&'static str, usize),
    /// Lines by their number, from 1; the lines between are empty.
    Lines(&'static str, &'static [(usize, &'static str)]),
    Dir(&'static str),
    /// A symlink and its target.
    Link(&'static str, &'static str),
    /// A hard link to a file.
    HardLink(&'static str, &'static str),
    Fifo(&'static str),
    /// Permissions of an existing entry.
    Mode(&'static str, u32),
}

/// A workspace with its surroundings, and its session.
struct Place {
    base: PathBuf,
    session: String,
}

/// A daemon, and the connection for calling rows.
struct Bench {
    daemon: Daemon,
    wire: Wire,
    n_places: Cell<usize>,
}

impl Bench {
    fn new() -> Self {
        Self::of(Daemon::start())
    }

    /// Starts a daemon that respects file permissions, even if the tests run as root. `setpriv` is
    /// part of every Linux system.
    fn without_privilege() -> Self {
        let mut daemon = Daemon::absent();
        if nix::unistd::geteuid().is_root() {
            let quack = env!("CARGO_BIN_EXE_quack");
            let bounds = "--bounding-set=-dac_override,-dac_read_search";
            daemon.boot_with("setpriv", &[bounds, "--inh-caps=-all", "--", quack, "daemon"]);
        } else {
            daemon.boot();
        }
        Self::of(daemon)
    }

    fn of(daemon: Daemon) -> Self {
        let wire = daemon.wire();
        Self { daemon, wire, n_places: Cell::new(0) }
    }

    /// A new workspace with a new session.
    #[track_caller]
    fn place(&self, setup: &[Put]) -> Place {
        let n = self.n_places.replace(self.n_places.get() + 1);
        let base = fs::canonicalize(self.daemon.home()).unwrap().join(n.to_string());
        for name in ["ws", "ws2", "outside"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        fs::write(base.join("outside/secret"), "secret\n").unwrap();
        fs::write(base.join("ws2/f"), "neighbour\n").unwrap();
        for put in setup {
            put.make(&base);
        }
        let path = base.join("ws");
        let data = self.wire.request("attach", json!({"path": path, "activate": false}));
        assert_eq!(data["workspace"]["path"].as_str(), path.to_str());
        let session = data["session"]["id"].as_str().unwrap().to_owned();
        // A call waits at most 2 s for a worker that is starting, which is not enough on a busy machine.
        wait_for("the worker to start", || {
            let state = self.wire.request("get_state", json!({"sessionId": session}));
            (state["worker"]["state"] != "starting").then_some(())
        });
        Place { session, base }
    }

    /// Calls a tool like a voice client.
    #[track_caller]
    fn voice(&self, place: &Place, tool: &str, arguments: &str, safe_mode: bool) -> String {
        let mut params = json!({"callId": "c", "toolName": tool, "arguments": place.real(arguments),
                                "sessionId": place.session});
        if safe_mode {
            params["safeMode"] = json!(true);
        }
        let data = self.wire.request("voice_tool_call", params);
        place.shown(data["result"].as_str().unwrap())
    }

    /// Calls a tool by quackd's own method, whose reply contains the text's data too. Returns
    /// `None` for arguments that it cannot carry: its arguments are JSON instead of text, and
    /// `null` means none.
    #[track_caller]
    fn quack_tool(&self, place: &Place, tool: &str, arguments: &str, safe: bool) -> Option<Value> {
        let arguments: Value = serde_json::from_str(&place.real(arguments)).ok()?;
        let params = json!({"tool": tool, "arguments": arguments, "sessionId": place.session,
                            "safeMode": safe});
        let mut data = (!arguments.is_null()).then(|| self.wire.request("quack.tool", params))?;
        data["text"] = json!(place.shown(data["text"].as_str().unwrap()));
        Some(data)
    }
}

impl Place {
    fn real(&self, text: &str) -> String {
        let base = self.base.to_str().unwrap();
        text.replace("{ws}", &format!("{base}/ws")).replace("{base}", base)
    }

    fn shown(&self, text: &str) -> String {
        let base = self.base.to_str().unwrap();
        text.replace(&format!("{base}/ws/"), "{ws}/")
            .replace(&format!("{base}/ws"), "{ws}")
            .replace(base, "{base}")
    }

    /// The content of a file, with invalid UTF-8 as U+FFFD.
    fn get(&self, name: &str) -> Option<String> {
        let content = fs::read(self.base.join("ws").join(name)).ok()?;
        Some(String::from_utf8_lossy(&content).into_owned())
    }

    /// Asserts that nothing around the workspace has changed, and that no tool left temporary
    /// files.
    #[track_caller]
    fn check_around(&self) {
        let around = |name| names(&self.base.join(name));
        assert_eq!(around(""), ["outside", "ws", "ws2"]);
        assert_eq!((around("outside"), around("ws2")), (vec!["secret".into()], vec!["f".into()]));
        let secret = fs::read_to_string(self.base.join("outside/secret")).unwrap();
        assert_eq!(secret, "secret\n");
        assert!(!around("ws").iter().any(|name| name.contains("quackd")));
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

impl Put {
    fn make(self, base: &Path) {
        let at = |name: &str| base.join("ws").join(name);
        let write = |name: &str, content: &[u8]| {
            write_file(at(name), content);
        };
        match self {
            Self::File(name, content) => write(name, content),
            Self::Sized(name, size) => write(name, &vec![b'x'; size]),
            Self::Lines(name, lines) => {
                let last = lines.iter().map(|(number, _)| *number).max().unwrap();
                let mut content = vec![""; last];
                for (number, line) in lines {
                    content[number - 1] = line;
                }
                write(name, (content.join("\n") + "\n").as_bytes());
            }
            Self::Dir(name) => fs::create_dir_all(at(name)).unwrap(),
            Self::Link(name, target) => {
                let target = target.replace("{base}", base.to_str().unwrap());
                symlink(target, at(name)).unwrap();
            }
            Self::HardLink(name, target) => fs::hard_link(at(target), at(name)).unwrap(),
            Self::Fifo(name) => {
                nix::unistd::mkfifo(&at(name), nix::sys::stat::Mode::S_IRUSR).unwrap();
            }
            Self::Mode(name, mode) => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

/// Returns true if a text reports a failure. Tools with other agents' names have their own failure
/// texts.
fn is_failure(tool: &str, text: &str) -> bool {
    const OF_NIXCODE: [&str; 5] =
        ["Search pattern is", "Invalid ", "Glob pattern ", "Pattern ", "Path exceeds "];
    match tool {
        "search_content" | "replace_content" | "search_glob_files" => {
            text.starts_with("Error: ") || OF_NIXCODE.iter().any(|begin| text.starts_with(begin))
        }
        "ripgrep_search" => text.contains(r#""return_code":2"#),
        _ => text.starts_with("Error: "),
    }
}

/// Calls one row in both ways. Returns the errors in the answers.
#[track_caller]
fn wrongs(bench: &Bench, places: [&Place; 2], row: Row<'_>, safe_mode: bool) -> Vec<String> {
    let (tool, arguments, expected) = row;
    let wrong = |got: &str| format!("{tool} {arguments}\n     got {got:?}\n  wanted {expected:?}");
    let mut wrongs = Vec::new();
    let text = bench.voice(places[0], tool, arguments, safe_mode);
    if text != expected {
        wrongs.push(wrong(&text));
    }
    if let Some(data) = bench.quack_tool(places[1], tool, arguments, safe_mode) {
        // quackd's method refuses the unknown names that upstream's method ignores.
        let unknown = data["text"].as_str().unwrap().strip_prefix("Error: Unknown parameter '");
        let unknown = unknown.and_then(|text| text.split('\'').next());
        if unknown.is_some_and(|name| arguments.contains(&format!("\"{name}\":"))) {
            assert_eq!(data["isError"], true, "{tool} {arguments}: {data}");
            return wrongs;
        }
        if data["text"] != expected {
            wrongs.push(wrong(data["text"].as_str().unwrap()));
        }
        let exit_code = expected.rsplit_once("\n[Exit code: ").filter(|_| tool == "bash");
        let is_error = match exit_code {
            Some((before, code)) => code != "0]" || before.contains("\n[Process "),
            None => is_failure(tool, expected),
        };
        if data["isError"] != is_error {
            wrongs.push(wrong(&data.to_string()));
        }
        let code = exit_code.and_then(|(_, code)| code.trim_end_matches(']').parse::<i64>().ok());
        if data["exitCode"].as_i64() != code {
            wrongs.push(wrong(&data.to_string()));
        }
    }
    wrongs
}

/// Calls every row in one workspace. Rows must not change data of other rows.
#[track_caller]
fn check_rows(bench: &Bench, setup: &[Put], rows: &[Row<'_>], safe_mode: bool) {
    let place = bench.place(setup);
    let wrongs = rows.iter().flat_map(|row| wrongs(bench, [&place; 2], *row, safe_mode));
    assert_none(&wrongs.collect::<Vec<_>>());
    place.check_around();
}

/// Like [`check_rows`], for one tool.
#[track_caller]
fn check(setup: &[Put], tool: &str, rows: &[(&str, &str)]) {
    let rows: Vec<_> = rows.iter().map(|(arguments, text)| (tool, *arguments, *text)).collect();
    check_rows(&Bench::new(), setup, &rows, false);
}

/// Calls every row in separate workspaces, and checks a file afterwards.
#[track_caller]
fn check_changes(setup: &[Put], tool: &str, rows: &[(&str, &str, After<'_>)]) {
    let bench = Bench::new();
    let mut all = Vec::new();
    for (arguments, expected, (file, content)) in rows {
        let places = [bench.place(setup), bench.place(setup)];
        let [first, second] = &places;
        all.extend(wrongs(&bench, [first, second], (tool, arguments, expected), false));
        for place in &places {
            let found = place.get(file);
            if found.as_deref() != *content {
                all.push(format!("{tool} {arguments}\n{file} is {found:?} and not {content:?}"));
            }
            place.check_around();
            bench.wire.request("quack.session_delete", json!({"sessionId": place.session}));
        }
    }
    assert_none(&all);
}

#[track_caller]
fn assert_none(wrongs: &[String]) {
    assert!(wrongs.is_empty(), "{} wrong:\n{}", wrongs.len(), wrongs.join("\n"));
}

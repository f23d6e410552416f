//! Terminals on the wire: programs of a session that clients attach to, and the viewers that the tests of other modules
//! use.

mod addresses;
mod confined;
mod ends;
mod hostile;
mod input;
mod starts;
mod viewers;

use crate::harness::{Daemon, Process, Session, Wire, is_alive, wait_for};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quackd_terminal::{Row, Screen, TerminalSize};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Maximum wait for something on a screen. Longer than the longest flood takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Adds fields to an object.
fn merged(mut object: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        object[name] = value.clone();
    }
    object
}

/// Starts a program on a terminal with 80 columns and 24 rows. Returns the id of the terminal.
#[track_caller]
pub(crate) fn run(session: &Session<'_>, argv: &[&str]) -> String {
    run_with(session, argv, &json!({}))
}

/// Like [`run`], with more parameters.
#[track_caller]
pub(crate) fn run_with(session: &Session<'_>, argv: &[&str], more: &Value) -> String {
    let params = merged(json!({"sessionId": session.id, "argv": argv}), more);
    let data = session.wire.request("quack.run", params);
    assert_eq!(data["sessionId"], session.id.as_str(), "{data}");
    data["terminalId"].as_str().unwrap_or_else(|| panic!("no terminal: {data}")).to_owned()
}

/// Starts a shell script on a terminal.
#[track_caller]
pub(crate) fn run_script(session: &Session<'_>, script: &str) -> String {
    run(session, &["bash", "-c", script])
}

/// An attached client on a separate connection, and the screen that its events make.
pub(crate) struct Viewer {
    wire: Wire,
    session: String,
    terminal: String,
    /// Data of the attachment.
    pub(crate) data: Value,
    /// Screen of a viewer with bytes.
    screen: RefCell<Screen>,
    /// Screen of a viewer with rows: the text of each.
    rows: RefCell<BTreeMap<u64, String>>,
    is_as_rows: bool,
    /// Data of the events that change no screen.
    news: RefCell<Vec<Value>>,
}

impl Viewer {
    /// Attaches to a terminal.
    #[track_caller]
    pub(crate) fn attach(daemon: &Daemon, session: &Session<'_>, terminal: &str) -> Self {
        Self::attach_with(daemon, session, terminal, &json!({}))
    }

    /// Like [`Viewer::attach`], with more parameters.
    #[track_caller]
    pub(crate) fn attach_with(
        daemon: &Daemon,
        session: &Session<'_>,
        terminal: &str,
        more: &Value,
    ) -> Self {
        Self::attach_to(daemon, &session.id, terminal, more)
    }

    /// Like [`Viewer::attach_with`], for a session with this id.
    #[track_caller]
    pub(crate) fn attach_to(daemon: &Daemon, session: &str, terminal: &str, more: &Value) -> Self {
        let wire = daemon.wire();
        let params = merged(json!({"sessionId": session, "terminalId": terminal}), more);
        let data = wire.request("quack.term_attach", params);
        assert_eq!(wire.early_events(), Vec::<Value>::new(), "events before the reply");
        Self {
            wire,
            session: session.to_owned(),
            terminal: terminal.to_owned(),
            data,
            screen: RefCell::new(Screen::new(TerminalSize::DEFAULT, 0)),
            rows: RefCell::default(),
            is_as_rows: more["asRows"] == true,
            news: RefCell::default(),
        }
    }

    /// Reads the next event and applies it to the screen.
    #[track_caller]
    pub(crate) fn event(&self) -> Value {
        let event = self.wire.event();
        let data = &event["data"];
        assert_eq!(
            (&data["type"], data["terminalId"].as_str()),
            (&event["event"], Some(self.terminal.as_str()))
        );
        assert_eq!(event.get("seq"), None, "direct events have no number");
        let kind = event["event"].as_str().expect("a name");
        match kind {
            "term_output" if !self.is_as_rows => {
                drop(self.screen.borrow_mut().feed(&bytes_of(data)));
            }
            "term_redraw" if !self.is_as_rows => {
                let mut screen = self.screen.borrow_mut();
                screen.resize(TerminalSize::new(number(data, "cols"), number(data, "rows")));
                drop(screen.feed(&bytes_of(data)));
            }
            "term_rows" if self.is_as_rows => self.take_rows(&data["screen"]),
            "term_size" | "term_open" | "term_exit" | "term_detached" => {
                self.news.borrow_mut().push(data.clone());
            }
            _ => panic!("not an event of this viewer: {kind}"),
        }
        event
    }

    fn take_rows(&self, screen: &Value) {
        let mut rows = self.rows.borrow_mut();
        if screen["whole"] == true {
            rows.clear();
        }
        for line in screen["lines"].as_array().expect("lines") {
            let runs = line["runs"].as_array().expect("runs");
            let text: String = runs.iter().map(|run| run["text"].as_str().expect("text")).collect();
            assert!(!text.contains(char::is_control), "{text:?}");
            rows.insert(line["row"].as_u64().expect("a number"), text);
        }
    }

    /// Reads events until a condition holds.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < LIMIT, "no {what} on\n{}", self.text());
            self.event();
        }
    }

    /// Waits until the screen contains `part`.
    #[track_caller]
    pub(crate) fn shows(&self, part: &str) {
        self.until(part, |viewer| viewer.text().contains(part));
    }

    /// Waits until the program has repeated a line that the terminal has echoed: `cat` reads.
    #[track_caller]
    pub(crate) fn echoes(&self, line: &str) {
        self.types(&format!("{line}\r"));
        self.until(line, |viewer| {
            viewer.text().lines().filter(|row| row.trim_end() == line).count() == 2
        });
    }

    /// Types a line to an interactive shell, which starts or continues `cat`, and waits until that runs. The shell handles
    /// a line differently that comes earlier.
    #[track_caller]
    fn starts_cat(&self, session: &Session<'_>, line: &str) {
        self.types(&format!("{line}\r"));
        wait_for("cat to run", || {
            let is_cat = |process: &Process| process.name == "cat" && process.state != 'T';
            below(session).iter().any(is_cat).then_some(())
        });
    }

    /// Text of the screen.
    pub(crate) fn text(&self) -> String {
        if self.is_as_rows {
            self.rows.borrow().values().map(|row| row.clone() + "\n").collect()
        } else {
            self.screen.borrow().text()
        }
    }

    /// Rows of the screen with their styles.
    fn styled(&self) -> Vec<Row> {
        self.screen.borrow().rows()
    }

    /// Columns and rows of the screen.
    fn size(&self) -> TerminalSize {
        self.screen.borrow().size()
    }

    /// Waits for an event that changes no screen. Returns its data.
    #[track_caller]
    pub(crate) fn news(&self, kind: &str) -> Value {
        let place = |viewer: &Self| viewer.news.borrow().iter().position(|it| it["type"] == kind);
        self.until(kind, |viewer| place(viewer).is_some());
        let at = place(self).expect("news");
        self.news.borrow_mut().remove(at)
    }

    /// Sends bytes to the program. Returns whether they were taken.
    #[track_caller]
    fn input(&self, bytes: &[u8]) -> bool {
        let data = self.request("quack.term_input", &json!({"bytes": STANDARD.encode(bytes)}));
        data["taken"].as_bool().unwrap_or_else(|| panic!("{data}"))
    }

    /// Types text.
    #[track_caller]
    pub(crate) fn types(&self, text: &str) {
        wait_for("the input to be taken", || self.input(text.as_bytes()).then_some(()));
    }

    fn params(&self, more: &Value) -> Value {
        merged(json!({"sessionId": self.session, "terminalId": self.terminal}), more)
    }

    /// Sends a request about the terminal.
    #[track_caller]
    pub(crate) fn request(&self, method: &str, more: &Value) -> Value {
        self.wire.request(method, self.params(more))
    }

    /// Sends a request about the terminal that must be refused. Returns the error.
    #[track_caller]
    fn refused(&self, method: &str, more: &Value) -> String {
        self.wire.refused(method, self.params(more))
    }

    /// Input of this client must be refused. Returns the error.
    #[track_caller]
    fn is_refused_input(&self) -> String {
        self.refused("quack.term_input", &json!({"bytes": STANDARD.encode("no\r")}))
    }

    /// Sets the size of this client's window. Returns the size of the terminal.
    #[track_caller]
    fn resize(&self, cols: u16, rows: u16) -> Value {
        self.request("quack.term_resize", &json!({"cols": cols, "rows": rows}))
    }
}

#[track_caller]
fn number(data: &Value, key: &str) -> u16 {
    let number = data[key].as_u64().unwrap_or_else(|| panic!("no {key}"));
    u16::try_from(number).expect("a small number")
}

/// Bytes of an event.
#[track_caller]
fn bytes_of(data: &Value) -> Vec<u8> {
    STANDARD.decode(data["bytes"].as_str().expect("bytes")).expect("base64")
}

/// Descendants of the session's worker.
#[track_caller]
pub(crate) fn below(session: &Session<'_>) -> BTreeSet<Process> {
    crate::harness::descendants_of(session.pid("pid"))
}

/// Waits until `n` processes named `sleep` run below the worker. Returns all of its descendants.
#[track_caller]
fn with_sleeps(session: &Session<'_>, n: usize) -> BTreeSet<Process> {
    wait_for("the program's processes", || {
        let below = below(session);
        (below.iter().filter(|process| process.name == "sleep").count() == n).then_some(below)
    })
}

#[track_caller]
pub(crate) fn all_gone(processes: &BTreeSet<Process>) {
    wait_for("the processes to be gone", || (!processes.iter().any(is_alive)).then_some(()));
}

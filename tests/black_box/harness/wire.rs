//! The client wire, used through a plain socket, so that the tests and the client library cannot
//! share a bug.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Maximum wait for one line.
const LINE_PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
pub(crate) struct Wire {
    reader: RefCell<BufReader<UnixStream>>,
    writer: UnixStream,
    next: RefCell<u64>,
    early: RefCell<HashMap<String, Value>>,
    answered: RefCell<HashSet<String>>,
    /// Events that arrived before an awaited reply.
    events: RefCell<VecDeque<Value>>,
}

/// The writing half of a connection.
pub(crate) struct Sender(UnixStream);

impl Sender {
    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("write to the daemon");
    }
}

/// A request whose reply is unread.
#[must_use = "read the reply or the connection"]
pub(crate) struct Pending<'a> {
    wire: &'a Wire,
    id: String,
}

impl Wire {
    #[track_caller]
    pub(crate) fn connect(socket: &Path) -> Self {
        Self::over(UnixStream::connect(socket).expect("connect to the daemon"))
    }

    pub(crate) fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LINE_PATIENCE)).expect("set a read time limit");
        stream.set_write_timeout(Some(LINE_PATIENCE)).expect("set a write time limit");
        let reader = RefCell::new(BufReader::new(stream.try_clone().expect("clone a socket")));
        Self {
            reader,
            writer: stream,
            next: RefCell::default(),
            early: RefCell::default(),
            answered: RefCell::default(),
            events: RefCell::default(),
        }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.writer
    }

    /// Returns the writing half, for a thread that writes while another reads.
    pub(crate) fn sender(&self) -> Sender {
        Sender(self.writer.try_clone().expect("clone a socket"))
    }

    /// Writes bytes unchanged.
    #[track_caller]
    pub(crate) fn write(&self, bytes: &[u8]) {
        (&self.writer).write_all(bytes).expect("write to the daemon");
    }

    /// The next line, without its end. `None` if the daemon closed the connection.
    #[track_caller]
    pub(crate) fn line(&self) -> Option<String> {
        let mut line = String::new();
        match self.reader.borrow_mut().read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end_matches('\n').to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no line from the daemon: {error}"),
        }
    }

    /// Reads until the daemon closes the connection.
    #[track_caller]
    pub(crate) fn drain(&self) -> String {
        let mut rest = String::new();
        match self.reader.borrow_mut().read_to_string(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("the daemon did not close: {error}"),
        }
    }

    /// Writes one line and reads one line.
    #[track_caller]
    pub(crate) fn exchange(&self, line: &str) -> String {
        self.write(format!("{line}\n").as_bytes());
        self.line().expect("the daemon closed instead of answering")
    }

    /// Sends a request without waiting.
    #[track_caller]
    pub(crate) fn begin(&self, method: &str, params: &Value) -> Pending<'_> {
        let id = {
            let mut next = self.next.borrow_mut();
            *next += 1;
            format!("t{next}")
        };
        let line = json!({"id": id, "method": method, "params": params});
        self.write(format!("{line}\n").as_bytes());
        Pending { wire: self, id }
    }

    /// Sends a request and returns its whole reply.
    #[track_caller]
    pub(crate) fn reply(&self, method: &str, params: Value) -> Value {
        self.begin(method, &params).reply()
    }

    /// Sends a request that must succeed. Returns its data.
    #[track_caller]
    pub(crate) fn request(&self, method: &str, params: Value) -> Value {
        let mut reply = self.reply(method, params);
        assert_eq!(reply["ok"], true, "{method}: {reply}");
        reply["data"].take()
    }

    /// Sends a request that must be refused. Returns the error text.
    #[track_caller]
    pub(crate) fn refused(&self, method: &str, params: Value) -> String {
        let reply = self.reply(method, params);
        assert_eq!(reply["ok"], false, "{method}: {reply}");
        assert_eq!(reply.get("data"), None, "{method}: {reply}");
        reply["error"].as_str().expect("an error text").to_owned()
    }

    /// Attaches to a directory.
    #[track_caller]
    pub(crate) fn attach(&self, path: &Path) -> Session<'_> {
        let data = self.request("attach", json!({"path": path}));
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        Session {
            wire: self,
            id: text(&data["session"]["id"]),
            name: text(&data["session"]["name"]),
            path: text(&data["workspace"]["path"]),
        }
    }

    /// The next event.
    #[track_caller]
    pub(crate) fn event(&self) -> Value {
        if let Some(event) = self.events.borrow_mut().pop_front() {
            return event;
        }
        let line = self.line().expect("closed before an event");
        let value: Value = serde_json::from_str(&line).expect("a line of JSON");
        assert!(value.get("event").is_some(), "not an event: {value}");
        value
    }

    /// The next event whose line matches. Other lines are not parsed, so that a flood of events does not make this client
    /// a slow one on a busy machine.
    #[track_caller]
    pub(crate) fn event_in_flood(&self, is_meant: impl Fn(&str) -> bool) -> Value {
        loop {
            let line = self.line().expect("closed before an event");
            if is_meant(&line) {
                return serde_json::from_str(&line).expect("a line of JSON");
            }
        }
    }

    /// Events that arrived before the last reply and were not read.
    pub(crate) fn early_events(&self) -> Vec<Value> {
        self.events.borrow().iter().cloned().collect()
    }

    /// Returns events up to and including the first with this name.
    #[track_caller]
    pub(crate) fn events_until(&self, name: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.event());
            if events.last().is_some_and(|event| event["event"] == name) {
                return events;
            }
        }
    }

    fn take_reply(&self, id: &str) -> Value {
        loop {
            if let Some(reply) = self.early.borrow_mut().remove(id) {
                return reply;
            }
            let line = self.line().unwrap_or_else(|| panic!("closed before the reply to {id}"));
            let value: Value = serde_json::from_str(&line).expect("a line of JSON");
            if let Some(id) = value["id"].as_str() {
                let is_first = self.answered.borrow_mut().insert(id.to_owned());
                assert!(is_first, "two replies to {id}: {value}");
                self.early.borrow_mut().insert(id.to_owned(), value);
            } else if value.get("event").is_some() {
                self.events.borrow_mut().push_back(value);
            }
        }
    }
}

impl Pending<'_> {
    /// Returns true if an unread line has arrived. On a connection without events and other
    /// requests this is the reply.
    pub(crate) fn is_there(&self) -> bool {
        let mut here = [PollFd::new(self.wire.writer.as_fd(), PollFlags::POLLIN)];
        !self.wire.reader.borrow().buffer().is_empty()
            || poll(&mut here, PollTimeout::ZERO).is_ok_and(|n| 0 < n)
    }

    /// Waits for the reply.
    #[track_caller]
    pub(crate) fn reply(self) -> Value {
        self.wire.take_reply(&self.id)
    }

    /// Waits for the text of a tool call.
    #[track_caller]
    pub(crate) fn text(self) -> String {
        let reply = self.reply();
        assert_eq!(reply["ok"], true, "{reply}");
        reply["data"]["result"].as_str().unwrap_or_else(|| panic!("no text: {reply}")).to_owned()
    }
}

/// One session on one connection.
pub(crate) struct Session<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) path: String,
}

impl<'a> Session<'a> {
    /// Begins a tool call as a voice client does.
    #[track_caller]
    pub(crate) fn begin(&self, tool: &str, arguments: Value) -> Pending<'a> {
        let params = json!({
            "callId": "c", "toolName": tool, "arguments": arguments.to_string(), "sessionId": self.id,
        });
        self.wire.begin("voice_tool_call", &params)
    }

    /// Runs a tool and returns its text.
    #[track_caller]
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> String {
        self.begin(tool, arguments).text()
    }

    /// Runs a bash command that may take minutes, which is longer than the usual wait for a line.
    #[track_caller]
    pub(crate) fn long_bash(&self, command: &str) -> String {
        const LIMIT: Duration = Duration::from_secs(300);
        let wait = |time| self.wire.writer.set_read_timeout(Some(time)).expect("set a time limit");
        wait(LIMIT + LINE_PATIENCE);
        let milliseconds = u64::try_from(LIMIT.as_millis()).expect("a number");
        let text = self.call("bash", json!({"command": command, "timeout_ms": milliseconds}));
        wait(LINE_PATIENCE);
        text
    }

    /// Runs a bash command and returns its text.
    #[track_caller]
    pub(crate) fn bash(&self, command: &str) -> String {
        self.call("bash", json!({"command": command}))
    }

    /// Returns true if workers have namespaces here. Starts the worker.
    #[track_caller]
    pub(crate) fn has_namespaces(&self) -> bool {
        self.bash("true");
        ["A", "B"].contains(&self.worker()["tier"].as_str().expect("a tier"))
    }

    /// Like [`Session::has_namespaces`]. Without namespaces the test is reported as one that shows nothing.
    #[track_caller]
    pub(crate) fn shows_namespaces(&self) -> bool {
        let has = self.has_namespaces();
        if !has {
            super::untested("workers have no namespaces here");
        }
        has
    }

    /// The session's entry in `quack.ps`.
    #[track_caller]
    pub(crate) fn worker(&self) -> Value {
        let ps = self.wire.request("quack.ps", json!({}));
        let mut all = ps["workers"].as_array().expect("workers").iter();
        all.find(|worker| worker["sessionId"] == self.id.as_str())
            .unwrap_or_else(|| panic!("session {} has no worker: {ps}", self.id))
            .clone()
    }

    /// The pid under `key` in the session's entry. Waits until there is one.
    #[track_caller]
    pub(crate) fn pid(&self, key: &str) -> i32 {
        super::wait_for("a worker's pid", || i32::try_from(self.worker()[key].as_i64()?).ok())
    }
}

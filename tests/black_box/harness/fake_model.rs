//! A fake model server (`tests/fixtures/fake_openai.py`): plays one script in three dialects and injects faults. Needs
//! python3.

use super::{KillOnDrop, program, wait_for};
use quackd_testkit::HttpReply;
use serde_json::Value;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_openai.py");

/// The server, killed at the end of the test.
pub(crate) struct FakeModel {
    _child: KillOnDrop,
    port: u16,
    log: PathBuf,
}

impl FakeModel {
    /// Starts the server with this script. Its files are in `dir`.
    #[track_caller]
    pub(crate) fn start(dir: &Path, script: &Value) -> Self {
        std::fs::create_dir_all(dir).expect("a directory");
        let (path, port_file) = (dir.join("script.json"), dir.join("port"));
        let log = dir.join("requests.jsonl");
        std::fs::write(&path, script.to_string()).expect("write a script");
        let mut command = program(SERVER);
        command.arg("--script").arg(&path).arg("--port-file").arg(&port_file);
        command.arg("--log").arg(&log).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("start python3");
        // From here on, a failed test kills the server.
        let mut server = Self { _child: child.into(), port: 0, log };
        server.port = wait_for("the model server to listen", || {
            std::fs::read_to_string(&port_file).ok()?.trim().parse().ok()
        });
        server
    }

    /// Base URL of the two dialects of OpenAI.
    pub(crate) fn v1(&self) -> String {
        format!("{}/v1", self.root())
    }

    /// Base URL of the dialect of Anthropic.
    pub(crate) fn root(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Replaces the script, and sets the counters to zero.
    #[track_caller]
    pub(crate) fn script(&self, script: &Value) {
        let reply = self.ask("POST", "/__script", &script.to_string());
        assert_eq!(reply["ok"], true, "{reply}");
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("reach the server");
        let head = format!("{method} {path} HTTP/1.0\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).expect("send a request");
        HttpReply::read(&mut stream).json()
    }

    /// The counters and a summary of the requests.
    #[track_caller]
    pub(crate) fn state(&self) -> Value {
        self.ask("GET", "/__state", "")
    }

    /// One of the counters: `requests`, `errors_sent`, `client_gone` or `completed`.
    #[track_caller]
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.state()["counts"][name].as_u64().expect("a counter")
    }

    /// All requests with their headers, without the values of keys. Survives a change of the script.
    #[track_caller]
    pub(crate) fn requests(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        // The server may be writing the last line.
        let (complete, _) = log.rsplit_once('\n').unwrap_or_default();
        let lines = complete.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line.get("body").is_some()).collect()
    }
}

//! A blocking client with minimal overhead. Requests are serialized once, and replies are parsed only as far
//! as needed to check them.

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Timeout for one line, longer than every measured time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A serialized request, which can be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Line(Vec<u8>);

impl Line {
    /// Creates a request. Its reply contains `id`.
    pub(crate) fn new(id: u64, method: &str, params: &Value) -> Self {
        let mut bytes = json!({"id": id, "method": method, "params": params}).to_string();
        bytes.push('\n');
        Self(bytes.into_bytes())
    }

    pub(crate) fn ping() -> Self {
        Self::new(0, "ping", &json!({}))
    }

    /// Creates a tool call in a session.
    pub(crate) fn call(id: u64, session: &str, tool: &str, arguments: &Value) -> Self {
        let params = json!({"tool": tool, "arguments": arguments, "sessionId": session});
        Self::new(id, "quack.tool", &params)
    }

    pub(crate) fn bash(session: &str, command: &str) -> Self {
        Self::call(0, session, "bash", &json!({"command": command}))
    }

    pub(crate) fn read_file(session: &str, path: &str) -> Self {
        Self::call(0, session, "read_file", &json!({"path": path}))
    }

    /// Creates a message of JSON-RPC. Without an `id`, it is a notification.
    pub(crate) fn rpc(id: Option<u64>, method: &str, params: &Value) -> Self {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let (Some(id), Some(message)) = (id, message.as_object_mut()) {
            message.insert("id".to_owned(), id.into());
        }
        Self(format!("{message}\n").into_bytes())
    }

    /// Repeats the request for a single write.
    pub(crate) fn repeated(&self, times: usize) -> Self {
        Self(self.0.repeat(times))
    }
}

/// A reply, parsed as far as needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Reply<'a> {
    pub(crate) id: Option<u64>,
    /// Absent in events.
    ok: Option<bool>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) data: Option<&'a RawValue>,
}

/// The part of a tool's result that shows success or failure.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolResult<'a> {
    /// A JSON string.
    #[serde(borrow)]
    pub(crate) text: &'a RawValue,
    pub(crate) is_error: bool,
}

/// A message of JSON-RPC, parsed as far as needed.
#[derive(Debug, Deserialize)]
struct RpcAnswer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Reply<'_> {
    /// Returns the data of a successful request, `null` without data.
    pub(crate) fn data(&self) -> anyhow::Result<&str> {
        match self.ok {
            Some(true) => Ok(self.data.map_or("null", RawValue::get)),
            _ => bail!("refused: {}", self.error.map_or("without a reason", RawValue::get)),
        }
    }

    /// Fails unless this is the reply to a successful tool call.
    pub(crate) fn expect_success(&self) -> anyhow::Result<()> {
        let result: ToolResult<'_> = serde_json::from_str(self.data()?)?;
        if result.is_error {
            bail!("the tool failed: {}", result.text.get());
        }
        Ok(())
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    line: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(socket: &Path) -> anyhow::Result<Self> {
        Self::over(UnixStream::connect(socket)?)
    }

    pub(crate) fn over(writer: UnixStream) -> anyhow::Result<Self> {
        writer.set_read_timeout(Some(PATIENCE))?;
        writer.set_write_timeout(Some(PATIENCE))?;
        let reader = BufReader::with_capacity(64 * 1024, writer.try_clone()?);
        Ok(Self { reader, writer, line: Vec::new() })
    }

    pub(crate) fn send(&mut self, line: &Line) -> anyhow::Result<()> {
        self.writer.write_all(&line.0).context("cannot write to the server")
    }

    /// Passes the next reply to `read`. Skips events.
    pub(crate) fn reply<T>(
        &mut self,
        read: impl Fn(&Reply<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        loop {
            self.next_line()?;
            let reply: Reply<'_> = serde_json::from_slice(&self.line)?;
            if reply.ok.is_some() {
                return read(&reply);
            }
        }
    }

    /// Passes the result of the one pending JSON-RPC request to `read`. Skips notifications and requests.
    pub(crate) fn rpc_result<T>(
        &mut self,
        read: impl Fn(&str) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        loop {
            self.next_line()?;
            let answer: RpcAnswer<'_> = serde_json::from_slice(&self.line)?;
            match (answer.result, answer.error) {
                (_, Some(error)) => bail!("refused: {}", error.get()),
                (Some(result), None) => return read(result.get()),
                (None, None) => {}
            }
        }
    }

    /// Returns the socket. All unread bytes must be events.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.writer
    }

    /// Reads lines without parsing them.
    pub(crate) fn skip_lines(&mut self, n: usize) -> anyhow::Result<()> {
        for _ in 0..n {
            self.next_line()?;
        }
        Ok(())
    }

    fn next_line(&mut self) -> anyhow::Result<()> {
        self.line.clear();
        let n = self.reader.read_until(b'\n', &mut self.line);
        if n.context("no line from the server")? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    /// Sends one request, which must succeed.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.send(&Line::new(0, method, params))?;
        self.reply(|reply| {
            let data = reply.data().with_context(|| format!("{method} failed"))?;
            Ok(serde_json::from_str(data)?)
        })
    }

    /// Sends one tool call, which must succeed.
    pub(crate) fn call(&mut self, line: &Line) -> anyhow::Result<()> {
        self.send(line)?;
        self.reply(|reply| reply.expect_success())
    }

    /// Attaches to a directory and returns the session's id.
    pub(crate) fn attach(&mut self, path: &Path) -> anyhow::Result<String> {
        let data = self.request("attach", &json!({"path": path}))?;
        session_id(&data)
    }
}

/// Returns the session id in the data of an `attach`.
pub(crate) fn session_id(attached: &Value) -> anyhow::Result<String> {
    let id = attached.pointer("/session/id").and_then(Value::as_str);
    Ok(id.context("attach gave no session")?.to_owned())
}

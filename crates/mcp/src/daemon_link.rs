//! One connection to the daemon: says who the agent is, claims sessions, and distributes the output of running calls.

use crate::lock;
use crate::questions::{Askers, Questions};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quackd_client::{
    Client, ClientError, ConnectError, Events, Question, directory_in, printable_name,
};
use quackd_protocol::approval::{ApprovalClosed, ApprovalRequest};
use quackd_protocol::client::{ClaimParams, ClientName, FindParams, HelloParams};
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::{
    DEADLINE_GRACE, DEADLINE_SLACK, MAX_TOOL_DEADLINE, WORKER_READY_WAIT,
};
use quackd_protocol::output::ToolOutput;
use rmcp::model::Implementation;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Timeout of replies that need no worker.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for a reply: longer than the daemon takes for the longest deadline.
pub(crate) const PATIENCE: Duration = Duration::from_secs(
    MAX_TOOL_DEADLINE.as_secs()
        + WORKER_READY_WAIT.as_secs()
        + DEADLINE_GRACE.as_secs()
        + DEADLINE_SLACK.as_secs()
        + 10,
);

/// Time to wait for a session with a private copy of a large workspace.
const COPY_TIMEOUT: Duration = Duration::from_secs(160);

/// Name of an agent that does not say its own.
const UNNAMED: &str = "mcp";

/// Maximum size of the last line of output that is kept, in bytes.
const MAX_LINE_BYTES: usize = 1024;

/// Workspaces in which one agent has a session.
const MAX_WORKSPACES: usize = 64;

/// Options of the claims of the agent's sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimOptions {
    /// Whether background jobs survive the connection.
    pub(crate) keep_jobs: bool,
    /// Whether the agent works in a private copy of the workspace.
    pub(crate) isolated: bool,
}

/// A session of the agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentSession {
    pub(crate) id: String,
    /// Directory in which the agent was started, if it is not the workspace.
    pub(crate) cwd: Option<String>,
    /// The workspace. `None` if it is not known.
    pub(crate) workspace: Option<String>,
}

/// The daemon cannot be used, or refuses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Connect(#[from] ConnectError),
    #[error("{text}")]
    Refused { text: String },
    #[error(
        "{why}. Start `quack mcp` in a project, or with --workspace DIR{}",
        if *may_choose { ", or give the argument `workspace`" } else { "" }
    )]
    NoDirectory { why: String, may_choose: bool },
    #[error("the call was cancelled")]
    Cancelled,
    #[error("the argument `workspace` must be an absolute path")]
    RelativeWorkspace,
    #[error("no random numbers")]
    NoRandom,
    #[error("{0}")]
    Client(ClientError),
}

impl From<ClientError> for LinkError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { text, .. } => Self::Refused { text },
            other => Self::Client(other),
        }
    }
}

/// One connection to the daemon.
#[derive(Debug)]
pub(crate) struct DaemonLink {
    pub(crate) client: Client,
    running: Arc<RunningCalls>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) askers: Askers,
    has_asker: AtomicBool,
    /// Cancelled when the connection has closed.
    pub(crate) ended: CancellationToken,
    /// Sessions by directory.
    sessions: Mutex<HashMap<PathBuf, AgentSession>>,
    /// Sessions of the connection before, by directory.
    preferred: HashMap<PathBuf, String>,
    options: ClaimOptions,
    next_call: AtomicU64,
    _reader: AbortOnDropHandle<()>,
}

impl DaemonLink {
    /// Introduces the agent to the daemon.
    ///
    /// `before`: the connection that this one replaces, whose sessions the agent gets again.
    pub(crate) async fn open(
        client: Client,
        agent: Option<Implementation>,
        options: ClaimOptions,
        before: Option<&Self>,
    ) -> Result<Self, LinkError> {
        let events = client.events().await?;

        let (name, version) = agent.map(|agent| (agent.name, agent.version)).unwrap_or_default();
        let printable = |text: &str| Some(printable_name(text)).filter(|text| !text.is_empty());
        let name = printable(&name).unwrap_or_else(|| UNNAMED.to_owned());
        let introduced = ClientName { name, version: printable(&version) };
        let hello = HelloParams { client: introduced, door: Some("mcp".to_owned()) };
        client.call_within(hello, REPLY_TIMEOUT).await?;

        let running = Arc::new(RunningCalls::default());
        let (questions, ended) = (Arc::<Questions>::default(), CancellationToken::new());
        let reading = read(events, Arc::clone(&running), Arc::clone(&questions));

        // The end of the reader means that the connection has ended.
        let at_end = ended.clone().drop_guard();
        let reader = tokio::spawn(async move {
            let _at_end = at_end;
            reading.await;
        });
        Ok(Self {
            client,
            running,
            questions,
            askers: Askers::default(),
            has_asker: AtomicBool::default(),
            ended,
            sessions: Mutex::default(),
            preferred: before.map_or_else(HashMap::new, Self::all_sessions),
            options,
            next_call: AtomicU64::new(1),
            _reader: AbortOnDropHandle::new(reader),
        })
    }

    /// Returns true for the first caller.
    pub(crate) fn is_first_asker(&self) -> bool {
        !self.has_asker.swap(true, Ordering::Relaxed)
    }

    /// Whether a call with this id runs.
    pub(crate) fn is_running(&self, id: &str) -> bool {
        lock(&self.running.0).contains_key(id)
    }

    /// Returns true if the daemon has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns the agent's session in the workspace of `dir`. Claims one with the first call.
    pub(crate) async fn claim(&self, dir: &Path) -> Result<AgentSession, LinkError> {
        if !dir.is_absolute() {
            return Err(LinkError::RelativeWorkspace);
        }

        if let Some(session) = lock(&self.sessions).get(dir) {
            return Ok(session.clone());
        }

        let params = ClaimParams {
            path: dir.to_string_lossy().into_owned(),
            safe_mode: None,
            keep_jobs: Some(self.options.keep_jobs),
            session_id: self.preferred.get(dir).cloned(),
            isolated: Some(self.options.isolated),
        };
        let timeout = if self.options.isolated { COPY_TIMEOUT } else { REPLY_TIMEOUT };
        let claimed = self.client.call_within(params, timeout).await?;

        let cwd = directory_in(&claimed.workspace.path, dir);
        let workspace = Some(claimed.workspace.path);
        let session = AgentSession { id: claimed.session.id.0, cwd, workspace };

        let mut sessions = lock(&self.sessions);
        if MAX_WORKSPACES <= sessions.len() {
            // Workspaces in use are claimed again.
            sessions.clear();
        }
        sessions.insert(dir.to_owned(), session.clone());
        Ok(session)
    }

    /// Returns the id of a session. If the daemon does not find the session, returns the reference.
    pub(crate) async fn id_of(&self, reference: String) -> String {
        let params = FindParams { session_id: Some(reference.clone()), ..FindParams::default() };
        let reply = self.client.call_within(params, REPLY_TIMEOUT).await;
        let session = reply.ok().and_then(|reply| reply.session);
        session.map_or(reference, |session| session.session_id.0)
    }

    fn all_sessions(&self) -> HashMap<PathBuf, String> {
        let mut all = self.preferred.clone();
        all.extend(
            lock(&self.sessions).iter().map(|(dir, session)| (dir.clone(), session.id.clone())),
        );
        all
    }

    /// Forgets the sessions, so that the next call claims one. Call this when the daemon does not know one.
    pub(crate) fn forget_sessions(&self) {
        lock(&self.sessions).clear();
    }

    /// Adds a running call, whose output goes to `output`. Its id is unique on this machine.
    pub(crate) fn start_call(&self, output: &Arc<CallOutput>) -> RunningCall {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        let id = format!("mcp-{}-{number}", std::process::id());
        lock(&self.running.0).insert(id.clone(), Arc::clone(output));
        RunningCall { id, all: Arc::clone(&self.running) }
    }
}

/// The running calls by id. Bounded by [`crate::gateway::Gateway::slots`].
#[derive(Debug, Default)]
struct RunningCalls(Mutex<HashMap<String, Arc<CallOutput>>>);

/// A running call. Dropping it removes the call.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) id: String,
    all: Arc<RunningCalls>,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.id);
    }
}

/// The newest output of a call.
#[derive(Debug, Default)]
pub(crate) struct CallOutput {
    last_line: Mutex<Vec<u8>>,
    grew: Notify,
}

impl CallOutput {
    /// Waits for output that came after the last call of this function. Cancel-safe.
    pub(crate) async fn grown(&self) {
        self.grew.notified().await;
    }

    /// Returns the last line that is not empty, without escape sequences and control characters.
    pub(crate) fn last_line(&self) -> Option<String> {
        let line = String::from_utf8_lossy(&lock(&self.last_line)).into_owned();
        let plain = anstream::adapter::strip_str(&line).to_string();
        let plain = stripped_line(&plain, plain.len());
        Some(plain.trim().to_owned()).filter(|line| !line.is_empty())
    }

    fn add(&self, bytes: &[u8]) {
        let mut line = lock(&self.last_line);
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_blank = part.trim_ascii().is_empty();

            // A line that has ended stays until the next one says something.
            if !is_blank && line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                line.clear();
            }

            let is_ended = part.ends_with(b"\n") || part.ends_with(b"\r");
            if !is_blank || (is_ended && !line.is_empty()) {
                // Only the start of a long line is kept.
                let room = MAX_LINE_BYTES.saturating_sub(line.len());
                line.extend(part.iter().take(room));
                if is_ended {
                    line.push(b'\n');
                }
            }
        }
        drop(line);
        self.grew.notify_one();
    }
}

/// Distributes the output of running calls and the questions until the connection closes. Never waits for a call.
async fn read(mut events: Events, running: Arc<RunningCalls>, questions: Arc<Questions>) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Printed<'a> {
        tool_call_id: &'a str,
        bytes: &'a str,
    }

    while let Some(event) = events.recv().await {
        let text = event.data.as_deref().map(RawValue::get).unwrap_or_default();
        match event.name.as_str() {
            ToolOutput::NAME => {
                let Ok(Printed { tool_call_id, bytes }) = serde_json::from_str(text) else {
                    continue;
                };
                let output = lock(&running.0).get(tool_call_id).cloned();
                if let (Some(output), Ok(bytes)) = (output, STANDARD.decode(bytes)) {
                    output.add(&bytes);
                }
            }
            ApprovalRequest::NAME => {
                let data = serde_json::from_str(text).unwrap_or_default();
                let session = event.session_id.as_deref().unwrap_or_default();
                if let Some(question) = Question::read(session, &data)
                    // A follower gets a second copy, with a number.
                    && (question.permission.is_none() || event.seq.is_none())
                {
                    questions.opened(question);
                }
            }
            ApprovalClosed::NAME => {
                let data: Value = serde_json::from_str(text).unwrap_or_default();
                questions.closed(data.get("id").unwrap_or(&Value::Null));
            }
            _ => {}
        }
    }
    questions.close_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&[u8]], expected: Option<&str>) {
        let output = CallOutput::default();
        pieces.iter().for_each(|piece| output.add(piece));
        assert_eq!(output.last_line().as_deref(), expected, "{pieces:?}");
        assert!(lock(&output.last_line).len() <= 2 * MAX_LINE_BYTES);
    }

    #[test]
    fn progress_shows_the_last_line_that_says_something() {
        check(&[], None);
        check(&[b"\n \n"], None);
        check(&[b"one\n", b"two\n"], Some("two"));
        check(&[b"one\ntw", b"o"], Some("two"));
        check(&[b"one\r\n\r\n", b"\n"], Some("one"));
        check(&[b"10 %\r", b"20 %\r"], Some("20 %"));
        check(&[b"\x1b[31mred\x1b[0m\x07\n"], Some("red"));
        check(&[b"\xff\n"], Some("\u{fffd}"));
        let long = [b'x'; 4 * MAX_LINE_BYTES];
        check(&[&long, &long], Some(&"x".repeat(MAX_LINE_BYTES)));
        check(&[&long, b"\nshort"], Some("short"));
    }
}

//! One session as the demo uses it: a few calls, and what `quack ps` says of its worker.

use crate::connect::REPLY_TIMEOUT;
use crate::display;
use crate::verbs::ps;
use crate::verbs::tool::patience;
use crate::which;
use anyhow::{Context, bail};
use quackd_client::Client;
use quackd_protocol::client::{
    AttachData, AttachParams, SessionDeleteData, SessionDeleteParams, ToolParams, ToolResult,
    WorkerInfo,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Deadline of the demo's own calls.
const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// One session of the demo.
#[derive(Debug, Clone)]
pub(crate) struct DemoSession<'a> {
    client: &'a Client,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) workspace: String,
}

/// The answer to one call, and how long it took, client to client.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) result: ToolResult,
    pub(crate) took: Duration,
}

impl Timed {
    /// The answer's text if the tool succeeded.
    ///
    /// # Errors
    /// The tool failed: its own words.
    pub(crate) fn text(&self) -> anyhow::Result<&str> {
        if crate::exit::of_tool(&self.result) == crate::exit::Exit::Ok {
            return Ok(&self.result.text);
        }
        bail!("{}", display::first_line(&self.result.text, 200))
    }
}

impl<'a> DemoSession<'a> {
    /// Finds or makes the session of `path`; the active session stays the active one.
    ///
    /// # Errors
    /// Of the request.
    pub(crate) async fn open(client: &'a Client, path: &str) -> anyhow::Result<Self> {
        let params = AttachParams {
            path: Some(Value::from(path)),
            activate: Some(false),
            ..AttachParams::default()
        };
        let data: AttachData = client.request("attach", params, REPLY_TIMEOUT).await?;
        Ok(Self {
            client,
            name: which::label(client, data.session.id.as_str()).await?,
            id: data.session.id.0,
            workspace: data.workspace.path,
        })
    }

    /// Has the daemon forget the session.
    ///
    /// # Errors
    /// Of the request.
    pub(crate) async fn delete(&self) -> anyhow::Result<()> {
        let session_id = Value::from(self.id.as_str());
        let params = SessionDeleteParams { session_id, force: Some(true) };
        let _deleted: SessionDeleteData =
            self.client.request("quack.session_delete", params, REPLY_TIMEOUT).await?;
        Ok(())
    }

    /// Runs one tool to its end.
    ///
    /// # Errors
    /// Of the request; a tool that fails is a result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> anyhow::Result<Timed> {
        let params = ToolParams {
            tool: tool.to_owned(),
            arguments,
            session_id: Some(self.id.clone()),
            timeout_ms: Some(u64::try_from(CALL_DEADLINE.as_millis())?),
            ..ToolParams::default()
        };
        let begun = Instant::now();
        let result = self.client.request("quack.tool", params, patience(CALL_DEADLINE)).await?;
        Ok(Timed { result, took: begun.elapsed() })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// As [`DemoSession::call`].
    pub(crate) async fn bash(&self, command: &str) -> anyhow::Result<Timed> {
        self.call("bash", json!({"command": command})).await
    }

    /// What `quack ps` says of the session's worker.
    ///
    /// # Errors
    /// Of the request; the session has had no worker yet.
    pub(crate) async fn worker(&self) -> anyhow::Result<WorkerInfo> {
        let data = ps::ask(self.client).await?;
        let mut workers = data.workers.into_iter();
        workers
            .find(|worker| worker.session_id.as_str() == self.id)
            .with_context(|| format!("`quack ps` does not know {}", display::plain(&self.name)))
    }

    /// The process id of the session's worker.
    ///
    /// # Errors
    /// As [`DemoSession::worker`]; it has none.
    pub(crate) async fn pid(&self) -> anyhow::Result<u32> {
        self.worker().await?.pid.context("the worker has no process id")
    }
}

/// A call's first lines, without the empty ones and without the exit code that ends a command's text.
pub(crate) fn quoted(text: &str, max_lines: usize) -> Vec<String> {
    let lines =
        text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("[Exit code: "));
    lines.take(max_lines).map(str::to_owned).collect()
}

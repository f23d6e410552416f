//! Session used by the demo: its calls and its row in `quack ps`.

use crate::connect::patience;
use crate::display;
use crate::session_ref;
use crate::subcommands::ps;
use anyhow::{Context, bail};
use quackd_client::Client;
use quackd_protocol::client::{
    AttachParams, SessionDeleteParams, ToolParams, ToolResult, WorkerInfo,
};
use quackd_protocol::tools::BashArguments;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Deadline of the demo's own calls.
const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// Session of the demo.
#[derive(Debug, Clone)]
pub(crate) struct DemoSession<'a> {
    client: &'a Client,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) workspace: String,
}

/// Result of one call with its duration, measured in the client.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) result: ToolResult,
    pub(crate) took: Duration,
}

impl Timed {
    /// Returns the text of the result if the tool succeeded.
    ///
    /// # Errors
    /// If the tool failed. The error is its text.
    pub(crate) fn text(&self) -> anyhow::Result<&str> {
        if crate::exit::of_tool(&self.result) == crate::exit::ExitCode::Ok {
            return Ok(&self.result.text);
        }
        bail!("{}", display::first_line(&self.result.text, 200))
    }
}

impl<'a> DemoSession<'a> {
    /// Finds or creates the session of `path` without activating it.
    ///
    /// # Errors
    /// Those of the request.
    pub(crate) async fn open(client: &'a Client, path: &str) -> anyhow::Result<Self> {
        let params = AttachParams {
            path: Some(Value::from(path)),
            activate: Some(false),
            ..AttachParams::default()
        };

        let data = client.call(params).await?;
        Ok(Self {
            client,
            name: session_ref::label(client, data.session.id.as_str()).await?,
            id: data.session.id.0,
            workspace: data.workspace.path,
        })
    }

    /// Deletes the session.
    ///
    /// # Errors
    /// Those of the request.
    pub(crate) async fn delete(&self) -> anyhow::Result<()> {
        let session_id = Value::from(self.id.as_str());
        let params = SessionDeleteParams { session_id, force: Some(true) };
        self.client.call(params).await?;
        Ok(())
    }

    /// Runs one tool and waits for its result.
    ///
    /// # Errors
    /// Those of the request. A failure of the tool is a result.
    pub(crate) async fn call(&self, call: impl Into<ToolParams>) -> anyhow::Result<Timed> {
        let params = ToolParams {
            session_id: Some(self.id.clone()),
            timeout_ms: Some(u64::try_from(CALL_DEADLINE.as_millis())?),
            ..call.into()
        };

        let start = Instant::now();
        let result = self.client.call_within(params, patience(CALL_DEADLINE)).await?;
        Ok(Timed { result, took: start.elapsed() })
    }

    /// Runs a command and waits for its result.
    ///
    /// # Errors
    /// Those of [`DemoSession::call`].
    pub(crate) async fn bash(&self, command: &str) -> anyhow::Result<Timed> {
        self.call(BashArguments::builder().command(command)).await
    }

    /// Returns the row of the session's worker in `quack ps`.
    ///
    /// # Errors
    /// Those of the request, and an error if the session has had no worker yet.
    pub(crate) async fn worker(&self) -> anyhow::Result<WorkerInfo> {
        let workers = ps::ask(self.client).await?.workers;
        let worker = workers.into_iter().find(|worker| worker.session_id.as_str() == self.id);
        worker.with_context(|| format!("`quack ps` does not know {}", display::plain(&self.name)))
    }

    /// Returns the process id of the session's worker.
    ///
    /// # Errors
    /// Those of [`DemoSession::worker`], and an error if the worker is not running.
    pub(crate) async fn pid(&self) -> anyhow::Result<u32> {
        self.worker().await?.pid.context("the worker has no process id")
    }
}

/// Returns the first lines of a result, without empty lines and without the exit code at the end of a command's text.
pub(crate) fn quoted(text: &str, max_lines: usize) -> Vec<String> {
    let is_quoted = |line: &&str| !line.trim().is_empty() && !line.starts_with("[Exit code: ");
    text.lines().filter(is_quoted).take(max_lines).map(str::to_owned).collect()
}

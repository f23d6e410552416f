//! Resolves the session and the directory of file searches. Used by `quack grep`, `find`, `replace` and `undo`.
//!
//! The tools read paths and globs from the user's directory, and answer with paths relative to it.

use crate::args::search::ToolCallArgs;
use crate::connect::{DaemonConnection, patience, start_and_connect};
use crate::exit::CliError;
use crate::output::{CliOutput, StdoutState};
use crate::sanitize::clean;
use crate::session_ref::{Missing, Wanted};
use crate::tool_output::{call_id, next_piece, piece};
use anyhow::Context as _;
use quackd_client::Client;
use quackd_protocol::client::{FoundInfo, ToolParams, ToolResult};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::limits::{MAX_TOOL_DEADLINE, MIN_TOOL_DEADLINE};
use serde::Deserialize;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Default timeout of all requests of a subcommand.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum search time of one call whose result is one reply.
const MAX_LOOK: Duration = Duration::from_secs(120);

/// Minimum search time of one call.
const MIN_LOOK: Duration = MIN_TOOL_DEADLINE;

/// Added to the search time to get the deadline of the call, so that partial results arrive.
const CALL_SLACK: Duration = Duration::from_secs(5);

/// Number of bytes of rows that are printed at once.
const PRINT_BYTES: usize = 64 * 1024;

/// Maximum search time of one streamed call.
const MAX_STREAM: Duration = MAX_TOOL_DEADLINE.saturating_sub(CALL_SLACK);

/// Session, workspace and directory of a file search.
#[derive(Debug)]
pub(crate) struct WorkspaceScope {
    /// Absolute, canonical path.
    workspace: PathBuf,
    /// Relative to the workspace; empty for the workspace itself.
    base: PathBuf,
    /// Whether it is on another machine, so that this process sees no file of it.
    is_far: bool,
}

/// Connection, scope and deadline of a file search.
#[derive(Debug)]
pub(crate) struct ScopedClient {
    daemon: DaemonConnection,
    /// Scope of the relative paths.
    pub(crate) place: WorkspaceScope,
    /// Session that runs the tools.
    pub(crate) session: FoundInfo,
    deadline: Instant,
}

impl ScopedClient {
    /// Connection to the daemon.
    pub(crate) fn client(&self) -> &Client {
        &self.daemon.client
    }

    /// Resolves the scope and connects. `missing` decides what happens if the directory has no session.
    ///
    /// # Errors
    /// A usage error if the directory does not exist; errors of connecting; an unknown session.
    pub(crate) async fn begin(
        args: &ToolCallArgs,
        missing: Missing,
        output: CliOutput,
    ) -> anyhow::Result<Self> {
        let deadline = Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT);
        // Check the arguments before a daemon is started.
        let choice = Wanted::of(&args.which)?;
        let daemon = start_and_connect(output).await?;
        let session = choice.one(&daemon.client, missing).await?;

        let place = WorkspaceScope::of_session(&session, args.which.dir.as_deref());
        Ok(Self { daemon, place, session, deadline })
    }

    /// Calls a tool. With `has_timeout` it gets a search time and returns partial results at its end.
    ///
    /// # Errors
    /// Those of the request. A failure of the tool is a result.
    pub(crate) async fn call(
        &self,
        call: impl Into<ToolParams>,
        has_timeout: bool,
    ) -> anyhow::Result<ToolResult> {
        let (params, limit) = self.params(call.into(), has_timeout, MAX_LOOK)?;
        Ok(self.daemon.client.call_within(params, patience(limit)).await?)
    }

    /// Calls a tool with a search time, and passes the bytes of its rows to `take` while it runs. Returns `None` if the
    /// reader of the output closed the pipe. Then the call ends with the connection.
    ///
    /// # Errors
    /// Those of the request and of `take`. A failure of the tool is a result.
    pub(crate) async fn stream(
        &self,
        call: impl Into<ToolParams>,
        mut take: impl AsyncFnMut(Vec<u8>) -> anyhow::Result<StdoutState>,
    ) -> anyhow::Result<Option<ToolResult>> {
        let (params, limit) = self.params(call.into(), true, MAX_STREAM)?;
        let params = ToolParams {
            call_id: Some(call_id()),
            stream: Some(true),
            stream_rows: Some(true),
            ..params
        };

        // Before the call, so that none of its rows is missed.
        let mut events = self.daemon.client.events().await?;
        let answered = CancellationToken::new();
        let calling = async {
            let result = self.daemon.client.call_within(params, patience(limit)).await;
            // All rows precede the reply.
            answered.cancel();
            result
        };

        let reading = async {
            while let Some((_, mut rows)) = next_piece(&mut events, &answered).await? {
                // More rows have arrived if this process is slower than the search.
                while rows.len() < PRINT_BYTES
                    && let Some((_, more)) =
                        events.try_recv().and_then(|event| piece(&event).transpose()).transpose()?
                {
                    rows.extend(more);
                }
                if take(rows).await? == StdoutState::Gone {
                    return Ok(StdoutState::Gone);
                }
            }
            Ok::<_, anyhow::Error>(StdoutState::There)
        };

        tokio::pin!(calling, reading);
        let mut result = None;
        loop {
            tokio::select! {
                biased;
                reader = &mut reading => return match (reader?, result) {
                    (StdoutState::Gone, _) => Ok(None),
                    (StdoutState::There, Some(result)) => Ok(Some(result?)),
                    // The connection was closed.
                    (StdoutState::There, None) => Ok(Some(calling.await?)),
                },
                ended = &mut calling, if result.is_none() => result = Some(ended),
            }
        }
    }

    fn params(
        &self,
        mut call: ToolParams,
        has_timeout: bool,
        most: Duration,
    ) -> anyhow::Result<(ToolParams, Duration)> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let look = left.clamp(MIN_LOOK, most);

        if has_timeout && let Some(arguments) = call.arguments.as_object_mut() {
            arguments.insert("timeout_ms".to_owned(), u64::try_from(look.as_millis())?.into());
        }

        let limit = look + CALL_SLACK;
        let params = ToolParams {
            session_id: Some(self.session.session_id.0.clone()),
            cwd: self.place.directory().to_str().map(str::to_owned),
            timeout_ms: Some(u64::try_from(limit.as_millis())?),
            ..call
        };
        Ok((params, limit))
    }
}

/// Returns the data of a result.
///
/// # Errors
/// The tool's failure: exit code 4 if the tool was busy or timed out, else the code of `otherwise`.
pub(crate) fn data(
    result: &ToolResult,
    otherwise: fn(String) -> CliError,
) -> Result<&Value, CliError> {
    if let Some(data) = result.data.as_ref().filter(|_| !result.info.is_error) {
        return Ok(data);
    }

    let text = clean(result.text.strip_prefix("Error: ").unwrap_or(&result.text));
    let text = text.trim_end().to_owned();
    let is_late = result.info.busy || result.info.timed_out;
    Err(if is_late { CliError::busy(text) } else { otherwise(text) })
}

/// Reads the data of a result.
///
/// # Errors
/// If the data has another shape.
pub(crate) fn read<'a, T: Deserialize<'a>>(data: &'a Value) -> anyhow::Result<T> {
    T::deserialize(data).context("unexpected reply of the worker")
}

impl WorkspaceScope {
    /// Uses the workspace itself if the directory is outside of it or does not exist.
    fn of_session(session: &FoundInfo, dir: Option<&Path>) -> Self {
        if let Some(far) = FarWorkspace::of(&session.workspace_path) {
            let (workspace, base) = (PathBuf::from(far.path), PathBuf::new());
            return Self { workspace, base, is_far: true };
        }
        let workspace = PathBuf::from(&session.workspace_path);
        let here = std::fs::canonicalize(dir.unwrap_or_else(|| Path::new(".")));
        let here = here.unwrap_or_else(|_gone| workspace.clone());
        Self::new(workspace, &here)
    }

    /// Creates a scope for tests.
    #[cfg(test)]
    pub(crate) fn of(workspace: &str, base: &str) -> Self {
        Self { workspace: workspace.into(), base: base.into(), is_far: false }
    }

    /// A directory outside of the workspace is replaced by the workspace itself.
    fn new(workspace: PathBuf, here: &Path) -> Self {
        let base = here.strip_prefix(&workspace).map(Path::to_owned).unwrap_or_default();
        Self { workspace, base, is_far: false }
    }

    /// Returns the absolute directory that displayed paths are relative to.
    pub(crate) fn directory(&self) -> PathBuf {
        // Joining an empty path would add a slash.
        if self.base.as_os_str().is_empty() {
            self.workspace.clone()
        } else {
            self.workspace.join(&self.base)
        }
    }

    /// Makes a path given by the user absolute.
    pub(crate) fn absolute(&self, path: &str) -> PathBuf {
        self.workspace.join(&self.base).join(path)
    }

    /// Splits paths into existing and missing ones. Paths that this process may not inspect count as existing, links to
    /// missing files as missing.
    pub(crate) fn present(&self, paths: &[String]) -> (Vec<String>, Vec<String>) {
        if self.is_far {
            return (paths.to_vec(), Vec::new());
        }
        let is_there = |path: &String| match self.absolute(path).metadata() {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        paths.iter().cloned().partition(is_there)
    }

    /// Returns the start paths for a tool, which reads them from the directory: `paths`, or the directory itself
    /// without any.
    ///
    /// # Errors
    /// A usage error for a path outside of the workspace.
    pub(crate) fn starts(&self, paths: &[String]) -> Result<Vec<String>, CliError> {
        if paths.is_empty() {
            return Ok(vec![".".to_owned()]);
        }
        paths.iter().map(|path| self.start(path)).collect()
    }

    fn start(&self, path: &str) -> Result<String, CliError> {
        let absolute = normal(&self.absolute(path));
        if absolute.starts_with(&self.workspace) {
            return Ok(path.to_owned());
        }
        // The path may lead into the workspace over a link.
        let real = std::fs::canonicalize(&absolute).unwrap_or_default();
        if !self.is_far && real.starts_with(&self.workspace) {
            return Ok(real.to_string_lossy().into_owned());
        }
        let workspace = self.workspace.display();
        Err(CliError::usage(format!("{path} is outside of the workspace {workspace}")))
    }
}

/// Removes `.` and `..` from an absolute path without following links.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(base: &str) -> WorkspaceScope {
        WorkspaceScope::of("/ws", base)
    }

    #[test]
    fn paths_of_the_workspace_are_passed_on_as_typed() {
        for (base, given) in
            [("", "src"), ("", "/ws/a/b"), ("a/b", "../c"), ("a/b", "../.."), ("a/b", "/ws/x")]
        {
            assert_eq!(place(base).starts(&[given.to_owned()]).unwrap(), [given], "{base} {given}");
        }
        assert_eq!(place("a").starts(&[]).unwrap(), ["."]);
        assert_eq!(place("a").directory(), Path::new("/ws/a"));
        for outside in ["../../x", "/etc/passwd", "/wsx"] {
            let fault = place("a").starts(&[outside.to_owned()]).unwrap_err();
            assert!(fault.to_string().contains("outside of the workspace /ws"), "{fault}");
        }
    }

    #[test]
    fn who_stands_elsewhere_stands_in_the_workspace() {
        let place = WorkspaceScope::new("/ws".into(), Path::new("/elsewhere"));
        assert_eq!(place.directory(), Path::new("/ws"));
        assert_eq!(WorkspaceScope::new("/ws".into(), Path::new("/ws/a")).base, Path::new("a"));
    }
}

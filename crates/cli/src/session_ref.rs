//! Resolves the session of a subcommand: that of `--session`, else that of the directory, else the active one. The
//! daemon decides with `quack.find`. This module sends the user's directory, and creates the session of a directory if
//! the subcommand needs one.

use crate::args::SessionArgs;
use crate::connect::REPLY_TIMEOUT;
use crate::directory;
use crate::display;
use crate::exit::CliError;
use crate::output::{CliOutput, DIM};
use quackd_client::{Client, ClientError};
use quackd_home::{is_risky_workspace, resolve_workspace_blocking};
use quackd_protocol::client::{AttachData, AttachParams, FindBy, FindData, FindParams, FoundInfo};
use serde_json::Value;
use std::path::Path;

/// Behavior if the directory has no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Creates it. Uses the active session in directories that may not have one.
    Create,
    /// Uses the active session.
    UseActive,
}

/// Session and directory given by the user.
#[derive(Debug)]
pub(crate) struct Wanted {
    session: Option<String>,
    /// Whether the user named the directory.
    is_named: bool,
    /// Workspace of the directory. `None` if the current directory does not exist.
    workspace: Option<String>,
}

impl Wanted {
    /// Checks the arguments. Needs no daemon.
    ///
    /// # Errors
    /// A usage error if the named directory does not exist or is refused.
    pub(crate) fn of(which: &SessionArgs) -> anyhow::Result<Self> {
        let SessionArgs { session, dir } = which;
        let workspace = match dir {
            Some(dir) => Some(directory::workspace(Some(dir), false)?),
            None => current(),
        };
        Ok(Self { session: session.clone(), is_named: dir.is_some(), workspace })
    }

    /// Creates the arguments of a subcommand that takes an optional reference.
    pub(crate) fn reference(session: Option<String>) -> Self {
        Self { session, is_named: false, workspace: current() }
    }

    /// Whether the user named the directory.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Returns the session.
    ///
    /// # Errors
    /// Those of the requests, and a usage error if the subcommand needs a session and the directory may not have one.
    pub(crate) async fn find(
        &self,
        client: &Client,
        missing: Missing,
    ) -> anyhow::Result<Option<FoundInfo>> {
        let params = FindParams { session_id: self.session.clone(), path: self.workspace.clone() };
        let data: FindData = client.request("quack.find", params, REPLY_TIMEOUT).await?;
        let found = data.session;
        if found.as_ref().is_some_and(|found| found.by != FindBy::Active) {
            return Ok(found);
        }
        // A directory given by the user never selects another directory's session.
        let active = found.filter(|_| !self.is_named);
        if missing == Missing::UseActive {
            return Ok(active);
        }
        let usable = self.workspace.as_ref().filter(|path| !is_risky_workspace(path));
        let made = match (usable, active) {
            (None, Some(active)) => return Ok(Some(active)),
            (None, None) => Err(directory::workspace(None, false).err().unwrap_or_else(no_session)),
            (Some(path), active) => match (made(client, path).await, active) {
                // The daemon also refuses the system's directories.
                (Err(ClientError::Refused { .. }), Some(active)) => return Ok(Some(active)),
                (made, _) => made.map_err(Into::into),
            },
        };
        made.map(Some)
    }

    /// Returns the session, or fails if there is none.
    ///
    /// # Errors
    /// Those of [`Wanted::find`], and an error if there is no session.
    pub(crate) async fn one(&self, client: &Client, missing: Missing) -> anyhow::Result<FoundInfo> {
        let found = self.find(client, missing).await?;
        found.ok_or_else(|| match self.workspace.as_ref().filter(|_| self.is_named) {
            None => no_session(),
            Some(path) => {
                let path = display::plain(path);
                anyhow::anyhow!("{path} has no session; `quack` or `quack new` creates one")
            }
        })
    }
}

/// Creates an error with the daemon's text for a request without an active session.
fn no_session() -> anyhow::Error {
    CliError::failed("No active session").into()
}

/// Creates the session of a workspace without activating it.
async fn made(client: &Client, path: &str) -> Result<FoundInfo, ClientError> {
    let params = AttachParams {
        path: Some(Value::from(path)),
        activate: Some(false),
        ..AttachParams::default()
    };
    let data: AttachData = client.request("attach", params, REPLY_TIMEOUT).await?;
    Ok(FoundInfo {
        label: label(client, data.session.id.as_str()).await?,
        session_id: data.session.id,
        session_name: data.session.name,
        workspace_path: data.workspace.path,
        by: FindBy::Directory,
    })
}

/// Returns the workspace of the current directory's session, if it has one.
///
/// # Errors
/// Those of the request.
pub(crate) async fn enclosing(client: &Client) -> Result<Option<String>, ClientError> {
    let Some(path) = current() else { return Ok(None) };
    let params = FindParams { session_id: None, path: Some(path) };
    let data: FindData = client.request("quack.find", params, REPLY_TIMEOUT).await?;
    let found = data.session.filter(|found| found.by == FindBy::Directory);
    Ok(found.map(|found| found.workspace_path))
}

/// Returns the label of the session with this id.
///
/// # Errors
/// Those of the request.
pub(crate) async fn label(client: &Client, id: &str) -> Result<String, ClientError> {
    let params = FindParams { session_id: Some(id.to_owned()), path: None };
    let data: FindData = client.request("quack.find", params, REPLY_TIMEOUT).await?;
    Ok(data.session.map_or_else(|| id.to_owned(), |found| found.label))
}

/// Prints the session of a subcommand to stderr, unless `--session` or `--json` was given.
pub(crate) fn tell(found: &FoundInfo, output: CliOutput) {
    let why = match found.by {
        FindBy::Reference => return,
        FindBy::Directory => "",
        FindBy::Active => " (the active session; this directory has none)",
    };
    if output.is_json() {
        return;
    }
    let home_dir = std::env::var("HOME").ok();
    let label = display::name(&found.label);
    let path = display::path(&found.workspace_path, home_dir.as_deref());
    output.to_stderr(&format!("{DIM}session {label}  {path}{why}{DIM:#}\n"));
}

/// Like [`tell`], for read-only subcommands: prints only a session of another directory.
pub(crate) fn tell_if_elsewhere(found: &FoundInfo, output: CliOutput) {
    if found.by == FindBy::Active {
        tell(found, output);
    }
}

/// Returns the workspace of the current directory. `None` if the directory does not exist.
pub(crate) fn current() -> Option<String> {
    resolve_workspace_blocking(Path::new(".")).ok()
}

//! Resolves the session of a subcommand: that of the reference, else the user's own session of the directory. Never the
//! active session of another directory, and never one that a client claimed or made for itself. The daemon decides with
//! `quack.find`. This module sends the user's directory, and creates the session of a directory if the subcommand runs or
//! says something.

use crate::args::SessionArgs;
use crate::connect::start_and_connect;
use crate::directory;
use crate::display;
use crate::exit::CliError;
use crate::output::{CliOutput, DIM};
use quackd_client::{Client, ClientError};
use quackd_home::resolve_workspace_blocking;
use quackd_protocol::client::{AttachParams, FindBy, FindParams, FoundInfo};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Behavior if the directory has no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Creates the session of the directory.
    Create,
    /// Fails with a hint, because the subcommand needs an existing session.
    Refuse,
}

/// Session and directory given by the user.
#[derive(Debug)]
pub(crate) struct Wanted {
    session: Option<String>,
    /// Whether the user named the directory.
    is_named: bool,
    /// Workspace of the directory. `None` if the current directory does not exist.
    workspace: Option<String>,
    /// The directory. `None` if it does not exist.
    directory: Option<PathBuf>,
}

impl Wanted {
    /// Checks the arguments. Needs no daemon.
    ///
    /// # Errors
    /// A usage error if the named directory does not exist or is refused.
    pub(crate) fn of(choice: &SessionArgs) -> anyhow::Result<Self> {
        let SessionArgs { session, dir } = choice;
        let workspace = match dir {
            Some(dir) => Some(directory::workspace(Some(dir), false)?),
            None => current(),
        };
        let directory = dir.clone().or_else(|| std::env::current_dir().ok());
        Ok(Self { session: session.clone(), is_named: dir.is_some(), workspace, directory })
    }

    /// Creates the arguments of a subcommand that takes an optional reference.
    pub(crate) fn reference(session: Option<String>) -> Self {
        let directory = std::env::current_dir().ok();
        Self { session, is_named: false, workspace: current(), directory }
    }

    /// Returns the user's directory, if it is in this workspace and another one than its root.
    pub(crate) fn directory_in(&self, workspace: &str) -> Option<String> {
        quackd_client::directory_in(workspace, self.directory.as_ref()?)
    }

    /// Returns the workspace of the directory. `None` if the directory does not exist.
    pub(crate) fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Returns the session. Called once, after the connection to the daemon.
    ///
    /// # Errors
    /// Those of the requests, and a usage error if the directory has no session and may not or must not get one.
    pub(crate) async fn one(&self, client: &Client, missing: Missing) -> anyhow::Result<FoundInfo> {
        // `-C` has been checked before, and a reference needs no directory.
        if self.session.is_none() && !self.is_named {
            directory::workspace(None, false).map_err(|error| advised(&error))?;
        }

        let params = FindParams {
            session_id: self.session.clone(),
            path: self.workspace.clone(),
            own: Some(true),
        };

        // The daemon knows which sessions are the user's own.
        let data = client.call(params).await?;
        match (data.session, &self.workspace, missing) {
            (Some(session), ..) => Ok(session),
            (None, Some(path), Missing::Create) => {
                made(client, path).await.map_err(|error| match error {
                    // The daemon's text says which directories it accepts.
                    ClientError::Refused { text, .. } => {
                        CliError::usage(format!("{text} (-C DIR)")).into()
                    }
                    error => error.into(),
                })
            }
            (None, path, _) => {
                let path = path.as_deref().map(display::plain).unwrap_or_default();
                Err(advised(&anyhow::anyhow!("{path} has no session of yours")).into())
            }
        }
    }
}

/// Connects to the daemon, and returns the session of a subcommand that needs an existing one.
///
/// # Errors
/// Those of [`Wanted::of`], of connecting, and of [`Wanted::one`].
pub(crate) async fn existing(
    choice: &SessionArgs,
    output: CliOutput,
) -> anyhow::Result<(Client, FoundInfo)> {
    // Before the connection, so that wrong arguments start no daemon.
    let choice = Wanted::of(choice)?;
    let client = start_and_connect(output).await?.client;
    let session = choice.one(&client, Missing::Refuse).await?;
    Ok((client, session))
}

/// Creates a usage error with the two ways to name a session.
pub(crate) fn advised(error: &anyhow::Error) -> CliError {
    CliError::usage(format!(
        "{error:#}; name a directory with -C DIR or a session with --session REF (`quack sessions` lists them)"
    ))
}

/// Creates the user's session of a workspace without activating it.
async fn made(client: &Client, path: &str) -> Result<FoundInfo, ClientError> {
    let params = AttachParams {
        path: Some(Value::from(path)),
        activate: Some(false),
        own: Some(true),
        ..AttachParams::default()
    };

    let data = client.call(params).await?;
    Ok(FoundInfo {
        label: label(client, data.session.id.as_str()).await?,
        session_id: data.session.id,
        session_name: data.session.name,
        workspace_path: data.workspace.path,
        by: FindBy::Directory,
    })
}

/// Returns the workspace of the user's session of the current directory, if it has one.
///
/// # Errors
/// Those of the request.
pub(crate) async fn enclosing(client: &Client) -> Result<Option<String>, ClientError> {
    let Some(path) = current() else { return Ok(None) };
    let params = FindParams { session_id: None, path: Some(path), own: Some(true) };
    let data = client.call(params).await?;
    Ok(data.session.map(|session| session.workspace_path))
}

/// Returns the label of the session with this id.
///
/// # Errors
/// Those of the request.
pub(crate) async fn label(client: &Client, id: &str) -> Result<String, ClientError> {
    let params = FindParams { session_id: Some(id.to_owned()), path: None, own: None };
    let data = client.call(params).await?;
    Ok(data.session.map_or_else(|| id.to_owned(), |session| session.label))
}

/// Prints the session of a subcommand to stderr, unless `--session` or `--json` was given.
pub(crate) fn tell(session: &FoundInfo, output: CliOutput) {
    if session.by == FindBy::Reference || output.is_json() {
        return;
    }
    let (label, path) =
        (display::name(&session.label), display::user_path(&session.workspace_path));
    output.to_stderr(&format!("{DIM}session {label}  {path}{DIM:#}\n"));
}

/// Returns the workspace of the current directory. `None` if the directory does not exist.
pub(crate) fn current() -> Option<String> {
    resolve_workspace_blocking(Path::new(".")).ok()
}

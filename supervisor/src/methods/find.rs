//! `quack.find`: finds the session of a reference or directory, or the active one. Changes nothing.

use super::directories::{look_up, own_path};
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::{Purpose, RegistrySnapshot};
use quackd_protocol::SessionId;
use quackd_protocol::client::{FindData, FindParams};
use std::path::PathBuf;

impl Serve<FindParams> for Caller {
    async fn serve(&self, params: FindParams) -> Result<FindData, MethodError> {
        let FindParams { session_id, path, own } = params;
        let reference = own_reference(session_id.as_deref())?;
        let directory = match own_path(path.as_deref())? {
            // A directory that is refused or does not exist has no session.
            Some(path) => look_up(self, path).await.ok(),
            None => None,
        };

        let own_only = own == Some(true);
        let find = |snapshot: &RegistrySnapshot| {
            snapshot.find(reference.as_deref(), directory.as_ref(), own_only)
        };
        Ok(FindData { session: refreshed(self, find).await? })
    }
}

/// Returns the session reference in a parameter of quackd's own methods: `None` if absent.
///
/// # Errors
/// `NoReference` if it is empty. Upstream's methods read an empty reference as none, which means the active session.
pub(super) fn own_reference(reference: Option<&str>) -> Result<Option<String>, MethodError> {
    match reference {
        Some(text) if text.trim().is_empty() => Err(MethodError::NoReference),
        other => Ok(other.map(str::to_owned)),
    }
}

/// Returns the workspace that a directory belongs to, if the user has a session of it: outside of repositories it may be
/// above the directory.
pub(super) async fn enclosing(
    caller: &Caller,
    directory: PathBuf,
) -> Result<Option<PathBuf>, MethodError> {
    // The caller reports a directory that is refused.
    let Ok(directory) = look_up(caller, directory).await else { return Ok(None) };

    let found = caller.snapshot().await?.find(None, Some(&directory), true)?;
    Ok(found.map(|found| PathBuf::from(found.workspace_path)))
}

/// Returns the label of a session for a reply.
pub(super) async fn label(caller: &Caller, session: &SessionId) -> Result<String, MethodError> {
    Ok(caller.snapshot().await?.label(session))
}

/// Returns the id of the session that a reference means to quackd's own methods.
pub(super) async fn id_of(caller: &Caller, reference: String) -> Result<String, MethodError> {
    refreshed(caller, |snapshot| snapshot.look_up(&reference)).await
}

/// Searches a snapshot, and once more after reading the file if another program may have just created the session.
async fn refreshed<T>(
    caller: &Caller,
    search: impl Fn(&RegistrySnapshot) -> Result<T, MethodError>,
) -> Result<T, MethodError> {
    let found = search(&caller.snapshot().await?);
    let Err(MethodError::SessionNotFound(reference)) = found else { return found };

    // Reads the file if the reference is unknown. Its result does not count: `search` has other rules.
    caller.find(Some(reference), Purpose::Describe).await.ok();
    search(&caller.snapshot().await?)
}

//! Which directory a verb means. Used by the verbs that name a session by its directory.

use crate::exit::Fault;
use quackd_home::{is_risky_workspace, resolve_workspace_blocking};
use std::path::Path;

/// The workspace that `dir` (the current directory if absent) lies in, as an absolute path. `/` and the
/// home directory are refused here; with `force`, an option of earlier versions, it is left to the daemon, which
/// refuses them and the directories of the system.
///
/// # Errors
/// A usage error if there is no such directory, or it is not allowed.
pub(crate) fn workspace(dir: Option<&Path>, force: bool) -> anyhow::Result<String> {
    let workspace = resolve_workspace_blocking(dir.unwrap_or_else(|| Path::new(".")))
        .map_err(|error| Fault::usage(format!("{:#}", anyhow::Error::new(error))))?;
    if is_risky_workspace(&workspace) && !force {
        return Err(Fault::usage(format!(
            "{workspace} is too much for one session; name a directory in it"
        ))
        .into());
    }
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_needs_force_and_a_missing_directory_is_a_usage_error() {
        assert_eq!(workspace(Some(Path::new("/")), true).unwrap(), "/");
        for dir in ["/", "/no/such/directory"] {
            let error = workspace(Some(Path::new(dir)), false).unwrap_err();
            assert_eq!(crate::exit::of_error(&error), crate::exit::Exit::Usage, "{error:#}");
        }
    }
}

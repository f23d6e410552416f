//! Resolves the directory of a subcommand to a workspace.

use crate::exit::CliError;
use quackd_home::{is_risky_workspace, resolve_workspace_blocking};
use std::path::Path;

/// Returns the absolute path of the workspace that contains `dir`, or the current directory. Refuses `/` and the home
/// directory. With `force`, an option of earlier versions, only the daemon refuses these and the system's directories.
///
/// # Errors
/// A usage error if the directory does not exist or is refused.
pub(crate) fn workspace(dir: Option<&Path>, force: bool) -> anyhow::Result<String> {
    if dir.is_none() && std::env::current_dir().is_err() {
        return Err(CliError::usage("the current directory was deleted or cannot be read").into());
    }
    let workspace = resolve_workspace_blocking(dir.unwrap_or_else(|| Path::new(".")))
        .map_err(|error| CliError::usage(format!("{:#}", anyhow::Error::new(error))))?;

    if is_risky_workspace(&workspace) && !force {
        // Without a named directory, the caller may know more ways to name one.
        let advice = if dir.is_some() { "; name a directory in it" } else { "" };
        let text = format!("{workspace} is too large for one session{advice}");
        return Err(CliError::usage(text).into());
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
            assert_eq!(crate::exit::of_error(&error), crate::exit::ExitCode::Usage, "{error:#}");
        }
    }
}

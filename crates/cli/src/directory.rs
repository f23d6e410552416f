//! Resolves the directory of a subcommand to a workspace.

use crate::display;
use crate::exit::CliError;
use quackd_config::Config;
use quackd_home::{Home, is_risky_workspace, resolve_workspace_blocking};
use quackd_protocol::far::{FarError, FarWorkspace};
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

/// Returns the text that names a directory on another machine or in a container, for `--on`. `on` is `ENGINE` or
/// `ENGINE:TARGET`.
///
/// # Errors
/// A usage error if a part is malformed, or if the directory is not an absolute path.
pub(crate) fn far_workspace(on: &str, dir: Option<&Path>) -> Result<String, CliError> {
    let (engine, target) = engine_and_target(on);
    let dir = dir.and_then(Path::to_str).unwrap_or_default();
    if !dir.starts_with('/') {
        return Err(CliError::usage(
            "with --on, the directory is on the other machine: give its absolute path, without ~; --send copies one of this machine there",
        ));
    }

    match FarWorkspace::new(engine, target, dir) {
        Ok(far) => Ok(far.to_string()),
        Err(FarError::Engine) => {
            let engines = config_blocking().map(|config| config.engines()).unwrap_or_default();
            let names: Vec<_> = engines.iter().map(|engine| engine.name.as_str()).collect();
            Err(no_engine(engine, &names))
        }
        Err(error) => Err(CliError::usage(format!("--on {}: {error}", display::name(on)))),
    }
}

/// Creates the usage error for an unknown engine.
pub(crate) fn no_engine(name: &str, known: &[&str]) -> CliError {
    CliError::usage(format!("{name:?} is not an engine; engines are {}", known.join(", ")))
}

/// Reads the configuration, as a daemon that starts now does.
///
/// # Errors
/// It cannot be read, or is not valid.
pub(crate) fn config_blocking() -> anyhow::Result<Config> {
    let home = Home::from_process_env_blocking()?;
    Ok(quackd_supervisor::read_config(&home)?.0)
}

/// Returns the parts of `ENGINE` or `ENGINE:TARGET`.
pub(crate) fn engine_and_target(on: &str) -> (&str, &str) {
    on.split_once(':').unwrap_or((on, ""))
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

    #[test]
    fn a_far_directory_is_an_absolute_path() {
        let far = |on, dir: &str| far_workspace(on, Some(Path::new(dir)));
        assert_eq!(far("ssh:build1", "/home/me/app/").unwrap(), "ssh:build1:/home/me/app");
        assert_eq!(far("podman:debian:12", "/w").unwrap(), "podman:debian:12:/w");
        assert_eq!(far("slurm", "/w").unwrap(), "slurm:/w");
        for (on, dir) in [("ssh:h", "app"), ("ssh:h", "~/app"), ("ssh:-x", "/w"), ("Ssh:h", "/w")] {
            assert!(far(on, dir).is_err(), "{on} {dir}");
        }
    }
}

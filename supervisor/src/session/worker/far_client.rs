//! The environment of an engine's client, which runs unconfined on this machine.

use crate::children::command_env::Variables;
use crate::children::spawner::SpawnRequestError;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use quackd_process::Writable;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

/// Maximum wait for the check of directories.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Variables that an engine's client gets. Some clients, such as `srun`, pass on their environment, so no key and no token
/// is listed.
const CLIENT_VARIABLES: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    SSH_AGENT,
    "SSH_ASKPASS",
    "SSH_ASKPASS_REQUIRE",
    "DISPLAY",
    "KRB5CCNAME",
    "SLURM_CONF",
    "KUBECONFIG",
    "CONTAINER_HOST",
    "CONTAINER_CONNECTION",
    "CONTAINER_SSHKEY",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF",
    "DOCKER_HOST",
];

/// Beginnings of further names.
const CLIENT_PREFIXES: &[&str] = &["LC_", "XDG_"];

const SSH_AGENT: &str = "SSH_AUTH_SOCK";

/// Returns the environment of an engine's client. It runs unconfined, so its `PATH` has no directory that a command of any
/// session may write.
///
/// # Errors
/// The daemon is stopping, or a disk hangs.
pub(super) async fn client_variables(
    services: &SessionServices,
    owner: &Owner,
    login: Variables,
) -> Result<Variables, SpawnRequestError> {
    let writable = owner.writable().await.ok_or(SpawnRequestError::Unavailable)?;
    let agent = services.children.login.agent_socket();
    let user_home = services.daemon.user_home.clone();

    let make = move || {
        let writable = Writable::of_blocking(writable, &user_home);
        let mut env = client_env(std::env::vars_os(), &login, agent);
        for (_, path) in env.iter_mut().filter(|(name, _)| name == "PATH") {
            *path = writable.clean_path_blocking(path);
        }
        env
    };
    services.look(LOOK_LIMIT, make).await.map_err(|_late| SpawnRequestError::Unavailable)
}

/// Returns the environment of an engine's client: the listed part of the daemon's own variables and of those of the login
/// shell, which win.
fn client_env(
    own: impl Iterator<Item = (OsString, OsString)>,
    login: &[(String, String)],
    agent: Option<String>,
) -> Variables {
    let is_listed = |name: &str| {
        CLIENT_VARIABLES.contains(&name)
            || CLIENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let own =
        own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));

    let mut env: BTreeMap<String, String> = own.filter(|(name, _)| is_listed(name)).collect();
    env.extend(login.iter().filter(|(name, _)| is_listed(name)).cloned());
    env.extend(agent.map(|socket| (SSH_AGENT.to_owned(), socket)));
    env.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_of_an_engine_gets_listed_variables_only() {
        let own = [("PATH", "/own"), ("OPENAI_API_KEY", "k"), ("DISPLAY", ":0"), ("LC_ALL", "C")];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let login = [("PATH", "/login"), ("CARGO_HOME", "/c"), ("XDG_CONFIG_HOME", "/x")];
        let login = login.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = client_env(own.into_iter(), &login, Some("/agent".to_owned()));
        let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let wanted = [
            ("DISPLAY", ":0"),
            ("LC_ALL", "C"),
            ("PATH", "/login"),
            ("SSH_AUTH_SOCK", "/agent"),
            ("XDG_CONFIG_HOME", "/x"),
        ];
        assert_eq!(env, wanted);
    }
}

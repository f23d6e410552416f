//! The environment of an engine's client, which runs unconfined on this machine.

use crate::children::command_env::Variables;
use crate::children::spawner::SpawnRequestError;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use quackd_engines::client_env;
use quackd_process::Writable;
use std::time::Duration;

/// Maximum wait for the check of directories.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Variable of the user's ssh agent.
const SSH_AGENT: &str = "SSH_AUTH_SOCK";

/// Returns the environment of an engine's client. It runs unconfined, so its `PATH` has no directory that a command of any
/// session may write.
///
/// # Errors
/// The daemon is stopping, or a disk hangs.
pub(crate) async fn client_variables(
    services: &SessionServices,
    owner: &Owner,
    login: Variables,
) -> Result<Variables, SpawnRequestError> {
    let writable = owner.writable().await.ok_or(SpawnRequestError::Unavailable)?;
    let agent = services.children.login.agent_socket();
    let user_home = services.daemon.user_home.clone();

    let make = move || {
        let writable = Writable::of_blocking(writable, &user_home);
        let mut env = client_env(std::env::vars_os(), &login);
        env.extend(agent.map(|socket| (SSH_AGENT.to_owned(), socket)));
        if let Some(path) = env.get_mut("PATH") {
            *path = writable.clean_path_blocking(path);
        }
        env.into_iter().collect()
    };
    services.look(LOOK_LIMIT, make).await.map_err(|_late| SpawnRequestError::Unavailable)
}

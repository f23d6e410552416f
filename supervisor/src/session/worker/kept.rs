//! Directories of the state directory that outlive a worker and that its commands write: package caches of the workspace
//! and state of agents.

use crate::children::command_env::Variables;
use quackd_home::{Home, HomeError};
use quackd_protocol::SessionId;
use quackd_protocol::guest_agents::GUEST_AGENTS;
use std::path::{Path, PathBuf};

/// Most directories of `PATH` in which agents are searched.
const MAX_PATH: usize = 64;

/// Directories that a worker may keep.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptChoice {
    /// True to keep package caches.
    pub(super) caches: bool,
    /// How to keep the state of agents; `None` to keep it in the worker's memory.
    pub(super) agents: Option<KeptAgents>,
}

/// How to keep the state of agents.
#[derive(Debug, Clone)]
pub(super) struct KeptAgents {
    /// The session, if it is isolated.
    isolated: Option<SessionId>,
    /// Directories in which the session's commands find programs.
    path: Vec<PathBuf>,
}

impl KeptAgents {
    /// Reads `PATH` of the environment of commands. An `isolated` session does not share its state.
    pub(super) fn of(env: &Variables, isolated: Option<SessionId>) -> Self {
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str());
        let directories = std::env::split_paths(path.unwrap_or_default());
        let path = directories.filter(|directory| directory.is_absolute()).take(MAX_PATH).collect();
        Self { isolated, path }
    }

    /// Creates the directories of the installed agents. Without an installed one, nothing.
    fn make_blocking(&self, home: &Home, workspace: &str) -> Result<Option<PathBuf>, HomeError> {
        let is_installed = |name: &str| self.path.iter().any(|at| at.join(name).exists());
        let installed = GUEST_AGENTS.iter().filter(|agent| is_installed(agent.name));
        let names: Vec<String> = installed
            .flat_map(|agent| agent.state.iter().map(move |state| agent.kept_path(state)))
            .collect();
        if names.is_empty() {
            return Ok(None);
        }

        let isolated = self.isolated.as_ref().map(SessionId::as_str);
        home.prepare_agents_blocking(workspace, isolated, &names).map(Some)
    }
}

/// Paths of the directories that exist.
#[derive(Debug, Default)]
pub(super) struct KeptDirectories {
    /// Package caches. Without it, they are in the worker's memory.
    pub(super) caches: Option<String>,
    /// State of agents. Without it, it is in the worker's memory.
    pub(super) agents: Option<String>,
}

impl KeptChoice {
    /// Creates the directories. Logs and leaves out a directory that cannot be created.
    pub(super) fn make_blocking(&self, home: &Home, workspace: &Path) -> KeptDirectories {
        let Some(path) = workspace.to_str() else { return KeptDirectories::default() };

        let caches = self.caches.then(|| home.prepare_caches_blocking(path));
        let caches = made(caches, path, "package caches not kept");
        let agents = self.agents.as_ref();
        let agents = agents.and_then(|agents| agents.make_blocking(home, path).transpose());
        KeptDirectories { caches, agents: made(agents, path, "state of agents not kept") }
    }
}

fn made(
    made: Option<Result<PathBuf, HomeError>>,
    workspace: &str,
    consequence: &str,
) -> Option<String> {
    match made? {
        Ok(path) => Some(path.display().to_string()),
        Err(error) => {
            tracing::warn!(workspace, %error, "{consequence}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;

    #[test]
    fn only_installed_agents_get_directories_and_isolated_sessions_have_their_own() {
        let base = TestDir::with(&["state", "ws", "bin"]);
        let var =
            |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| base.join("state").into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        let env = vec![("PATH".to_owned(), format!("bin:{}", base.join("bin").display()))];
        let keep = |isolated: Option<&str>| {
            let isolated = isolated.map(|id| SessionId(id.to_owned()));
            let agents = Some(KeptAgents::of(&env, isolated));
            KeptChoice { caches: false, agents }.make_blocking(&home, &base.join("ws"))
        };

        let nothing = keep(None);
        assert!(nothing.agents.is_none() && nothing.caches.is_none());
        assert!(!home.agents_dir().exists());

        std::fs::write(base.join("bin/opencode"), "").unwrap();
        let shared = PathBuf::from(keep(None).agents.unwrap());
        let mut found: Vec<_> = std::fs::read_dir(shared.join("opencode"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let expected = [".config%opencode", ".local%share%opencode", ".local%state%opencode"];
        assert_eq!(found, expected);
        assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 1);
        assert_ne!(keep(Some("s1")).agents.map(PathBuf::from), Some(shared));
    }
}

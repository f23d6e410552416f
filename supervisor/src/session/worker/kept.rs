//! Directories of the state directory that outlive a worker and that its commands write: package caches of the workspace
//! and state of agents.

use crate::children::command_env::Variables;
use crate::errors::chain;
use quackd_config::{GuestAgentSettings, LoginChoice};
use quackd_home::keep::{
    AgentFile, agents_bytes_blocking, copy_user_file_blocking, share_login_blocking,
};
use quackd_home::{Home, HomeError};
use quackd_protocol::SessionId;
use quackd_protocol::guest_agents::{MAX_STATE_BYTES, STATE_IS_FULL, find, kept_path};
use quackd_protocol::worker::{AgentsStart, KeptState};
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
    /// The session, if it is isolated. It does not share its state, and gives no login to others.
    isolated: Option<SessionId>,
    /// Known agents and those of the user.
    agents: Vec<GuestAgentSettings>,
    /// Home directory of the user.
    user_home: PathBuf,
    /// Directories in which the session's commands find programs.
    path: Vec<PathBuf>,
    /// Disk usage above which no state is kept, in bytes.
    max_bytes: u64,
}

impl KeptAgents {
    /// Reads `PATH` of the environment of commands.
    pub(super) fn of(
        env: &Variables,
        isolated: Option<SessionId>,
        agents: Vec<GuestAgentSettings>,
        user_home: PathBuf,
    ) -> Self {
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str());
        let directories = std::env::split_paths(path.unwrap_or_default());
        let path = directories.filter(|directory| directory.is_absolute()).take(MAX_PATH).collect();
        Self { isolated, agents, user_home, path, max_bytes: MAX_STATE_BYTES }
    }

    /// Creates the directories of the installed agents, and copies logins and files of the user into them. Without an
    /// installed agent, nothing.
    fn make_blocking(
        &self,
        home: &Home,
        workspace: &str,
    ) -> Result<Option<AgentsStart>, HomeError> {
        let is_installed = |name: &str| self.path.iter().any(|at| at.join(name).exists());
        let installed: Vec<_> =
            self.agents.iter().filter(|agent| is_installed(&agent.name)).collect();
        let kept = installed.iter().flat_map(|agent| {
            let kept =
                |state: &str| KeptState { agent: agent.name.clone(), state: state.to_owned() };
            agent.kept().map(kept).collect::<Vec<_>>()
        });
        let mut kept: Vec<KeptState> = kept.collect();
        if kept.is_empty() {
            return Ok(None);
        }

        let isolated = self.isolated.as_ref().map(SessionId::as_str);
        let names: Vec<_> = kept.iter().map(|it| kept_path(&it.agent, &it.state)).collect();
        let own = home.prepare_agents_blocking(workspace, isolated, &names)?;
        let mut notes = Vec::new();
        if self.max_bytes <= agents_bytes_blocking(&own) {
            kept.clear();
            notes.push(STATE_IS_FULL.to_owned());
        } else {
            for agent in installed {
                copy_files_blocking(&self.user_home, &own, agent, &mut notes);
                share_logins_blocking(home, &own, agent, self.isolated.is_none());
            }
        }
        Ok(Some(AgentsStart { directory: own.display().to_string(), kept, notes }))
    }
}

/// Copies the user's files that an agent may read into the state `own` of a workspace.
fn copy_files_blocking(
    user_home: &Path,
    own: &Path,
    agent: &GuestAgentSettings,
    notes: &mut Vec<String>,
) {
    let name = &agent.name;
    for path in &agent.read {
        let mut states = agent.kept();
        let file = states.find_map(|state| AgentFile::of(kept_path(name, state), state, path));
        match file.map(|file| copy_user_file_blocking(user_home, own, &file)) {
            Some(Ok(true)) => {}
            Some(Err(error)) => notes.push(format!("~/{path} of {name} is not copied: {error}")),
            Some(Ok(false)) | None => notes.push(format!(
                "~/{path} of {name} is not copied: it is missing, empty, above 1 MiB or behind a link"
            )),
        }
    }
}

/// Makes the logins of an agent in the state `own` of a workspace and those that all workspaces share the same, if the user
/// has configured it. Without `gives`, the shared ones do not change.
pub(super) fn share_logins_blocking(
    home: &Home,
    own: &Path,
    agent: &GuestAgentSettings,
    gives: bool,
) {
    let known = find(&agent.name).filter(|_| agent.login == LoginChoice::Shared);
    let Some(known) = known else { return };
    for login in known.logins {
        let mut states = known.state.iter();
        let file = states.find_map(|state| AgentFile::of(known.kept_path(state), state, login));
        let Some(Err(error)) = file.map(|file| share_login_blocking(home, own, &file, gives))
        else {
            continue;
        };
        tracing::warn!(agent = %agent.name, error = %chain(&error), "login not shared");
    }
}

/// Paths of the directories that exist.
#[derive(Debug, Default)]
pub(super) struct KeptDirectories {
    /// Package caches. Without it, they are in the worker's memory.
    pub(super) caches: Option<String>,
    /// State of agents. Without it, it is in the worker's memory.
    pub(super) agents: Option<AgentsStart>,
}

impl KeptChoice {
    /// Creates the directories. Logs and leaves out a directory that cannot be created.
    pub(super) fn make_blocking(&self, home: &Home, workspace: &Path) -> KeptDirectories {
        let Some(path) = workspace.to_str() else { return KeptDirectories::default() };

        let caches = self.caches.then(|| home.prepare_caches_blocking(path));
        let caches = made(caches, path, "package caches not kept");
        let agents = self.agents.as_ref();
        let agents = agents.and_then(|agents| agents.make_blocking(home, path).transpose());
        let agents = made(agents, path, "state of agents not kept");
        KeptDirectories { caches: caches.map(|path| path.display().to_string()), agents }
    }
}

fn made<T>(made: Option<Result<T, HomeError>>, workspace: &str, consequence: &str) -> Option<T> {
    match made? {
        Ok(made) => Some(made),
        Err(error) => {
            tracing::warn!(workspace, error = %chain(&error), "{consequence}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_config::Config;
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
            let agents = Config::default().guest_agents();
            let agents = Some(KeptAgents::of(&env, isolated, agents, base.join("user")));
            KeptChoice { caches: false, agents }.make_blocking(&home, &base.join("ws"))
        };

        let nothing = keep(None);
        assert!(nothing.agents.is_none() && nothing.caches.is_none());
        assert!(!home.agents_dir().exists());

        std::fs::write(base.join("bin/opencode"), "").unwrap();
        let directory = |kept: KeptDirectories| PathBuf::from(kept.agents.unwrap().directory);
        let shared = directory(keep(None));
        let mut found: Vec<_> = std::fs::read_dir(shared.join("opencode"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let expected = [".config%opencode", ".local%share%opencode", ".local%state%opencode"];
        assert_eq!(found, expected);
        assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 1);
        assert_ne!(directory(keep(Some("s1"))), shared);
    }

    #[test]
    fn agents_of_the_user_get_directories_and_files_and_full_state_is_not_kept() {
        let base = TestDir::with(&["state", "ws", "bin", "user/.mine"]);
        let var =
            |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| base.join("state").into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        std::fs::write(base.join("bin/mine"), "").unwrap();
        std::fs::write(base.join("user/.mine/rules"), "be brief").unwrap();

        let env = vec![("PATH".to_owned(), base.join("bin").display().to_string())];
        let mine = GuestAgentSettings {
            name: "mine".to_owned(),
            state: vec![".mine".to_owned()],
            read: vec![".mine/rules".to_owned(), ".mine/gone".to_owned()],
            ..GuestAgentSettings::default()
        };
        let mut agents = KeptAgents::of(&env, None, vec![mine], base.join("user"));
        let made = agents.make_blocking(&home, "/ws").unwrap().unwrap();
        let state = KeptState { agent: "mine".to_owned(), state: ".mine".to_owned() };
        assert_eq!(made.kept, [state]);
        assert_eq!(made.notes.len(), 1, "{:?}", made.notes);
        assert!(
            made.notes[0].starts_with("~/.mine/gone of mine is not copied"),
            "{:?}",
            made.notes
        );
        let copied = Path::new(&made.directory).join("mine/.mine/rules");
        assert_eq!(std::fs::read_to_string(copied).unwrap(), "be brief");

        agents.max_bytes = 1;
        let full = agents.make_blocking(&home, "/ws").unwrap().unwrap();
        assert!(full.kept.is_empty());
        assert_eq!(full.notes, [STATE_IS_FULL]);
    }
}

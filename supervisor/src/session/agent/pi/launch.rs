//! Prepares the start of the user's Pi: finds the program, its arguments and its environment, and the session file.

use super::locate::{arguments, find_blocking, version_blocking};
use super::outside::{check_settings_blocking, clean_blocking, project_settings_blocking};
use super::{not_started, old_pi};
use crate::children::command_env::of;
use crate::children::pi_env as environment;
use crate::children::{LifecycleDriver, create_cgroup, group_name};
use crate::clock::now_text;
use crate::errors::AgentError;
use crate::session::agent::actor::AgentActor;
use crate::session::agent::engine::Engine;
use crate::session::agent::history;
use crate::session::owner::Owner;
use crate::session::services::{NoLook, SessionServices};
use actix::prelude::*;
use quackd_process::{SessionPaths, Writable};
use quackd_protocol::SessionId;
use quackd_protocol::agent::{AGENT_FRAME_PROTOCOL, PiStart, ToAgent};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::far::FarWorkspace;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Maximum wait of a Pi's start for the login shell, which may be the only source of keys.
const LOGIN_LIMIT: Duration = Duration::from_secs(3);

/// Timeout for file system access, because a disk may hang.
const PREPARE_LIMIT: Duration = Duration::from_secs(5);

/// Start frame and control group of a Pi.
pub(in crate::session::agent) struct PiLaunch {
    pub(in crate::session::agent) start: PiStart,
    pub(in crate::session::agent) cgroup: Option<SessionPaths>,
    pub(in crate::session::agent) session_file: String,
}

impl AgentActor {
    pub(in crate::session::agent) fn spawn_pi(
        &mut self,
        prepared: PiLaunch,
        ctx: &mut Context<Self>,
    ) {
        self.engine = Engine::Pi;
        let PiLaunch { mut start, cgroup, .. } = prepared;
        // Paths and numbers always have a JSON form.
        start.cgroup = cgroup.as_ref().and_then(|paths| serde_json::to_value(paths).ok());
        self.launch(&ToAgent::Start(Box::new(start)), &[], cgroup, ctx);
    }
}

/// Finds Pi and prepares its files.
pub(in crate::session::agent) async fn prepare(
    services: Rc<SessionServices>,
    owner: Owner,
    session: SessionId,
    workspace: String,
    session_file: String,
    options: AgentOptions,
) -> Result<PiLaunch, AgentError> {
    if FarWorkspace::of(&workspace).is_some() {
        return Err(AgentError::FarPi);
    }
    let commands = services.children.login.env_for_worker(LOGIN_LIMIT).await;
    // If the daemon was started with a key, do not wait for the login shell.
    let has_key = std::env::vars_os()
        .any(|(name, value)| name.to_str().is_some_and(environment::is_key) && !value.is_empty());
    let limit = if has_key { Duration::ZERO } else { LOGIN_LIMIT };
    let login = services.children.login.env_for_pi(limit).await;

    let is_from_shell = services.children.login.is_from_shell();
    let mut env = environment::merge(std::env::vars_os(), &commands, &login);
    environment::begin_with(std::env::var_os("PATH"), is_from_shell, &mut env);

    let config = services.daemon.config_file.path.clone();
    let settings = services.daemon.config.pi.clone();
    // Without any Pi, do not check the directories of all sessions at each attach.
    let (binary, path) = (settings.binary.clone(), of(&env, "PATH").to_owned());
    let exists = move || find_blocking(&binary, &path, &config, &Writable::default());
    look(&services, exists).await?;

    let writable = owner.writable().await.ok_or(AgentError::ShuttingDown)?;
    let home = services.daemon.home.clone();
    let user_home = services.daemon.user_home.clone();
    let places = services.daemon.places();
    let config = services.daemon.config_file.path.clone();
    let cgroups = services.children.cgroups.clone();
    let processes =
        u32::try_from(services.daemon.config.limits.processes.value).unwrap_or(u32::MAX);

    let make = move || {
        let writable = Writable::of_blocking(writable, &user_home);
        let removed = clean_blocking(&writable, &mut env);
        if !removed.is_empty() {
            tracing::warn!(%session, ?removed, "variables that name a workspace or a relative path are not passed to Pi");
        }

        check_settings_blocking(&writable, &env)?;
        let program = find_blocking(&settings.binary, of(&env, "PATH"), &config, &writable)?;

        if PathBuf::from(&workspace).read_dir().is_err() {
            return Err(AgentError::NoWorkspace(workspace));
        }
        places.check_blocking(Path::new(&workspace))?;

        let sessions = home.prepare_pi_sessions_blocking().map_err(not_started)?;
        let file = history::prepare_blocking(&sessions, &session_file, &workspace, &now_text());
        let file = file.map_err(|error| not_started(format!("no history: {error}")))?;
        let (sessions, file) = (sessions.display().to_string(), file.display().to_string());
        let args = arguments(&settings, &env, &sessions, &file, &options);

        let old = old_pi::find_blocking(&program);
        let is_masked = old.is_some();
        if let Some(old) = old {
            let workspace = Path::new(&workspace);
            let masked = old_pi::mask_blocking(&home, old, workspace, &user_home, &mut env);
            masked.map_err(|error| not_started(format!("no package for it: {error}")))?;
        }

        let found = project_settings_blocking(&PathBuf::from(&workspace), &user_home);
        let cgroup = create_cgroup(cgroups, &group_name("pi-", &session), processes, None);

        let start = PiStart {
            proto: AGENT_FRAME_PROTOCOL,
            session: session.0,
            workspace,
            version: version_blocking(&program),
            program,
            args,
            allow_old: settings.allow_old.value,
            is_masked,
            only_version: false,
            project_settings: found.map(|path| path.display().to_string()),
            env,
            cgroup: None,
            processes,
        };

        Ok(PiLaunch { start, cgroup, session_file: file })
    };

    look(&services, make).await
}

/// Runs file system access that may hang.
async fn look<T: Send + 'static>(
    services: &SessionServices,
    access: impl FnOnce() -> Result<T, AgentError> + Send + 'static,
) -> Result<T, AgentError> {
    match services.look(PREPARE_LIMIT, access).await {
        Ok(found) => found,
        Err(NoLook::Ended) => Err(AgentError::ShuttingDown),
        Err(NoLook::TimedOut) => Err(not_started("a disk does not respond")),
    }
}

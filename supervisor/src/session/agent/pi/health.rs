//! The checks of Pi for `doctor`: executable, version and model.

use super::locate::{choose, find_blocking};
use super::outside::clean_blocking;
use super::{PROGRAM, old_pi};
use crate::children::pi_env as environment;
use crate::children::reap_or_kill;
use crate::children::spawner::Spawner;
use crate::errors::AgentError;
use crate::session::agent::AgentChoice;
use crate::session::agent::engine::{self, Engine};
use crate::session::agent::failure::Failure;
use crate::session::services::SessionServices;
use futures_util::{SinkExt, StreamExt};
use quackd_ipc::frames::{self, Decoded};
use quackd_process::{ProcessHandle, Writable};
use quackd_protocol::agent::{AGENT_FRAME_PROTOCOL, FROM_PI_TAGS, FromPi, PiStart, ToAgent};
use quackd_protocol::client::{Check, CheckStatus};
use quackd_protocol::foreign_text::stripped_line;
use quackd_supervision::AGENT;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::codec::Framed;

/// Maximum length of a text from a Pi worker, in characters.
const MAX_SHOWN: usize = 400;

/// The check uses the known environment and does not wait for a login shell.
const NO_WAIT: Duration = Duration::ZERO;

/// Timeout for file system access, because a disk may hang.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout for the version, which starts a process with Node.
const VERSION_LIMIT: Duration = Duration::from_secs(7);

/// Only one process is asked at a time, regardless of the number of clients.
static ASKING: Semaphore = Semaphore::const_new(1);

/// Reason for a missing version.
enum NoVersion {
    /// The program cannot be used.
    Unfit(String),
    /// The program was not started, for a reason outside of the program.
    NotAsked(String),
}

/// The checks `pi` and `pi_model`.
/// `writable` are the directories that commands may write.
pub(crate) async fn checks(services: &SessionServices, writable: Vec<PathBuf>) -> [Check; 2] {
    let commands = services.children.login.env_for_worker(NO_WAIT).await;
    let login = services.children.login.env_for_pi(NO_WAIT).await;
    let mut env = environment::merge(std::env::vars_os(), &commands, &login);
    let is_from_shell = services.children.login.is_from_shell();
    environment::begin_with(std::env::var_os("PATH"), is_from_shell, &mut env);

    let model = Check {
        name: "pi_model".to_owned(),
        status: CheckStatus::Ok,
        message: choose(&services.daemon.config.pi, &env).shown(),
        hint: None,
    };

    let engine = engine::choose(services, &AgentChoice::default()).await;
    let uses_own = engine.is_ok_and(|chosen| chosen.engine == Engine::Native);

    let binary = services.daemon.config.pi.binary.clone();
    let config = services.daemon.config_file.path.clone();
    let user_home = services.daemon.user_home.clone();
    let look = move || {
        let writable = Writable::of_blocking(writable, &user_home);
        clean_blocking(&writable, &mut env);
        let path = crate::children::command_env::of(&env, "PATH");
        let program = find_blocking(&binary, path, &config, &writable)?;
        let is_masked = old_pi::find_blocking(&program).is_some();
        Ok((program, env, is_masked))
    };

    let look = tokio::time::timeout(LOOKUP_TIMEOUT, actix_rt::task::spawn_blocking(look)).await;
    let check = match look {
        Ok(Ok(Ok((program, env, is_masked)))) => {
            let asking = version(services, program.clone(), env, is_masked);
            let asked = timeout(VERSION_LIMIT, asking).await;
            found(
                &program,
                asked.unwrap_or_else(|_late| Err(late())),
                services.agent_failure.get(Engine::Pi),
            )
        }
        Ok(Ok(Err(AgentError::NotFound { .. }))) if uses_own => pi(
            CheckStatus::Ok,
            "Pi not found, and not needed: quackd's own agent runs turns".to_owned(),
            None,
        ),
        Ok(Ok(Err(AgentError::NotFound { config }))) => pi(
            CheckStatus::Warn,
            "no model is configured, and no Pi was found; `quack models` says how to get a model"
                .to_owned(),
            Some(format!(
                "only `say` and the prompt of `quack` need a model, or a Pi in your PATH or in `pi.binary` in {config}"
            )),
        ),
        Ok(Ok(Err(error))) => {
            let hint = "`quack config show --origin` shows where it is set";
            pi(CheckStatus::Fail, error.to_string(), Some(hint.to_owned()))
        }
        _ => pi(
            CheckStatus::Fail,
            "its disk does not respond".to_owned(),
            Some("check the disk that contains it".to_owned()),
        ),
    };

    [check, model]
}

fn pi(status: CheckStatus, message: String, hint: Option<String>) -> Check {
    Check { name: "pi".to_owned(), status, message, hint }
}

fn late() -> NoVersion {
    NoVersion::NotAsked(format!("no answer within {} s", VERSION_LIMIT.as_secs()))
}

/// Returns the check of an existing program.
fn found(program: &str, version: Result<String, NoVersion>, failure: Option<Failure>) -> Check {
    let (mut status, mut message, mut hint) = match version {
        Ok(version) => (CheckStatus::Ok, format!("{program} {version}"), None),
        Err(NoVersion::Unfit(why)) => (
            CheckStatus::Fail,
            format!("{program} cannot be started: {why}"),
            Some(format!("run `{program} --version` and fix what it reports, or update Pi")),
        ),
        Err(NoVersion::NotAsked(why)) => (
            CheckStatus::Warn,
            format!("{program}, its version is unknown: {why}"),
            Some("repeat `quack doctor`".to_owned()),
        ),
    };

    if let Some(failure) = failure {
        message.push_str(&format!("; {failure}"));
        if status == CheckStatus::Ok {
            status = CheckStatus::Warn;
            hint = Some(
                "`quack logs` shows details; the next successful `quack say` clears this"
                    .to_owned(),
            );
        }
    }

    pi(status, message, hint)
}

/// Starts a Pi worker that asks the program for its version and exits.
async fn version(
    services: &SessionServices,
    program: String,
    env: Vec<(String, String)>,
    is_masked: bool,
) -> Result<String, NoVersion> {
    let not_asked = |why: &dyn ToString| NoVersion::NotAsked(why.to_string());
    let _turn = ASKING.acquire().await.map_err(|error| not_asked(&error))?;
    let (channel, far_end) = quackd_ipc::link::pair().map_err(|error| not_asked(&error))?;

    let start = ToAgent::Start(Box::new(PiStart {
        proto: AGENT_FRAME_PROTOCOL,
        session: "doctor".to_owned(),
        workspace: "/".to_owned(),
        program,
        args: Vec::new(),
        version: None,
        allow_old: services.daemon.config.pi.allow_old.value,
        is_masked,
        only_version: true,
        project_settings: None,
        env,
        cgroup: None,
        processes: u32::try_from(services.daemon.config.limits.processes.value).unwrap_or(u32::MAX),
    }));

    let start = frames::encode(&start).map_err(|error| not_asked(&error))?;
    let spawner = &services.children.spawner;
    let spawned = spawner.spawn(PROGRAM.verb, far_end).await.map_err(|error| not_asked(&error))?;

    let asked = async {
        let mut channel = Framed::new(channel, frames::codec());
        channel.send(start).await.ok()?;
        channel.next().await?.ok()
    };

    // The guard reaps the process in a separate task, even if the caller stops waiting.
    let guard = Reaped(services.children.spawner.clone(), Some(spawned.process));
    let answer = asked.await;
    drop(guard);

    let answer = answer.ok_or_else(|| not_asked(&"its process exited without a reply"))?;
    match frames::decode(&answer, FROM_PI_TAGS) {
        Ok(Decoded::Known(FromPi::Version { version })) => Ok(plain(&version)),
        Ok(Decoded::Known(FromPi::CannotStart { reason })) => Err(NoVersion::Unfit(plain(&reason))),
        _ => Err(not_asked(&"its process gave another answer")),
    }
}

/// Reaps or kills a process when it is dropped. Its channel closes at the same time or soon after.
struct Reaped(Spawner, Option<ProcessHandle>);

impl Drop for Reaped {
    fn drop(&mut self) {
        let (spawner, process) = (self.0.clone(), self.1.take());
        actix::spawn(async move {
            if let Some(process) = process {
                reap_or_kill(&spawner, process, AGENT.shutdown).await;
            }
        });
    }
}

fn plain(text: &str) -> String {
    stripped_line(text, MAX_SHOWN)
}

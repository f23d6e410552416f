//! Prepares the start of quackd's own agent: its models, its session file and its settings.

use super::not_started;
use crate::children::LifecycleDriver;
use crate::clock::now_text;
use crate::errors::AgentError;
use crate::session::agent::actor::AgentActor;
use crate::session::agent::choice::{AgentChoice, StartFacts};
use crate::session::agent::history;
use crate::session::owner::Owner;
use crate::session::services::{NoLook, SessionServices};
use actix::prelude::*;
use quackd_config::Setting;
use quackd_egress::models::ModelCatalog;
use quackd_home::own_file;
use quackd_process::Writable;
use quackd_protocol::SessionId;
use quackd_protocol::agent::{
    AGENT_FRAME_PROTOCOL, AgentModels, AgentSettings, Engine, NativeStart, ToAgent,
};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::model::{MAX_MODELS, ModelInfo};
use quackd_protocol::policy::NetworkMode;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Timeout for file system access, because a disk may hang.
const PREPARE_LIMIT: Duration = Duration::from_secs(5);

/// Longest first line of a session file, in bytes.
const MAX_HEADER: u64 = 8 * 1024;

/// Longest settings file of Pi, in bytes.
const MAX_SETTINGS: u64 = 256 * 1024;

/// A prepared start.
#[derive(Debug)]
pub(in crate::session::agent) struct NativeLaunch {
    start: NativeStart,
    /// The session file, locked.
    file: OwnedFd,
}

/// Chooses the model, and opens the session file.
pub(in crate::session::agent) async fn prepare(
    services: Rc<SessionServices>,
    owner: Owner,
    session: SessionId,
    workspace: String,
    session_file: String,
    choice: AgentChoice,
) -> Result<NativeLaunch, AgentError> {
    let known = services.models.catalog().await;
    let default = default_model(&known, choice.model.as_deref())?;
    // The provider's answer may change the catalog and the limits of the model, so both are read again.
    services.models.ask_about(&known, &default).await;
    let catalog = services.models.catalog().await;
    let default = default_model(&catalog, choice.model.as_deref())?;

    let thinking = catalog.chosen().map(|chosen| chosen.thinking).unwrap_or_default();
    let of_default = catalog.chosen().filter(|_| choice.model.is_none());
    let model_notice = of_default.and_then(|chosen| chosen.notice.clone());

    let mut models = catalog.models().to_vec();
    if !models.iter().any(|it| it.provider == default.provider && it.id == default.id) {
        models.insert(0, default.clone());
    }
    models.truncate(MAX_MODELS);

    let own = settings_of(&services.daemon.config.agent);
    let pi_directory = catalog.pi_directory().to_owned();
    let writable = owner.writable().await.ok_or(AgentError::ShuttingDown)?;
    let home = services.daemon.home.clone();
    let user_home = services.daemon.user_home.clone();
    let places = services.daemon.places();

    let make = move || {
        let far = FarWorkspace::of(choice.sent.as_deref().unwrap_or(&workspace));
        if far.is_none() {
            if PathBuf::from(&workspace).read_dir().is_err() {
                return Err(AgentError::NoWorkspace(workspace));
            }
            places.check_blocking(Path::new(&workspace))?;
        }

        let writable = Writable::of_blocking(writable, &user_home);
        let sessions = home.prepare_pi_sessions_blocking();
        let sessions = sessions.map_err(not_started)?;
        let path = history::prepare_blocking(&sessions, &session_file, &workspace, &now_text());
        let path = path.map_err(not_started)?;

        let file = own_file::lock_blocking(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => AgentError::InUse(path.display().to_string()),
            _ => not_started(error),
        })?;
        if path.parent() != Some(&*sessions) && !is_conversation_blocking(&file) {
            return Err(not_started(format!("{} is not a session file", path.display())));
        }

        let (settings, default_tools) = with_settings_of_pi_blocking(own, &pi_directory, &writable);
        let start = NativeStart {
            proto: AGENT_FRAME_PROTOCOL,
            session: session.0,
            // The tools take paths of the other machine.
            workspace: far.map_or(workspace, |far| far.path),
            session_file: path.display().to_string(),
            models: AgentModels { models, default, thinking },
            is_model_chosen: choice.model.is_some(),
            settings,
            options: AgentOptions { tools: default_tools, ..AgentOptions::default() },
            safe_mode: false,
            network: String::new(),
            has_mcp_servers: false,
            model_notice,
        };

        Ok(NativeLaunch { start, file: file.into() })
    };

    match services.look(PREPARE_LIMIT, make).await {
        Ok(prepared) => prepared,
        Err(NoLook::Ended) => Err(AgentError::ShuttingDown),
        Err(NoLook::TimedOut) => Err(not_started("a disk does not respond")),
    }
}

/// Returns the model that the user chose for the session, or the default.
fn default_model(catalog: &ModelCatalog, wanted: Option<&str>) -> Result<ModelInfo, AgentError> {
    match (wanted, catalog.chosen()) {
        (Some(wanted), _) => catalog.find(None, wanted).ok_or_else(|| {
            AgentError::NoModel(format!(
                "The session's model {wanted} is not available. `quack models` lists the models; \
                 `quack activate --model` changes it."
            ))
        }),
        (None, Some(chosen)) => Ok(chosen.model.clone()),
        (None, None) => Err(AgentError::NoModel(catalog.missing())),
    }
}

/// Whether the file begins like a session file.
fn is_conversation_blocking(file: &File) -> bool {
    #[derive(Deserialize)]
    struct Header {
        r#type: String,
    }
    let mut line = String::new();
    let mut start = io::BufReader::new(file.take(MAX_HEADER));
    let read = io::BufRead::read_line(&mut start, &mut line);
    let header = read.ok().and_then(|_| serde_json::from_str::<Header>(&line).ok());
    header.is_some_and(|header| header.r#type == "session")
}

fn settings_of(config: &quackd_config::AgentSettings) -> AgentSettings {
    let number = |setting: &Setting<usize>| u32::try_from(setting.value).unwrap_or(u32::MAX);
    AgentSettings {
        max_retries: number(&config.retries),
        auto_retry: config.retries.value != 0,
        auto_compaction: config.compaction.value,
        max_turns: number(&config.max_turns),
        max_cost_usd: config.max_cost_usd.value.usd(),
        has_daily_limit: !config.max_cost_usd_per_day.value.is_zero(),
        parallel_tools: config.parallel_tools.value,
        ..AgentSettings::default()
    }
}

/// The part of Pi's settings that both agents have.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PiSettingsFile {
    retry: Retry,
    compaction: CompactionSettings,
    default_tools: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Retry {
    enabled: Option<bool>,
    max_retries: Option<u32>,
    base_delay_ms: Option<u64>,
    max_delay_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CompactionSettings {
    enabled: Option<bool>,
    reserve_tokens: Option<u64>,
    keep_recent_tokens: Option<u64>,
}

/// Applies `retry` and `compaction` of Pi's global settings, if there are any, and returns its `defaultTools`: both
/// agents then behave alike. A file that commands can write, or that cannot be read, is ignored.
fn with_settings_of_pi_blocking(
    own: AgentSettings,
    directory: &Path,
    writable: &Writable,
) -> (AgentSettings, Option<Vec<String>>) {
    let path = directory.join("settings.json");
    if writable.holds_blocking(&path).is_some() {
        return (own, None);
    }

    let Ok(bytes) = own_file::read_blocking(&path, MAX_SETTINGS) else { return (own, None) };
    let read: PiSettingsFile = serde_json::from_slice(&bytes).unwrap_or_default();
    let PiSettingsFile { retry, compaction, default_tools } = read;

    let settings = AgentSettings {
        auto_retry: retry.enabled.unwrap_or(own.auto_retry),
        max_retries: retry.max_retries.unwrap_or(own.max_retries).min(10),
        base_delay_ms: retry.base_delay_ms.unwrap_or(own.base_delay_ms),
        max_delay_ms: retry.max_delay_ms.unwrap_or(own.max_delay_ms),
        auto_compaction: compaction.enabled.unwrap_or(own.auto_compaction),
        reserve_tokens: compaction.reserve_tokens.unwrap_or(own.reserve_tokens),
        keep_recent_tokens: compaction.keep_recent_tokens.unwrap_or(own.keep_recent_tokens),
        ..own
    };

    let tools = AgentOptions { tools: default_tools, ..AgentOptions::default() };
    let tools = tools.check().is_ok().then_some(tools.tools).flatten();
    (settings, tools)
}

impl AgentActor {
    pub(in crate::session::agent) fn spawn_native(
        &mut self,
        prepared: NativeLaunch,
        ctx: &mut Context<Self>,
    ) {
        let NativeLaunch { mut start, file } = prepared;
        self.session_file.clone_from(&start.session_file);
        self.engine = Engine::Native;
        // The provider may have answered while the agent started.
        self.started.models = self.services.models.version();

        let StartFacts { is_safe, network, .. } = self.started;
        start.safe_mode = is_safe;

        let default_tools = start.options.tools.take();
        start.options = self.started.options.clone();
        start.options.tools = start.options.tools.take().or(default_tools);

        // In safe mode no MCP server is started.
        start.has_mcp_servers = !is_safe && !start.options.no_mcp && !self.mcp_servers().is_empty();
        start.network = match network {
            NetworkMode::Off => {
                // Only Linux asks the user when a command tries a host.
                "Commands have no network, except for hosts that the user allows.".to_owned()
            }
            NetworkMode::Hosts => {
                "Commands reach the hosts that the user has allowed, and no others.".to_owned()
            }
            NetworkMode::On => String::new(),
        };

        let place = self.started.choice.sent.as_deref().unwrap_or(&self.session.workspace);
        if let Some(far) = FarWorkspace::of(place) {
            let place = format!("The tools run on another machine, {}.", far.place());
            start.network = match network {
                NetworkMode::On => place,
                NetworkMode::Off | NetworkMode::Hosts => {
                    format!("{place} Commands have no network there.")
                }
            };
        }

        self.launch(&ToAgent::StartAgent(Box::new(start)), &[file], None, ctx);
    }
}

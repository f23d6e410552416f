//! The known agent that the command of `quack run` starts: its arguments, variables, hosts and login.

use crate::agents::{self, AgentRun, RunConfig};
use crate::args::run::RunArgs;
use crate::display::plain;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::subcommands::config;
use crate::subcommands::sandbox::request::WORKER_TIMEOUT;
use anyhow::Context as _;
use quackd_client::Client;
use quackd_config::RunNetwork;
use quackd_home::Home;
use quackd_home::keep::{
    Imported, agents_bytes_blocking, has_user_file_blocking, import_login_blocking,
};
use quackd_protocol::client::{SandboxExplain, SandboxSession};
use quackd_protocol::guest_agents::{GuestAgent, MAX_STATE_BYTES, STATE_IS_FULL};
use quackd_protocol::policy::NetworkMode;
use quackd_protocol::tiers::Tier;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Result of [`prepare`].
pub(super) struct Prepared {
    /// The agent that the command starts.
    pub(super) agent: Option<AgentRun>,
    /// The agent whose login is copied.
    pub(super) imported: Option<&'static GuestAgent>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Finds the agent that the command starts, adds what it needs, and asks the user. `workspace` is that of a new session.
pub(super) async fn prepare(
    home: &Home,
    workspace: Option<&str>,
    args: &mut RunArgs,
    env: &mut BTreeMap<String, String>,
    output: CliOutput,
) -> anyhow::Result<Prepared> {
    let config = RunConfig::read_blocking(home)?;
    let agent = agents::for_program(&args.command, &config.agents);
    let mut notes = Vec::new();
    if let Some(agent) = &agent {
        notes = prepare_agent(agent, home, workspace, args, env, output).await?;
        if config.network == RunNetwork::Agent {
            allow_hosts(agent, args);
        }
    }
    let imported =
        if args.import_login { Some(importable(agent.as_ref(), output).await?) } else { None };
    Ok(Prepared { agent, imported, notes })
}

/// Adds the variables and the arguments of an agent. Options of the user are stronger. At a terminal, the first run in a
/// workspace asks about each key, unless the configuration has decided. Returns notes for the user.
async fn prepare_agent(
    agent: &AgentRun,
    home: &Home,
    workspace: Option<&str>,
    args: &mut RunArgs,
    env: &mut BTreeMap<String, String>,
    output: CliOutput,
) -> anyhow::Result<Vec<String>> {
    for name in agent.settings.env.iter().flatten() {
        if let (false, Ok(value)) = (env.contains_key(name), std::env::var(name)) {
            env.insert(name.clone(), value);
        }
    }

    let may_ask = !args.detach && CliOutput::can_ask() && agent.settings.env.is_none();
    let is_first = |workspace| !agent.has_state_blocking(home, workspace);
    let asks = may_ask && workspace.is_some_and(is_first);
    if asks {
        ask_about_keys(agent, env, output).await?;
    }
    let notes = agent.notes(|name| asks || env.contains_key(name));

    for set in agent.sets() {
        env.entry(set.name.to_owned()).or_insert_with(|| set.value.to_owned());
    }
    args.command.clone_from(&agent.argv);
    Ok(notes)
}

/// Asks about each key that is set here. Puts those that the user passes always into the configuration.
async fn ask_about_keys(
    agent: &AgentRun,
    env: &mut BTreeMap<String, String>,
    output: CliOutput,
) -> anyhow::Result<()> {
    let mut always = Vec::new();
    for key in agent.keys_left(|name| env.contains_key(name)) {
        let question = format!("Pass {key} into the sandbox? [y/N/always] ");
        let answer = output.ask_word(question).await?;
        if answer == "always" {
            always.push(format!("\"{key}\""));
        }
        if matches!(answer.as_str(), "y" | "yes" | "always")
            && let Ok(value) = std::env::var(key)
        {
            env.insert(key.to_owned(), value);
        }
    }

    if !always.is_empty() {
        let key = format!("agents.{}.env", agent.name());
        config::set_blocking(&key, &format!("[{}]", always.join(", ")))?;
        output.note(&format!("{key} is set"));
    }
    Ok(())
}

/// Allows the hosts of an agent, unless the user has chosen another network. A session that exists keeps its rules, and
/// one on another machine has no network by host.
fn allow_hosts(agent: &AgentRun, args: &mut RunArgs) {
    let keeps_rules = args.session.is_some() || args.on.is_some();
    if keeps_rules || args.network.is_some_and(|mode| mode != NetworkMode::Hosts) {
        return;
    }
    for host in &agent.hosts {
        if !args.hosts.contains(host) {
            args.hosts.push(host.clone());
        }
    }
}

/// Returns the agent whose login `--import-login` copies, after a question at a terminal.
async fn importable(
    agent: Option<&AgentRun>,
    output: CliOutput,
) -> anyhow::Result<&'static GuestAgent> {
    let Some(known) = agent.and_then(|agent| agent.known) else {
        let text = "--import-login needs an agent of quack agents, such as quack run --import-login -- claude";
        return Err(CliError::usage(text).into());
    };
    let (user_home, product) = (user_home()?, known.product);
    let mut files = agents::login_files(known).into_iter();
    if !files.any(|file| has_user_file_blocking(&user_home, &file)) {
        let paths = known.logins.join(" or ~/");
        return Err(CliError::failed(format!(
            "--import-login: there is no login of {product} in ~/{paths}. A link does not count, nor does the keychain of macOS"
        ))
        .into());
    }

    let question = format!(
        "Copy your login of {product} into sessions of this workspace? Its tokens may change with use: then either copy \
         can make the other one invalid."
    );
    if CliOutput::can_ask() && !output.ask(question).await? {
        anyhow::bail!("the login was not copied, and nothing was started");
    }
    Ok(known)
}

/// Copies the user's login into the state of a workspace. Starts the worker of the session first, and fails if that keeps no
/// state.
pub(super) async fn import(
    agent: &'static GuestAgent,
    home: &Home,
    client: &Client,
    session: &str,
    workspace: &str,
    output: CliOutput,
) -> anyhow::Result<()> {
    let session = SandboxSession::of(session.to_owned());
    let explain = SandboxExplain { session, target: None };
    let said = client.call_within(explain, WORKER_TIMEOUT).await?;
    let Some(report) = said.report else { return Err(CliError::failed(plain(&said.text)).into()) };
    if !report.tier.is_some_and(Tier::has_namespaces) {
        let text = "--import-login: no state is kept in tier D, tier M and full-access; the login was not copied";
        return Err(CliError::failed(text).into());
    }

    let user_home = user_home()?;
    let names: Vec<_> = agent.state.iter().map(|state| agent.kept_path(state)).collect();
    let own = home.prepare_agents_blocking(workspace, None, &names)?;
    for file in agents::login_files(agent) {
        let imported = import_login_blocking(&user_home, &own, &file);
        if imported.context("cannot copy the login")? == Imported::Older {
            output.note("the login in sessions of this workspace is as new as yours, and stays");
        }
    }
    Ok(())
}

fn user_home() -> anyhow::Result<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).context("HOME is not set")
}

/// Prints and returns a note if the state of agents of a workspace is too large to be kept.
pub(super) fn note_on_size_blocking(
    home: &Home,
    workspace: &str,
    output: CliOutput,
) -> Option<String> {
    let bytes = agents_bytes_blocking(&home.workspace_agents_dir(workspace, None));
    let note = (MAX_STATE_BYTES <= bytes).then(|| STATE_IS_FULL.to_owned());
    note.iter().for_each(|note| output.note(note));
    note
}

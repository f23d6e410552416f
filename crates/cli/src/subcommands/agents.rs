//! `quack agents`: coding agents that can run inside of sessions, with the state that the sessions of a workspace keep.
//!
//! Needs no daemon: the state is in files. Commands of sessions write them, so links in them are not followed.

use crate::agents::{AgentRun, RunConfig, find_blocking, for_program, searched};
use crate::args::agents::{AgentsArgs, AgentsForgetArgs, AgentsVerb};
use crate::directory;
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::time_format::span;
use quackd_config::{GuestAgentSettings, RunNetwork};
use quackd_home::Home;
use quackd_home::keep::{AgentUsage, Forgotten, agent_usage_blocking, forget_agent_blocking};
use quackd_protocol::guest_agents::{GuestAgent, MAX_STATE_BYTES, STATE_IS_FULL};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Shown in place of the day of a test.
const UNCONFIRMED: &str = "unconfirmed";

/// Document of `quack agents`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentsDocument {
    /// Absent if the directory is no workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    /// Directories in which the programs were searched.
    searched: Vec<PathBuf>,
    agents: Vec<AgentFacts>,
}

/// Facts of one agent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentFacts {
    name: String,
    /// Name of the product. That of the program for an agent of the configuration.
    product: String,
    /// Path of the program. Absent if it is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// Directories in the home of sessions that are kept, relative to it.
    state: Vec<String>,
    /// Disk usage of the state in this workspace, in bytes. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_bytes: Option<u64>,
    /// Seconds since the last change of the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused_s: Option<u64>,
    has_login: bool,
    /// `workspace`, or `shared` if all workspaces have the same login.
    login: &'static str,
    /// Rules of hosts that `quack run` allows.
    hosts: Vec<String>,
    /// Variables with keys that it reads.
    keys: Vec<&'static str>,
    /// Those of `keys` that are set in this environment.
    keys_here: Vec<&'static str>,
    /// Variables that `quack run` passes without a question. Absent if the user has not decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<Vec<String>>,
    /// Files of the user that sessions get as copies, relative to the home.
    read: Vec<String>,
    /// Keys of `agents.NAME` in the configuration that are in force.
    configured: Vec<&'static str>,
    /// Variables that `quack run` sets.
    sets: BTreeMap<&'static str, &'static str>,
    /// The command that `quack run` starts.
    command: Vec<String>,
    /// Notes of `quack run` for the user.
    notes: Vec<String>,
    /// Arguments that continue the last conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<&'static [&'static str]>,
    /// Day of the last test with the real program in a session. `null` if there was none.
    tested: Option<&'static str>,
}

/// Document of `quack agents forget`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ForgottenDocument {
    agent: String,
    places: usize,
    bytes: u64,
    in_use: usize,
}

/// Runs the subcommand.
pub(crate) async fn run(args: AgentsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    match args.verb {
        Some(AgentsVerb::Forget(args)) => forget(args, output).await,
        None => {
            let list = move || list_blocking(args.name.as_deref(), args.dir.as_deref(), output);
            tokio::task::spawn_blocking(list).await?
        }
    }
}

/// Returns the agent of the configuration or of the table with this name.
fn known<'a>(
    name: &str,
    agents: &'a [GuestAgentSettings],
) -> Result<&'a GuestAgentSettings, CliError> {
    agents.iter().find(|agent| agent.name == name).ok_or_else(|| {
        let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        let name = display::name(name);
        CliError::usage(format!("{name} is not a known agent; known are {}", names.join(", ")))
    })
}

fn list_blocking(
    name: Option<&str>,
    dir: Option<&Path>,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let RunConfig { network, agents } = RunConfig::read_blocking(&home)?;
    let one = name.map(|name| known(name, &agents)).transpose()?;
    // The home directory, for example, is no workspace. The list of agents does not need one.
    let workspace = match dir {
        Some(dir) => Some(directory::workspace(Some(dir), false)?),
        None => directory::workspace(None, false).ok(),
    };

    let searched = searched();
    let shown = one.map_or(agents.as_slice(), std::slice::from_ref);
    let facts = shown.iter().filter_map(|agent| {
        let run = for_program(std::slice::from_ref(&agent.name), shown)?;
        let path = find_blocking(&agent.name, &searched);
        Some(facts_blocking(run, path, &home, workspace.as_deref()))
    });
    let agents = facts.collect();
    let document = AgentsDocument { workspace, searched, agents };

    let text = match (one, document.agents.first()) {
        (Some(_), Some(facts)) if !output.is_json() => details(facts, &document, network),
        _ => table(&document),
    };
    output.show(&document, || text)?;
    Ok(ExitCode::Ok)
}

fn facts_blocking(
    run: AgentRun,
    path: Option<PathBuf>,
    home: &Home,
    workspace: Option<&str>,
) -> AgentFacts {
    let notes = run.notes(|_| false);
    let name = run.name().to_owned();
    let usage = workspace.and_then(|path| agent_usage_blocking(home, path, None, &name));
    let usage = usage.filter(|usage: &AgentUsage| usage.files != 0);

    let known = run.known;
    AgentFacts {
        product: known.map_or_else(|| name.clone(), |agent| agent.product.to_owned()),
        path,
        state: run.settings.kept().map(str::to_owned).collect(),
        state_bytes: usage.map(|usage| usage.bytes),
        unused_s: usage.map(|usage| usage.unused.as_secs()),
        has_login: known
            .zip(workspace)
            .is_some_and(|(agent, path)| has_login_blocking(agent, home, path)),
        login: run.settings.login.word(),
        keys: known.into_iter().flat_map(|agent| agent.keys).map(|key| key.name).collect(),
        keys_here: run.keys_here.clone(),
        configured: run.settings.configured(),
        sets: run.sets().iter().map(|variable| (variable.name, variable.value)).collect(),
        hosts: run.hosts,
        passed: run.settings.env,
        read: run.settings.read,
        notes,
        command: run.argv,
        resume: known.and_then(|agent| agent.resume),
        tested: known.and_then(|agent| agent.tested),
        name,
    }
}

/// Returns true if the state has a file with a login. Its content is not read.
fn has_login_blocking(agent: &GuestAgent, home: &Home, workspace: &str) -> bool {
    let own = home.workspace_agents_dir(workspace, None);
    agent.logins.iter().any(|login| {
        let Some((state, name)) = login.rsplit_once('/') else { return false };
        let file = own.join(agent.kept_path(state)).join(name);
        file.symlink_metadata().is_ok_and(|file| file.is_file())
    })
}

fn table(document: &AgentsDocument) -> String {
    let home_dir = std::env::var("HOME").ok();
    let row = |facts: &AgentFacts| {
        let path = facts.path.as_ref().map(|path| path.to_string_lossy());
        [
            facts.name.clone(),
            path.map_or_else(
                || "not installed".to_owned(),
                |path| display::path_cell(&path, home_dir.as_deref()),
            ),
            facts.state_bytes.map_or_else(|| "-".to_owned(), display::bytes),
            if facts.has_login { "yes" } else { "-" }.to_owned(),
            or_dash(&facts.keys_here),
            facts.tested.unwrap_or(UNCONFIRMED).to_owned(),
        ]
    };

    let rows: Vec<_> = document.agents.iter().map(row).collect();
    let header = ["AGENT", "PROGRAM", "STATE HERE", "LOGIN", "KEYS SET HERE", "LAST TEST"];
    let table = display::table(header, [12, 13, 10, 5, 13, 0], &rows);
    let bytes = document.agents.iter().filter_map(|facts| facts.state_bytes);
    let is_full = MAX_STATE_BYTES <= bytes.fold(0, u64::saturating_add);
    let full = if is_full { format!("{STATE_IS_FULL}\n") } else { String::new() };
    format!("{table}\n{full}{}", searched_line(document))
}

fn searched_line(document: &AgentsDocument) -> String {
    let paths = document.searched.iter();
    let paths: Vec<_> = paths.map(|path| display::user_path(&path.to_string_lossy())).collect();
    format!(
        "Searched in PATH: {}\n",
        if paths.is_empty() { "-".to_owned() } else { paths.join(" ") }
    )
}

fn or_dash<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

fn details(facts: &AgentFacts, document: &AgentsDocument, network: RunNetwork) -> String {
    let program = facts.path.as_ref().map(|path| display::full_path(path));
    let state = facts.state.iter().map(|state| format!("~/{state}")).collect::<Vec<_>>().join(" ");
    let kept = match (&document.workspace, facts.state_bytes, facts.unused_s) {
        (None, ..) => "this directory is no workspace".to_owned(),
        (Some(_), Some(bytes), Some(unused)) => {
            let unused = span(std::time::Duration::from_secs(unused));
            let login = if facts.has_login { "with a login" } else { "without a login" };
            format!("{}, {login}, last changed {unused} ago", display::bytes(bytes))
        }
        (Some(_), ..) => "nothing".to_owned(),
    };
    let allowed = match network {
        RunNetwork::Agent => "",
        RunNetwork::Session => " (not allowed by itself: run.network is session)",
    };
    let sets: Vec<_> = facts.sets.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let resume = facts.resume.map(|resume| format!("{} {}", facts.name, resume.join(" ")));
    let passed = facts.passed.as_deref().unwrap_or_default();
    let configured: Vec<_> =
        facts.configured.iter().map(|key| format!("agents.{}.{key}", facts.name)).collect();

    let rows = [
        ("program", program.unwrap_or_else(|| format!("{} not found in PATH", facts.name))),
        ("kept in sessions", state),
        ("in this workspace", kept),
        ("login of", facts.login.to_owned()),
        ("copied from home", or_dash(&facts.read)),
        ("hosts", format!("{}{allowed}", or_dash(&facts.hosts))),
        ("keys", or_dash(&facts.keys)),
        ("keys set here", or_dash(&facts.keys_here)),
        ("always passed", or_dash(passed)),
        ("variables set", if sets.is_empty() { "-".to_owned() } else { sets.join(" ") }),
        ("command", facts.command.join(" ")),
        ("continues with", resume.unwrap_or_else(|| "-".to_owned())),
        ("last test", facts.tested.unwrap_or(UNCONFIRMED).to_owned()),
        ("configured by", or_dash(&configured)),
    ];

    let mut text = format!("{} ({})\n", facts.product, facts.name);
    for (name, value) in rows {
        text.push_str(&format!("  {name:<18}{value}\n"));
    }
    for note in &facts.notes {
        text.push_str(&format!("{note}\n"));
    }
    if facts.path.is_none() {
        text.push_str(&searched_line(document));
    }
    text
}

async fn forget(args: AgentsForgetArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let agents = RunConfig::read_blocking(&home)?.agents;
    let agent = known(&args.name, &agents)?.name.clone();
    let workspace =
        if args.workspace { Some(directory::workspace(args.dir.as_deref(), false)?) } else { None };

    if !args.yes {
        CliOutput::require_terminal()?;
        if !output.ask(question(&agent, workspace.as_deref())).await? {
            anyhow::bail!("nothing was deleted");
        }
    }

    let name = agent.clone();
    let delete = move || forget_agent_blocking(&home, &name, workspace.as_deref());
    let Forgotten { places, bytes, in_use } = tokio::task::spawn_blocking(delete).await??;
    let document = ForgottenDocument { agent, places, bytes, in_use };
    output.show(&document, || forgotten_text(&document))?;
    Ok(ExitCode::Ok)
}

fn question(agent: &str, workspace: Option<&str>) -> String {
    let place = workspace.map_or_else(|| "all workspaces".to_owned(), display::user_path);
    format!(
        "Delete the settings, logins and conversations that {agent} has in sessions of {place}?"
    )
}

fn forgotten_text(document: &ForgottenDocument) -> String {
    let ForgottenDocument { agent, places, bytes, in_use } = document;
    if *places == 0 {
        return format!("{agent} has no state in sessions.\n");
    }

    let (places, bytes) = (display::count(*places, "workspace"), display::bytes(*bytes));
    let mut text = format!("Deleted the state of {agent} in {places} ({bytes}).\n");
    if *in_use != 0 {
        let running = display::count(*in_use, "workspace");
        text.push_str(&format!(
            "Sessions of {running} run: what they write from now on is kept.\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_config::Config;

    fn document(name: &str, path: Option<&str>) -> AgentsDocument {
        let dir = tempfile::tempdir().unwrap();
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.path().into());
        let home = Home::resolve_blocking(&var).unwrap();
        let agents = Config::default().guest_agents();
        let run = for_program(&[name.to_owned()], &agents).unwrap();
        let facts = facts_blocking(run, path.map(PathBuf::from), &home, Some("/ws"));
        AgentsDocument {
            workspace: Some("/ws".to_owned()),
            searched: vec!["/a".into(), "/b".into()],
            agents: vec![facts],
        }
    }

    #[test]
    fn the_table_names_what_is_not_installed_and_not_tested_and_where_it_searched() {
        let text = table(&document("goose", None));
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("AGENT         PROGRAM        STATE HERE"));
        let row = lines.next().unwrap();
        assert!(row.starts_with("goose         not installed  -  "), "{row}");
        assert!(row.ends_with("unconfirmed"), "{row}");
        assert!(text.ends_with("\nSearched in PATH: /a /b\n"), "{text}");
    }

    #[test]
    fn the_details_have_hosts_and_the_remedy_for_a_missing_program() {
        let missing = document("codex", None);
        let text = details(&missing.agents[0], &missing, RunNetwork::Agent);
        assert!(text.contains("hosts             @openai"), "{text}");
        assert!(text.contains("program           codex not found in PATH\n"), "{text}");
        assert!(text.ends_with("\nSearched in PATH: /a /b\n"), "{text}");
        assert!(text.contains("in this workspace nothing"), "{text}");
        assert!(text.contains("continues with    codex resume --last"), "{text}");

        let found = document("codex", Some("/a/codex"));
        let text = details(&found.agents[0], &found, RunNetwork::Session);
        assert!(text.contains("program           /a/codex\n"), "{text}");
        assert!(text.contains("run.network is session") && !text.contains("Searched"), "{text}");
    }

    #[test]
    fn forgetting_says_what_is_in_use() {
        let document = |places, in_use| ForgottenDocument {
            agent: "claude".into(),
            places,
            bytes: 2048,
            in_use,
        };
        assert_eq!(forgotten_text(&document(0, 0)), "claude has no state in sessions.\n");
        assert_eq!(
            forgotten_text(&document(2, 1)),
            "Deleted the state of claude in 2 workspaces (2.0 KB).\n\
             Sessions of 1 workspace run: what they write from now on is kept.\n"
        );
        let agents = Config::default().guest_agents();
        let unknown = known("nobody", &agents).unwrap_err().to_string();
        assert!(unknown.contains("known are claude, codex"), "{unknown}");
    }

    #[test]
    fn settings_of_the_user_are_shown_and_state_above_the_limit_has_a_note() {
        let mut document = document("codex", None);
        let facts = &mut document.agents[0];
        facts.configured = vec!["env", "read"];
        facts.passed = Some(vec!["A_KEY".to_owned()]);
        facts.read = vec![".codex/AGENTS.md".to_owned()];
        facts.state_bytes = Some(MAX_STATE_BYTES);
        let text = details(&document.agents[0], &document, RunNetwork::Agent);
        assert!(text.contains("always passed     A_KEY\n"), "{text}");
        assert!(text.contains("copied from home  .codex/AGENTS.md\n"), "{text}");
        assert!(text.contains("configured by     agents.codex.env agents.codex.read\n"), "{text}");
        let text = table(&document);
        assert!(text.contains(STATE_IS_FULL), "{text}");
    }
}

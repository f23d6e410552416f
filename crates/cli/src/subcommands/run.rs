//! `quack run`: starts a program on a terminal of a session, and attaches to it.

mod agent;
mod kept_files;

use super::attach_terminal::color_query::ColorQuery;
use super::attach_terminal::settings::TerminalSettings;
use super::attach_terminal::window::{require_terminal, window_size};
use super::attach_terminal::{self, Attached, Target};
use super::jobs::{self, EndedJob};
use super::sandbox::request::{WORKER_TIMEOUT, network_patch};
use super::{new, ps};
use crate::agents;
use crate::args::SessionArgs;
use crate::args::run::{EnvWord, RunArgs};
use crate::connect::{patience, start_and_connect, warn_if_config_changed};
use crate::directory;
use crate::display::{self, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::screen_signals::SignalListener;
use crate::session_ref::{self, Missing, Wanted};
use agent::{Prepared, import, note_on_size_blocking, prepare};
use kept_files::has_kept_files_blocking;
use quackd_client::{Client, ClientError, directory_in};
use quackd_home::Home;
use quackd_protocol::client::{
    ForwardParams, FoundInfo, RunData, RunParams, SandboxSession, SandboxSet, SessionDeleteParams,
    SessionNewParams,
};
use quackd_protocol::limits::{DEFAULT_TOOL_DEADLINE, MAX_TERMINAL_VARIABLES};
use quackd_protocol::policy::PolicyPatch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Variable with the colors of the user's terminal.
const COLORTERM: &str = "COLORTERM";

/// Longest value of it that is passed on, in bytes.
const MAX_COLORTERM: usize = 64;

/// Pause between two checks whether the worker has reported the end of the program, and their number.
const END_PAUSE: Duration = Duration::from_millis(50);
const MAX_END_CHECKS: usize = 200;

/// Place of the program.
enum Chosen {
    /// In an existing session.
    Session(FoundInfo),
    /// In a new session of this workspace.
    Workspace(String),
}

impl Chosen {
    /// Returns the workspace of a new session.
    fn workspace(&self) -> Option<&str> {
        match self {
            Self::Session(_) => None,
            Self::Workspace(path) => Some(path),
        }
    }
}

/// The session of the program.
struct Place {
    /// Id of the session.
    session: String,
    label: String,
    workspace: String,
    /// Whether this subcommand has created it.
    is_new: bool,
    /// Whether it is deleted when the user sees the program end.
    is_temporary: bool,
}

/// Settings, signals and notes of the attached client.
struct Window {
    settings: TerminalSettings,
    query: ColorQuery,
    signals: SignalListener,
    /// Notes that were printed before.
    notes: Vec<String>,
}

/// Runs the subcommand.
pub(crate) async fn run(mut args: RunArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    // Everything that can be refused here is refused before a session is created.
    let settings = if args.detach {
        None
    } else {
        let otherwise = "-d starts the program without one, and `quack tool bash` runs a command without a terminal";
        require_terminal("run", otherwise, output)?;
        Some(TerminalSettings::read()?)
    };
    let mut env = variables(std::mem::take(&mut args.env), |name| std::env::var(name).ok())?;
    if let Some(agent) = args.resume.take() {
        args.command = agents::resume_command(&agent)?;
    }
    let home = Home::from_process_env_blocking()?;
    // A wrong rule starts no daemon.
    network_patch(args.network, args.hosts.clone())?;
    // Before the agent, which may change the configuration: the daemon need not have that change.
    let (client, chosen) = choose(&args, output).await?;
    let Prepared { agent, imported, mut notes } =
        prepare(&home, chosen.workspace(), &mut args, &mut env, output).await?;
    notes.iter().for_each(|note| output.note(note));
    let policy = network_patch(args.network, std::mem::take(&mut args.hosts))?;
    let shown = match settings {
        Some(settings) => {
            // From now on, a signal detaches at the earliest.
            let signals = SignalListener::open()?;
            Some(Window { settings, query: ColorQuery::ask_blocking(), signals, notes: Vec::new() })
        }
        None => None,
    };

    let place = place(&client, chosen, &mut args, policy, output).await?;
    if let Some(known) = imported
        && let Err(error) =
            import(known, &home, &client, &place.session, &place.workspace, output).await
    {
        if place.is_new {
            delete(&client, &place.session).await;
        }
        return Err(error);
    }
    if agent.is_some() && place.is_new && !args.isolated {
        notes.extend(note_on_size_blocking(&home, &place.workspace, output));
    }
    let client = Arc::new(client);
    let (argv, record) = (args.command, args.record);
    let size = window_size();
    let params = RunParams {
        session_id: Some(place.session.clone()),
        argv,
        cols: size.map(|size| size.cols),
        rows: size.map(|size| size.rows),
        cwd: start_directory(args.dir.as_deref(), &place.workspace),
        env,
        record: record.map(Into::into),
        colors: shown.as_ref().and_then(|window| window.query.colors()),
    };
    let started = start(&client, params, &place).await?;

    match shown {
        Some(window) => {
            let window = Window { notes, ..window };
            Box::pin(attach(client, place, started, window, output)).await
        }
        None => {
            let (terminal, label) = (plain(&started.terminal_id), display::name(&place.label));
            output.show(&started, || {
                format!("{terminal} of {label}\nquack attach {label}/{terminal}\n")
            })?;
            Ok(ExitCode::Ok)
        }
    }
}

/// Starts the program. A session that was created for a program that cannot be started is deleted again.
async fn start(client: &Client, params: RunParams, place: &Place) -> anyhow::Result<RunData> {
    let error = match client.call_within(params, patience(DEFAULT_TOOL_DEADLINE)).await {
        Ok(started) => return Ok(started),
        Err(error) => error,
    };

    // Without a refusal, for example after a lost connection, the program may have started.
    if place.is_new && matches!(error, ClientError::Refused { .. }) {
        delete(client, &place.session).await;
    }
    Err(error.into())
}

/// Deletes a new session after a failure, whose reason is more useful than that of the deletion.
async fn delete(client: &Client, session: &str) {
    let delete = SessionDeleteParams { session_id: Value::from(session), force: Some(true) };
    client.call(delete).await.ok();
}

/// Shows the program. If it has ended before the client was attached, prints its output as that of a job.
async fn attach(
    client: Arc<Client>,
    place: Place,
    started: RunData,
    window: Window,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let Window { settings, query, signals, mut notes } = window;
    if let Some(recording) = &started.recording {
        let note = format!("recorded in {recording}");
        output.note(&note);
        notes.push(note);
    }

    let target = Target {
        client: Arc::clone(&client),
        session: place.session.clone(),
        label: place.label.clone(),
        terminal: Some(started.terminal_id.clone()),
        is_read_only: false,
        sets_size: true,
        colors: query.colors(),
        remote: None,
    };
    let refused = match Attached::begin(target).await {
        Ok(attached) => {
            let shown = attach_terminal::show(attached, settings, query, signals, output);
            let shown = Box::pin(shown).await;
            // The program's screen has replaced them.
            notes.iter().for_each(|note| output.note(note));
            let shown = shown?;
            if shown.has_ended {
                let job = end_of_job(&client, &place.session, &started.terminal_id).await;
                let job = job.ok().flatten();
                if let Some(job) = job.as_ref().filter(|_| !shown.has_screen)
                    && !job.text.is_empty()
                {
                    output.answer(&job.text)?;
                }
                let audit = job.map(|job| job.audit);
                leave(&client, &place, &started.terminal_id, audit, output).await;
            }
            return Ok(shown.code);
        }
        Err(error @ ClientError::Refused { .. }) => error,
        Err(error) => return Err(error.into()),
    };

    match jobs::ended(&client, &place.session, &started.terminal_id).await? {
        Some(job) => {
            if !job.text.is_empty() {
                output.answer(&job.text)?;
            }
            // The daemon may not have the end yet.
            end_of_job(&client, &place.session, &started.terminal_id).await.ok();
            leave(&client, &place, &started.terminal_id, Some(job.audit), output).await;
            Ok(job.code)
        }
        None => Err(refused.into()),
    }
}

/// Returns the end of the program's job. The worker reports it after the end of the terminal, once the other processes of
/// the job are gone: waits up to 10 s for that.
async fn end_of_job(
    client: &Client,
    session: &str,
    terminal: &str,
) -> anyhow::Result<Option<EndedJob>> {
    for _ in 0..MAX_END_CHECKS {
        let workers = ps::ask(client).await?.workers;
        let worker = workers.iter().find(|worker| worker.session_id.0 == session);
        let Some(worker) = worker else { return Ok(None) };
        if worker.jobs.iter().all(|job| job.job_id != terminal) {
            return jobs::ended(client, session, terminal).await;
        }
        sleep(END_PAUSE).await;
    }
    Ok(None)
}

/// Prints the report about the files that the program has changed and other programs obey. Then deletes a temporary session,
/// unless the report names files or something else has used the session. It stays after an error, and without a report.
async fn leave(
    client: &Client,
    place: &Place,
    terminal: &str,
    audit: Option<Vec<String>>,
    output: CliOutput,
) {
    audit.iter().flatten().for_each(|remark| output.warning(&plain(remark)));
    let is_clean = audit.is_some_and(|audit| audit.is_empty());
    if !is_clean
        || !place.is_temporary
        || !is_unused(client, &place.session, terminal).await.unwrap_or(false)
    {
        return;
    }
    // Without force: the daemon keeps a session in which other work has started since.
    let delete =
        SessionDeleteParams { session_id: Value::from(place.session.as_str()), force: None };
    if client.call(delete).await.is_ok() {
        output.note("session deleted");
    }
}

/// Whether a session was used for nothing but the program of this terminal, whose job has ended.
async fn is_unused(client: &Client, session: &str, terminal: &str) -> anyhow::Result<bool> {
    let data = ps::ask(client).await?;
    let worker = data.workers.iter().find(|worker| worker.session_id.0 == session);
    let Some(worker) = worker else { return Ok(false) };
    let is_claimed = data.clients.iter().any(|it| it.sessions.contains(&worker.label));
    let has_work = !worker.jobs.is_empty() || !worker.calls.is_empty() || worker.pi.is_some();
    if is_claimed || has_work || worker.status.pinned {
        return Ok(false);
    }
    let (session_id, list) = (Some(session.to_owned()), Some(true));
    let forwards = ForwardParams { session_id, list, ..ForwardParams::default() };
    if !client.call(forwards).await?.forwards.is_empty() {
        return Ok(false);
    }
    let home = Home::from_process_env_blocking()?;
    Ok(!has_kept_files_blocking(&home, session, terminal)?)
}

/// Connects to the daemon, and finds the session of `--in` or the workspace of a new one.
async fn choose(args: &RunArgs, output: CliOutput) -> anyhow::Result<(Client, Chosen)> {
    if let Some(session) = args.session.clone() {
        let choice = SessionArgs { session: Some(session), dir: None };
        // Before the connection, so that wrong arguments start no daemon.
        let choice = Wanted::of(&choice)?;
        let client = start_and_connect(output).await?.client;
        let found = choice.one(&client, Missing::Refuse).await?;
        return Ok((client, Chosen::Session(found)));
    }

    let here = || args.dir.clone().or_else(|| std::env::current_dir().ok());
    let path = match &args.on {
        Some(on) => directory::far_workspace(on, args.dir.as_deref())?,
        None => directory::workspace(here().as_deref(), false)?,
    };
    let daemon = start_and_connect(output).await?;
    warn_if_config_changed(&daemon.daemon, output);
    let client = daemon.client;
    let path = match args.dir {
        Some(_) => path,
        None => session_ref::enclosing(&client).await?.unwrap_or(path),
    };
    Ok((client, Chosen::Workspace(path)))
}

/// Returns the chosen session, or creates one with this policy.
async fn place(
    client: &Client,
    chosen: Chosen,
    args: &mut RunArgs,
    policy: PolicyPatch,
    output: CliOutput,
) -> anyhow::Result<Place> {
    let path = match chosen {
        Chosen::Session(found) => {
            return Ok(Place {
                label: display::label(&found.label, &found.session_name).to_owned(),
                session: found.session_id.0,
                workspace: found.workspace_path,
                is_new: false,
                is_temporary: false,
            });
        }
        Chosen::Workspace(path) => path,
    };

    // A copy has changes, and what it takes to undo an apply.
    let is_temporary = !args.keep && !args.isolated && args.name.is_none();
    let params = SessionNewParams {
        path: Some(path),
        name: args.name.take(),
        isolated: args.isolated.then_some(true),
        ..SessionNewParams::default()
    };
    let made = new::create(client, params, output).await?;
    let place = Place {
        label: display::label(&made.label, &made.session.name).to_owned(),
        session: made.session.id.0,
        workspace: made.workspace.path,
        is_new: true,
        is_temporary,
    };

    if policy != PolicyPatch::default() {
        let session = SandboxSession::of(place.session.clone());
        let params = SandboxSet { session, patch: policy, ..SandboxSet::default() };
        // A rule with a preset may run the user's tools.
        match client.call_within(params, WORKER_TIMEOUT).await {
            Ok(data) => data.notes.iter().for_each(|note| output.warning(&plain(note))),
            Err(error) => {
                delete(client, &place.session).await;
                return Err(error.into());
            }
        }
    }
    Ok(place)
}

/// Returns the directory in which the program starts, relative to the workspace. `None` for the workspace itself.
fn start_directory(dir: Option<&Path>, workspace: &str) -> Option<String> {
    let here = dir.map(PathBuf::from).or_else(|| std::env::current_dir().ok())?;
    let inside = directory_in(workspace, &here)?;
    let relative = Path::new(&inside).strip_prefix(workspace).ok()?;
    relative.to_str().map(str::to_owned)
}

/// Returns the variables of the program: those of `--env`, and the colors of this terminal. `value` returns a variable of
/// this process.
fn variables(
    words: Vec<EnvWord>,
    value: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, CliError> {
    let mut variables = BTreeMap::new();
    let is_usable = |value: &String| {
        value.len() <= MAX_COLORTERM && value.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if let Some(colors) = value(COLORTERM).filter(is_usable) {
        variables.insert(COLORTERM.to_owned(), colors);
    }

    for EnvWord { name, value: given } in words {
        let Some(value) = given.or_else(|| value(&name)) else {
            let text = format!("--env {name}: this shell has no such variable, or not as UTF-8");
            return Err(CliError::usage(text));
        };
        variables.insert(name, value);
    }

    if MAX_TERMINAL_VARIABLES < variables.len() {
        let text = format!("at most {MAX_TERMINAL_VARIABLES} variables can be passed");
        return Err(CliError::usage(text));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str, value: Option<&str>) -> EnvWord {
        EnvWord { name: name.to_owned(), value: value.map(str::to_owned) }
    }

    fn passed(words: Vec<EnvWord>) -> Result<Vec<(String, String)>, String> {
        let shell = |name: &str| match name {
            "KEY" => Some("k".to_owned()),
            COLORTERM => Some("truecolor".to_owned()),
            _ => None,
        };
        let variables = variables(words, shell).map_err(|error| error.to_string())?;
        Ok(variables.into_iter().collect())
    }

    #[test]
    fn variables_have_the_value_of_the_option_or_of_the_shell() {
        let own = |pairs: &[[&str; 2]]| -> Vec<(String, String)> {
            pairs.iter().map(|[name, value]| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let colors = [COLORTERM, "truecolor"];
        assert_eq!(passed(vec![]), Ok(own(&[colors])));
        let words = vec![word("KEY", None), word("A", Some("b c"))];
        assert_eq!(passed(words), Ok(own(&[["A", "b c"], colors, ["KEY", "k"]])));
        let words = vec![word(COLORTERM, Some(""))];
        assert_eq!(passed(words), Ok(own(&[[COLORTERM, ""]])));
    }

    #[test]
    fn a_variable_that_is_not_set_and_too_many_are_refused() {
        let error = passed(vec![word("NONE", None)]).unwrap_err();
        assert!(error.starts_with("--env NONE: this shell has no such variable"), "{error}");
        let many = (0..MAX_TERMINAL_VARIABLES).map(|n| word(&format!("V{n}"), Some("")));
        assert!(passed(many.collect()).is_err());
    }

    #[test]
    fn strange_colors_are_not_passed_on() {
        for bad in ["a b", "\u{1b}", &"x".repeat(MAX_COLORTERM + 1)] {
            assert!(variables(vec![], |_| Some(bad.to_owned())).unwrap().is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn the_program_starts_in_the_directory_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().canonicalize().unwrap();
        let inner = workspace.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let workspace = workspace.to_str().unwrap();
        assert_eq!(start_directory(Some(&inner), workspace).as_deref(), Some("a/b"));
        assert_eq!(start_directory(Some(Path::new(workspace)), workspace), None);
        assert_eq!(start_directory(Some(Path::new("/")), workspace), None);
    }
}

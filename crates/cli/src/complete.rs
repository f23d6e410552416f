//! Completion of command lines. The scripts of `quack completions` run this program at every TAB, and it prints the
//! candidates: subcommands, options and tools from the program itself, sessions and jobs from the running daemon.
//!
//! A completion never starts the daemon, waits at most [`LIMIT`] for its reply and prints no error: a shell would show
//! the text between the words that the user types.

use crate::args::{Cli, REF};
use crate::display;
use clap::{Arg, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use quackd_client::Client;
use quackd_egress::models::provider_names;
use quackd_home::{Home, resolve_workspace_blocking};
use quackd_policy::hosts::presets::PRESETS;
use quackd_protocol::client::{
    Method, ModelsData, ModelsParams, PsData, PsParams, SessionInfo, SessionsData, SessionsParams,
    WorkerInfo,
};
use quackd_protocol::guest_agents::GUEST_AGENTS;
use quackd_protocol::policy::{Profile, WebSearchRule};
use quackd_protocol::tools;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Environment variable with the name of the shell. Only the scripts set it.
pub(crate) const VAR: &str = "QUACK_COMPLETE";

/// Timeout for the daemon's reply.
const LIMIT: Duration = Duration::from_secs(1);

/// Maximum number of sessions or jobs offered.
const MAX_CANDIDATES: usize = 1000;

/// Width of a description, in columns.
const MAX_HELP: usize = 60;

/// Maximum size of a pid file, in bytes.
const MAX_PID_FILE: u64 = 64;

/// Whether a shell runs this process for its candidates.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os(VAR).is_some() && std::env::args_os().nth(1).is_some_and(|arg| arg == "--")
}

/// Prints the candidates for the command line after `--`.
pub(crate) fn run() {
    let here = std::env::current_dir().ok();
    let candidates = CompleteEnv::with_factory(command).var(VAR);
    // An error has no reader: the shell offers nothing.
    candidates.try_complete(std::env::args_os(), here.as_deref()).ok();
}

/// Returns the command line with visible subcommands and options only, and with the candidates for values.
pub(crate) fn command() -> Command {
    visible(&Cli::command())
}

/// Removes hidden subcommands and options. clap completes them too, and has no way to disable that.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(visible);
    let aliases = command.get_visible_aliases().map(str::to_owned).collect::<Vec<_>>();

    let mut visible = Command::new(command.get_name().to_owned())
        .disable_help_subcommand(true)
        .visible_aliases(aliases)
        .args(arguments.map(|argument| completed(command.get_name(), argument.clone())))
        .subcommands(verbs);

    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        visible = visible.version(version.to_owned());
    }
    visible
}

fn completed(verb: &str, argument: Arg) -> Arg {
    let name = argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());

    let candidates = match (verb, name) {
        (_, Some(REF)) => ArgValueCandidates::new(sessions),
        ("tool" | "tools", Some("NAME")) => ArgValueCandidates::new(tools),
        ("agents" | "forget", Some("NAME")) => ArgValueCandidates::new(agents),
        ("tool", Some(_)) if argument.get_id() == "argument" => ArgValueCandidates::new(jobs),
        (_, Some("KEY")) => ArgValueCandidates::new(keys),
        (_, Some("NAME")) if argument.get_id() == "engine" => ArgValueCandidates::new(engines),
        (_, Some("ENGINE[:TARGET]")) => ArgValueCandidates::new(places),
        (_, Some("PROVIDER")) => ArgValueCandidates::new(providers),
        (_, Some("MODEL" | "PROVIDER/NAME")) => ArgValueCandidates::new(models),
        (_, Some("PROFILE")) => ArgValueCandidates::new(profiles),
        (_, Some("RULE")) if argument.get_id() == "web_search" => ArgValueCandidates::new(rules),
        (_, Some("RULE" | "RULE|ID")) => ArgValueCandidates::new(presets),
        _ => return argument,
    };
    argument.add(candidates)
}

fn candidate(value: impl Into<OsString>, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(display::first_line(help, MAX_HELP).into()))
}

fn tools() -> Vec<CompletionCandidate> {
    tools::all().map(|tool| candidate(tool.name, tool.about)).collect()
}

/// Coding agents that `quack agents` knows.
fn agents() -> Vec<CompletionCandidate> {
    GUEST_AGENTS.iter().map(|agent| candidate(agent.name, agent.product)).collect()
}

/// Keys of the configuration.
fn keys() -> Vec<CompletionCandidate> {
    quackd_config::keys().iter().map(|key| candidate(key.name(), key.description())).collect()
}

fn engines() -> Vec<CompletionCandidate> {
    ["native", "pi", "auto"].map(CompletionCandidate::new).into()
}

/// Engines that start workers elsewhere.
fn places() -> Vec<CompletionCandidate> {
    let config = crate::directory::config_blocking();
    let rows = config.map_or_else(|_invalid| quackd_engines::built_in(), |it| it.engines());
    rows.into_iter().map(|row| candidate(row.name, &row.about)).collect()
}

/// Providers of models that `quack login` knows.
fn providers() -> Vec<CompletionCandidate> {
    provider_names().map(CompletionCandidate::new).collect()
}

/// Models of providers with a key, and of local servers.
fn models() -> Vec<CompletionCandidate> {
    let Some(ModelsData { models, .. }) = ask(ModelsParams::default()) else { return Vec::new() };
    let names = models.iter().map(|model| format!("{}/{}", model.provider, model.id));
    let names = names.filter(|name| is_plain(name)).take(MAX_CANDIDATES);
    names.map(CompletionCandidate::new).collect()
}

fn profiles() -> Vec<CompletionCandidate> {
    Profile::ALL.iter().map(|profile| CompletionCandidate::new(profile.name())).collect()
}

fn rules() -> Vec<CompletionCandidate> {
    WebSearchRule::ALL.iter().map(|rule| CompletionCandidate::new(rule.name())).collect()
}

/// Presets of hosts. The user types other rules.
fn presets() -> Vec<CompletionCandidate> {
    PRESETS.iter().map(|preset| candidate(format!("@{}", preset.name), preset.about)).collect()
}

fn sessions() -> Vec<CompletionCandidate> {
    let Some(SessionsData { sessions }) =
        ask(SessionsParams { all: true.into(), ..SessionsParams::default() })
    else {
        return Vec::new();
    };

    let home_dir = std::env::var("HOME").ok();
    sessions
        .iter()
        .filter_map(|session| {
            let path = display::path_cell(&session.workspace_path, home_dir.as_deref());
            let help = format!("{}  {path}", display::name_cell(&session.name));
            Some(candidate(reference(session)?, &help))
        })
        .take(MAX_CANDIDATES)
        .collect()
}

/// Returns a reference to `session`: its label, else its id. `None` if both contain characters that a shell interprets.
fn reference(session: &SessionInfo) -> Option<String> {
    let label = Some(session.label.as_str()).filter(|label| !label.starts_with('-'));
    let words = [label, Some(session.id.as_str())];
    words.into_iter().flatten().find(|word| is_plain(word)).map(str::to_owned)
}

/// Whether a shell interprets no character of the word. bash inserts candidates unquoted.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./@+".contains(c))
}

/// Returns the jobs of the session on the command line, for the tools that take a job.
fn jobs() -> Vec<CompletionCandidate> {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();

    let takes_job =
        |word: &String| tools::find(word).is_some_and(|tool| tool.parameter("job").is_some());
    if !words.iter().any(takes_job) {
        return Vec::new();
    }
    let Some(PsData { workers, .. }) = ask(PsParams {}) else { return Vec::new() };

    let session = value_of(&words, &["--session"]);
    let dir = value_of(&words, &["-C", "--dir"]).unwrap_or(".");
    let workspace = resolve_workspace_blocking(Path::new(dir)).ok();
    let is_of_command_line = |worker: &&WorkerInfo| match session {
        Some(session) => {
            [worker.session_id.as_str(), &worker.label, &worker.session_name].contains(&session)
        }
        None => Some(&worker.workspace_path) == workspace.as_ref(),
    };

    let jobs = workers.iter().filter(is_of_command_line).flat_map(|worker| &worker.jobs);
    let jobs = jobs.filter(|job| is_plain(&job.job_id));
    jobs.map(|job| candidate(&job.job_id, &job.command)).take(MAX_CANDIDATES).collect()
}

/// Returns the word after one of `options`.
fn value_of<'a>(words: &'a [String], options: &[&str]) -> Option<&'a str> {
    let at = words.iter().position(|word| options.contains(&word.as_str()))?;
    words.get(at + 1).map(String::as_str)
}

/// Asks the running daemon. `None` if none runs, or if it does not reply in time.
fn ask<M: Method>(params: M) -> Option<M::Reply> {
    let home = Home::from_process_env_blocking().ok()?;
    // A connection to a socket of the service manager would start the daemon.
    if !is_running(&home) {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;

    let asking = async {
        let client = Client::connect(&home.socket().path, LIMIT).await.ok()?;
        client.call_within(params, LIMIT).await.ok()
    };

    let answer = runtime.block_on(async { tokio::time::timeout(LIMIT, asking).await });
    // A lookup that still runs must not delay the shell.
    runtime.shutdown_background();
    answer.ok().flatten()
}

/// Whether the process in the pid file exists.
fn is_running(home: &Home) -> bool {
    let path = home.pid_file();
    let is_small = path.metadata().is_ok_and(|file| file.is_file() && file.len() <= MAX_PID_FILE);
    let text = if is_small { std::fs::read_to_string(path) } else { return false };
    let pid = text.ok().and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw);
    // PERM: the process exists, and belongs to another user.
    pid.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_is_offered_by_a_text_that_means_it_and_that_no_shell_interprets() {
        let offered = |id: &str, label: &str| {
            let session = serde_json::from_value(json!({
                "id": id, "name": "duck-1", "label": label, "workspacePath": "/a", "isActive": false,
                "isRunning": false, "lastActiveAt": ""
            }));
            reference(&session.unwrap())
        };
        for (id, label, expected) in [
            ("i1", "api/duck-1", Some("api/duck-1")),
            ("i2", "über", Some("über")),
            ("i4", "$(touch x)", Some("i4")),
            ("i5", "two words/duck-1", Some("i5")),
            ("i6", "-y", Some("i6")),
            ("i7", "", Some("i7")),
            ("i 8", "x;y", None),
        ] {
            assert_eq!(offered(id, label).as_deref(), expected, "{id}");
        }
    }

    #[test]
    fn every_value_that_the_program_knows_has_candidates() {
        let command = command();
        command.clone().debug_assert();
        let has = |verbs: &[&str], id: &str| {
            let verb = verbs.iter().fold(&command, |at, verb| at.find_subcommand(verb).unwrap());
            let argument = verb.get_arguments().find(|argument| argument.get_id() == id).unwrap();
            argument.get::<ArgValueCandidates>().is_some()
        };
        for (verbs, id) in [
            (&["tool"][..], "name"),
            (&["tool"], "argument"),
            (&["tool"], "session"),
            (&["pin"], "session"),
            (&["delete"], "session"),
            (&["sandbox", "set"], "profile"),
            (&["sandbox", "set"], "web_search"),
            (&["sandbox", "audit"], "session"),
            (&["config", "set"], "key"),
            (&["config", "unset"], "key"),
            (&["new"], "engine"),
            (&["activate"], "engine"),
            (&["activate"], "model"),
            (&["models", "use"], "model"),
            (&["login"], "provider"),
            (&["logout"], "provider"),
            (&["schema", "tools"], "name"),
        ] {
            assert!(has(verbs, id), "{verbs:?} {id}");
        }
        assert!(!has(&["new"], "name"));
    }

    #[test]
    fn a_pid_file_of_no_process_means_that_no_daemon_runs() {
        let dir = tempfile::tempdir().unwrap();
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.path().into());
        let home = Home::resolve_blocking(&var).unwrap();
        assert!(!is_running(&home));
        for (text, expected) in
            [(std::process::id().to_string(), true), ("0\n".into(), false), ("x".repeat(99), false)]
        {
            std::fs::write(home.pid_file(), &text).unwrap();
            assert_eq!(is_running(&home), expected, "{text}");
        }
    }
}

//! `quack [DIR]`: activates the session of a directory's repository, shows it and follows it.

use super::follow::session_view::{self, InputMode, Interrupts, RunVerb, SessionView};
use super::follow::{self, follow_connection::FollowConnection, prompt::past_prompts::PastPrompts};
use crate::args::{AttachArgs, unknown_verb};
use crate::connect::{DaemonConnection, start_and_connect, warn_if_config_changed};
use crate::directory;
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::output::{BOLD, CliOutput, DIM};
use crate::session_ref;
use crate::shell_keys;
use anyhow::Context;
use quackd_client::Client;
use quackd_home::Home;
use quackd_protocol::client::{
    AttachData, AttachParams, CheckStatus, DoctorParams, SessionInfo, SessionsParams,
};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Timeout for the check of Pi before the prompt is shown.
const AGENT_LIMIT: Duration = Duration::from_secs(5);

/// Runs the subcommand. `run_verb` runs the subcommands that the user types at the prompt.
pub(crate) async fn run(
    args: &AttachArgs,
    run_verb: RunVerb,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    let begun = tokio::select! {
        biased;
        _ = interrupts.next() => return Ok(ExitCode::Interrupted),
        begun = begin(args, run_verb, output) => begun,
    };

    match begun? {
        Some(live) => live.run(&mut interrupts).await,
        None => Ok(ExitCode::Ok),
    }
}

/// Attaches to the session. Returns the view to run, unless `--no-follow` was given.
async fn begin(
    args: &AttachArgs,
    run_verb: RunVerb,
    output: CliOutput,
) -> anyhow::Result<Option<SessionView>> {
    let workspace = directory::workspace(args.dir.as_deref(), args.force)
        .map_err(|error| explain(error, args.dir.as_deref()))?;

    let daemon = start_and_connect(output).await?;
    warn_if_config_changed(&daemon.daemon, output);
    // The user may have set a key in this shell after the daemon had started.
    shell_keys::pass_on(&daemon.client, output).await;

    // Without a directory, the session of a directory above counts, as it does for the other subcommands.
    let workspace = match args.dir {
        Some(_) => workspace,
        None => session_ref::enclosing(&daemon.client).await?.unwrap_or(workspace),
    };

    let path = Some(Value::from(workspace));
    let params = AttachParams { path, own: Some(true), ..AttachParams::default() };
    let attached = daemon.client.call(params).await?;
    if let Some(note) = attached.note.as_ref().filter(|_| !output.is_json()) {
        output.warning(note);
    }

    let home_dir = std::env::var("HOME").ok();
    if args.no_follow {
        let session = known(&daemon, &attached).await?;
        let document = document(&attached, session.is_running);
        output.show(&document, || header(&session, home_dir.as_deref()))?;
        return Ok(None);
    }

    let session = attached.session.id.0.clone();
    let label = session_ref::label(&daemon.client, &session).await?;
    let (client, is_person) = (Arc::new(daemon.client), session_view::is_person(output));
    // Followed before the header is printed, so that no event after it is missed.
    let mut watch = FollowConnection::begin(client, session, None, is_person).await?;

    if output.is_json() {
        output.first_line(&document(&attached, watch.followed().is_running))?;
    } else {
        watch.settle().await;
        let line = follow::header(&label, watch.followed(), home_dir.as_deref());
        output.text(&line)?;
    }

    let look = follow::look(args.look);
    if !is_person {
        return Ok(Some(SessionView::new(watch, look, InputMode::Nothing, output)));
    }

    let no_agent = no_agent(&watch.client()).await;
    let typing = match &no_agent {
        None => InputMode::Speaks(run_verb),
        // Without an agent no prompt is shown. Pi may start later, so its questions are still asked.
        Some(_) => InputMode::Leaves,
    };

    note_keys(no_agent.as_deref(), output);
    let directory = args.dir.as_deref().unwrap_or_else(|| Path::new("."));
    watch.directory = quackd_client::directory_in(&attached.workspace.path, directory);

    let mut live = SessionView::new(watch, look, typing, output);
    if matches!(typing, InputMode::Speaks(_)) {
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
        live.show_prompt(past_prompts(attached.workspace.id.as_str()), directory)?;
    }

    live.start_voice();
    Ok(Some(live))
}

/// Notes the keys, and the reason why no agent can answer, if there is one.
fn note_keys(no_agent: Option<&str>, output: CliOutput) {
    let keys = match no_agent {
        None => "Enter=send  Ctrl+C=stop the turn  Ctrl+D=leave  /help=more",
        Some(_) => "Ctrl+C or Ctrl+D=leave",
    };
    output.note(&format!("{keys}. In another terminal: quack tool bash 'git status'"));
    if let Some(why) = no_agent {
        output.note(&format!("no prompt, because no agent can answer: {why}"));
    }
}

/// Returns the earlier prompts of a workspace. Without a place for them, they are kept in memory.
fn past_prompts(workspace: &str) -> PastPrompts {
    // The id becomes the name of a file.
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let home = Home::from_process_env_blocking().ok();
    let dir = home.and_then(|home| home.prepare_prompts_blocking().ok());
    match dir.filter(|_| is_name(workspace)) {
        Some(dir) => PastPrompts::read_blocking(dir.join(workspace)),
        None => PastPrompts::in_memory(),
    }
}

/// Returns the reason why the daemon cannot start Pi. `None` if it can, or if it does not reply in time.
async fn no_agent(client: &Client) -> Option<String> {
    let looked = client.call_within(DoctorParams::default(), AGENT_LIMIT).await.ok()?;
    let pi = looked.checks.into_iter().find(|check| check.name == "pi")?;
    (pi.status != CheckStatus::Ok).then_some(pi.message)
}

/// Returns the session's row of the `sessions` reply.
async fn known(daemon: &DaemonConnection, attached: &AttachData) -> anyhow::Result<SessionInfo> {
    let all = SessionsParams { all: Value::Bool(true), ..SessionsParams::default() };
    let known = daemon.client.call(all).await?;
    let mut sessions = known.sessions.into_iter();
    sessions.find(|known| known.id == attached.session.id).context("the session was deleted")
}

fn document(attached: &AttachData, is_running: bool) -> Value {
    let mut document = json!({
        "workspace": attached.workspace,
        "session": attached.session,
        "isRunning": is_running,
    });
    if let (Some(note), Some(fields)) = (&attached.note, document.as_object_mut()) {
        fields.insert("note".to_owned(), Value::from(note.as_str()));
    }
    document
}

/// Adds a hint to the error: clap passes a mistyped subcommand as a directory.
fn explain(error: anyhow::Error, dir: Option<&Path>) -> anyhow::Error {
    let word = dir.and_then(Path::to_str).filter(|word| !word.contains('/'));
    match word.and_then(unknown_verb) {
        Some(text) => CliError::usage(text).into(),
        None => error,
    }
}

fn header(session: &SessionInfo, home_dir: Option<&str>) -> String {
    let name = display::name(display::label(&session.label, &session.name));
    let path = display::path(&session.workspace_path, home_dir);
    let state = if session.is_running {
        "its worker process is running"
    } else {
        "its worker process starts with the first call"
    };
    format!(
        "{BOLD}{name}{BOLD:#}  {path}\n{DIM}{state}{DIM:#}\n\n\
         Try next\n  \
         quack tool bash 'git status'        run a command in it\n  \
         quack tool grep_search TODO         search it\n  \
         quack ps                            see the processes\n  \
         quack demo                          see what happens when a worker dies\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_the_session_and_says_what_to_try() {
        let session = SessionInfo {
            isolated: false,
            place: None,
            id: "s".into(),
            name: "duck-1".to_owned(),
            label: "app".to_owned(),
            workspace_path: "/home/ada/app".to_owned(),
            is_active: true,
            is_running: false,
            last_active_at: String::new(),
            status: quackd_protocol::client::StatusInfo::default(),
        };
        let text = anstream::adapter::strip_str(&header(&session, Some("/home/ada"))).to_string();
        assert!(
            text.starts_with("app  ~/app\nits worker process starts with the first call\n"),
            "{text}"
        );
        assert!(text.contains("quack tool "), "{text}");
    }

    #[test]
    fn a_mistyped_verb_is_told_from_a_missing_directory() {
        let plain = || CliError::usage("not a directory: x").into();
        let verb = explain(plain(), Some(Path::new("sesions"))).to_string();
        assert!(verb.starts_with("`sesions` is neither a subcommand nor a directory"), "{verb}");
        assert!(verb.contains("; did you mean `quack sessions`? `quack --help` lists"), "{verb}");
        let other = explain(plain(), Some(Path::new("xyzzy"))).to_string();
        assert!(other.contains("directory; `quack --help` lists the subcommands"), "{other}");
        let hidden = explain(plain(), Some(Path::new("pi-worke"))).to_string();
        assert!(!hidden.contains("pi-worker"), "{hidden}");
        let path = explain(plain(), Some(Path::new("./sesions"))).to_string();
        assert_eq!(path, "not a directory: x");
    }
}

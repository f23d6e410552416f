//! `quack diff`, `quack apply`, `quack refresh` and `quack discard`: the private copy of an isolated session.

use crate::args::SessionArgs;
use crate::args::isolated::{ApplyArgs, DiffArgs, DiscardArgs, RefreshArgs};
use crate::display::{count, name, plain};
use crate::exit::ExitCode;
use crate::output::{CliOutput, DIM, RED, StdoutProperties};
use crate::render::search::diff::render_patch;
use crate::render::search::{PATH, fit, push};
use crate::session_ref;
use crate::workspace_scope::normal;
use quackd_protocol::client::{FoundInfo, IsolatedAction, IsolatedData, IsolatedParams};
use quackd_protocol::isolate::{
    ApplyOutcome, FileChange, IsolatedCommit, IsolatedCommits, IsolatedFile, IsolatedReport,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a reply. The process has 120 s, and may wait 30 s for its turn.
pub(super) const ISOLATED_TIMEOUT: Duration = Duration::from_secs(160);

/// Timeout of a reply about a copy on another machine: two transfers of 10 minutes, and the work on the copy.
pub(super) const SENT_TIMEOUT: Duration = Duration::from_secs(25 * 60);

/// Characters of the name of a commit that are shown, as git shows at least seven.
const SHORT_ID: usize = 8;

/// Runs `quack diff`: the changes of the copy, as a list and as patches.
pub(crate) async fn diff(args: DiffArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let params = |session: &FoundInfo| IsolatedParams {
        action: Some(IsolatedAction::Diff),
        paths: relative(&args.paths, session),
        text: Some(!args.stat),
        commits: args.commits.then_some(true),
        ..IsolatedParams::default()
    };

    let data = request(&args.which, params, output).await?;
    if output.is_json() {
        output.document(&data)?;
        return Ok(ExitCode::Ok);
    }

    if let Some(place) = &data.place {
        output.note(&format!("the session works in {}", plain(place)));
    }
    if let Some(commits) = &data.commits {
        let text = commit_list(commits, &data, output.audience());
        let _reader = output.raw(text).await?;
        return Ok(ExitCode::Ok);
    }

    let report = &data.report;
    if report.files.is_empty() {
        output.note("the session has changed nothing");
    } else {
        let audience = output.audience();
        let is_patch = !args.stat && !audience.is_terminal;
        // A patch in a pipe has nothing else in it.
        let mut text = if is_patch { String::new() } else { list(report, Side::Session, audience) };
        for file in report.files.iter().filter(|_| !args.stat) {
            if let Some(difference) = &file.diff {
                text.push_str(&render_patch(difference, audience));
            }
        }
        let _reader = output.raw(text).await?;

        if is_patch && 0 < report.more {
            let n = usize::try_from(report.more).unwrap_or(usize::MAX);
            output.warning(&format!("the patch is incomplete: {} left out", count(n, "more file")));
        }
    }
    // On stderr, so that a patch stays one.
    tell_notes(report, output);
    Ok(ExitCode::Ok)
}

/// Runs `quack apply`: writes the changes into the workspace, or takes the last apply back.
pub(crate) async fn apply(args: ApplyArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let action = if args.undo { IsolatedAction::Undo } else { IsolatedAction::Apply };
    let params = |session: &FoundInfo| IsolatedParams {
        action: Some(action),
        paths: relative(&args.paths, session),
        protected: relative(&args.protected, session),
        merge: args.merge.map(Into::into),
        dry_run: args.dry_run.then_some(true),
        expect: args.expect.clone(),
        commits: args.commits.then_some(true),
        force: args.force.then_some(true),
        ..IsolatedParams::default()
    };

    let data = request(&args.which, params, output).await?;
    let report = &data.report;
    let is_whole = report.conflicts == 0 && !(args.undo && has(report, ApplyOutcome::Left));

    if output.is_json() {
        output.document(&data)?;
    } else if let Some(commits) = &data.commits {
        let _reader = output.raw(commit_list(commits, &data, output.audience())).await?;
    } else {
        let mut text = list(report, Side::Session, output.audience());
        text.push_str(&last_line(&args, &data));
        let _reader = output.raw(text).await?;
        tell_notes(report, output);
    }
    Ok(if is_whole { ExitCode::Ok } else { ExitCode::Failed })
}

/// Runs `quack refresh`: brings changes of the workspace into the copy.
pub(crate) async fn refresh(args: RefreshArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let params = |session: &FoundInfo| IsolatedParams {
        action: Some(IsolatedAction::Refresh),
        paths: relative(&args.paths, session),
        merge: args.merge.map(Into::into),
        dry_run: args.dry_run.then_some(true),
        force: args.force.then_some(true),
        ..IsolatedParams::default()
    };

    let data = request(&args.which, params, output).await?;
    let report = &data.report;
    let has_conflicts = 0 < report.conflicts;

    if output.is_json() {
        output.document(&data)?;
    } else {
        let mut text = list(report, Side::Workspace, output.audience());
        let (written, session) = (n_written(report), name(&data.label));
        text.push_str(&match (has_conflicts, report.written, args.dry_run) {
            (true, _, _) => conflicts(report),
            (_, true, _) if report.files.is_empty() => {
                format!("Brought the commits of the workspace into {session}.\n")
            }
            (_, true, _) => format!("Brought {written} of the workspace into {session}.\n"),
            (_, _, true) => format!("Would bring {written} of the workspace into {session}.\n"),
            _ => format!("{session} has everything that changed in the workspace.\n"),
        });
        let _reader = output.raw(text).await?;
        tell_notes(report, output);
    }
    Ok(if has_conflicts { ExitCode::Failed } else { ExitCode::Ok })
}

/// Lists the commits of a session, and names the reference that has them.
fn commit_list(
    commits: &IsolatedCommits,
    data: &IsolatedData,
    audience: StdoutProperties,
) -> String {
    let mut text = String::new();
    for IsolatedCommit { id, subject } in &commits.commits {
        let short: String = plain(id).chars().take(SHORT_ID).collect();
        push(&mut text, &short, DIM, audience);
        text.push_str(&format!("  {}\n", fit(subject, audience)));
    }

    if 0 < commits.more {
        text.push_str(&format!("and {} more\n", commits.more));
    }

    let session = name(&data.label);
    match &commits.reference {
        _ if commits.commits.is_empty() => {
            text.push_str(&format!("{session} made no commits that the workspace lacks.\n"));
        }
        Some(reference) => {
            let short = reference.strip_prefix("refs/").unwrap_or(reference);
            text.push_str(&format!("To take them over: git merge {}\n", plain(short)));
        }
        None => {}
    }
    text
}

/// Runs `quack discard`: replaces the copy by a new one, after a confirmation.
pub(crate) async fn discard(args: DiscardArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let choice = args.which.into_which();
    if !args.yes {
        CliOutput::require_terminal()?;
        // A copy that cannot be compared can be discarded.
        let n = match request(&choice, |_| only(IsolatedAction::Diff), output).await {
            Ok(data) => count(data.report.files.len(), "change"),
            Err(_) => "the changes".to_owned(),
        };

        if !output.ask(format!("Throw away {n} and make a new copy?")).await? {
            anyhow::bail!("nothing was discarded");
        }
    }

    let data = request(&choice, |_| only(IsolatedAction::Discard), output).await?;
    let notes = data.copied.iter().flat_map(|copied| &copied.notes);
    notes.for_each(|note| output.note(&plain(note)));
    output.show(&data, || {
        let files = count(data.copied.as_ref().map_or(0, |copied| copied.files), "file");
        format!("{} has a new copy of {files}.\n", name(&data.label))
    })?;
    Ok(ExitCode::Ok)
}

/// Returns the parameters of an action without options.
pub(super) fn only(action: IsolatedAction) -> IsolatedParams {
    IsolatedParams { action: Some(action), ..IsolatedParams::default() }
}

/// Sends one request about the chosen session.
pub(super) async fn request(
    choice: &SessionArgs,
    params: impl FnOnce(&FoundInfo) -> IsolatedParams,
    output: CliOutput,
) -> anyhow::Result<IsolatedData> {
    let (client, session) = session_ref::existing(choice, output).await?;
    session_ref::tell(&session, output);
    let params =
        IsolatedParams { session_id: Some(session.session_id.0.clone()), ..params(&session) };
    Ok(client.call_within(params, SENT_TIMEOUT).await?)
}

/// Converts paths of the user: relative to the current directory if it is in the workspace, otherwise to the workspace.
pub(super) fn relative(paths: &[PathBuf], session: &FoundInfo) -> Vec<String> {
    let workspace = Path::new(&session.workspace_path);
    let here = std::env::current_dir().ok().filter(|here| here.starts_with(workspace));
    let from = here.unwrap_or_else(|| workspace.to_owned());

    let path = |path: &PathBuf| {
        // Without the file system: the file may exist only in the copy.
        let path = normal(&from.join(path));
        path.strip_prefix(workspace).unwrap_or(&path).to_string_lossy().into_owned()
    };
    paths.iter().map(path).collect()
}

pub(super) fn has(report: &IsolatedReport, outcome: ApplyOutcome) -> bool {
    report.files.iter().any(|file| file.outcome == outcome)
}

/// The side whose changes are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Session,
    Workspace,
}

pub(super) fn list(report: &IsolatedReport, of: Side, audience: StdoutProperties) -> String {
    let mut text = String::new();
    for file in &report.files {
        line(file, of, &mut text, audience);
    }
    if 0 < report.more {
        text.push_str(&format!("and {} more\n", report.more));
    }
    text
}

fn line(file: &IsolatedFile, of: Side, text: &mut String, audience: StdoutProperties) {
    text.push_str(&format!("{}  ", letter(file.change)));
    push(text, &fit(&file.path, audience), PATH, audience);

    let (words, style) = match file.outcome {
        ApplyOutcome::Taken => ("", DIM),
        ApplyOutcome::Same if of == Side::Session => ("the workspace has it already", DIM),
        ApplyOutcome::Same => ("the session has it already", DIM),
        ApplyOutcome::Merged if of == Side::Session => {
            ("merged with changes of the workspace", DIM)
        }
        ApplyOutcome::Merged => ("merged with changes of the session", DIM),
        ApplyOutcome::Marked => ("conflict markers", RED),
        ApplyOutcome::Conflict => ("conflict", RED),
        ApplyOutcome::Protected => ("left out", RED),
        ApplyOutcome::Left => ("left", RED),
    };

    let reason = file.reason.as_deref().map(|reason| fit(reason, audience).into_owned());
    let words = match (words, reason) {
        (words, None) => words.to_owned(),
        ("", Some(reason)) => reason,
        (words, Some(reason)) => format!("{words}: {reason}"),
    };

    if !words.is_empty() {
        text.push_str("  ");
        push(text, &words, style, audience);
    }
    text.push('\n');
}

/// Letter of a change, as in `git status`.
pub(super) fn letter(change: FileChange) -> &'static str {
    match change {
        FileChange::Added => "A",
        FileChange::Changed => "M",
        FileChange::Deleted => "D",
    }
}

/// Returns the line about what was written, and how to take it back.
fn last_line(args: &ApplyArgs, data: &IsolatedData) -> String {
    let report = &data.report;
    let written = n_written(report);
    let session = name(&data.label);

    if args.undo {
        return format!("Took back {written}.\n");
    }
    if 0 < report.conflicts {
        return conflicts(report);
    }

    match (report.written, args.dry_run) {
        (true, _) => format!(
            "Applied {written}. To take this back: quack apply --undo --session {session}\n"
        ),
        (false, true) => format!("Would write {written}.\n"),
        (false, false) => "There is nothing to apply.\n".to_owned(),
    }
}

/// Number of files that were or would be written, in words.
pub(super) fn n_written(report: &IsolatedReport) -> String {
    let is_written = |file: &&IsolatedFile| {
        matches!(file.outcome, ApplyOutcome::Taken | ApplyOutcome::Merged | ApplyOutcome::Marked)
    };
    let n = report.files.iter().filter(is_written).count();
    let more = usize::try_from(report.more).unwrap_or(usize::MAX);
    count(n.saturating_add(more), "file")
}

fn conflicts(report: &IsolatedReport) -> String {
    let n = count(report.conflicts, "conflict");
    format!(
        "Nothing was written: {n}. Resolve with --merge markers, ours, theirs or skip, or name single paths.\n"
    )
}

pub(super) fn tell_notes(report: &IsolatedReport, output: CliOutput) {
    report.notes.iter().for_each(|note| output.note(&plain(note)));
}

//! `quack checkpoints` and `quack restore`: recorded states of a session's files.

use super::changes::{push_files, time};
use super::isolated::{Side, has, list as list_of, n_written, only, relative, request, tell_notes};
use crate::args::isolated::{CheckpointsArgs, RestoreArgs};
use crate::display::{count, name, plain};
use crate::exit::ExitCode;
use crate::output::{CliOutput, DIM, RED, StdoutProperties};
use crate::render::search::{PATH, fit, push};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_protocol::client::{FoundInfo, IsolatedAction, IsolatedParams};
use quackd_protocol::isolate::{ApplyOutcome, Checkpoint};

/// Runs `quack checkpoints`: prints one line for each recorded state.
pub(crate) async fn list(args: CheckpointsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let params = |_: &FoundInfo| only(IsolatedAction::Checkpoints);
    let data = request(&args.which.into_which(), params, output).await?;
    if output.is_json() {
        output.document(&data)?;
        return Ok(ExitCode::Ok);
    }

    let mut text = String::new();
    for checkpoint in &data.checkpoints {
        line(checkpoint, args.files, &mut text, output.audience());
    }
    let _reader = output.raw(text).await?;
    Ok(ExitCode::Ok)
}

fn line(checkpoint: &Checkpoint, lists_files: bool, text: &mut String, audience: StdoutProperties) {
    push(text, &format!("{:>4}", checkpoint.number), PATH, audience);
    if checkpoint.at_ms == 0 {
        text.push_str("  the state before\n");
        return;
    }

    text.push_str("  ");
    push(text, &time(checkpoint.at_ms, &TimeZone::system(), Timestamp::now()), DIM, audience);
    text.push_str(&format!("  {}  ", count(checkpoint.files, "file")));

    let calls = checkpoint.calls.iter().map(|call| plain(call));
    let calls = calls.collect::<Vec<_>>().join("; ");
    if calls.is_empty() {
        push(text, "changed by others", DIM, audience);
    } else {
        text.push_str(&fit(&calls, audience));
    }

    if checkpoint.while_running {
        push(text, "  while a call was running", RED, audience);
    }
    text.push('\n');

    if lists_files {
        push_files(checkpoint, "      ", text, audience);
    }
}

/// Runs `quack restore`.
pub(crate) async fn restore(args: RestoreArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let params = |session: &FoundInfo| IsolatedParams {
        action: Some(IsolatedAction::Restore),
        number: Some(args.number),
        paths: relative(&args.paths, session),
        protected: relative(&args.protected, session),
        dry_run: args.dry_run.then_some(true),
        force: args.force.then_some(true),
        ..IsolatedParams::default()
    };

    let data = request(&args.which, params, output).await?;
    let report = &data.report;
    let is_whole = !has(report, ApplyOutcome::Left) && !has(report, ApplyOutcome::Protected);

    if output.is_json() {
        output.document(&data)?;
    } else {
        let mut text = list_of(report, Side::Session, output.audience());
        let (n, session) = (n_written(report), name(&data.label));
        text.push_str(&match (report.written, args.dry_run) {
            (true, _) => format!(
                "Restored {n}. The state before is in: quack checkpoints --session {session}\n"
            ),
            (false, true) => format!("Would restore {n}.\n"),
            (false, false) if is_whole => "There is nothing to restore.\n".to_owned(),
            (false, false) => "Nothing was restored: all files were left.\n".to_owned(),
        });
        let _reader = output.raw(text).await?;
        tell_notes(report, output);
    }

    // A script must notice files that were left.
    Ok(if is_whole { ExitCode::Ok } else { ExitCode::Failed })
}

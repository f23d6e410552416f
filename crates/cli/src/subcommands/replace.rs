//! `quack replace`: replaces matches in files, or prints a patch.

use super::grep::{files, matching};
use super::result_stream::not_found;
use crate::args::SessionArgs;
use crate::args::search::ReplaceArgs;
use crate::display::{count, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, DIM, RED, StdoutProperties};
use crate::render::search::diff::render_patch;
use crate::render::search::replace_data::{
    Changes, FileChange, InterruptedReplace, Skipped, Totals,
};
use crate::render::search::{LINE, PATH, fit, push};
use crate::session_ref;
use crate::workspace_scope::{self, ScopedClient, WorkspaceScope};
use quackd_protocol::limits::MAX_SEARCH_OUTPUT_BYTES;
use quackd_protocol::tools::{ArgumentsBuilder, Counts, ReplaceArguments};
use serde_json::{Map, Value};

/// Maximum size of the patches of a dry run, in bytes. This is the tool's own limit.
const MAX_PATCH_BYTES: usize = MAX_SEARCH_OUTPUT_BYTES;

/// Maximum number of skipped files in warnings.
const MAX_SKIPPED: usize = 20;

/// Runs the subcommand.
pub(crate) async fn run(args: &ReplaceArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let words = words(args)?;

    let asking = ScopedClient::begin(&args.call, output).await?;
    session_ref::tell(&asking.found, output);
    if let Some(words) = &words {
        all_there(words.paths, &asking.place)?;
    }

    let result = asking.call(arguments(args, words, &asking.place)?, true).await?;
    let data = result.data.as_ref().filter(|_| !result.info.is_error);
    let Some(data) = data else {
        let is_usage = is_usage(&result.text);
        let otherwise = if is_usage { CliError::usage } else { CliError::failed };
        return Err(workspace_scope::failure(&result, otherwise).into());
    };

    let changes = Changes::read(data)?;
    if output.is_json() {
        output.document(data)?;
    } else {
        show(&changes, args, output).await?;
    }
    Ok(exit(&changes, args.dry_run))
}

/// Operands of the command line.
#[derive(Debug)]
struct ReplaceOperands<'a> {
    pattern: &'a str,
    replacement: &'a str,
    paths: &'a [String],
}

/// Parses the operands. `None` for a plan, which has none.
fn words(args: &ReplaceArgs) -> Result<Option<ReplaceOperands<'_>>, CliError> {
    match (&args.plan, args.words.as_slice()) {
        (Some(_), _) => Ok(None),
        (None, [pattern, ..]) if pattern.is_empty() => Err(CliError::usage("the pattern is empty")),
        (None, [pattern, replacement, paths @ ..]) => {
            Ok(Some(ReplaceOperands { pattern, replacement, paths }))
        }
        _ => Err(CliError::usage("give a pattern and a replacement; see --help")),
    }
}

/// Fails if a named path does not exist, and lists all missing paths. Unlike `grep` and `find`, this subcommand changes
/// files, so a mistyped path must stop it.
fn all_there(paths: &[String], place: &WorkspaceScope) -> Result<(), CliError> {
    let (_, missing) = place.present(paths);
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::usage(format!("{}; nothing was changed", not_found(&missing))))
}

fn arguments(
    args: &ReplaceArgs,
    words: Option<ReplaceOperands<'_>>,
    place: &WorkspaceScope,
) -> Result<ArgumentsBuilder<ReplaceArguments>, CliError> {
    let counts = [args.expect_files, args.expect_lines, args.expect_replacements];
    let counts = Counts::NAMES.iter().zip(counts);
    let counts: Map<String, Value> =
        counts.filter_map(|(name, n)| Some(((*name).to_owned(), Value::from(n?)))).collect();

    let call = ReplaceArguments::builder()
        .expect((!counts.is_empty()).then_some(counts))
        .backup(args.no_backup.then_some("none"));
    let Some(ReplaceOperands { pattern, replacement, paths }) = words else {
        return Ok(call.plan_id(args.plan.as_deref().unwrap_or_default()));
    };

    Ok(call
        .group(matching(&args.matching))
        .group(files(&args.files))
        .pattern([pattern])
        .replacement(replacement)
        .path(place.starts(paths)?)
        .template(args.no_template.then_some(false))
        .line_range(args.line_range.map(|(first, last)| [first, last]))
        .max_per_file(args.max_count)
        .max_files(args.max_files)
        .max_replacements(args.max_replacements)
        .dry_run(args.dry_run.then_some(true))
        .diff(args.dry_run.then_some("unified"))
        // A patch is read by programs, so it may be longer than a model's reply.
        .max_bytes(args.dry_run.then_some(MAX_PATCH_BYTES)))
}

async fn show(changes: &Changes, args: &ReplaceArgs, output: CliOutput) -> anyhow::Result<()> {
    let audience = output.audience();
    let choice = &args.call.which;
    let mut text = String::new();

    if args.dry_run {
        // A program that reads the pipe could apply an incomplete patch unnoticed.
        if !changes.is_whole_patch() && !audience.is_terminal {
            return Err(CliError::failed(format!(
                "the patch is longer than {}; select fewer files{}",
                crate::display::bytes(u64::try_from(MAX_PATCH_BYTES)?),
                plan(changes, choice)
            ))
            .into());
        }
        if !audience.is_terminal
            && let Some(files) = inexact(changes)
        {
            return Err(CliError::failed(format!(
                "a patch cannot represent the changes in {files}; exclude them with -g '!NAME'{}",
                plan(changes, choice)
            ))
            .into());
        }

        let patches = changes.files.iter().filter_map(|change| change.diff.as_deref());
        text.extend(patches.map(|patch| render_patch(patch, audience)));
    } else if !changes.timed_out {
        text.extend(changes.files.iter().map(|change| line(change, audience)));
        text.push_str(&last_lines(changes, choice, audience));
    }

    let _reader = output.raw(text).await?;
    tell(changes, args, output);
    Ok(())
}

/// Prints warnings and notes about the result.
fn tell(changes: &Changes, args: &ReplaceArgs, output: CliOutput) {
    let choice = &args.call.which;

    for Skipped { path, reason } in changes.skipped.iter().take(MAX_SKIPPED) {
        output.warning(&format!("{}: left as it is: {}", plain(path), plain(reason)));
    }

    let more = changes.skipped_count.saturating_sub(changes.skipped.len().min(MAX_SKIPPED));
    if more != 0 {
        output.warning(&format!("{} left as it is", count(more, "more file")));
    }

    for InterruptedReplace { undo_id } in changes.interrupted.iter().take(MAX_SKIPPED) {
        let again = again(choice);
        output.warning(&format!(
            "an earlier replacement was interrupted; undo it with: quack undo {}{again}",
            plain(undo_id)
        ));
    }

    if let Some(reason) = &changes.stopped {
        let reason = plain(reason);
        output
            .warning(&format!("stopped before the end: {reason}; the written files are complete"));
    }

    // Scripts also need the warning that other names keep the old content.
    let is_detached = changes.files.iter().any(|change| change.detached);
    for note in &changes.notes {
        if is_detached { output.warning(&plain(note)) } else { output.note(&plain(note)) }
    }

    if changes.timed_out {
        output.warning("the search timed out: nothing was changed; see --timeout");
    } else if args.dry_run {
        if !changes.is_whole_patch() {
            output.warning("the patch is incomplete: it would be too long");
        }
        if let Some(files) = inexact(changes) {
            output.warning(&format!("the patch cannot be applied to {files}"));
        }
        output.note(&format!("would replace {}{}", total(changes, true), plan(changes, choice)));
    } else if changes.files.is_empty() {
        output.note("nothing matches");
    }
}

/// Lists the files whose patch cannot be applied: UTF-16, or lines that are not UTF-8. `None` if there are none.
fn inexact(changes: &Changes) -> Option<String> {
    let n_more = changes.inexact().count().saturating_sub(MAX_SKIPPED);
    let named = changes.inexact().take(MAX_SKIPPED).map(|change| {
        let encoding = if change.encoding.starts_with("utf-16") { "UTF-16" } else { "not UTF-8" };
        format!("{} ({encoding})", plain(&change.path))
    });
    let mut files: Vec<String> = named.collect();
    if n_more != 0 {
        files.push(count(n_more, "more file"));
    }
    (!files.is_empty()).then(|| files.join(", "))
}

/// Returns the command that applies the plan of a dry run. Empty without a plan.
fn plan(changes: &Changes, choice: &SessionArgs) -> String {
    let Some(id) = &changes.plan_id else { return String::new() };
    format!("; to do it: quack replace --plan {}{}", quoted(id), again(choice))
}

fn line(change: &FileChange, audience: StdoutProperties) -> String {
    let mut line = String::new();
    push(&mut line, &fit(&change.path, audience), PATH, audience);
    line.push_str(": ");

    match &change.reason {
        _ if change.written => {
            push(&mut line, &change.replacements.to_string(), LINE, audience);
            line.push_str(&format!(" in {}\n", count(change.lines_changed, "line")));
        }
        reason => {
            let reason = reason.as_deref().unwrap_or("not written");
            push(&mut line, &format!("not changed: {}", fit(reason, audience)), RED, audience);
            line.push('\n');
        }
    }
    line
}

fn last_lines(changes: &Changes, choice: &SessionArgs, audience: StdoutProperties) -> String {
    if changes.files.is_empty() {
        return String::new();
    }
    let mut text = format!("Replaced {}.\n", total(changes, false));

    if let Some(id) = &changes.undo_id {
        let undo = format!("Undo with: quack undo {}{}", quoted(id), again(choice));
        push(&mut text, &undo, DIM, audience);
        text.push('\n');
    }
    text
}

fn total(changes: &Changes, is_dry_run: bool) -> String {
    let Totals { files, lines, replacements } = changes.totals(is_dry_run);
    let matches = if replacements == 1 { "match" } else { "matches" };
    format!("{replacements} {matches} in {} of {}", count(lines, "line"), count(files, "file"))
}

/// Returns the options that select the same session.
pub(super) fn again(choice: &SessionArgs) -> String {
    match (&choice.session, &choice.dir) {
        (Some(session), _) => format!(" --session {}", quoted(session)),
        (None, Some(dir)) => format!(" -C {}", quoted(&dir.to_string_lossy())),
        (None, None) => String::new(),
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let word = plain(word);
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "-_./~+@%:,".contains(c);
    if !word.is_empty() && word.chars().all(is_simple) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn exit(changes: &Changes, is_dry_run: bool) -> ExitCode {
    if changes.timed_out {
        ExitCode::BusyOrLate
    } else if changes.files.is_empty() || !(is_dry_run || changes.is_whole()) {
        ExitCode::Failed
    } else {
        ExitCode::Ok
    }
}

/// Whether a refusal is about the arguments and not about the files. Only the beginning of the text tells the
/// difference.
fn is_usage(text: &str) -> bool {
    const ABOUT_THE_REQUEST: &[&str] = &[
        "Missing ",
        "Invalid ",
        "Unknown ",
        "Search path ",
        "Path escapes ",
        "Cannot search ",
        "Glob ",
        "Pattern ",
        "The replacement ",
        "A range of lines ",
        "The range of lines ",
        "Parameter ",
    ];

    let text = text.strip_prefix("Error: ").unwrap_or(text);
    ABOUT_THE_REQUEST.iter().any(|words| text.starts_with(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use serde_json::json;

    const PIPE: StdoutProperties = StdoutProperties { is_terminal: false, is_colored: false };

    fn parse(line: &[&str]) -> ReplaceArgs {
        match Cli::read(["quack", "replace"].iter().chain(line)).unwrap().verb {
            Some(Verb::Replace(args)) => *args,
            other => panic!("not a replacement: {other:?}"),
        }
    }

    #[test]
    fn what_is_asked_is_what_the_tool_is_told() {
        let tool = quackd_protocol::tools::find("replace").unwrap();
        let plain = json!({"pattern": ["x"], "replacement": "y", "path": ["."]});
        for (line, more) in [
            (&["x", "y"][..], json!({})),
            (&["x", "y", "b", ".."], json!({"path": ["b", ".."]})),
            (&["x", "y", "-Fiw"], json!({"literal": true, "word": true, "case": "insensitive"})),
            (&["x", "y", "-U"], json!({"multiline": "on", "dotall": false})),
            (
                &["x", "y", "-g", "*.rs", "-t", "rust", "-uu"],
                json!({"include": ["*.rs"], "file_type": ["rust"], "ignore": "none", "hidden": true}),
            ),
            (
                &["x", "y", "-n"],
                json!({"dry_run": true, "diff": "unified", "max_bytes": MAX_PATCH_BYTES}),
            ),
            (
                &[
                    "x",
                    "y",
                    "--expect-files",
                    "1",
                    "--expect-lines",
                    "2",
                    "--expect-replacements",
                    "3",
                ],
                json!({"expect": {"files": 1, "lines": 2, "replacements": 3}}),
            ),
            (
                &["x", "y", "--line-range", "2:5", "-m1"],
                json!({"line_range": [2, 5], "max_per_file": 1}),
            ),
            (
                &["x", "y", "--max-files", "9", "--max-replacements", "8"],
                json!({"max_files": 9, "max_replacements": 8}),
            ),
            (
                &["x", "y", "--no-template", "--no-backup"],
                json!({"template": false, "backup": "none"}),
            ),
        ] {
            let mut expected = plain.clone();
            for (name, value) in more.as_object().unwrap() {
                assert!(tool.parameter(name).is_some(), "{name}");
                expected[name] = value.clone();
            }
            let args = parse(line);
            let sent =
                arguments(&args, words(&args).unwrap(), &WorkspaceScope::of("/ws", "a")).unwrap();
            assert_eq!(Value::from(sent.build()), expected, "{line:?}");
        }
        let args = parse(&["--plan", "p1", "--expect-files", "2"]);
        let sent =
            arguments(&args, words(&args).unwrap(), &WorkspaceScope::of("/ws", "a")).unwrap();
        assert_eq!(Value::from(sent.build()), json!({"plan_id": "p1", "expect": {"files": 2}}));
        assert!(words(&parse(&["x"])).is_err());
        assert!(words(&parse(&["", "x"])).is_err());
    }

    #[test]
    fn what_was_done_is_told_with_the_way_back() {
        let changes = Changes::read(&json!({
            "files": [
                {"path": "x", "linesChanged": 1, "replacements": 2, "written": true},
                {"path": "../y", "linesChanged": 3, "replacements": 3, "written": false, "reason": "changed since"},
            ],
            "totals": {"files": 1, "lines": 1, "replacements": 2},
            "planned": {"files": 2, "lines": 4, "replacements": 5},
            "undoId": "u1", "planId": "p1",
        }))
        .unwrap();
        let lines: String = changes.files.iter().map(|change| line(change, PIPE)).collect();
        assert_eq!(lines, "x: 2 in 1 line\n../y: not changed: changed since\n");
        let which = parse(&["x", "y", "-C", "my dir"]).call.which;
        assert_eq!(
            last_lines(&changes, &which, PIPE),
            "Replaced 2 matches in 1 line of 1 file.\nUndo with: quack undo u1 -C 'my dir'\n"
        );
        assert_eq!(total(&changes, true), "5 matches in 4 lines of 2 files");
        assert_eq!(plan(&changes, &which), "; to do it: quack replace --plan p1 -C 'my dir'");
        assert_eq!(exit(&changes, false), ExitCode::Failed, "a file was not written");
        assert_eq!(exit(&changes, true), ExitCode::Ok);
        assert_eq!(exit(&Changes::default(), false), ExitCode::Failed, "nothing matches");
        let which = parse(&["x", "y", "--session", "a'b"]).call.which;
        assert_eq!(again(&which), " --session 'a'\\''b'");
    }

    #[test]
    fn a_refusal_of_the_request_is_a_usage_error_and_a_guard_is_none() {
        for (text, expected) in [
            ("Error: Invalid pattern: unclosed group", true),
            ("Error: Missing required parameter 'pattern'", true),
            ("Error: expected 3 files, but 2 would change; nothing was changed", false),
            ("Error: More than 1 file would be changed; nothing was", false),
            ("Error: replace is disabled in safe mode", false),
            ("Error: Unknown parameter 'x'", true),
        ] {
            assert_eq!(is_usage(text), expected, "{text}");
        }
    }
}

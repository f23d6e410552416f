//! `quack grep`: prints matching lines while they are found.

use super::result_stream::{ResultStream, listed, not_all_missing, selection};
use crate::args::search::{FilesArgs, GrepArgs, GrepSort, MatchArgs};
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, StdoutProperties, StdoutState};
use crate::render::search::data::{Hit, push_json};
use crate::render::search::fit;
use crate::render::search::hits::{Layout, Printer, name_line};
use crate::session_ref::Missing;
use crate::workspace_scope::{ScopedClient, WorkspaceScope};
use quackd_protocol::limits::MAX_SEARCH_OUTPUT_BYTES;
use quackd_protocol::search::{FileRow, RowsLine};
use quackd_protocol::tools::{
    ArgumentsBuilder, CaseArguments, FileArguments, PatternArguments, SearchArguments,
};
use serde_json::json;
use std::collections::HashSet;

/// Maximum number of file names kept to avoid printing one twice.
const MAX_NAMES: usize = 100_000;

/// Runs the subcommand. With `--quiet` it stops at the first match.
pub(crate) async fn run(args: &GrepArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (patterns, paths) = words(args)?;
    context_is_no_directory(args)?;

    // The patterns are read before the daemon is started, so that a wrong one costs nothing.
    let scope = ScopedClient::begin(&args.call, Missing::Create, output).await?;
    let (paths, missing) = scope.place.present(paths);
    not_all_missing(&paths, &missing)?;
    let files = named_files(&paths, &scope.place);
    let is_one_file = missing.is_empty() && matches!((&*paths, &*files), ([_], [_]));

    // With depth 0, no file in a directory matches.
    let only_files = args.files.max_depth == Some(0);
    let is_empty_search = args.max_count == Some(0) || only_files && files.is_empty();
    let starts = if only_files && !files.is_empty() { &files } else { &paths };
    let call = arguments(args, &patterns, starts, &scope.place)?;

    let limit = if args.shape.quiet { Some(1) } else { args.limit };
    let place = &scope.place;
    let mut printer = HitPrinter::new(args, is_one_file, output);

    let mut result = ResultStream::new(missing);
    if !is_empty_search {
        let render = |line: RowsLine<'_>, text: &mut String| printer.line(line, text);
        let reader = result.run(&scope, call.limit(limit.unwrap_or(0)), output, render).await?;
        if reader == StdoutState::Gone {
            return Ok(result.exit(ExitCode::Failed));
        }
    }

    let left = limit.map(|limit| limit.saturating_sub(result.n_shown()));
    // The tool skips binary files in a directory; grep reports one that is named and matches.
    if result.skipped("binary") != 0 && left != Some(0) && !files.is_empty() {
        let call = arguments(args, &patterns, &files, place)?;
        let call = call.binary("report").limit(left.unwrap_or(0));
        let mut n_shown = 0;
        let render = |line: RowsLine<'_>, text: &mut String| {
            n_shown += printer.binary(line, text);
        };
        ResultStream::new(Vec::new()).run(&scope, call, output, render).await?;
        result.add(n_shown);
    }

    if !args.shape.quiet {
        result.tell(&scope.place.directory(), output).await?;
    } else if result.n_shown() != 0 {
        // Nothing else was requested.
        return Ok(ExitCode::Ok);
    }
    Ok(result.exit(ExitCode::Failed))
}

/// Returns the paths that are files. An explicitly named file is reported if it matches, even if it is binary.
fn named_files(paths: &[String], place: &WorkspaceScope) -> Vec<String> {
    paths.iter().filter(|path| place.absolute(path).is_file()).cloned().collect()
}

/// Splits the operands into patterns and paths.
fn words(args: &GrepArgs) -> Result<(Vec<String>, &[String]), CliError> {
    if !args.patterns.is_empty() {
        return Ok((args.patterns.clone(), &args.words));
    }
    match args.words.split_first() {
        Some((pattern, paths)) => Ok((vec![pattern.clone()], paths)),
        None => Err(CliError::usage("give a pattern; see --help")),
    }
}

/// Rejects `-C 3`, which means context in grep, unless a directory has this name.
fn context_is_no_directory(args: &GrepArgs) -> Result<(), CliError> {
    let Some(number) = args.call.which.dir.as_deref().and_then(|dir| dir.to_str()) else {
        return Ok(());
    };
    if number.parse::<u32>().is_ok() && !std::path::Path::new(number).exists() {
        return Err(CliError::usage(format!(
            "-C is the directory, as in every subcommand; for context use --context {number}"
        )));
    }
    Ok(())
}

fn arguments(
    args: &GrepArgs,
    patterns: &[String],
    paths: &[String],
    place: &WorkspaceScope,
) -> Result<ArgumentsBuilder<SearchArguments>, CliError> {
    let context = |lines: Option<i64>| lines.or(args.context).filter(|lines| *lines != 0);
    let is_text = args.text || 3 <= args.files.unrestricted;

    let sort = match args.sort {
        GrepSort::Path => "path",
        GrepSort::Modified => "mtime",
        GrepSort::None => "none",
    };

    Ok(SearchArguments::builder()
        // A pattern with a line end is a pattern for several lines.
        .multiline("auto")
        .group(matching(&args.matching))
        .group(files(&args.files))
        .pattern(patterns)
        .path(place.starts(paths)?)
        .binary(is_text.then_some("text"))
        .invert(args.invert_match.then_some(true))
        .follow(args.follow.then_some(true))
        .encoding(args.encoding.clone())
        .before(context(args.before_context))
        .after(context(args.after_context))
        .max_per_file(args.max_count)
        .output(shape(args))
        .sort(sort)
        .max_line(args.layout.max_line.unwrap_or(0))
        // The tool's default is for models, which read less.
        .max_bytes(MAX_SEARCH_OUTPUT_BYTES)
        .total(false))
}

fn shape(args: &GrepArgs) -> &'static str {
    let shape = &args.shape;
    if shape.files_with_matches || shape.quiet {
        "files"
    } else if shape.files_without_match {
        "files_without"
    } else if shape.count {
        "count"
    } else if shape.count_matches {
        "count_matches"
    } else if shape.only_matching {
        "only_matching"
    } else {
        "content"
    }
}

/// Returns the interpretation of the pattern as arguments of the tool.
pub(super) fn matching(args: &MatchArgs) -> ArgumentsBuilder<PatternArguments> {
    let case = match () {
        () if args.ignore_case => Some("insensitive"),
        () => args.smart_case.then_some("smart"),
    };

    PatternArguments::builder()
        .group(CaseArguments::builder().case(case))
        .literal(args.fixed_strings.then_some(true))
        .word(args.word_regexp.then_some(true))
        .whole_line(args.line_regexp.then_some(true))
        .dialect(args.basic_regexp.then_some("bre"))
        .multiline(args.multiline.then_some("on"))
        .dotall(args.multiline.then_some(args.multiline_dotall))
}

/// Returns the selection of files as arguments of the tool.
pub(super) fn files(args: &FilesArgs) -> ArgumentsBuilder<FileArguments> {
    let (exclude, include): (Vec<&String>, Vec<&String>) =
        args.globs.iter().partition(|glob| glob.starts_with('!'));
    let exclude = exclude.into_iter().map(|glob| glob.trim_start_matches('!').to_owned());
    let no_ignore = args.no_ignore || 1 <= args.unrestricted;

    selection(no_ignore, args.hidden || 2 <= args.unrestricted, args.max_depth)
        .include(listed(include.into_iter().cloned().collect()))
        .exclude(listed(exclude.collect()))
        .file_type(listed(args.types.clone()))
        .file_type_not(listed(args.types_not.clone()))
}

/// Renders the rows as they arrive.
#[derive(Debug)]
struct HitPrinter {
    is_json: bool,
    is_quiet: bool,
    layout: Layout,
    printer: Printer,
    /// Files that already have a row, by the tool's path.
    names: HashSet<String>,
}

impl HitPrinter {
    fn new(args: &GrepArgs, is_one_file: bool, output: CliOutput) -> Self {
        let layout = layout(args, is_one_file, output.audience());
        Self {
            is_json: output.is_json(),
            is_quiet: args.shape.quiet,
            layout,
            printer: Printer::new(layout),
            names: HashSet::new(),
        }
    }

    fn line(&mut self, line: RowsLine<'_>, text: &mut String) {
        match line {
            _ if self.is_quiet => {}
            RowsLine::Lines(file) => {
                let path = &file.path;
                let hits = file.rows.iter().map(Hit::of);
                if self.is_json {
                    hits.for_each(|hit| hit.push_json(path, text));
                } else {
                    self.printer.print(path, hits, text);
                }
            }
            RowsLine::File(file) => {
                self.file(&file, text);
                if self.names.len() < MAX_NAMES {
                    self.names.insert(file.path);
                }
            }
            RowsLine::Entry(_) => {}
        }
    }

    fn file(&self, file: &FileRow, text: &mut String) {
        let path = &file.path;
        match (self.is_json, file.count) {
            (true, None) => push_json(&json!({"type": "file", "path": path}), text),
            (true, count) => {
                push_json(&json!({"type": "count", "path": path, "count": count}), text);
            }
            (false, count) => text.push_str(&name_line(path, count, self.layout)),
        }
    }

    /// Renders a named file that was skipped as binary. Returns the number of its rows: a file with a row was not
    /// skipped.
    fn binary(&mut self, line: RowsLine<'_>, text: &mut String) -> u64 {
        let (path, file) = match line {
            RowsLine::Lines(file) if file.binary => (file.path.into_owned(), None),
            RowsLine::File(file) => (file.path.clone(), Some(file)),
            RowsLine::Lines(_) | RowsLine::Entry(_) => return 0,
        };
        if !self.names.insert(path.clone()) {
            return 0;
        }

        match file {
            _ if self.is_quiet => {}
            Some(file) => self.file(&file, text),
            None if self.is_json => push_json(&json!({"type": "binary", "path": path}), text),
            None => {
                if self.layout.with_name {
                    text.push_str(&fit(&path, self.layout.audience));
                    text.push_str(": ");
                }
                text.push_str("binary file matches\n");
            }
        }
        1
    }
}

fn layout(args: &GrepArgs, is_one_file: bool, audience: StdoutProperties) -> Layout {
    let options = &args.layout;
    let context = [args.context, args.before_context, args.after_context];

    Layout {
        audience,
        heading: options.heading || (audience.is_terminal && !options.no_heading),
        with_name: options.with_filename || !(options.no_filename || is_one_file),
        with_line: !options.no_line_number,
        with_column: options.column,
        null: options.null,
        has_context: !args.shape.only_matching && context.into_iter().flatten().any(|n| n != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use serde_json::Value;

    fn parse(line: &[&str]) -> GrepArgs {
        match Cli::read(["quack", "grep"].iter().chain(line)).unwrap().verb {
            Some(Verb::Grep(args)) => *args,
            other => panic!("not a search: {other:?}"),
        }
    }

    fn sent(line: &[&str]) -> Value {
        let args = parse(line);
        let (patterns, paths) = words(&args).unwrap();
        let place = WorkspaceScope::of("/ws", "a");
        let mut map = arguments(&args, &patterns, paths, &place).unwrap().build();
        for always in ["max_bytes", "total"] {
            assert!(map.remove(always).is_some());
        }
        Value::Object(map)
    }

    #[test]
    fn what_is_asked_is_what_the_tool_is_told() {
        let plain = json!({"pattern": ["x"], "path": ["."], "multiline": "auto", "output": "content",
            "sort": "path", "max_line": 0});
        let with = |more: Value| {
            let mut all = plain.clone();
            for (name, value) in more.as_object().unwrap() {
                all[name] = value.clone();
            }
            all
        };
        for (line, more) in [
            (&["x"][..], json!({})),
            (&["x", "b", "../c", "."], json!({"path": ["b", "../c", "."]})),
            (&["-e", "x", "b"], json!({"path": ["b"]})),
            (&["-iFw", "x"], json!({"case": "insensitive", "literal": true, "word": true})),
            (&["-S", "-x", "x"], json!({"case": "smart", "whole_line": true})),
            (&["-U", "x"], json!({"multiline": "on", "dotall": false})),
            (&["-U", "--multiline-dotall", "x"], json!({"multiline": "on", "dotall": true})),
            (&["-G", "x"], json!({"dialect": "bre"})),
            (
                &["-g", "*.rs", "-g", "s/*", "-g", "!t/*", "x"],
                json!({"include": ["*.rs", "s/*"], "exclude": ["t/*"]}),
            ),
            (&["-trust", "-T", "md", "x"], json!({"file_type": ["rust"], "file_type_not": ["md"]})),
            (&["-u", "x"], json!({"ignore": "none"})),
            (&["-uu", "x"], json!({"ignore": "none", "hidden": true})),
            (&["-uuu", "x"], json!({"ignore": "none", "hidden": true, "binary": "text"})),
            (
                &["--no-ignore", "--hidden", "-a", "x"],
                json!({"ignore": "none", "hidden": true, "binary": "text"}),
            ),
            (&["--context", "2", "-A0", "x"], json!({"before": 2})),
            (&["-A1", "-B2", "x"], json!({"after": 1, "before": 2})),
            (&["-v", "-m3", "x"], json!({"invert": true, "max_per_file": 3})),
            (&["-l", "x"], json!({"output": "files"})),
            (&["-q", "x"], json!({"output": "files"})),
            (&["-L", "x"], json!({"output": "files_without"})),
            (&["-c", "x"], json!({"output": "count"})),
            (&["--count-matches", "x"], json!({"output": "count_matches"})),
            (&["-o", "x"], json!({"output": "only_matching"})),
            (&["--sort", "modified", "-M", "80", "x"], json!({"sort": "mtime", "max_line": 80})),
            (
                &["--encoding", "latin1", "--follow", "x"],
                json!({"encoding": "latin1", "follow": true}),
            ),
            (&["--max-depth", "2", "x"], json!({"max_depth": 2})),
        ] {
            assert_eq!(sent(line), with(more), "{line:?}");
        }
    }

    #[test]
    fn everything_that_is_sent_is_known_to_the_tool() {
        let tool = quackd_protocol::tools::find("search").unwrap();
        let all = sent(&[
            "x",
            "-iFwU",
            "-g",
            "a",
            "-g",
            "!b",
            "-t",
            "c",
            "-T",
            "d",
            "-uuu",
            "--context",
            "1",
            "-m1",
            "-v",
            "--follow",
            "--encoding",
            "none",
            "--max-depth",
            "1",
        ]);
        for name in all.as_object().unwrap().keys() {
            assert!(tool.parameter(name).is_some(), "{name}");
        }
    }

    #[test]
    fn nothing_to_look_for_and_context_in_the_words_of_grep_are_usage_errors() {
        assert!(words(&parse(&[])).is_err());
        let fault = context_is_no_directory(&parse(&["-C", "3", "x"])).unwrap_err();
        assert!(fault.to_string().contains("--context 3"), "{fault}");
        assert!(context_is_no_directory(&parse(&["-C", "src", "x"])).is_ok());
    }

    #[test]
    fn names_and_headings_are_as_grep_and_ripgrep_have_them() {
        let terminal = StdoutProperties { is_terminal: true, is_colored: true };
        let pipe = StdoutProperties { is_terminal: false, is_colored: false };
        for (line, is_one_file, audience, heading, with_name) in [
            (&["x"][..], false, terminal, true, true),
            (&["x"], false, pipe, false, true),
            (&["x", "f"], true, pipe, false, false),
            (&["-H", "x", "f"], true, pipe, false, true),
            (&["-I", "x"], false, pipe, false, false),
            (&["--heading", "x"], false, pipe, true, true),
            (&["--no-heading", "x"], false, terminal, false, true),
        ] {
            let layout = layout(&parse(line), is_one_file, audience);
            assert_eq!((layout.heading, layout.with_name), (heading, with_name), "{line:?}");
        }
    }
}

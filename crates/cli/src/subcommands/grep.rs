//! `quack grep`: prints matching lines, page by page.

use super::paginate::{PageLoop, not_all_missing, selection, set};
use crate::args::search::{FilesArgs, GrepArgs, GrepSort, MatchArgs};
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, StdoutProperties, StdoutState};
use crate::render::search::data::{Hit, ResultPage};
use crate::render::search::fit;
use crate::render::search::hits::{Layout, Printer, name_line};
use crate::render::search::merge_context::ContextMerger;
use crate::session_ref;
use crate::workspace_scope::{ScopedClient, WorkspaceScope};
use quackd_protocol::limits::MAX_SEARCH_OUTPUT_BYTES;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Maximum number of file names kept to avoid printing one twice.
const MAX_NAMES: usize = 100_000;

/// Runs the subcommand.
pub(crate) async fn run(args: &GrepArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (patterns, paths) = words(args)?;
    context_is_no_directory(args)?;
    let asking = ScopedClient::begin(&args.call, output).await?;
    session_ref::tell_if_elsewhere(&asking.found, output);
    let (paths, missing) = asking.place.present(paths);
    not_all_missing(&paths, &missing)?;
    let files = named_files(&paths, &asking.place);
    let is_one_file = missing.is_empty() && matches!((&*paths, &*files), ([_], [_]));
    // With depth 0, no file in a directory matches.
    let only_files = args.files.max_depth == Some(0);
    let is_nothing_wanted = args.max_count == Some(0) || only_files && files.is_empty();
    let starts = if only_files && !files.is_empty() { &files } else { &paths };
    let arguments = arguments(args, &patterns, starts, &asking.place)?;
    let limit = if args.shape.quiet { Some(1) } else { args.limit };
    let mut shower = HitPrinter::new(args, is_one_file, output);
    let mut pages = PageLoop::new("search", arguments.clone(), limit);
    pages.are_missing(missing);
    if is_nothing_wanted {
        pages.ask_nothing();
    }
    while let Some(page) = pages.next(&asking).await? {
        if shower.show(page, &asking.place).await? == StdoutState::Gone {
            break;
        }
    }
    shower.finish().await?;
    if pages.skipped("binary") != 0 && pages.left() != Some(0) && !files.is_empty() {
        let mut arguments = arguments;
        set(&mut arguments, "path", asking.place.starts(&files)?);
        set(&mut arguments, "binary", "report");
        let mut binaries = PageLoop::new("search", arguments, pages.left());
        while let Some(page) = binaries.next(&asking).await? {
            pages.add(shower.show_binaries(page, &asking.place).await?);
        }
    }
    if !args.shape.quiet {
        pages.tell(&asking.place, output).await?;
    } else if pages.has_rows() {
        // Nothing else was requested.
        return Ok(ExitCode::Ok);
    }
    Ok(pages.exit(ExitCode::Failed))
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
) -> Result<Map<String, Value>, CliError> {
    let mut map = Map::new();
    set(&mut map, "pattern", patterns);
    set(&mut map, "path", place.starts(paths)?);
    matching(&args.matching, &mut map);
    if !args.matching.multiline {
        set(&mut map, "multiline", "auto");
    }
    files(&args.files, place, &mut map);
    if args.text || 3 <= args.files.unrestricted {
        set(&mut map, "binary", "text");
    }
    if args.invert_match {
        set(&mut map, "invert", true);
    }
    if args.follow {
        set(&mut map, "follow", true);
    }
    if let Some(encoding) = &args.encoding {
        set(&mut map, "encoding", encoding.as_str());
    }
    for (name, lines) in [("before", args.before_context), ("after", args.after_context)] {
        if let Some(lines) = lines.or(args.context).filter(|lines| *lines != 0) {
            set(&mut map, name, lines);
        }
    }
    if let Some(most) = args.max_count {
        set(&mut map, "max_per_file", most);
    }
    set(&mut map, "output", shape(args));
    set(
        &mut map,
        "sort",
        match args.sort {
            GrepSort::Path => "path",
            GrepSort::Modified => "mtime",
            GrepSort::None => "none",
        },
    );
    set(&mut map, "max_line", args.layout.max_line.unwrap_or(0));
    set(&mut map, "max_bytes", MAX_SEARCH_OUTPUT_BYTES);
    set(&mut map, "total", false);
    Ok(map)
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

/// Adds the interpretation of the pattern to the tool's arguments.
pub(super) fn matching(args: &MatchArgs, map: &mut Map<String, Value>) {
    let flags = [
        ("literal", args.fixed_strings),
        ("word", args.word_regexp),
        ("whole_line", args.line_regexp),
    ];
    for (name, is_set) in flags {
        if is_set {
            set(map, name, true);
        }
    }
    if args.basic_regexp {
        set(map, "dialect", "bre");
    }
    if args.ignore_case || args.smart_case {
        set(map, "case", if args.ignore_case { "insensitive" } else { "smart" });
    }
    if args.multiline {
        set(map, "multiline", "on");
        set(map, "dotall", args.multiline_dotall);
    }
}

/// Adds the selection of files to the tool's arguments.
pub(super) fn files(args: &FilesArgs, place: &WorkspaceScope, map: &mut Map<String, Value>) {
    let (exclude, include): (Vec<&String>, Vec<&String>) =
        args.globs.iter().partition(|glob| glob.starts_with('!'));
    let include: Vec<String> = include.into_iter().map(|glob| place.glob(glob)).collect();
    let exclude: Vec<String> =
        exclude.into_iter().map(|glob| place.glob(glob.get(1..).unwrap_or_default())).collect();
    let lists = [
        ("include", include),
        ("exclude", exclude),
        ("file_type", args.types.clone()),
        ("file_type_not", args.types_not.clone()),
    ];
    for (name, list) in lists {
        if !list.is_empty() {
            set(map, name, list);
        }
    }
    let no_ignore = args.no_ignore || 1 <= args.unrestricted;
    selection(no_ignore, args.hidden || 2 <= args.unrestricted, args.max_depth, map);
}

/// Prints the hits as they arrive.
#[derive(Debug)]
struct HitPrinter {
    output: CliOutput,
    is_quiet: bool,
    layout: Layout,
    joiner: ContextMerger,
    printer: Printer,
    /// Files that already have a row, by the tool's path.
    names: HashSet<String>,
}

impl HitPrinter {
    fn new(args: &GrepArgs, is_one_file: bool, output: CliOutput) -> Self {
        let audience = output.audience();
        let layout = layout(args, is_one_file, audience);
        Self {
            output,
            is_quiet: args.shape.quiet,
            layout,
            joiner: ContextMerger::default(),
            printer: Printer::new(layout),
            names: HashSet::new(),
        }
    }

    async fn show(
        &mut self,
        page: ResultPage,
        place: &WorkspaceScope,
    ) -> anyhow::Result<StdoutState> {
        if self.is_quiet {
            return Ok(StdoutState::There);
        }
        let mut text = String::new();
        for named in page.names {
            if self.names.len() < MAX_NAMES {
                self.names.insert(named.path.clone());
            }
            let path = place.shown(&named.path);
            match (self.output.is_json(), named.count) {
                (true, None) => line(&mut text, &json!({"type": "file", "path": path})),
                (true, count) => {
                    line(&mut text, &json!({"type": "count", "path": path, "count": count}));
                }
                (false, count) => text.push_str(&name_line(&path, count, self.layout)),
            }
        }
        let hits = page.hits.into_iter().map(|hit| {
            let path = place.shown(&hit.path).into();
            Hit { path, ..hit }
        });
        let ready = self.joiner.feed(hits.collect());
        self.print(&ready, &mut text);
        Ok(self.output.raw(text).await?)
    }

    /// Prints the named files that were skipped as binary. Returns their number.
    async fn show_binaries(
        &mut self,
        page: ResultPage,
        place: &WorkspaceScope,
    ) -> anyhow::Result<u64> {
        let binaries = page.binaries.iter().map(|path| (path, None));
        let names = page.names.iter().map(|named| (&named.path, Some(named.count)));
        let mut text = String::new();
        let mut n_shown = 0;
        for (path, name) in binaries.chain(names) {
            // A file with a row was not skipped.
            if !self.names.insert(path.clone()) {
                continue;
            }
            n_shown += 1;
            let path = place.shown(path);
            match (self.is_quiet, self.output.is_json(), name) {
                (true, _, _) => {}
                (false, true, None) => line(&mut text, &json!({"type": "binary", "path": path})),
                (false, true, Some(None)) => {
                    line(&mut text, &json!({"type": "file", "path": path}));
                }
                (false, true, Some(count)) => {
                    line(&mut text, &json!({"type": "count", "path": path, "count": count}));
                }
                (false, false, Some(count)) => text.push_str(&name_line(&path, count, self.layout)),
                (false, false, None) => {
                    let path = fit(&path, self.layout.audience);
                    let name =
                        if self.layout.with_name { format!("{path}: ") } else { String::new() };
                    text.push_str(&format!("{name}binary file matches\n"));
                }
            }
        }
        let _reader = self.output.raw(text).await?;
        Ok(n_shown)
    }

    fn print(&mut self, hits: &[Hit], text: &mut String) {
        for hit in hits {
            if self.output.is_json() {
                line(text, &hit.json());
            } else {
                self.printer.print(hit, text);
            }
        }
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        let held = self.joiner.finish();
        let mut text = String::new();
        self.print(&held, &mut text);
        let _reader = self.output.raw(text).await?;
        Ok(())
    }
}

fn layout(args: &GrepArgs, is_one_file: bool, audience: StdoutProperties) -> Layout {
    let asked = &args.layout;
    let context = [args.context, args.before_context, args.after_context];
    Layout {
        audience,
        heading: asked.heading || (audience.is_terminal && !asked.no_heading),
        with_name: asked.with_filename || !(asked.no_filename || is_one_file),
        with_line: !asked.no_line_number,
        with_column: asked.column,
        null: asked.null,
        has_context: !args.shape.only_matching && context.into_iter().flatten().any(|n| n != 0),
    }
}

/// Appends a document as one line of JSON.
fn line(text: &mut String, document: &Value) {
    text.push_str(&document.to_string());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};

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
        let mut map = arguments(&args, &patterns, paths, &place).unwrap();
        for always in ["max_bytes", "total"] {
            assert!(map.remove(always).is_some());
        }
        Value::Object(map)
    }

    #[test]
    fn what_is_asked_is_what_the_tool_is_told() {
        let plain = json!({"pattern": ["x"], "path": ["a"], "multiline": "auto", "output": "content",
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
            (&["x", "b", "../c", "."], json!({"path": ["a/b", "c", "a"]})),
            (&["-e", "x", "b"], json!({"path": ["a/b"]})),
            (&["-iFw", "x"], json!({"case": "insensitive", "literal": true, "word": true})),
            (&["-S", "-x", "x"], json!({"case": "smart", "whole_line": true})),
            (&["-U", "x"], json!({"multiline": "on", "dotall": false})),
            (&["-U", "--multiline-dotall", "x"], json!({"multiline": "on", "dotall": true})),
            (&["-G", "x"], json!({"dialect": "bre"})),
            (
                &["-g", "*.rs", "-g", "s/*", "-g", "!t/*", "x"],
                json!({"include": ["*.rs", "a/s/*"], "exclude": ["a/t/*"]}),
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

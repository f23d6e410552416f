//! `quack find`: lists files and directories.

use super::result_stream::{ResultStream, listed, not_all_missing, selection};
use crate::args::search::{FindArgs, FindKind, FindSort, SizeBound};
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::output::{CYAN, CliOutput, DIM, StdoutProperties, StdoutState};
use crate::render::search::data::{entry_json, push_json};
use crate::render::search::{fit, push};
use crate::session_ref::Missing;
use crate::workspace_scope::{ScopedClient, WorkspaceScope};
use anstyle::Style;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_protocol::search::{FindRow, RowsLine};
use quackd_protocol::tools::{ArgumentsBuilder, FindArguments};

/// Runs the subcommand.
pub(crate) async fn run(args: &FindArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if args.fuzzy && args.pattern.is_none() {
        return Err(CliError::usage("--fuzzy needs a pattern").into());
    }

    let scope = ScopedClient::begin(&args.call, Missing::Create, output).await?;
    // Paths that do not exist are reported; the others are searched.
    let (paths, missing) = scope.place.present(&args.paths);
    not_all_missing(&paths, &missing)?;
    let call = arguments(args, &paths, &scope.place)?.limit(args.limit.unwrap_or(0));

    let audience = output.audience();
    let zone = TimeZone::system();
    let mut result = ResultStream::new(missing);
    let render = |line: RowsLine<'_>, out: &mut String| {
        if let RowsLine::Entry(entry) = line {
            text(&entry, args, audience, &zone, output.is_json(), out);
        }
    };

    let reader = result.run(&scope, call, output, render).await?;
    if reader == StdoutState::There {
        if result.n_shown() == 0
            && let Some(hint) = hint(args)
        {
            output.note(&hint);
        }
        result.tell(&scope.place.directory(), output).await?;
    }
    Ok(result.exit(ExitCode::Ok))
}

fn arguments(
    args: &FindArgs,
    paths: &[String],
    place: &WorkspaceScope,
) -> Result<ArgumentsBuilder<FindArguments>, CliError> {
    let kind = match args.kind {
        None => "any",
        Some(FindKind::File) => "file",
        Some(FindKind::Directory) => "dir",
        Some(FindKind::Symlink) => "symlink",
    };

    let case = match () {
        () if args.ignore_case => Some("insensitive"),
        () => args.case_sensitive.then_some("sensitive"),
    };

    let (mut least, mut most) = (None, None);
    for bound in &args.size {
        match *bound {
            SizeBound::AtLeast(size) => least = Some(size),
            SizeBound::AtMost(size) => most = Some(size),
            SizeBound::Exactly(size) => (least, most) = (Some(size), Some(size)),
        }
    }

    let sort = args.sort.map(|sort| match sort {
        FindSort::Path => "path",
        FindSort::Modified => "mtime",
        FindSort::Size => "size",
        FindSort::Score => "score",
    });

    let all = args.unrestricted != 0;
    Ok(FindArguments::builder()
        .group(selection(args.no_ignore || all, args.hidden || all, args.max_depth))
        .pattern(args.pattern.clone().map(|pattern| vec![pattern]))
        .path(place.starts(paths)?)
        .fuzzy(args.fuzzy.then_some(true))
        .kind([kind])
        .exclude(listed(args.exclude.clone()))
        .case(case)
        .follow(args.follow.then_some(true))
        .min_size(least)
        .max_size(most)
        .modified_after(args.newer.clone())
        .modified_before(args.older.clone())
        .sort(sort)
        .long(args.long.then_some(true)))
}

fn text(
    entry: &FindRow,
    args: &FindArgs,
    audience: StdoutProperties,
    zone: &TimeZone,
    is_json: bool,
    out: &mut String,
) {
    let path = &entry.path;
    if is_json {
        return push_json(&entry_json(entry, path), out);
    }

    if args.long {
        let details = format!("{}  ", details(entry, zone));
        push(out, &fit(&details, audience), DIM, audience);
    }

    let (style, slash) = match entry.kind.as_str() {
        "dir" => (CYAN, "/"),
        _ => (Style::new(), ""),
    };
    push(out, &format!("{}{slash}", fit(path, audience)), style, audience);
    out.push(if args.null { '\0' } else { '\n' });
}

/// Formats mode, size and modification time in columns.
fn details(entry: &FindRow, zone: &TimeZone) -> String {
    let kind = match entry.kind.as_str() {
        "dir" => 'd',
        "symlink" => 'l',
        _ => '-',
    };

    let mode = entry.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    let mode = mode.map_or_else(|| "?".repeat(9), permissions);
    let size = entry.size.map_or_else(|| "-".to_owned(), display::bytes);

    let time = entry.modified.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
    let time = time.map_or_else(
        || "-".to_owned(),
        |time| time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string(),
    );
    format!("{kind}{mode} {size:>9} {time:>16}")
}

fn permissions(mode: u32) -> String {
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    bits.map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' }).collect()
}

/// Returns a hint for an empty result: a pattern without wildcards matches only the whole name.
fn hint(args: &FindArgs) -> Option<String> {
    let word = args.pattern.as_deref()?;
    let is_word = !args.fuzzy && !word.contains(['*', '?', '[', '{', '/']);
    is_word.then(|| {
        let word = display::plain(word);
        format!("a pattern is the whole name; try '*{word}*' or --fuzzy {word}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use serde_json::{Value, json};

    fn parse(line: &[&str]) -> FindArgs {
        match Cli::read(["quack", "find"].iter().chain(line)).unwrap().verb {
            Some(Verb::Find(args)) => *args,
            other => panic!("not a search: {other:?}"),
        }
    }

    #[test]
    fn what_is_asked_is_what_the_tool_is_told() {
        let tool = quackd_protocol::tools::find("find").unwrap();
        for (line, more) in [
            (&[][..], json!({})),
            (&["*.rs"], json!({"pattern": ["*.rs"]})),
            (&["s/*", "b", ".."], json!({"pattern": ["s/*"], "path": ["b", ".."]})),
            (&["--fuzzy", "s/x"], json!({"pattern": ["s/x"], "fuzzy": true})),
            (&["-t", "f"], json!({"kind": ["file"]})),
            (&["--type", "dir"], json!({"kind": ["dir"]})),
            (&["-tl"], json!({"kind": ["symlink"]})),
            (&["-HI"], json!({"ignore": "none", "hidden": true})),
            (&["-u", "-d3"], json!({"ignore": "none", "hidden": true, "max_depth": 3})),
            (
                &["-i", "-E", "s/*", "-E", "t"],
                json!({"case": "insensitive", "exclude": ["s/*", "t"]}),
            ),
            (&["--size", "+1k", "--size=-2k"], json!({"min_size": 1024, "max_size": 2048})),
            (&["--size", "7"], json!({"min_size": 7, "max_size": 7})),
            (
                &["--newer", "2026-03-01T00:00:00Z", "--older", "2026-03-02T00:00:00Z"],
                json!({"modified_after": "2026-03-01T00:00:00Z", "modified_before": "2026-03-02T00:00:00Z"}),
            ),
            (
                &["--sort", "modified", "-l", "--follow"],
                json!({"sort": "mtime", "long": true, "follow": true}),
            ),
        ] {
            let mut expected = json!({"path": ["."], "kind": ["any"]});
            for (name, value) in more.as_object().unwrap() {
                assert!(tool.parameter(name).is_some(), "{name}");
                expected[name] = value.clone();
            }
            let args = parse(line);
            let sent = arguments(&args, &args.paths, &WorkspaceScope::of("/ws", "a")).unwrap();
            assert_eq!(Value::from(sent.build()), expected, "{line:?}");
        }
    }

    #[test]
    fn entries_are_paths_with_details_if_wanted() {
        let entries: Vec<FindRow> = serde_json::from_value(json!([
            {"path": "x\u{1b}[2Jy", "kind": "file", "size": 2048, "modified": "2026-03-01T10:00:00Z", "mode": "0754"},
            {"path": "../b", "kind": "dir"},
        ]))
        .unwrap();
        let shown = |line: &[&str], is_terminal| {
            let audience = StdoutProperties { is_terminal, is_colored: false };
            let (args, is_json) = (parse(line), line.contains(&"--json"));
            let mut out = String::new();
            for entry in &entries {
                text(entry, &args, audience, &TimeZone::UTC, is_json, &mut out);
            }
            out
        };
        assert_eq!(shown(&[], false), "x\x1b[2Jy\n../b/\n");
        assert_eq!(shown(&[], true), "xy\n../b/\n");
        assert_eq!(shown(&["-0"], false), "x\x1b[2Jy\0../b/\0");
        assert_eq!(
            shown(&["-l"], true),
            "-rwxr-xr--    2.0 KB 2026-03-01 10:00  xy\nd?????????         -                -  ../b/\n"
        );
        let json: Vec<Value> = shown(&["--json"], false)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(json[1], json!({"type": "entry", "path": "../b", "kind": "dir"}));
    }

    #[test]
    fn who_gives_a_part_of_a_name_is_told_how_to() {
        assert!(hint(&parse(&["main"])).unwrap().contains("'*main*'"));
        for line in [&["*.rs"][..], &["--fuzzy", "x"], &[], &["a/b"]] {
            assert_eq!(hint(&parse(line)), None, "{line:?}");
        }
    }
}

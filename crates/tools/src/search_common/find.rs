//! find: quackd's tool for finding names, with all options of the engine.

use super::row_writer::{self, RowWriter};
use super::text::{ResultNotes, shown};
use super::{Budget, RootTree, SearchFailure, data, pattern, run, scope, starts_blocking};
use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::caller_dir::CallerDir;
use crate::{Call, Output};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use quackd_protocol::tools::{BadParameter, FIND, FindArguments};
use quackd_sandbox::Root;
use quackd_search::{
    EntryKind, Find, FindOutcome, FindSort, FoundEntry, Kinds, NameRule, Note, Stop,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) async fn find(
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let rows = RowWriter::of(call);
    let is_streamed = rows.is_some();
    let params = match FindParams::read(arguments, bounds, !is_streamed) {
        Ok(params) => params,
        Err(error) => return Output::error(error),
    };
    let (budget, is_long) = (params.budget, params.request.long);
    let searching =
        run(root, bounds, budget, move |root, stop| params.find_blocking(root, stop, rows));
    match searching.await {
        Ok(outcome) => answer(&outcome, is_long, budget, is_streamed),
        Err(refusal) => refusal.output("find", bounds),
    }
}

/// Parsed arguments.
struct FindParams {
    request: Find,
    paths: Vec<String>,
    directory: CallerDir,
    budget: Budget,
}

impl FindParams {
    fn read(
        arguments: &Arguments,
        bounds: &CallLimits,
        has_pages: bool,
    ) -> Result<Self, BadParameter> {
        let params = FindArguments::of(arguments.known(&FIND)?);
        let directory = arguments.directory().clone();
        let (scope, paths) = scope::scope(params.files, &directory)?;
        let budget = Budget::at_most(bounds, params.timeout_ms?);

        let name = name(params.pattern?, params.fuzzy?, &directory);
        let is_fuzzy = matches!(name, NameRule::Fuzzy(_));

        let request = Find {
            name,
            case: pattern::case(params.letters)?,
            kinds: kinds(&params.kind?, params.include_directories?),
            scope,
            min_size: params.min_size?,
            max_size: params.max_size?,
            modified_after: time(params.modified_after?, "modified_after")?,
            modified_before: time(params.modified_before?, "modified_before")?,
            sort_by: match params.sort? {
                Some("mtime") => FindSort::Modified,
                Some("size") => FindSort::Size,
                Some("score") => FindSort::Score,
                None if is_fuzzy => FindSort::Score,
                _ => FindSort::Path,
            },
            long: params.long?,
            limit: params.limit?.of(has_pages),
            offset: params.offset?,
            cursor: params.cursor?,
            stop: Stop::at(budget.deadline),
        };
        Ok(Self { request, paths, directory, budget })
    }

    fn find_blocking(
        mut self,
        root: &Root,
        stop: Stop,
        rows: Option<RowWriter>,
    ) -> Result<FindOutcome, SearchFailure> {
        self.request.stop = stop.clone();
        self.request.scope.starts = starts_blocking(root, &self.paths)?;
        let Some(mut rows) = rows else {
            let mut outcome = quackd_search::find(&self.request, &RootTree(root))?;
            self.directory.show_find(&mut outcome);
            return Ok(outcome);
        };

        let directory = &self.directory;
        let mut take = |mut entry: FoundEntry| {
            directory.show_all(std::iter::once(&mut entry.path));
            rows.entry_blocking(&entry, &stop)
        };
        Ok(quackd_search::find_to(&self.request, &RootTree(root), &mut take)?)
    }
}

fn name(pattern: Option<Vec<String>>, is_fuzzy: bool, directory: &CallerDir) -> NameRule {
    let Some(mut globs) = pattern else { return NameRule::Everything };
    if is_fuzzy {
        return NameRule::Fuzzy(globs.join(" "));
    }
    let is_everything = |glob: &String| matches!(glob.as_str(), "**/*" | "**" | "*");
    match globs.as_slice() {
        [] => NameRule::Everything,
        [one] if is_everything(one) => NameRule::Everything,
        _ => {
            globs.iter_mut().for_each(|glob| *glob = directory.glob(glob));
            NameRule::Globs(globs)
        }
    }
}

fn kinds(words: &[&str], with_dirs: bool) -> Kinds {
    if words.is_empty() {
        return Kinds { files: true, dirs: with_dirs, symlinks: true };
    }
    let has = |word: &str| words.iter().any(|given| *given == word || *given == "any");
    Kinds { files: has("file"), dirs: has("dir") || with_dirs, symlinks: has("symlink") }
}

/// Parses a time: an age before now, a date or time in UTC or with an offset, or seconds since 1970. `name` is for the
/// error.
fn time(given: Option<String>, name: &str) -> Result<Option<SystemTime>, BadParameter> {
    let Some(text) = given else { return Ok(None) };
    let text = text.trim();
    let instant = age(text)
        .and_then(|age| SystemTime::now().checked_sub(age))
        .or_else(|| text.parse::<Timestamp>().ok().map(SystemTime::from))
        .or_else(|| {
            let midnight = text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?;
            Some(midnight.timestamp().into())
        })
        .or_else(|| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(text.parse().ok()?)));

    instant.map(Some).ok_or_else(|| BadParameter::Wrong {
        name: name.to_owned(),
        wanted: "an age such as 30m, 2h or 7d, or a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z"
            .to_owned(),
    })
}

/// Parses an age: `90s`, `30m`, `2h`, `7d`, `4w`.
fn age(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let seconds: u64 = match unit.to_ascii_lowercase() {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

fn answer(outcome: &FindOutcome, is_long: bool, budget: Budget, is_streamed: bool) -> Output {
    let line = |entry: &FoundEntry| if is_long { long(entry) } else { named(entry) };
    let mut lines: Vec<String> = outcome.entries.iter().map(line).collect();
    if lines.is_empty() {
        let is_past_end =
            outcome.notes.iter().any(|note| matches!(note, Note::OffsetPastEnd { .. }));
        lines.push(if is_past_end { "No more results" } else { "No files found" }.to_owned());
    }
    if !is_streamed {
        lines.extend(ResultNotes::of_find(outcome).lines(budget.limit));
    } else if outcome.shown != 0 {
        lines = vec![row_writer::text(outcome.shown)];
    }

    let mut output = Output::success(lines.join("\n"));
    output.report.truncated = outcome.truncated;
    output.report.timed_out = outcome.timed_out;
    output.data = Some(data::of_find(outcome));
    output
}

/// Formats a name. A directory gets a trailing slash, so that models do not try to read it.
fn named(entry: &FoundEntry) -> String {
    let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
    format!("{}{slash}", shown(&entry.path))
}

/// Formats mode, size, time and name as `ls -l` does, without the owner.
fn long(entry: &FoundEntry) -> String {
    let kind = match entry.kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
    };
    let mode = entry.mode.map_or_else(|| "?????????".to_owned(), permissions);
    let size = entry.size.map_or_else(|| "-".to_owned(), |size| size.to_string());
    let time = entry.modified.and_then(data::timestamp).unwrap_or_else(|| "-".to_owned());
    format!("{kind}{mode} {size:>10} {time:>20} {}", named(entry))
}

fn permissions(mode: u32) -> String {
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    bits.map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Find, String> {
        let arguments = Arguments::parse("find", json).unwrap();
        let bounds =
            CallLimits::new(std::time::Instant::now(), Duration::from_secs(30), Default::default());
        FindParams::read(&arguments, &bounds, true)
            .map(|it| it.request)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_kinds_and_orders_have_several_spellings() {
        let kinds = |json| read(json).unwrap().kinds;
        let (yes, no) = (true, false);
        let of = |files, dirs, symlinks| Kinds { files, dirs, symlinks };
        assert_eq!(kinds("{}"), of(yes, no, yes));
        assert_eq!(kinds(r#"{"include_directories":"true"}"#), of(yes, yes, yes));
        assert_eq!(kinds(r#"{"kind":"file"}"#), of(yes, no, no));
        assert_eq!(kinds(r#"{"type":["d","l"]}"#), of(no, yes, yes));
        assert_eq!(kinds(r#"{"kind":"any"}"#), of(yes, yes, yes));
        assert_eq!(
            read(r#"{"kind":"pipe"}"#).unwrap_err(),
            "Parameter 'kind' must be some of file, dir, symlink, any"
        );
        let name = |json| read(json).unwrap().name;
        assert_eq!(name("{}"), NameRule::Everything);
        assert_eq!(name("\"*.rs\""), NameRule::Globs(vec!["*.rs".into()]));
        assert_eq!(name(r#"{"pattern":"mrs","fuzzy":true}"#), NameRule::Fuzzy("mrs".into()));
        let sort = |json| read(json).unwrap().sort_by;
        assert_eq!(sort(r#"{"pattern":"mrs","fuzzy":true}"#), FindSort::Score);
        assert_eq!(sort(r#"{"pattern":"mrs","fuzzy":true,"sort":"path"}"#), FindSort::Path);
        assert_eq!(sort(r#"{"sort":"modified"}"#), FindSort::Modified);
    }

    #[test]
    fn a_moment_is_an_age_a_date_a_time_or_seconds() {
        let since_1970 = |json: &str| {
            let time = read(json).unwrap().modified_after.unwrap();
            time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
        };
        assert_eq!(since_1970(r#"{"modified_after":"1970-01-02"}"#), 86_400);
        assert_eq!(since_1970(r#"{"newer":"1970-01-02T01:00:00+01:00"}"#), 86_400);
        assert_eq!(since_1970(r#"{"newer_than":86400}"#), 86_400);
        let now = SystemTime::now();
        let age = now.duration_since(read(r#"{"newer":"2h"}"#).unwrap().modified_after.unwrap());
        assert!(age.unwrap() <= Duration::from_secs(7200));
        let none = ["yesterday", "-2h", "h", "99999999999999999999w", "2026-13-01"];
        for text in none {
            let refused = read(&format!(r#"{{"older":"{text}"}}"#)).unwrap_err();
            assert!(refused.starts_with("Parameter 'modified_before' must be an age"), "{refused}");
        }
    }

    #[test]
    fn a_long_line_has_mode_size_and_time_before_the_name() {
        let entry = FoundEntry {
            path: "a".into(),
            kind: EntryKind::Directory,
            size: None,
            modified: Some(SystemTime::UNIX_EPOCH),
            mode: Some(0o754),
            score: None,
        };
        assert_eq!(long(&entry), "drwxr-xr--          - 1970-01-01T00:00:00Z a/");
        let unknown = FoundEntry {
            kind: EntryKind::File,
            size: Some(7),
            modified: None,
            mode: None,
            ..entry
        };
        assert_eq!(long(&unknown), "-?????????          7                    - a");
    }
}

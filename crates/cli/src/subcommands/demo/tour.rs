//! First half of the demo: runs a session's tools in the user's repository.

use super::report::Report;
use super::session::{DemoSession, quoted};
use crate::display;
use quackd_protocol::tools::{FindArguments, ReadFileArguments, SearchArguments};
use std::fs;
use std::path::Path;

/// Search patterns in the order of the attempts: first for source code, then for notes.
const PATTERNS: [&str; 7] = ["fn ", "function ", "def ", "class ", "TODO", "the ", "[A-Za-z]"];

/// Files to read in the order of the attempts: introductions, then files of most projects.
const FILES: [&str; 9] = [
    "README.md",
    "README",
    "readme.md",
    "README.rst",
    "README.txt",
    "Cargo.toml",
    "package.json",
    "pyproject.toml",
    "Makefile",
];

/// Maximum size of a quoted file, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Maximum number of files that are listed.
const MAX_ENTRIES: usize = 1000;

/// Searches for the patterns until one matches.
///
/// # Errors
/// If the search fails. An empty result is not a failure.
pub(crate) async fn search(session: &DemoSession<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut last = None;
    for pattern in PATTERNS {
        // Leaves out ignored files, which may contain secrets.
        let call = session.call(SearchArguments::builder().pattern(pattern)).await?;

        // A search that timed out has partial results.
        let text = &call.result.text;
        let hits = text.lines().filter(|line| is_hit(line)).count();
        if hits != 0 {
            let more = if call.result.info.truncated { "more than " } else { "" };
            let summary = format!("`{}` {more}{}", pattern.trim(), display::count(hits, "hit"));
            let lines = text.lines().filter(|line| is_hit(line)).take(3).map(str::to_owned);
            return report.step("search", Some(call.took), summary, lines.collect());
        }

        // A search that failed has no hits either.
        call.text()?;
        last = Some(call.took);
    }
    report.step("search", last, "no text to find here".to_owned(), Vec::new())
}

/// Whether a line has the form `path:line:text`, unlike the tool's notes.
fn is_hit(line: &str) -> bool {
    let mut parts = line.splitn(3, ':').skip(1);
    let number = parts.next().is_some_and(|part| part.parse::<u64>().is_ok());
    number && parts.next().is_some()
}

/// Reads an introductory file, or any small file.
///
/// # Errors
/// If the file cannot be read. An empty directory is not a failure.
pub(crate) async fn read(session: &DemoSession<'_>, report: &mut Report) -> anyhow::Result<()> {
    // Neither ignored nor hidden files: they may contain secrets that should not appear on a screen.
    let files = FindArguments::builder().kind(["file"]).max_depth(1).limit(MAX_ENTRIES);
    let listed = session.call(files).await?;

    let names: Vec<&str> = listed.text()?.lines().collect();
    // The daemon's worker reads it; this program only chooses the name.
    let Some(name) = introduction_blocking(Path::new(&session.workspace), &names) else {
        return report.step("read", None, "no file to read here".to_owned(), Vec::new());
    };

    let call = session.call(ReadFileArguments::builder().path(name.as_str())).await?;
    let text = call.text()?;
    let size = display::bytes(u64::try_from(text.len())?);
    let summary = format!("{name}, {size}, {}", display::count(text.lines().count(), "line"));
    report.step("read", Some(call.took), summary, quoted(text, 1))
}

fn introduction_blocking(dir: &Path, names: &[&str]) -> Option<String> {
    let readable = |name: &str| {
        // Of the file itself: a link may lead out of the directory.
        let metadata = fs::symlink_metadata(dir.join(name)).ok();
        metadata.is_some_and(|file| file.is_file() && (1..=MAX_FILE_BYTES).contains(&file.len()))
            && fs::File::open(dir.join(name)).is_ok()
    };

    let mut known = FILES.into_iter().filter(|name| names.contains(name));
    let introduction = known.find(|name| readable(name));
    let chosen = introduction.or_else(|| {
        let mut names = names.iter().copied().filter(|name| !name.starts_with('.'));
        names.find(|name| readable(name))
    });
    chosen.map(str::to_owned)
}

/// Runs `git log`, or `ls` outside of a repository.
///
/// # Errors
/// If the command fails.
pub(crate) async fn run(session: &DemoSession<'_>, report: &mut Report) -> anyhow::Result<()> {
    const COMMAND: &str = "git log -1 --oneline 2>/dev/null || ls";
    let call = session.bash(COMMAND).await?;
    let lines = quoted(call.text()?, 1);
    report.step("run", Some(call.took), format!("bash: {COMMAND}"), lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_told_from_notes() {
        for (line, hit) in [
            ("src/main.rs:3:fn main() {", true),
            ("a:1:", true),
            ("No matches found", false),
            ("[Output truncated at 100KB]", false),
            ("note: read as a basic expression", false),
        ] {
            assert_eq!(is_hit(line), hit, "{line}");
        }
    }

    #[test]
    fn something_small_and_public_is_read_and_an_empty_directory_has_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let read = || {
            let entries = fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort_unstable();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            introduction_blocking(dir.path(), &names)
        };
        assert_eq!(read(), None);
        fs::write(dir.path().join(".env"), "KEY=1").unwrap();
        fs::write(dir.path().join("empty.txt"), "").unwrap();
        fs::create_dir(dir.path().join("README")).unwrap();
        assert_eq!(read(), None);
        fs::write(dir.path().join("notes.txt"), "x").unwrap();
        assert_eq!(read().as_deref(), Some("notes.txt"));
        fs::write(dir.path().join("Makefile"), "x").unwrap();
        assert_eq!(read().as_deref(), Some("Makefile"));
        fs::write(dir.path().join("README.md"), "x").unwrap();
        assert_eq!(read().as_deref(), Some("README.md"));
    }
}

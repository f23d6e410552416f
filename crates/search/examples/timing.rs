//! Times searches and finds in a directory, to compare with other programs. Not part of the product.
//!
//! `cargo run --release -p quackd-search --example timing -- DIR PATTERN [WORD ...]`, where a word is
//! `insensitive`, `word`, `literal`, `all` (count everything), `files`, `count`, `find`, `hidden`, `plain` (no
//! ignore files), `explain` (an empty answer), `print` or a number of repetitions. Prints the least and the median time in milliseconds.

use quackd_search::{
    Boundary, Case, Find, Hidden, Ignore, OutputMode, Pattern, Search, Stop, Tree, find, search,
};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Plain(PathBuf);

impl Tree for Plain {
    fn path(&self) -> &Path {
        &self.0
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        File::open(self.0.join(relative))
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(self.0.join(relative), flags, Mode::empty())?))
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, pattern, words @ ..] = arguments.as_slice() else {
        return Err(io::Error::other("DIR PATTERN [WORD ...]"));
    };
    let has = |word: &str| words.iter().any(|one| one == word);
    let tree = Plain(Path::new(root).canonicalize()?);
    let n = words.iter().find_map(|word| word.parse().ok()).unwrap_or(10_usize).max(1);
    let mut times = Vec::new();
    let mut said = String::new();
    for _ in 0..n {
        let stop = Stop::at(Instant::now() + Duration::from_secs(600));
        let began = Instant::now();
        said = if has("find") {
            run_find(&tree, stop, &has)?
        } else {
            run_search(&tree, pattern, stop, &has)?
        };
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let in_ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let (least, median) = (in_ms(times.first()), in_ms(times.get(n / 2)));
    let mut out = io::stdout().lock();
    writeln!(out, "least {least:.2} ms, median {median:.2} ms; {said}")
}

fn run_find(tree: &Plain, stop: Stop, has: &dyn Fn(&str) -> bool) -> io::Result<String> {
    let mut request = Find::new(stop);
    scope(&mut request.scope, has);
    let outcome = find(&request, tree).map_err(io::Error::other)?;
    if has("print") {
        for entry in &outcome.entries {
            writeln!(io::stdout(), "{}", entry.path.display())?;
        }
    }
    Ok(format!("{} of {:?}", outcome.shown, outcome.total))
}

fn run_search(
    tree: &Plain,
    pattern: &str,
    stop: Stop,
    has: &dyn Fn(&str) -> bool,
) -> io::Result<String> {
    let pattern = Pattern {
        literal: has("literal"),
        case: if has("insensitive") { Case::Insensitive } else { Case::Sensitive },
        boundary: if has("word") { Boundary::Word } else { Boundary::None },
        ..Pattern::new(pattern)
    };
    let mut request = Search::new(pattern, stop);
    scope(&mut request.scope, has);
    request.max_bytes = usize::MAX;
    request.count_total = has("all");
    request.explain_empty = has("explain");
    request.output = if has("files") {
        OutputMode::Files
    } else if has("count") {
        OutputMode::CountLines
    } else {
        OutputMode::Lines
    };
    let outcome = search(&request, tree).map_err(io::Error::other)?;
    if has("print") {
        for file in &outcome.files {
            for row in &file.rows {
                let text = String::from_utf8_lossy(&row.text);
                writeln!(io::stdout(), "{}:{}:{text}", file.path.display(), row.line)?;
            }
            if file.rows.is_empty() {
                writeln!(io::stdout(), "{}:{}", file.path.display(), file.lines)?;
            }
        }
    }
    Ok(format!(
        "{} rows of {:?} in {} files, {:?}",
        outcome.shown, outcome.total, outcome.files_searched, outcome.skipped
    ))
}

fn scope(scope: &mut quackd_search::Scope, has: &dyn Fn(&str) -> bool) {
    if has("hidden") {
        scope.hidden = Hidden::Show;
    }
    if has("plain") {
        scope.ignore = Ignore::None;
    }
}

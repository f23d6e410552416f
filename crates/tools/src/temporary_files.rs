//! Finds results that commands left in the private directories for temporary files, which are removed with the worker.
//!
//! Most files there are not results: compilers and tests leave some all the time. A name counts if the command's text has
//! its path, or if the name is new and the text has the directory (`cd /tmp`, `cp x /tmp/`) or the output has the path of the
//! file. Each name is reported once. Called by `bash` and background jobs.

use crate::lost_files::{MAX_NAMED, names_blocking};
use crate::watched_names::ReportedChanges;
use quackd_protocol::denial::{of_session, one_line, quoted};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The private directories for temporary files of a session in namespaces.
const PLACES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Timeout of a check. The directories are in memory, so that only a very busy machine needs it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most names that are remembered. Later ones are not reported.
const MAX_KNOWN: usize = 10_000;

/// Length of a command's text that is searched, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// The private directories and the names that were seen in them. Clones share it. By default there are none.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemporaryFiles(Option<Arc<PrivatePlaces>>);

#[derive(Debug)]
struct PrivatePlaces {
    places: Vec<PathBuf>,
    seen: watch::Sender<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Names that earlier commands left, or that existed when the worker began.
    known: BTreeSet<PathBuf>,
    /// Names that need no further report: they were reported, or existed when the worker began.
    reported: BTreeSet<PathBuf>,
}

impl TemporaryFiles {
    /// Looks at the directories of a worker in namespaces before any command has run.
    pub(crate) fn private_blocking() -> Self {
        Self::in_places_blocking(PLACES.iter().map(PathBuf::from).collect())
    }

    fn in_places_blocking(places: Vec<PathBuf>) -> Self {
        let all = places.iter().flat_map(|place| paths_blocking(place));
        let known: BTreeSet<PathBuf> = all.take(MAX_KNOWN).collect();
        let seen = Seen { reported: known.clone(), known };
        Self(Some(Arc::new(PrivatePlaces { places, seen: watch::Sender::new(seen) })))
    }

    /// Returns the paths that a command with this text and output left as results.
    pub(crate) async fn left_by(&self, command: &str, output: Vec<u8>) -> Vec<PathBuf> {
        let Some(places) = self.0.clone() else { return Vec::new() };
        let end = command.floor_char_boundary(MAX_TEXT_BYTES);
        let command = command.get(..end).unwrap_or_default().to_owned();
        let look = move || places.look_blocking(&command, &String::from_utf8_lossy(&output));
        match tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(look)).await {
            Ok(Ok(left)) => left,
            _ => Vec::new(),
        }
    }
}

impl PrivatePlaces {
    fn look_blocking(&self, command: &str, output: &str) -> Vec<PathBuf> {
        let current: Vec<(bool, PathBuf)> = self
            .places
            .iter()
            .flat_map(|place| {
                let is_named = place.to_str().is_some_and(|place| names_directory(command, place));
                paths_blocking(place).map(move |path| (is_named, path))
            })
            .collect();

        let mut left = Vec::new();
        self.seen.send_if_modified(|seen| {
            for (is_place_named, path) in current {
                let is_new = !seen.known.contains(&path) && seen.known.len() < MAX_KNOWN;
                let is_result = || {
                    let Some(text) = path.to_str() else { return false };
                    names_path(command, text)
                        || is_new
                            && !is_temporary_name(&path)
                            && (is_place_named || path.is_file() && names_path(output, text))
                };
                if !seen.reported.contains(&path) && is_result() && seen.reported.len() < MAX_KNOWN
                {
                    seen.reported.insert(path.clone());
                    left.push(path.clone());
                }
                if is_new {
                    seen.known.insert(path);
                }
            }
            false
        });

        left
    }
}

fn paths_blocking(place: &Path) -> impl Iterator<Item = PathBuf> {
    names_blocking(place).map(|name| place.join(name))
}

/// Whether a program probably chose the name by itself, as `mktemp` does.
fn is_temporary_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    [&b"."[..], b"tmp", b"pytest-of-", b"npm-", b"pip-", b"cc", b"rustc", b"go-build", b"v8-"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Whether a text has this path as a word, or as the beginning of a longer path.
fn names_path(text: &str, path: &str) -> bool {
    has_word(text, path, |next| next.is_none_or(|c| !c.is_alphanumeric() && !"-_.~+@%".contains(c)))
}

/// Whether a text has this directory itself as a word: `/tmp` or `/tmp/`, and `/tmp/*.txt` or `/tmp/$name`.
fn names_directory(text: &str, directory: &str) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || "\"';&|)>`".contains(c));
    has_word(text, directory, is_end)
        || has_word(text, &format!("{directory}/"), |c| {
            is_end(c) || c.is_some_and(|c| "*$?{[\\".contains(c))
        })
}

/// Whether a text has a path that begins a word, followed by a character that `is_end` accepts.
fn has_word(text: &str, path: &str, is_end: impl Fn(Option<char>) -> bool) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let before = text.get(..at).unwrap_or_default().chars().next_back();
        let after = text.get(at + path.len()..).unwrap_or_default().chars().next();
        let is_begin = before.is_none_or(|c| !c.is_alphanumeric() && !"-_./~".contains(c));
        is_begin && is_end(after)
    })
}

/// Adds the paths to a report. `session` is the label of the session.
pub(crate) fn add_to(changes: ReportedChanges, left: &[PathBuf], session: &str) -> ReportedChanges {
    let paths: Vec<String> =
        left.iter().map(|path| one_line(&path.display().to_string())).collect();
    if paths.is_empty() {
        return changes;
    }

    let named = paths.get(..MAX_NAMED).unwrap_or(&paths);
    let more = match paths.len() - named.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };

    let words: Vec<_> = named.iter().map(|path| quoted(path)).collect();
    let copy = quoted(&format!("cp -rnv {} .", words.join(" ")));
    let line = format!(
        "[Sandbox: {}{more} will be lost: only this session sees its /tmp, /var/tmp and /dev/shm, and they are removed with \
         its worker, when it is idle, when permissions change and at quack stop. To keep it: quack tool bash {copy}{}]",
        named.join(", "),
        of_session(session)
    );

    let list = named.iter().map(|path| format!("{path} will be lost with the worker")).collect();
    changes.and(list, line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn results_are_reported_once_and_files_of_programs_are_not() {
        let dir = tempfile::tempdir().unwrap();
        // A name that is not a word of the commands.
        let place = dir.path().join("place");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("of-start"), "").unwrap();
        let files = TemporaryFiles::in_places_blocking(vec![place.clone()]);
        let at = place.to_str().unwrap();
        let left = async |name: &str, command: String, output: &str| {
            fs::write(place.join(name), "x").unwrap();
            let left = files.left_by(&command, output.as_bytes().to_vec()).await;
            left.iter().map(|path| path.file_name().unwrap().to_owned()).collect::<Vec<_>>()
        };
        for (name, command, output) in [
            ("result.pdf", format!("cp a {at}/result.pdf"), String::new()),
            ("my report.pdf", format!("cp a '{at}/my report.pdf'"), String::new()),
            ("clone", format!("git clone x \"{at}/clone\""), String::new()),
            ("deep", format!("echo > {at}/deep/of/it"), String::new()),
            ("copied", format!("cp copied {at}/"), String::new()),
            ("globbed", format!("cp *ed {at}"), String::new()),
            ("made", format!("cd {at} && make"), String::new()),
            ("set", format!("n=set; echo > {at}/$n"), String::new()),
            ("printed.txt", "python3 report.py".to_owned(), format!("wrote {at}/printed.txt\n")),
        ] {
            assert_eq!(left(name, command.clone(), &output).await, [name], "{command}");
            assert!(left(name, command.clone(), &output).await.is_empty(), "{command}");
        }
        for (name, command) in [
            ("of-start", format!("cat {at}/of-start")),
            ("ccXYZ.o", "make".to_owned()),
            ("tmp.abc", format!("cd {at}; mktemp")),
            ("build-1", "cargo build".to_owned()),
            ("other", format!("ls {at}/others {at}/otherwise {at}-other /x{at}/other")),
        ] {
            assert!(left(name, command.clone(), "").await.is_empty(), "{command}");
        }
    }

    #[test]
    fn the_line_has_a_command_that_keeps_the_files() {
        let line = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            add_to(ReportedChanges::default(), &paths, "app/review").line
        };
        assert_eq!(line(&[]), None);
        let one = line(&["/tmp/clone"]).unwrap();
        assert!(one.starts_with("[Sandbox: /tmp/clone will be lost: "), "{one}");
        assert!(
            one.ends_with("quack tool bash 'cp -rnv /tmp/clone .' --session app/review]"),
            "{one}"
        );
        let odd = line(&["/tmp/my a"]).unwrap();
        assert!(odd.contains(r"'cp -rnv '\''/tmp/my a'\'' .'"), "{odd}");
        let many = line(&["/a", "/b", "/c", "/d", "/e"]).unwrap();
        assert!(many.starts_with("[Sandbox: /a, /b, /c, /d and 1 more will be lost"), "{many}");
    }
}

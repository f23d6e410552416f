//! Upstreams of branches that git could not write to the pinned settings of a repository.
//!
//! Owns files in the session's run directory, one per repository, which only commands of this session read.
//! They contain only remotes and merge refs of branches. The settings of the repository do not change. Called
//! by [`crate::denials`] after a command and by `bash` before one. Functions that end in `_blocking` block.

use quackd_sandbox::git_config::{Entry, parse};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Name of the directory in the run directory.
const DIRECTORY: &str = "git-upstreams";

/// Maximum number of repositories in one session.
const MAX_REPOSITORIES: usize = 16;

/// Maximum number of branches in one repository.
const MAX_BRANCHES: usize = 256;

/// Maximum length of the name of a branch or remote, and of the path of a repository, in bytes.
const MAX_NAME: usize = 512;

/// Maximum size of a settings file in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Upstreams stored for one session. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Upstreams(Arc<Mutex<PathBuf>>);

/// Remote and merge ref of each branch.
type Branches = BTreeMap<String, (String, String)>;

/// Upstream as git reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrackedBranch {
    /// Branch that gets an upstream.
    pub(crate) branch: String,
    /// `origin/main`, or the name of a local branch.
    pub(crate) upstream: String,
}

impl Upstreams {
    /// Stores upstreams in a directory of `run_dir`.
    pub(crate) fn kept_in(run_dir: &Path) -> Self {
        Self(Arc::new(Mutex::new(run_dir.join(DIRECTORY))))
    }

    /// Stores the upstreams that git reports in `text` for the repository with the settings file `settings`.
    /// Returns the stored ones: the remote exists, and the settings file has no upstream for the branch.
    pub(crate) fn keep_blocking(&self, text: &str, settings: &Path) -> Vec<TrackedBranch> {
        let mut reported = reported(text);
        let is_main = settings.file_name().is_some_and(|name| name == "config");
        let Some(git) = settings.parent().filter(|_| is_main && !reported.is_empty()) else {
            return Vec::new();
        };

        let Some((git, entries)) = fs::canonicalize(git).ok().and_then(|git| {
            let entries = parse(&read(&git.join("config"))?);
            Some((git.to_str().filter(|git| is_plain_path(git))?.to_owned(), entries))
        }) else {
            return Vec::new();
        };

        // Locked until the file is written, so that concurrent commands lose no upstream.
        let directory = self.0.blocking_lock();
        let file = directory.join(file_name(&git));
        let mut branches = read(&file).map(|text| branches(&parse(&text))).unwrap_or_default();
        reported.retain(|report| {
            let target =
                resolve(report, &entries).filter(|_| !has_upstream(&entries, &report.branch));
            let has_room = branches.len() < MAX_BRANCHES || branches.contains_key(&report.branch);
            target.filter(|_| has_room).is_some_and(|target| {
                branches.insert(report.branch.clone(), target);
                true
            })
        });

        if reported.is_empty() || write(&directory, &file, &git, &branches).is_ok() {
            reported
        } else {
            Vec::new()
        }
    }

    /// Returns the variables by which git reads the stored upstreams. Removes an upstream if the repository has
    /// set one for the branch since: git refuses to push a branch with two.
    pub(crate) fn variables_blocking(&self) -> Vec<(String, String)> {
        let directory = self.0.blocking_lock();
        let Ok(files) = fs::read_dir(&*directory) else { return Vec::new() };
        let files = files.take(MAX_REPOSITORIES).filter_map(|entry| Some(entry.ok()?.path()));

        let mut pairs = Vec::new();
        for file in files.filter(|file| file.to_str().is_some()) {
            let Some(git) = current(&directory, &file) else { continue };
            // One condition for the repository itself, one for its linked worktrees.
            for condition in [git.clone(), format!("{git}/worktrees/")] {
                pairs.push((format!("includeIf.gitdir:{condition}.path"), file.clone()));
            }
        }
        if pairs.is_empty() {
            return Vec::new();
        }

        let mut variables = vec![("GIT_CONFIG_COUNT".to_owned(), pairs.len().to_string())];
        for (n, (key, file)) in pairs.into_iter().enumerate() {
            variables.push((format!("GIT_CONFIG_KEY_{n}"), key));
            variables.push((format!("GIT_CONFIG_VALUE_{n}"), file.to_string_lossy().into_owned()));
        }
        variables
    }
}

/// Returns the line about stored upstreams for an answer text.
pub(crate) fn line(kept: &[TrackedBranch]) -> Option<String> {
    let TrackedBranch { branch, upstream } = kept.first()?;
    let more = match kept.len() {
        1 => String::new(),
        n => format!(" ({} more branches likewise)", n - 1),
    };
    Some(format!(
        "[Sandbox: this session tracks '{upstream}' in '{branch}'{more}, so that its git status, pull and push work. \
         To track it outside too: git branch --set-upstream-to={upstream} {branch}]"
    ))
}

/// Updates a stored file from the settings of its repository. Returns the git directory if upstreams remain.
fn current(directory: &Path, file: &Path) -> Option<String> {
    // A command may have written the file: only what this module writes counts.
    let text = read(file)?;
    let kept = parse(&text);
    let git = kept.iter().find(|one| one.is("quackd", "gitdir"))?.value.clone()?;
    let is_ours = is_plain_path(&git) && file.file_name()? == file_name(&git).as_str();
    let entries = parse(&is_ours.then(|| read(&Path::new(&git).join("config")))??);

    let mut left = branches(&kept);
    left.retain(|branch, (remote, _)| {
        !has_upstream(&entries, branch) && (remote == "." || has_remote(&entries, remote))
    });

    if contents(&git, &left) != text {
        write(directory, file, &git, &left).ok()?;
    }
    (!left.is_empty()).then_some(git)
}

/// Parses the upstreams that git reports, in the wording of several versions.
fn reported(text: &str) -> Vec<TrackedBranch> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_end().strip_suffix('.')?;
        let line = line.strip_suffix(" by rebasing").unwrap_or(line);
        let rest = line.strip_prefix("branch '").or_else(|| line.strip_prefix("Branch '"))?;
        let (branch, rest) = rest.split_once("' set up to track ")?;
        let quoted = |rest: &str| Some(rest.strip_prefix('\'')?.strip_suffix('\'')?.to_owned());

        let upstream = if let Some(rest) = rest.strip_prefix("remote branch ") {
            // Before git 2.34.
            let (name, remote) = rest.split_once(" from ")?;
            format!("{}/{}", quoted(remote)?, quoted(name)?)
        } else {
            quoted(rest.strip_prefix("local branch ").unwrap_or(rest))?
        };

        let report = TrackedBranch { branch: branch.to_owned(), upstream };
        (is_name(&report.branch) && is_name(&report.upstream)).then_some(report)
    });

    let mut reports: Vec<TrackedBranch> = Vec::new();
    for report in lines.take(MAX_BRANCHES) {
        // The last upstream of a branch applies.
        reports.retain(|known| known.branch != report.branch);
        reports.push(report);
    }

    reports
}

/// Returns the remote and the merge ref of an upstream. Selects the longest remote name that is a prefix.
fn resolve(report: &TrackedBranch, entries: &[Entry]) -> Option<(String, String)> {
    let upstream = report.upstream.as_str();
    let splits = upstream.rmatch_indices('/').map(|(at, _)| upstream.split_at(at));
    let remote = splits
        .map(|(remote, name)| (remote, name.trim_start_matches('/')))
        .find(|(remote, _)| has_remote(entries, remote));
    let (remote, name) = remote.unwrap_or((".", upstream));
    is_name(name).then(|| (remote.to_owned(), format!("refs/heads/{name}")))
}

fn has_remote(entries: &[Entry], remote: &str) -> bool {
    entries.iter().any(|one| one.is("remote", "url") && one.subsection == remote)
}

fn has_upstream(entries: &[Entry], branch: &str) -> bool {
    let is_set = |one: &Entry| one.is("branch", "remote") || one.is("branch", "merge");
    entries.iter().any(|one| one.subsection == branch && is_set(one))
}

/// Returns the valid upstreams in a stored file and ignores everything else.
fn branches(entries: &[Entry]) -> Branches {
    let value = |branch: &str, key| {
        let is_it = |one: &&Entry| one.is("branch", key) && one.subsection == branch;
        entries.iter().rev().find(is_it).and_then(|one| one.value.clone())
    };
    let names = entries.iter().filter(|one| one.is("branch", "merge") && is_name(&one.subsection));
    let valid = names.take(MAX_BRANCHES).filter_map(|one| {
        let (remote, merge) = (value(&one.subsection, "remote")?, value(&one.subsection, "merge")?);
        let is_valid = (remote == "." || is_name(&remote))
            && merge.strip_prefix("refs/heads/").is_some_and(is_name);
        is_valid.then(|| (one.subsection.clone(), (remote, merge)))
    });
    valid.collect()
}

/// Whether git allows the name for a branch, and it needs no escape in a settings file.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| !(c.is_control() || c.is_whitespace() || "~^:?*[\\\"".contains(c));
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with(['-', '/', '.'])
        && !name.ends_with(['/', '.'])
        && !["..", "@{", "//"].iter().any(|part| name.contains(part))
        && name.chars().all(is_plain)
}

/// Whether the path is absolute, has no special characters for a git condition, and needs no escape in a
/// settings file.
fn is_plain_path(path: &str) -> bool {
    let is_plain = |c: char| !(c.is_control() || "?*[\\\"".contains(c));
    path.starts_with('/') && path.len() <= MAX_NAME && path.chars().all(is_plain)
}

fn file_name(git: &str) -> String {
    let mut hasher = DefaultHasher::new();
    git.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Reads the text of a regular file. `None` if it is too large or cannot be read.
fn read(path: &Path) -> Option<String> {
    // A command can replace the file by a link, or by a pipe without a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let mut text = String::new();
    let fits = metadata.is_file() && metadata.len() <= MAX_FILE;
    fits.then(|| file.take(MAX_FILE).read_to_string(&mut text))?.ok()?;
    Some(text)
}

/// Writes a stored file. An interrupted write loses upstreams, and nothing else reads the file.
fn write(directory: &Path, file: &Path, git: &str, branches: &Branches) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let is_new = fs::symlink_metadata(file).is_err();
    if is_new && MAX_REPOSITORIES <= fs::read_dir(directory)?.take(MAX_REPOSITORIES).count() {
        return Err(io::Error::other("too many repositories"));
    }

    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags);
    let mut file: File = options.open(file)?;
    file.write_all(contents(git, branches).as_bytes())
}

fn contents(git: &str, branches: &Branches) -> String {
    let mut text = format!("[quackd]\n\tgitdir = \"{git}\"\n");
    for (branch, (remote, merge)) in branches {
        text.push_str(&format!(
            "[branch \"{branch}\"]\n\tremote = \"{remote}\"\n\tmerge = \"{merge}\"\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(branch: &str, upstream: &str) -> TrackedBranch {
        TrackedBranch { branch: branch.to_owned(), upstream: upstream.to_owned() }
    }

    #[test]
    fn upstreams_are_read_in_the_words_of_every_git() {
        let text = "branch 'n' set up to track 'inside/f'.\nbranch 'r' set up to track 'o/r' by rebasing.\n\
                    Branch 'a' set up to track remote branch 'b/c' from 'origin'.\n\
                    Branch 'd' set up to track local branch 'main' by rebasing.\n\
                    branch 'n' set up to track 'inside/g'.\n\
                    branch 'x y' set up to track 'o/z'.\nbranch 'q' set up to track '-x'.\n\
                    branch 'q\"]' set up to track 'o/x'.\nbranch 'q' set up to track o/x.\n";
        let expected =
            [told("r", "o/r"), told("a", "origin/b/c"), told("d", "main"), told("n", "inside/g")];
        assert_eq!(reported(text), expected);
    }

    #[test]
    fn an_upstream_is_of_an_existing_remote_or_of_the_repository_itself() {
        let entries = parse(
            "[remote \"o\"]\nurl = x\n[remote \"o/p\"]\nurl = y\n[remote \"ext::sh\"]\nfetch = z\n",
        );
        let found = |upstream| resolve(&told("n", upstream), &entries).unwrap();
        assert_eq!(found("o/a/b"), ("o".to_owned(), "refs/heads/a/b".to_owned()));
        assert_eq!(found("o/p/b"), ("o/p".to_owned(), "refs/heads/b".to_owned()));
        assert_eq!(found("main"), (".".to_owned(), "refs/heads/main".to_owned()));
        assert_eq!(found("other/x"), (".".to_owned(), "refs/heads/other/x".to_owned()));
        assert_eq!(resolve(&told("n", "o/.x"), &entries), None);
    }

    #[test]
    fn upstreams_are_kept_for_one_repository_and_forgotten_when_it_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().canonicalize().unwrap().join("r/.git");
        fs::create_dir_all(&git).unwrap();
        let remote = "[remote \"o\"]\n\turl = x\n";
        fs::write(git.join("config"), format!("{remote}[branch \"has\"]\n\tremote = o\n")).unwrap();
        let upstreams = Upstreams::kept_in(dir.path());
        assert!(upstreams.variables_blocking().is_empty());
        let text = "branch 'n' set up to track 'o/f'.\nbranch 'has' set up to track 'o/f'.\n";
        let kept = upstreams.keep_blocking(text, &git.join("config"));
        assert_eq!(kept, [told("n", "o/f")]);
        let git_name = git.to_str().unwrap();
        let file = dir.path().join(DIRECTORY).join(file_name(git_name));
        let written = fs::read_to_string(&file).unwrap();
        let branch = "[branch \"n\"]\n\tremote = \"o\"\n\tmerge = \"refs/heads/f\"\n";
        assert_eq!(written, format!("[quackd]\n\tgitdir = \"{git_name}\"\n{branch}"));
        let path = file.to_str().unwrap().to_owned();
        let expected = [
            ("GIT_CONFIG_COUNT", "2".to_owned()),
            ("GIT_CONFIG_KEY_0", format!("includeIf.gitdir:{git_name}.path")),
            ("GIT_CONFIG_VALUE_0", path.clone()),
            ("GIT_CONFIG_KEY_1", format!("includeIf.gitdir:{git_name}/worktrees/.path")),
            ("GIT_CONFIG_VALUE_1", path),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(upstreams.variables_blocking(), expected);
        fs::write(git.join("config"), format!("{remote}{branch}")).unwrap();
        assert!(upstreams.variables_blocking().is_empty());
        assert_eq!(fs::read_to_string(&file).unwrap().find("branch"), None);
    }

    #[test]
    fn files_that_a_command_has_written_lead_git_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().canonicalize().unwrap().join(".git");
        fs::create_dir(&git).unwrap();
        fs::write(git.join("config"), "[remote \"o\"]\nurl = x\n").unwrap();
        let upstreams = Upstreams::kept_in(dir.path());
        let directory = dir.path().join(DIRECTORY);
        fs::create_dir(&directory).unwrap();
        let git_name = git.to_str().unwrap();
        let file = directory.join(file_name(git_name));
        let branch = "[branch \"n\"]\nremote = ext::sh\nmerge = refs/heads/f\n";
        fs::write(&file, format!("[quackd]\ngitdir = {git_name}\n{branch}[core]\npager = x\n"))
            .unwrap();
        assert!(upstreams.variables_blocking().is_empty());
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            format!("[quackd]\n\tgitdir = \"{git_name}\"\n")
        );
        fs::write(directory.join("other"), format!("[quackd]\ngitdir = {git_name}\n")).unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(git.join("config"), &file).unwrap();
        let text = "branch 'n' set up to track 'o/f'.\n";
        assert!(upstreams.keep_blocking(text, &git.join("config")).is_empty());
        assert_eq!(fs::read_to_string(git.join("config")).unwrap(), "[remote \"o\"]\nurl = x\n");
    }
}

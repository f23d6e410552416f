//! Plans `quack uninstall`: the removed paths, and the kept paths with their reasons.

use crate::subcommands::service::{ServiceContext, present};
use anyhow::Context;
use quackd_home::Home;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Size of the beginning of a file that is searched for its origin, in bytes.
const MAX_LOOK: u64 = 64 * 1024;

/// Files of the state directory that also exist as numbered generations.
const GENERATIONS: [&str; 5] =
    ["metadata.json", "quackd-state.json", "config.json", "remote-auth-token", "page-tokens.json"];

/// Other files of the state directory.
const FILES: [&str; 16] = [
    "quackd.toml",
    "service.env",
    "launchd.log",
    "login-environment.json",
    "interrupted.json",
    "spending.json",
    "model-lists.json",
    "mcp-install.json",
    "mcp-token",
    "provider-keys.json",
    "approvals.jsonl",
    "network.jsonl",
    "duck-daemon.pid",
    "duck-daemon.log",
    "daemon.sock",
    "quackd.lock",
];

const DIRECTORIES: [&str; 10] = [
    "run",
    "placeholders",
    "pi-package",
    "pi-sessions",
    "prompts",
    "caches",
    "agents",
    "isolated",
    "checkpoints",
    "journal",
];

/// Path that is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeptPath {
    pub(super) path: PathBuf,
    pub(super) why: &'static str,
}

/// Removed and kept paths.
#[derive(Debug, Default)]
pub(super) struct UninstallPlan {
    /// The service's files.
    pub(super) service: Vec<PathBuf>,
    /// Completions and manual pages.
    pub(super) programs: Vec<PathBuf>,
    /// Entries of the state directory, if `--purge` removes it.
    pub(super) state: Vec<PathBuf>,
    pub(super) kept: Vec<KeptPath>,
}

impl UninstallPlan {
    /// Reads the disk and removes nothing.
    ///
    /// # Errors
    /// If the state directory cannot be read, belongs to another user, or is not a state directory.
    pub(super) fn make_blocking(here: &ServiceContext, purge: bool) -> anyhow::Result<Self> {
        let mut plan = Self { service: present(here), ..Self::default() };
        let home_dir = std::env::var_os("HOME").map(PathBuf::from);
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.filter(|path| path.is_absolute());

        if let Some(home_dir) = home_dir.filter(|path| path.is_absolute()) {
            let data = data.unwrap_or_else(|| home_dir.join(".local/share"));
            plan.find_programs(&data, &home_dir.join(".config"));
        }

        if purge {
            plan.find_state(&here.home)?;
            plan.find_config(&here.home);
        } else if here.home.dir().is_dir() {
            let path = here.home.dir().to_owned();
            plan.kept.push(KeptPath { path, why: "the state; --purge removes it" });
        }
        Ok(plan)
    }

    /// Returns all paths to remove.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        [self.service.as_slice(), &self.programs, &self.state].concat()
    }

    fn find_programs(&mut self, data: &Path, config: &Path) {
        let completions = [
            (data.join("bash-completion/completions/quack"), &["_quack()"][..]),
            (data.join("zsh/site-functions/_quack"), &["#compdef quack"]),
            // The scripts of version 0.1.0 contain the second sign.
            (config.join("fish/completions/quack.fish"), &["--command quack", "complete -c quack"]),
        ];

        let pages = fs::read_dir(data.join("man/man1")).into_iter().flatten().flatten();
        let is_page = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name == "quack.1" || name.starts_with("quack-") && name.ends_with(".1")
        };
        let mut pages: Vec<PathBuf> = pages.map(|entry| entry.path()).filter(is_page).collect();
        pages.sort();
        let pages = pages.into_iter().map(|path| (path, &[".TH quack"][..]));

        for (path, signs) in completions.into_iter().chain(pages) {
            match begins_with_sign(&path, signs) {
                Some(true) => self.programs.push(path),
                Some(false) => self.kept.push(KeptPath { path, why: "not written by `quack`" }),
                None => {}
            }
        }
    }

    /// Finds the configuration in the user's directory of configurations, and its directory if nothing else is in it. It
    /// belongs to the usual state directory, and stays if another one is removed.
    fn find_config(&mut self, home: &Home) {
        let Some(path) = home.config_of_user() else { return };
        if !path.symlink_metadata().is_ok_and(|status| status.is_file()) {
            return;
        }

        if !home.is_by_rule() {
            let reason = "the configuration, which the usual state directory shares";
            self.kept.push(KeptPath { path, why: reason });
            return;
        }

        let directory = path.parent().unwrap_or(&path);
        let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let is_alone = entries.all(|entry| entry.path() == path);
        let is_own = directory.symlink_metadata().is_ok_and(|status| status.is_dir());
        self.state.push(if is_alone && is_own { directory.to_owned() } else { path });
    }

    fn find_state(&mut self, home: &Home) -> anyhow::Result<()> {
        let dir = home.dir();
        let Ok(status) = dir.symlink_metadata() else { return Ok(()) };
        let us = rustix::process::geteuid().as_raw();
        let home_dir = std::env::var_os("HOME").map(PathBuf::from);
        if !status.is_dir() || status.uid() != us {
            anyhow::bail!("{} is not your directory; its content is not removed", dir.display());
        }

        // Compare inodes, because the same directory may have several paths.
        let is_here = |other: &Path| {
            other.metadata().is_ok_and(|metadata| {
                (metadata.dev(), metadata.ino()) == (status.dev(), status.ino())
            })
        };
        let is_another = is_here(Path::new("/")) || home_dir.is_some_and(|home| is_here(&home));

        if !is_another && fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
            return Ok(());
        }

        // Files that every daemon leaves in its state directory. Without a daemon so far, it has the mark of what other
        // subcommands make, such as `mcp install`.
        let has_served = [home.lock_file(), home.state_file(), home.log_file()];
        let is_known = has_served.iter().any(|file| file.is_file())
            || matches!(home.check_run_blocking(), Ok(true));
        if is_another || !is_known {
            anyhow::bail!("{} is not a state directory; its content is not removed", dir.display());
        }

        let entries =
            fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_dir = entry.file_type()?.is_dir();

            if name == "placeholders" && fs::read_dir(&path)?.next().is_some() {
                let reason = "lists repositories that must still be cleaned: start the daemon once and stop it";
                self.kept.push(KeptPath { path, why: reason });
            } else if (name == "run" && home.check_run_blocking().is_err())
                || (name == "caches" && !home.owns_caches_blocking())
                || (name == "agents" && !home.owns_agents_blocking())
                || (name.starts_with("run.old-") && !home.is_retired_blocking(&name))
            {
                self.kept.push(KeptPath { path, why: "not made by quackd" });
            } else if is_ours(&name, is_dir) {
                self.state.push(path);
            } else {
                let reason =
                    if name == "sessions" { "the macOS app's" } else { "not known to be ours" };
                self.kept.push(KeptPath { path, why: reason });
            }
        }

        self.state.sort();
        Ok(())
    }
}

/// Whether a name in the state directory belongs to the daemon. Other files are kept.
fn is_ours(name: &str, is_dir: bool) -> bool {
    if is_dir {
        return DIRECTORIES.contains(&name) || name.starts_with("run.old-");
    }

    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rotated = ["duck-daemon.log.", "approvals.jsonl.", "network.jsonl."];
    let is_log = rotated.iter().any(|base| name.strip_prefix(base).is_some_and(is_number));

    let is_generation = GENERATIONS.iter().any(|base| match name.strip_prefix(base) {
        Some("" | ".bak" | ".tmp" | ".bak.tmp") => true,
        Some(".ours" | ".ours.tmp" | ".ours.bak.tmp" | ".theirs") => true,
        Some(rest) => rest.strip_prefix(".corrupt-").is_some_and(is_number),
        None => false,
    });

    let is_temporary = FILES.iter().any(|base| name.strip_prefix(base) == Some(".tmp"));
    FILES.contains(&name) || is_log || is_generation || is_temporary
}

/// Whether the beginning of the file contains one of `signs`. `None` if the file does not exist.
fn begins_with_sign(path: &Path, signs: &[&str]) -> Option<bool> {
    if !path.symlink_metadata().ok()?.is_file() {
        return Some(false);
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MAX_LOOK).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(signs.iter().any(|sign| text.contains(sign)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_daemon_are_taken_for_its_own() {
        for (name, is_dir, ours) in [
            ("metadata.json", false, true),
            ("metadata.json.bak.tmp", false, true),
            ("metadata.json.corrupt-3", false, true),
            ("metadata.json.corrupt-", false, false),
            ("metadata.json.ours", false, true),
            ("metadata.json.mine", false, false),
            ("quackd-state.json", false, true),
            ("duck-daemon.log.4", false, true),
            ("network.jsonl", false, true),
            ("approvals.jsonl.1", false, true),
            ("approvals.jsonl.old", false, false),
            ("journal", true, true),
            ("duck-daemon.log.old", false, false),
            ("login-environment.json.tmp", false, true),
            ("quackd.toml.orig", false, false),
            ("run", true, true),
            ("run", false, false),
            ("run.old-123", true, true),
            ("sessions", true, false),
            ("metadata.json", true, false),
            ("notes.txt", false, false),
        ] {
            assert_eq!(is_ours(name, is_dir), ours, "{name}");
        }
    }

    #[test]
    fn every_name_that_the_documents_list_is_removed() {
        let privacy = include_str!("../../../../../docs/privacy.md");
        let (_, table) = privacy.split_once("| in the state directory |").unwrap();
        let (table, _) = table.split_once("\nElsewhere:").unwrap();
        let cells = table.lines().filter_map(|row| row.strip_prefix("| `")?.split('|').next());
        let mut names: Vec<&str> = Vec::new();
        for cell in cells {
            // A cell ends with the names of further generations, such as `.bak`.
            names.extend(cell.split('`').filter(|name| name.starts_with(char::is_alphabetic)));
        }
        assert!(20 < names.len() && names.contains(&"prompts/"), "{names:?}");
        for name in names.into_iter().filter(|name| *name != "sessions/") {
            let top = name.split('/').next().unwrap_or_default();
            assert!(is_ours(top, name.contains('/')), "{name}");
        }
    }

    #[test]
    fn completions_and_pages_are_known_by_what_they_say() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let bash = write("data/bash-completion/completions/quack", "_quack() {\n");
        let fish = write("config/fish/completions/quack.fish", "# mine\n");
        let page = write("data/man/man1/quack-ps.1", ".ie x\n.TH quack-ps 1\n");
        let other = write("data/man/man1/quackery.1", ".TH quackery 1\n");
        let mut plan = UninstallPlan::default();
        plan.find_programs(&dir.path().join("data"), &dir.path().join("config"));
        assert_eq!(plan.programs, [bash, page]);
        assert_eq!(plan.kept, [KeptPath { path: fish, why: "not written by `quack`" }]);
        assert!(other.exists());
    }
}

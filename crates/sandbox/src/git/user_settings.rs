//! The user's and the system's git settings that name files: `/etc/gitconfig` and those next to git, `~/.gitconfig`,
//! `git/config` of the configuration directory, the files that variables name, and their includes. Stage 0 reads
//! them before the confinement hides them.

use super::config_paths::{Setting, setting};
use super::named_path::locate;
use super::openat;
use super::words::{is_clear, with_home, words};
use crate::git_config;
use quackd_protocol::environment::GIT_SETTINGS_VARIABLES;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of files.
const MAX_FILES: usize = 64;

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 256 * 1024;

/// Maximum number of settings that name files.
const MAX_SETTINGS: usize = 1024;

/// Maximum number of programs in [`CredentialFiles`].
const MAX_PROGRAMS: usize = 16 * 1024;

/// Files and programs that git uses for a credential.
#[derive(Debug, Default)]
pub struct CredentialFiles {
    /// The settings, and the paths in the command lines of helpers.
    pub files: Vec<PathBuf>,
    /// The programs in `PATH` that the other words of these command lines can mean. Most do not exist.
    pub programs: Vec<PathBuf>,
}

/// Settings of the user and of the system.
#[derive(Debug, Default)]
pub struct UserSettings {
    home: PathBuf,
    settings: Vec<Setting>,
    /// The files themselves: one may be in a workspace.
    files: Vec<PathBuf>,
    is_cut: bool,
}

impl UserSettings {
    /// Reads the settings of the user with this home directory and environment. Follows links, because the files are
    /// the user's.
    #[must_use]
    pub fn read_blocking(home: &Path, env: &[(String, String)]) -> Self {
        let of = |name: &str| {
            let variable = env.iter().find(|(known, _)| known == name);
            variable.map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        let mut pending = VecDeque::from([PathBuf::from("/etc/gitconfig")]);

        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str());
        // A git in `/opt/x/bin` reads `/opt/x/etc/gitconfig`.
        let next_to_git = path.unwrap_or_default().split(':').filter_map(|directory| {
            let prefix = Path::new(directory).parent().filter(|prefix| prefix.is_absolute())?;
            Path::new(directory).join("git").exists().then(|| prefix.join("etc/gitconfig"))
        });
        pending.extend(next_to_git);

        pending.extend(GIT_SETTINGS_VARIABLES.into_iter().filter_map(of));
        pending.extend(of("XDG_CONFIG_HOME").map(|directory| directory.join("git/config")));
        pending.extend([home.join(".config/git/config"), home.join(".gitconfig")]);

        let mut user = Self { home: home.to_owned(), ..Self::default() };
        while let Some(file) = pending.pop_front() {
            if user.files.contains(&file) {
                continue;
            }
            if user.files.len() == MAX_FILES {
                user.is_cut = true;
                break;
            }
            user.read(&file, &mut pending);
        }
        user
    }

    fn read(&mut self, file: &Path, pending: &mut VecDeque<PathBuf>) {
        self.files.push(file.to_owned());
        let text = match openat::read_own(file, MAX_FILE + 1) {
            Ok(bytes) if MAX_FILE < u64::try_from(bytes.len()).unwrap_or(u64::MAX) => {
                return self.is_cut = true;
            }
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            // Git cannot read them either.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::NotADirectory
                        | io::ErrorKind::PermissionDenied
                ) =>
            {
                return;
            }
            Err(_) => return self.is_cut = true,
        };

        let entries = git_config::parse(&text);
        self.is_cut |= entries.len() == git_config::MAX_ENTRIES;
        for entry in entries {
            let Some(one) = setting(&entry, file.parent()) else { continue };
            if self.settings.len() == MAX_SETTINGS {
                return self.is_cut = true;
            }
            if one.is_include && !one.value.is_empty() {
                // Git replaces the first, and the second was another byte.
                let is_exact = !one.value.starts_with("%(prefix)")
                    && !one.value.contains(char::REPLACEMENT_CHARACTER);
                let from = file.parent().unwrap_or(&self.home);
                match locate(&one.value, from, Some(&self.home)).filter(|_| is_exact) {
                    Some(next) => pending.push_back(next),
                    None => self.is_cut = true,
                }
            }
            self.settings.push(one);
        }
    }

    /// Returns the files that choose the credential helpers, and the programs in the directories of `path` that can be
    /// helpers. `None` if not all settings can be read, or if it is not clear which files a helper's command line names.
    #[must_use]
    pub fn credential_files(&self, path: &str) -> Option<CredentialFiles> {
        if self.is_cut {
            return None;
        }
        let mut found = CredentialFiles { files: self.files.clone(), programs: Vec::new() };
        for helper in self.settings.iter().filter(|one| one.name.starts_with("credential.")) {
            let line = with_home(&helper.value, &self.home);
            if !is_clear(&line) {
                return None;
            }
            for word in words(&line) {
                if word.text.contains('/') {
                    // Git is asked in the root directory.
                    found.files.extend(locate(&word.text, Path::new("/"), Some(&self.home)));
                    continue;
                }
                let names = [format!("git-credential-{}", word.text), word.text];
                let directories = path.split(':').map(Path::new);
                let programs =
                    directories.flat_map(|at| names.each_ref().map(|name| at.join(name)));
                found.programs.extend(programs);
                if MAX_PROGRAMS < found.programs.len() {
                    return None;
                }
            }
        }
        Some(found)
    }

    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    pub(super) fn settings(&self) -> &[Setting] {
        &self.settings
    }

    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().filter_map(|file| openat::normalise(file))
    }

    pub(super) fn is_complete(&self) -> bool {
        !self.is_cut
    }
}

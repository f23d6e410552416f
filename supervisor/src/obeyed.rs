//! The files that the daemon runs or obeys outside of the confinement, and which of them commands of sessions could
//! change. Used before they are used, and by `attach`, `quack.sandbox` and `doctor` to tell the user.

use crate::workspaces::{identity_blocking, user_home};
use quackd_config::Config;
use quackd_home::Home;
use quackd_home::own_file::read_blocking;
use quackd_process::{Held, Writable, start_files_blocking, with_entries_blocking};
use quackd_protocol::approval::{ApprovalKind, Decision, Grant};
use quackd_protocol::limits::{MAX_METADATA_BYTES, MAX_STATE_BYTES};
use quackd_protocol::metadata::Metadata;
use quackd_protocol::policy::PolicyPatch;
use quackd_protocol::state::{DaemonState, HeldConfig};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables with certificates that the daemon trusts.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Files of Pi with addresses of models, keys and settings.
const OF_PI: [&str; 3] = ["models.json", "auth.json", "settings.json"];

/// Units of the user's service manager with their additions, and its environment, in the configuration directory.
const UNITS: [&str; 5] = [
    "systemd/user/quackd.service",
    "systemd/user/quackd.socket",
    "systemd/user/quackd.service.d",
    "systemd/user/quackd.socket.d",
    "environment.d",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Configuration,
    StartFile,
    Certificates,
    Launcher,
    Pi,
    Unit,
}

impl Use {
    /// Consequence while commands could change the file, to read after the reason.
    fn consequence(self) -> &'static str {
        match self {
            Self::Configuration => {
                "from the next start of the daemon on, its keys that allow more are not in force"
            }
            Self::StartFile => "quackd does not start the login shell",
            Self::Certificates => "the daemon sends no encrypted request",
            Self::Launcher => "no worker starts",
            Self::Pi => "quackd does not use it, and starts no Pi",
            Self::Unit => "a session could change how the service manager starts the daemon",
        }
    }
}

/// Settings that decide which files the daemon runs or obeys.
#[derive(Debug, Clone)]
pub(crate) struct Obeyed {
    config_file: PathBuf,
    login_shell: bool,
    /// Words of `worker.launcher`.
    launcher: Vec<String>,
    /// Directories in the state directory that commands write.
    of_sessions: [PathBuf; 4],
}

/// A file that the daemon runs or obeys, and that commands of sessions could change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldFile {
    pub(crate) used_as: Use,
    pub(crate) path: PathBuf,
    pub(crate) held: Held,
}

impl fmt::Display for HeldFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.path.display(), self.held, self.used_as.consequence())
    }
}

impl Obeyed {
    pub(crate) fn new(config: &Config, config_file: PathBuf, home: &Home) -> Self {
        Self {
            config_file,
            login_shell: config.environment.login_shell.value,
            launcher: config.worker.launcher.value.clone(),
            of_sessions: of_sessions(home),
        }
    }

    /// Returns the files that commands could change through one of the directories in `writable`. Reads the file system.
    pub(crate) fn held_blocking(&self, writable: Vec<PathBuf>) -> Vec<HeldFile> {
        let all = writable.into_iter().chain(self.of_sessions.clone());
        let writable = Writable::of_blocking(all, &user_home());

        let held = self.files_blocking().into_iter().filter_map(|(used_as, path)| {
            let held = match used_as {
                // A program is found by the links on its path, so each of them counts.
                Use::Launcher => writable.way_blocking(&path),
                _ => writable.held_blocking(&path),
            }?;
            Some(HeldFile { used_as, path, held })
        });
        held.collect()
    }

    /// Whether workers start through another program.
    pub(crate) fn has_launcher(&self) -> bool {
        !self.launcher.is_empty()
    }

    /// Returns the program of `worker.launcher`, or a file that its words name, if commands could change it. Reads the
    /// file system.
    pub(crate) fn held_launcher_blocking(&self, writable: Vec<PathBuf>) -> Option<HeldFile> {
        let writable = Writable::of_blocking(writable, &user_home());
        self.launcher_blocking().into_iter().find_map(|path| {
            let held = writable.way_blocking(&path)?;
            Some(HeldFile { used_as: Use::Launcher, path, held })
        })
    }

    /// Whether variables of the daemon name certificates.
    pub(crate) fn has_certificates() -> bool {
        CERTIFICATES.into_iter().any(|name| std::env::var_os(name).is_some())
    }

    /// Returns certificates that variables of the daemon name and that commands could change. Reads the file system.
    pub(crate) fn held_certificates_blocking(writable: Vec<PathBuf>) -> Option<HeldFile> {
        let writable = Writable::of_blocking(writable, &user_home());
        CERTIFICATES.into_iter().filter_map(directory).find_map(|path| {
            let held = writable.held_blocking(&path)?;
            Some(HeldFile { used_as: Use::Certificates, path, held })
        })
    }

    /// Reads directories, and variables of this process.
    fn files_blocking(&self) -> Vec<(Use, PathBuf)> {
        let home = user_home();
        let config_home = directory("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let pi = directory("PI_CODING_AGENT_DIR").unwrap_or_else(|| home.join(".pi/agent"));

        let units = UNITS.iter().map(|name| config_home.join(name));
        let units = units.flat_map(with_entries_blocking).collect();
        let start_files = if self.login_shell {
            start_files_blocking(directory("SHELL").as_deref(), &home, &config_home)
        } else {
            Vec::new()
        };

        let of = |used_as, paths: Vec<PathBuf>| paths.into_iter().map(move |path| (used_as, path));

        of(Use::Configuration, vec![self.config_file.clone()])
            .chain(of(Use::StartFile, start_files))
            .chain(of(Use::Certificates, CERTIFICATES.into_iter().filter_map(directory).collect()))
            .chain(of(Use::Launcher, self.launcher_blocking()))
            .chain(of(Use::Pi, OF_PI.map(|name| pi.join(name)).into()))
            .chain(of(Use::Unit, units))
            .collect()
    }

    /// The program of `worker.launcher`, as the daemon finds it, and the absolute paths in its words, such as a script or
    /// `--profile=/path`. Reads the file system.
    fn launcher_blocking(&self) -> Vec<PathBuf> {
        let Some((program, words)) = self.launcher.split_first() else { return Vec::new() };
        let program = if program.contains('/') {
            Some(program.into())
        } else {
            let path = std::env::var("PATH").unwrap_or_default();
            let path = quackd_process::system_first(&path);
            path.split(':').map(|at| Path::new(at).join(program)).find(|it| it.is_file())
        };

        let parts = words.iter().flat_map(|word| word.split(['=', ',', ':']));
        let paths = parts.filter(|part| part.starts_with('/')).map(PathBuf::from);
        program.into_iter().chain(paths).collect()
    }
}

/// The absolute path in a variable.
fn directory(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// One text about all of the files, one part for each use and directory. `None` without any.
pub(crate) fn in_words(held: &[HeldFile]) -> Option<String> {
    let mut parts: Vec<(&HeldFile, usize)> = Vec::new();
    for file in held {
        let is_same = |first: &HeldFile| {
            first.used_as == file.used_as && first.held.directory() == file.held.directory()
        };
        match parts.iter_mut().find(|(first, _)| is_same(first)) {
            Some((_, n)) => *n += 1,
            None => parts.push((file, 1)),
        }
    }

    let text = |(first, n): (&HeldFile, usize)| match n {
        1 => first.to_string(),
        2 => format!("{first} (1 more file)"),
        n => format!("{first} ({} more files)", n - 1),
    };
    (!parts.is_empty()).then(|| parts.into_iter().map(text).collect::<Vec<_>>().join("; "))
}

/// The reason why commands of sessions could change the configuration file. `named` are writable directories that the
/// file itself names. Reads the file system.
#[must_use]
pub fn held_config_blocking(home: &Home, path: &Path, named: Vec<PathBuf>) -> Option<Held> {
    let OnDisk { writable, held } = on_disk_blocking(home);
    let of_file = || held.iter().filter(|it| it.path == path);
    let earlier = of_file().map(|it| it.directory.clone());

    let writable = writable.into_iter().chain(named).chain(earlier);
    let held_now = Writable::of_blocking(writable, &user_home()).held_blocking(path);
    // Commands may have written the file while it was held, so it counts until it is replaced.
    held_now.or_else(|| {
        let identity = identity_blocking(path)?;
        let known = of_file().find(|it| it.identity == Some(identity))?;
        Some(Held::Earlier { directory: known.directory.clone() })
    })
}

/// The reason why commands of sessions of the last daemon could change a file. Reads the file system.
pub(crate) fn held_on_disk_blocking(home: &Home, path: &Path) -> Option<Held> {
    Writable::of_blocking(on_disk_blocking(home).writable, &user_home()).held_blocking(path)
}

/// Returns the record of a configuration file that commands could change. Reads the file system.
pub(crate) fn record_blocking(path: &Path, held: &Held) -> HeldConfig {
    let (path, directory) = (path.to_owned(), held.directory().to_owned());
    HeldConfig { identity: identity_blocking(&path), path, directory }
}

/// Facts in the files of the last daemon.
struct OnDisk {
    writable: BTreeSet<PathBuf>,
    held: Vec<HeldConfig>,
}

/// Returns the directories in the state directory that commands write.
fn of_sessions(home: &Home) -> [PathBuf; 4] {
    [home.run_dir(), home.caches_dir(), home.isolated_dir(), home.agents_dir()]
}

/// Lists the directories that commands may write by the files of the last daemon. A file that cannot be read counts as
/// empty, because the daemon itself then restores it from the others. Reads the file system.
fn on_disk_blocking(home: &Home) -> OnDisk {
    let metadata = home.metadata();
    // Each copy counts, because the daemon restores an unreadable one from the others.
    let parts =
        ["json", "json.bak", "json.ours", "json.theirs"].map(|it| metadata.with_extension(it));

    let mut all = BTreeSet::from(of_sessions(home));
    let mut add = |metadata: Metadata| {
        let paths = metadata.workspaces.iter().map(|one| PathBuf::from(&one.path));
        // That of a far workspace is no directory on this machine.
        all.extend(paths.filter(|path| path.is_absolute()));
    };
    for path in parts {
        read_json::<Metadata>(&path, MAX_METADATA_BYTES).map(&mut add);
    }

    let Some(file) = read_json::<StateFile>(&home.state_file(), MAX_STATE_BYTES) else {
        return OnDisk { writable: all, held: Vec::new() };
    };
    file.metadata.map(&mut add);

    let state = file.state;
    let sessions = state.sessions.values().map(|it| (&it.policy, &it.grants));
    let workspaces = state.workspaces.values().map(|it| (&it.policy, &it.grants));
    for (policy, grants) in sessions.chain(workspaces) {
        all.extend(roots(policy).cloned().chain(directories(grants)));
    }
    all.extend(directories(&state.grants));
    OnDisk { writable: all, held: state.held }
}

/// The daemon's own state, with its copy of the metadata.
#[derive(Deserialize)]
struct StateFile {
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(flatten)]
    state: DaemonState,
}

fn roots(policy: &PolicyPatch) -> impl Iterator<Item = &PathBuf> {
    policy.writable_roots.iter().flatten()
}

fn directories(grants: &[Grant]) -> impl Iterator<Item = PathBuf> {
    let is_write = |it: &&Grant| it.kind == ApprovalKind::Write && it.decision == Decision::Allow;
    grants.iter().filter(is_write).map(|grant| PathBuf::from(&grant.target))
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path, max: u64) -> Option<T> {
    serde_json::from_slice(&read_blocking(path, max).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use serde_json::json;
    use std::os::unix::fs::symlink;

    /// A home with a state directory, and the directory that contains both.
    fn world() -> (TestDir, Home) {
        let base = TestDir::with(&["state", "ws", "data", "granted"]);
        let state = base.join("state");
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| state.clone().into());
        let home = Home::resolve_blocking(&var).unwrap();
        (base, home)
    }

    fn write_state(home: &Home, state: &serde_json::Value) {
        std::fs::write(home.state_file(), state.to_string()).unwrap();
    }

    #[test]
    fn workspaces_policies_and_answers_of_the_last_daemon_count() {
        let (base, home) = world();
        let at = |name: &str| base.join(name).display().to_string();
        let grant = |decision: &str| json!({"id": "g1", "kind": "write", "target": at("granted"), "decision": decision, "at": ""});
        let state = json!({"version": 1, "sessions": {"s": {"policy": {"writableRoots": [at("data")]},
            "grants": [grant("allow")]}}, "metadata": {"version": 1, "sessions": [],
            "workspaces": [{"id": "w", "path": at("ws")}]}});
        write_state(&home, &state);
        let found = on_disk_blocking(&home).writable;
        let expected = ["agents", "caches", "isolated", "run"].map(|name| home.dir().join(name));
        let expected =
            expected.into_iter().chain(["ws", "data", "granted"].map(|it| base.join(it)));
        assert_eq!(found, expected.collect());
        write_state(&home, &json!({"version": 1, "sessions": {}, "grants": [grant("deny")]}));
        assert_eq!(on_disk_blocking(&home).writable.len(), 4);
    }

    #[test]
    fn a_file_that_was_held_stays_so_until_it_is_replaced() {
        let (base, home) = world();
        let file = home.config_in_state();
        std::fs::write(&file, "").unwrap();
        let none = held_config_blocking(&home, &file, Vec::new());
        assert_eq!(none, None);
        let record = record_blocking(&file, &Held::SecondName { directory: base.join("ws") });
        write_state(&home, &json!({"version": 1, "sessions": {}, "held": [record]}));
        let held = held_config_blocking(&home, &file, Vec::new());
        assert!(matches!(held, Some(Held::Earlier { .. })), "{held:?}");
        quackd_store::replace_file_blocking(&file, b"").unwrap();
        assert_eq!(held_config_blocking(&home, &file, Vec::new()), None);
    }

    #[test]
    fn a_link_into_a_directory_that_the_file_names_is_held() {
        let (base, home) = world();
        std::fs::write(base.join("data/settings.toml"), "").unwrap();
        symlink(base.join("data/settings.toml"), home.config_in_state()).unwrap();
        let held = held_config_blocking(&home, &home.config_in_state(), vec![base.join("data")]);
        assert_eq!(held.unwrap().directory(), base.join("data"));
    }

    #[test]
    fn files_of_one_use_and_directory_are_one_text() {
        let file = |used_as, path: &str, directory: &str| HeldFile {
            used_as,
            path: path.into(),
            held: Held::Way { directory: directory.into(), link: None },
        };
        let all = [
            file(Use::StartFile, "/h/.bashrc", "/ws"),
            file(Use::Configuration, "/s/quackd.toml", "/ws"),
            file(Use::StartFile, "/h/.profile", "/ws"),
            file(Use::StartFile, "/h/.zshrc", "/ws"),
        ];
        let text = in_words(&all).unwrap();
        assert!(
            text.starts_with("/h/.bashrc leads into /ws, which sessions may write: "),
            "{text}"
        );
        assert!(
            text.contains("start the login shell (2 more files); /s/quackd.toml leads"),
            "{text}"
        );
        assert_eq!(in_words(&[]), None);
    }
}

//! Facts about this machine that a plan needs and that must be read from the disk. Stage 0 gathers them before
//! namespaces exist, so the plan itself is pure.

use super::entries;
use super::mount::{Mount, ReadOnlyBind};
use super::toolchains::{
    CACHES, CREDENTIALS, SYSTEM_DIRECTORIES, SYSTEM_SECRETS, TOOLCHAINS, Toolchain, VARIABLES,
    Variable,
};
use crate::git;
use crate::names::follow_trusted_links;
use crate::path_directories::npm_packages;
use quackd_protocol::places::refusal;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

/// Maximum number of directories of `PATH` that are used.
const MAX_PATH_DIRECTORIES: usize = 64;

/// Maximum number of directories that one variable may name.
const MAX_ROOTS: usize = 8;

/// Maximum size of a settings file that is searched for tokens, in bytes.
const MAX_SETTINGS: u64 = 1024 * 1024;

/// Directories of a session. All paths are absolute and canonical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDirs {
    /// Workspace of the session.
    pub workspace: PathBuf,
    /// The session's run directory: the worker writes spill files there.
    pub run_dir: PathBuf,
    /// The daemon's state directory, which is never visible inside.
    pub state_dir: PathBuf,
    /// Home directory of the user.
    pub home: PathBuf,
}

/// A directory at the root of the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemDirectory {
    /// A real directory.
    Directory(PathBuf),
    /// A link, such as `/bin` to `usr/bin`.
    Link {
        /// Path of the link.
        at: PathBuf,
        /// Target of the link, as written.
        to: PathBuf,
    },
}

/// Facts about this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Directories of the session.
    pub places: SessionDirs,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Existing system directories.
    pub system: Vec<SystemDirectory>,
    /// Mounts of directories that are built of their entries: of the system, if user 0 could read its secrets, and tops
    /// of toolchains.
    pub built: Vec<(PathBuf, Mount)>,
    /// Existing secrets of the system and of visible toolchains.
    pub secrets: Vec<PathBuf>,
    /// Toolchains and directories of `PATH`.
    pub shown: Vec<ReadOnlyBind>,
    /// Existing package caches.
    pub caches: Vec<PathBuf>,
    /// Known package caches in the home that do not exist.
    pub missing_caches: Vec<PathBuf>,
    /// Directories of toolchains outside the home. Each is a private directory with the visible parts mounted inside,
    /// because the toolchain's programs write locks and settings there.
    pub private: Vec<PathBuf>,
    /// Target of `/etc/resolv.conf`, without links.
    pub resolver: Option<PathBuf>,
    /// Target of `/etc/hosts`, without links, and its lines about loopback addresses.
    pub hosts_file: Option<(PathBuf, String)>,
    /// Settings of the user for git.
    pub git_settings: git::CarriedSettings,
}

impl HostFacts {
    /// Inspects the machine for a session in `places` whose commands have this `PATH` and these variables, and may write the
    /// directories `beside` the workspace. Paths that cannot be read count as missing.
    #[must_use]
    pub fn gather_blocking(
        places: SessionDirs,
        path: &str,
        variables: &[(String, String)],
        beside: &[PathBuf],
    ) -> Self {
        let home = places.home.clone();
        let writable: Vec<_> = beside.iter().chain([&places.workspace]).cloned().collect();
        let git_settings =
            git::CarriedSettings::read_blocking(&home, variables, &places.workspace, &writable);

        let mut shown = shown(&places, path);
        let mut caches = Vec::new();
        let mut private = Vec::new();

        for (variable, root) in roots(&places, variables) {
            for part in variable.shown {
                push(&mut shown, &places, &part_of(&root, part));
            }
            let parts = variable.caches.iter().map(|part| part_of(&root, part));
            caches.extend(parts.filter(|cache| is_cache(&places, cache)));
            let is_whole = variable.shown.contains(&"");
            if !is_whole && !root.starts_with(&home) && may_show(&places, &root) {
                private.push(root);
            }
        }

        // Skip paths in a shown directory: they are visible already, and a link cannot be a mount point.
        let all: Vec<_> =
            shown.iter().filter(|one| one.is_directory).map(|one| one.at.clone()).collect();
        let is_in_shown = |at: &Path| all.iter().any(|one| at != one && at.starts_with(one));
        shown.retain(|one| !is_in_shown(&one.at));
        private.retain(|at| !is_in_shown(at) && !all.contains(at));

        let known = CACHES.iter().map(|cache| home.join(cache));
        let (existing, mut missing_caches) =
            known.partition::<Vec<_>, _>(|cache| is_directory(cache));
        caches.extend(existing);
        // A link or a file in the place of a cache is neither.
        missing_caches.retain(|cache| !exists(cache));
        caches.sort_unstable();
        caches.dedup();

        let mut secrets: Vec<PathBuf> =
            SYSTEM_SECRETS.iter().map(PathBuf::from).filter(|path| exists(path)).collect();
        secrets.extend(host_keys());
        secrets.extend(credentials_in(&shown));

        let uid = rustix::process::getuid();
        // No secret, but ssh refuses to run with files of another user there, and root's files have none inside.
        let ssh_settings = Path::new("/etc/ssh/ssh_config.d");
        if !uid.is_root() && is_directory(ssh_settings) {
            secrets.push(ssh_settings.to_owned());
        }

        // Other users cannot read these secrets, and would wait for about 150 mounts.
        let mut built = if uid.is_root() { entries::of_system() } else { Vec::new() };
        built.extend(shown.iter().filter_map(|one| entries::of_toolchain(one, &home)).flatten());

        Self {
            uid: uid.as_raw(),
            built,
            gid: rustix::process::getgid().as_raw(),
            system: SYSTEM_DIRECTORIES.iter().filter_map(|path| system(Path::new(path))).collect(),
            secrets,
            shown,
            caches,
            missing_caches,
            private,
            resolver: fs::canonicalize("/etc/resolv.conf").ok(),
            hosts_file: hosts_file(),
            git_settings,
            places,
        }
    }
}

/// Longest `/etc/hosts` that is read, in bytes.
const MAX_HOSTS_FILE: u64 = 1024 * 1024;

fn hosts_file() -> Option<(PathBuf, String)> {
    let path = fs::canonicalize("/etc/hosts").ok()?;
    let mut text = String::new();
    fs::File::open(&path).ok()?.take(MAX_HOSTS_FILE).read_to_string(&mut text).ok()?;
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Some((path, near_hosts(&text, &own)))
}

/// Returns the lines about loopback addresses, and one for the machine's own name. Without a network, an address of
/// another line could not be reached, while a name without an address is asked of the session's resolver.
fn near_hosts(text: &str, own: &str) -> String {
    let words = |line: &str| -> Vec<String> {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let is_near = |line: &&str| {
        let address = words(line).first().and_then(|word| word.parse::<IpAddr>().ok());
        address.is_some_and(|address| address.is_loopback())
    };

    let mut near: Vec<String> = text.lines().filter(is_near).map(str::to_owned).collect();
    let names: Vec<String> = near.iter().flat_map(|line| words(line)).collect();
    if !names.iter().any(|name| name == "localhost") {
        near.push("127.0.0.1 localhost".to_owned());
    }

    // The name becomes a line of the file, so it must not contain a break.
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    if !own.is_empty() && own.chars().all(is_name) && !names.iter().any(|name| name == own) {
        near.push(format!("127.0.1.1 {own}"));
    }
    near.join("\n") + "\n"
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// True for a directory that is not a link.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn system(path: &Path) -> Option<SystemDirectory> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if metadata.is_dir() {
        return Some(SystemDirectory::Directory(path.to_path_buf()));
    }
    let to = fs::read_link(path).ok()?;
    Some(SystemDirectory::Link { at: path.to_path_buf(), to })
}

fn host_keys() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/etc/ssh") else { return Vec::new() };
    let keys = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let name = name.to_str()?;
        (name.starts_with("ssh_host_") && name.ends_with("_key")).then(|| entry.path())
    });
    keys.take(64).collect()
}

fn shown(places: &SessionDirs, path: &str) -> Vec<ReadOnlyBind> {
    let mut shown = Vec::new();
    for directory in path.split(':').take(MAX_PATH_DIRECTORIES).map(Path::new) {
        if !directory.is_absolute() || is_system(directory) || !may_show(places, directory) {
            continue;
        }

        let toolchain = directory.strip_prefix(&places.home).ok().and_then(toolchain_of);
        match toolchain {
            Some(toolchain) => {
                for part in toolchain.shown {
                    push(&mut shown, places, &places.home.join(part));
                }
            }
            None => {
                push(&mut shown, places, directory);
                if let Some(packages) = npm_packages(directory) {
                    push(&mut shown, places, &packages);
                }
            }
        }
    }
    shown
}

/// Returns the directories that variables of toolchains name. Omits values that are relative or unsuitable for a
/// toolchain: the home and the directories above it, directories of the system, shared ones such as `/tmp`, and the
/// session's own.
fn roots(
    places: &SessionDirs,
    variables: &[(String, String)],
) -> impl Iterator<Item = (&'static Variable, PathBuf)> {
    let usable = |value: &&Path| {
        let is_plain = value.components().all(|part| !matches!(part, Component::ParentDir));
        let is_own = [&places.workspace, &places.run_dir, &places.state_dir]
            .iter()
            .any(|p| value.starts_with(p));
        value.is_absolute()
            && is_plain
            && !is_own
            && !is_system(value)
            && refusal(value, &places.home).is_none()
    };

    let values = VARIABLES.iter().flat_map(|variable| {
        let named = |(name, _): &&(String, String)| variable.names.contains(&name.as_str());
        variables.iter().filter(named).map(move |(_, value)| (variable, value))
    });

    values.flat_map(move |(variable, value)| {
        let each = value.split(':').take(MAX_ROOTS).map(Path::new).filter(usable);
        each.map(|root| (variable, root.components().collect())).collect::<Vec<_>>()
    })
}

/// A part of a directory. An empty part is the directory itself.
fn part_of(root: &Path, part: &str) -> PathBuf {
    if part.is_empty() { root.to_path_buf() } else { root.join(part) }
}

/// Returns true for a directory whose path has no links, so that no session can have chosen it.
fn is_cache(places: &SessionDirs, path: &Path) -> bool {
    is_directory(path)
        && may_show(places, path)
        && fs::canonicalize(path).is_ok_and(|real| real == path)
}

fn push(shown: &mut Vec<ReadOnlyBind>, places: &SessionDirs, at: &Path) {
    if shown.iter().any(|one: &ReadOnlyBind| one.at == at) {
        return;
    }
    let is_trusted = |link: &Path| is_trusted_link(places, link);
    let Ok(from) = follow_trusted_links(Path::new("/"), at, is_trusted) else { return };
    if !may_show(places, &from) || from == places.home {
        return;
    }

    let Ok(metadata) = fs::metadata(&from) else { return };
    let is_directory = metadata.is_dir();
    if is_directory || metadata.is_file() && !has_token(&from, metadata.len()) {
        shown.push(ReadOnlyBind { at: at.to_path_buf(), from, is_directory });
    }
}

/// Returns true if a session cannot have created this link. The home and `/` are never workspaces, and a session
/// cannot write a directory that the user cannot write.
fn is_trusted_link(places: &SessionDirs, link: &Path) -> bool {
    let Some(directory) = link.parent() else { return false };
    let in_home = link.strip_prefix(&places.home).ok();
    directory == places.home
        || directory.parent().is_none()
        || is_system(link)
        || in_home.and_then(toolchain_of).is_some()
        || accessat(CWD, directory, Access::WRITE_OK, AtFlags::EACCESS).is_err()
}

fn toolchain_of(beneath_home: &Path) -> Option<&'static Toolchain> {
    TOOLCHAINS.iter().find(|toolchain| beneath_home.starts_with(toolchain.root))
}

fn is_system(path: &Path) -> bool {
    SYSTEM_DIRECTORIES.iter().any(|system| path.starts_with(system))
}

/// Returns false for a directory above the home, the workspace or the daemon's state, or inside one that is mounted
/// anyway. Mounting it would make more than programs visible.
fn may_show(places: &SessionDirs, path: &Path) -> bool {
    let SessionDirs { workspace, run_dir, state_dir, home } = places;
    let is_above =
        [workspace, run_dir, state_dir, home].iter().any(|place| place.starts_with(path));
    let is_private = [workspace, run_dir, state_dir].iter().any(|place| path.starts_with(place));
    let is_kernel = ["/proc", "/sys", "/dev"].iter().any(|kernel| path.starts_with(kernel));
    !is_above && !is_private && !is_kernel && path.parent().is_some()
}

/// Returns true if a settings file contains a token, or cannot be read.
fn has_token(path: &Path, length: u64) -> bool {
    if MAX_SETTINGS < length {
        return true;
    }
    let read = git::openat::read_own(path, MAX_SETTINGS);
    let Some(text) = read.ok().and_then(|bytes| String::from_utf8(bytes).ok()) else { return true };
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    is_toml
        && text.lines().map(str::trim_start).any(|line| {
            // The URL of a proxy may contain a password.
            ["token", "secret", "password", "http.proxy"].iter().any(|key| line.contains(key))
        })
}

fn credentials_in(shown: &[ReadOnlyBind]) -> Vec<PathBuf> {
    let directories = shown.iter().filter(|one| one.is_directory);
    let files = directories.flat_map(|one| CREDENTIALS.iter().map(|name| one.at.join(name)));
    files.filter(|file| exists(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_names_of_this_machine_stay_in_the_file_of_host_names() {
        let text = "127.0.0.1 localhost # all\n::1 ip6-localhost\n10.0.0.7 db.corp\n127.0.0.2 app.test\n\
                    192.168.1.5 box\nffff garbage\n";
        let near = "127.0.0.1 localhost # all\n::1 ip6-localhost\n127.0.0.2 app.test\n";
        assert_eq!(near_hosts(text, "localhost"), near);
        assert_eq!(near_hosts(text, "box"), format!("{near}127.0.1.1 box\n"));
        assert_eq!(near_hosts("", "a b"), "127.0.0.1 localhost\n");
    }

    #[test]
    fn a_link_of_path_is_followed_where_no_session_can_have_made_it() {
        let root = TestDir::empty();
        let home = root.join("home");
        for directory in ["dotfiles/bin", ".ssh", "work/ws", ".nvm/versions/1"] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        symlink("dotfiles/bin", home.join("bin")).unwrap();
        symlink("versions/1", home.join(".nvm/current")).unwrap();
        symlink(home.join(".ssh"), home.join("work/ws/bin")).unwrap();
        symlink(home.join("work/ws/bin"), home.join("further")).unwrap();
        let at = |name: &str| root.join(name);
        let places = SessionDirs {
            workspace: at("ws"),
            run_dir: at("run"),
            state_dir: at("state"),
            home: home.clone(),
        };
        let path = |name: &str| {
            let shown = shown(&places, &home.join(name).display().to_string());
            shown.into_iter().map(|one| one.from).collect::<Vec<_>>()
        };
        assert_eq!(path("bin"), [home.join("dotfiles/bin")]);
        for hostile in ["work/ws/bin", "further"] {
            assert_eq!(path(hostile), [""; 0].map(PathBuf::from), "{hostile}");
        }
        assert!(is_trusted_link(&places, &home.join(".nvm/current")));
    }

    #[test]
    fn packages_of_npm_are_shown_with_the_links_to_their_programs() {
        let root = TestDir::with(&[
            "npm/bin",
            "npm/lib/node_modules/codex",
            "other/bin",
            "linked/bin",
            ".ssh/node_modules",
            "ws/bin",
            "ws/lib/node_modules",
        ]);
        symlink("../.ssh", root.join("linked/lib")).unwrap();
        let places = |workspace: &str| SessionDirs {
            workspace: root.join(workspace),
            run_dir: root.join("state/run"),
            state_dir: root.join("state"),
            home: root.path().to_owned(),
        };
        for (path, workspace, expected) in [
            ("npm/bin", "ws", &["npm/bin", "npm/lib/node_modules"][..]),
            ("npm/bin", "npm/lib/node_modules/codex", &["npm/bin"][..]),
            ("other/bin", "ws", &["other/bin"][..]),
            ("linked/bin", "ws", &["linked/bin"][..]),
            ("ws/bin", "ws", &[][..]),
        ] {
            let path = root.join(path).display().to_string();
            let shown = shown(&places(workspace), &path).into_iter().map(|one| one.at);
            let expected: Vec<_> = expected.iter().map(|at| root.join(at)).collect();
            assert_eq!(shown.collect::<Vec<_>>(), expected, "{path} in {workspace}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one tree and a list of values")]
    fn a_variable_shows_a_toolchain_and_no_other_place() {
        let root = TestDir::empty();
        let at = |name: &str| root.join(name);
        let directories = [
            "home/.ssh",
            "ws/jdk",
            "tools/cargo/bin",
            "tools/cargo/registry",
            "tools/rustup",
            "state",
        ];
        for directory in directories {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("tools/cargo/credentials.toml"), "token").unwrap();
        fs::write(at("tools/rustup/credentials"), "token").unwrap();
        symlink(at("ws/jdk"), at("tools/jdk")).unwrap();
        let places = SessionDirs {
            workspace: at("ws"),
            run_dir: at("state/run"),
            state_dir: at("state"),
            home: at("home"),
        };
        let gather = |variables: &[(&str, &str)]| {
            let variables: Vec<_> = variables
                .iter()
                .map(|(name, value)| {
                    ((*name).to_owned(), value.replace('@', root.to_str().unwrap()))
                })
                .collect();
            HostFacts::gather_blocking(places.clone(), "", &variables, &[])
        };
        let facts = gather(&[("CARGO_HOME", "@/tools/cargo/"), ("RUSTUP_HOME", "@/tools/rustup")]);
        let shown: Vec<_> = facts.shown.iter().map(|one| one.at.clone()).collect();
        assert_eq!(shown, [at("tools/cargo/bin"), at("tools/rustup")]);
        assert_eq!(facts.private, [at("tools/cargo")]);
        assert_eq!(facts.caches, [at("tools/cargo/registry")]);
        assert!(facts.secrets.contains(&at("tools/rustup/credentials")));
        for value in [
            "/",
            "",
            "tools/cargo",
            "/tmp",
            "/usr",
            "/etc/ssl",
            "@",
            "@/home",
            "@/home/",
            "@/ws",
            "@/ws/jdk",
            "@/tools/jdk",
            "@/state",
            "@/tools/../ws/jdk",
            "@/home/../home",
            "/proc/self",
        ] {
            for variable in ["JAVA_HOME", "CARGO_HOME", "GOCACHE"] {
                let facts = gather(&[(variable, value)]);
                assert!(facts.shown.is_empty() && facts.caches.is_empty(), "{variable}={value}");
                assert!(
                    facts.private.iter().all(|one| *one == at("tools/jdk")),
                    "{variable}={value}: {:?}",
                    facts.private
                );
            }
        }
        assert_eq!(gather(&[("HOME", "@/tools/cargo")]).shown, []);

        // As SDKMAN! sets it: the link lies in what is shown.
        fs::create_dir_all(at("home/.sdkman/candidates/java/21")).unwrap();
        symlink("21", at("home/.sdkman/candidates/java/current")).unwrap();
        let facts = gather(&[
            ("JAVA_HOME", "@/home/.sdkman/candidates/java/current"),
            ("SDKMAN_DIR", "@/home/.sdkman"),
        ]);
        let shown: Vec<_> = facts.shown.iter().map(|one| one.at.clone()).collect();
        assert_eq!(shown, [at("home/.sdkman/candidates")]);
    }
}

//! The plan of a worker's file system: from the policy and the facts to a list of mounts, in order. Pure, so
//! that what is shown and what is not can be tested without any rights. Carried out by `mounts`.
//!
//! Nothing of the host is shown unless a line here says so.

use super::facts::{Facts, Places, SystemDirectory};
use super::git;
use super::limits::Limits;
use super::mounts::DirectoryId;
use super::no_network::RESOLVER_FILE;
use super::toolchains::is_toolchain;
use quackd_protocol::places::refusal;
use quackd_protocol::policy::{Policy, Profile};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Most layers for package caches: each is a file system of its own.
const MAX_CACHES: usize = 16;

/// Directories of the state directory that the daemon, Pi and the app keep for themselves. What else lies there
/// is the user's: tests of clients make everything of theirs, workspaces too, in one temporary directory.
const KEPT: [&str; 4] = ["pi-sessions", "placeholders", "run", "sessions"];

/// How the names begin of run directories that were put aside.
const KEPT_ASIDE: &str = "run.old-";

/// What is mounted or made at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// What is there on the host, found at `from`, with everything beneath it.
    Bind {
        /// Path on the host, without links.
        from: PathBuf,
        /// False to forbid every change.
        writable: bool,
        /// True for a directory.
        is_directory: bool,
        /// False to leave it out if it is gone meanwhile.
        required: bool,
    },
    /// The workspace, from a held directory.
    Workspace {
        /// False to forbid every change.
        writable: bool,
    },
    /// An empty directory of the worker's own.
    Private {
        /// Permission bits.
        mode: u32,
    },
    /// A read-only directory in a private one, which only leads to what is mounted in it.
    Way,
    /// The host's directory with a private layer for changes. Read-only where the kernel has no layers.
    Layer {
        /// Path on the host.
        from: PathBuf,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        to: PathBuf,
    },
    /// A small file of the worker's own.
    File {
        /// What is in it.
        content: String,
    },
    /// A small read-only file in the place of the file that the host has there.
    Over {
        /// Content of the file.
        content: &'static str,
    },
    /// Something empty and read-only in the place of whatever is there, if anything is.
    Empty,
}

/// A path that is mounted upon itself after all else, so that it cannot be renamed, replaced or removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// Path inside, which is that on the host.
    pub at: PathBuf,
    /// True to forbid changes too.
    pub read_only: bool,
}

/// How a worker's world is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What is mounted where; a directory comes before what is beneath it.
    pub mounts: BTreeMap<PathBuf, Mount>,
    /// What is pinned, in this order.
    pub pins: Vec<Pin>,
    /// Those pins that are directories of git's and can be written: commands make no links in them.
    pub git_mounts: Vec<PathBuf>,
    /// Where the worker starts, and its workspace.
    pub workspace: PathBuf,
    /// The home inside, for the environment of commands.
    pub home: PathBuf,
    /// True if the machine's network stays.
    pub network: bool,
    /// Limits of processes and files; none at first.
    pub limits: Limits,
    /// The user's number, inside as outside.
    pub uid: u32,
    /// The user's group, inside as outside.
    pub gid: u32,
    /// Expected directory of a [`Mount::Bind`], by its `from`. Keep the directories open until they are mounted, so
    /// that their inode numbers are not reused.
    pub(crate) verified: BTreeMap<PathBuf, DirectoryId>,
    /// Hidden paths of the policy.
    hidden: Vec<PathBuf>,
}

/// Why there is no plan, as a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The profile confines nothing.
    #[error("full-access has no confinement to plan")]
    FullAccess,
    /// The workspace would show what must be hidden.
    #[error(
        "the workspace {workspace} {reason}; choose a directory beneath it, or allow everything with `quack sandbox set full-access`"
    )]
    Workspace {
        /// The workspace.
        workspace: String,
        /// What is wrong, to be read after it.
        reason: &'static str,
    },
}

impl Plan {
    /// Plans the world of one worker.
    ///
    /// # Errors
    /// The policy does not confine, or the workspace is the root, the home or above it, a directory of
    /// the system, or holds the daemon's state.
    pub fn new(policy: &Policy, facts: &Facts) -> Result<Self, PlanError> {
        if policy.profile == Profile::FullAccess {
            return Err(PlanError::FullAccess);
        }
        check_workspace(&facts.places, &policy.hidden)?;
        let mut plan = Self {
            mounts: BTreeMap::new(),
            pins: Vec::new(),
            git_mounts: Vec::new(),
            workspace: facts.places.workspace.clone(),
            home: home_inside(&facts.places.home),
            network: policy.network,
            limits: Limits::default(),
            uid: facts.uid,
            gid: facts.gid,
            verified: BTreeMap::new(),
            hidden: policy.hidden.clone(),
        };
        plan.add_system(facts);
        plan.add_home(facts, &policy.writable_roots);
        plan.add_session(policy, &facts.places);
        plan.hide(policy, facts);
        plan.close_ways(policy);
        Ok(plan)
    }

    /// Adds the pins of the workspace's repositories and the mounts of repositories outside. Omits pins in
    /// directories that are hidden or not shown.
    ///
    /// # Errors
    /// fstat of a repository outside fails.
    pub fn protect(&mut self, protection: &git::Protection) -> io::Result<()> {
        for git::Main { handle, path } in &protection.repositories {
            if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
                continue;
            }
            self.verify(path, handle)?;
            let mount = Mount::Bind {
                from: path.clone(),
                writable: true,
                is_directory: true,
                required: true,
            };
            self.mounts.entry(path.clone()).or_insert(mount);
            for hidden in self.hidden.iter().filter(|hidden| hidden.starts_with(path)) {
                self.mounts.insert(hidden.clone(), Mount::Empty);
            }
        }
        self.pins = protection.pins.iter().filter(|pin| self.shows(&pin.at)).cloned().collect();
        let is_in_git =
            |at: &Path| protection.git_directories.iter().any(|git| at.starts_with(git));
        let writable = self.pins.iter().filter(|pin| !pin.read_only && is_in_git(&pin.at));
        self.git_mounts = writable.map(|pin| pin.at.clone()).collect();
        Ok(())
    }

    /// Adds pins. Sorts a directory before its content, and keeps the stricter of two pins of one path.
    pub fn pin(&mut self, pins: Vec<Pin>) {
        self.pins.extend(pins);
        self.pins.sort_unstable_by(|a, b| a.at.cmp(&b.at).then(b.read_only.cmp(&a.read_only)));
        self.pins.dedup_by(|later, earlier| later.at == earlier.at);
    }

    /// Requires that the mount of `path` shows this open directory. Otherwise the worker does not start.
    ///
    /// # Errors
    /// fstat fails.
    pub fn verify(&mut self, path: &Path, directory: impl AsFd) -> io::Result<()> {
        self.verified.insert(path.to_owned(), DirectoryId::of(directory)?);
        Ok(())
    }

    /// True for a profile that forbids every change of the workspace.
    pub(crate) fn is_read_only(&self) -> bool {
        let may_write = |mount: &Mount| matches!(mount, Mount::Workspace { writable: true });
        !self.mounts.values().any(may_write)
    }

    /// Directories that may be written, for the second layer.
    pub fn writable(&self) -> impl Iterator<Item = &Path> {
        self.mounts.iter().filter(|(_, mount)| mount.is_writable()).map(|(at, _)| at.as_path())
    }

    /// True if something is mounted at `path` itself or above it that shows what is there on the host.
    #[must_use]
    pub fn shows(&self, path: &Path) -> bool {
        let nearest = path.ancestors().find_map(|ancestor| self.mounts.get(ancestor));
        nearest.is_some_and(Mount::is_of_the_host)
    }

    fn add(&mut self, at: impl Into<PathBuf>, mount: Mount) {
        self.mounts.insert(at.into(), mount);
    }

    fn add_system(&mut self, facts: &Facts) {
        for one in &facts.system {
            match one {
                SystemDirectory::Directory(path) => self.add(path, shown(path)),
                SystemDirectory::Link { at, to } => self.add(at, Mount::Link { to: to.clone() }),
            }
        }
        for (at, mode) in [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755)] {
            self.add(at, Mount::Private { mode });
        }
        self.add("/var/run", Mount::Link { to: "/run".into() });
        self.add("/var/lock", Mount::Link { to: "/run/lock".into() });
        self.add("/run/lock", Mount::Private { mode: 0o1777 });
        let cpus = "/sys/devices/system/cpu";
        self.add(
            cpus,
            Mount::Bind { from: cpus.into(), writable: false, is_directory: true, required: false },
        );
        if let Some(resolver) = &facts.resolver {
            match (self.network, self.shows(resolver)) {
                (true, true) => {}
                (true, false) => self.add(resolver, file(resolver)),
                (false, true) => self.add(resolver, Mount::Over { content: RESOLVER_FILE }),
                (false, false) => {
                    self.add(resolver, Mount::File { content: RESOLVER_FILE.to_owned() });
                }
            }
        }
    }

    fn add_home(&mut self, facts: &Facts, roots: &[PathBuf]) {
        let home = self.home.clone();
        self.add(&home, Mount::Private { mode: 0o700 });
        for private in facts.private.iter().filter(|one| !roots.iter().any(|r| one.starts_with(r)))
        {
            self.add(private, Mount::Private { mode: 0o700 });
        }
        for one in &facts.shown {
            let mount = Mount::Bind {
                from: one.from.clone(),
                writable: false,
                is_directory: one.is_directory,
                required: false,
            };
            self.add(&one.at, mount);
        }
        // Changes of what the user made writable are not private.
        let is_written = |cache: &&PathBuf| roots.iter().any(|root| cache.starts_with(root));
        for cache in facts.caches.iter().filter(|cache| !is_written(cache)).take(MAX_CACHES) {
            self.add(cache, Mount::Layer { from: cache.clone() });
        }
        if let Some(content) = facts.identity.to_config() {
            self.add(home.join(".gitconfig"), Mount::File { content });
        }
    }

    fn add_session(&mut self, policy: &Policy, places: &Places) {
        let writable = policy.may_write();
        for root in &policy.writable_roots {
            let mount =
                Mount::Bind { from: root.clone(), writable, is_directory: true, required: true };
            self.add(root, mount);
        }
        self.add(&places.workspace, Mount::Workspace { writable });
        let run_dir = Mount::Bind {
            from: places.run_dir.clone(),
            writable: true,
            is_directory: true,
            required: true,
        };
        self.add(&places.run_dir, run_dir);
    }

    /// Makes the directories read-only that lead from a private directory to the workspace or to a writable directory.
    /// Otherwise what a command writes next to its workspace would vanish with the worker. Directories in the home where
    /// programs keep settings and caches stay writable.
    fn close_ways(&mut self, policy: &Policy) {
        let ends: Vec<_> = policy.writable_roots.iter().chain([&self.workspace]).cloned().collect();
        for end in ends {
            let is_free = |at: &&Path| !self.mounts.contains_key(*at);
            let way: Vec<_> = end.ancestors().skip(1).take_while(is_free).collect();
            let above = way.last().copied().unwrap_or(&end).parent();
            let is_private = above
                .and_then(|above| self.mounts.get(above))
                .is_some_and(|mount| matches!(mount, Mount::Private { .. } | Mount::Way));
            let closed = way.into_iter().filter(|at| !self.is_for_programs(at));
            if is_private {
                for at in closed.map(Path::to_owned).collect::<Vec<_>>() {
                    self.add(at, Mount::Way);
                }
            }
        }
    }

    fn is_for_programs(&self, at: &Path) -> bool {
        let Ok(beneath) = at.strip_prefix(&self.home) else { return false };
        let first = beneath.iter().next().map(|name| name.as_encoded_bytes());
        first.is_some_and(|name| name.starts_with(b".")) || is_toolchain(beneath)
    }

    /// Last, so that it covers what the others show.
    fn hide(&mut self, policy: &Policy, facts: &Facts) {
        let state = std::iter::once(&facts.places.state_dir);
        for path in state.chain(&facts.secrets).chain(&policy.hidden) {
            if !self.shows(path) {
                continue;
            }
            let holds_others = self.mounts.keys().any(|at| at != path && at.starts_with(path));
            let mount = if holds_others { Mount::Private { mode: 0o700 } } else { Mount::Empty };
            self.add(path, mount);
        }
    }
}

impl Mount {
    fn is_writable(&self) -> bool {
        match self {
            Self::Bind { writable, .. } | Self::Workspace { writable } => *writable,
            Self::Private { .. } | Self::Layer { .. } => true,
            Self::Link { .. } | Self::File { .. } | Self::Over { .. } | Self::Empty | Self::Way => {
                false
            }
        }
    }

    fn is_of_the_host(&self) -> bool {
        matches!(self, Self::Bind { .. } | Self::Workspace { .. } | Self::Layer { .. })
    }
}

fn shown(path: &Path) -> Mount {
    let from = path.to_path_buf();
    Mount::Bind { from, writable: false, is_directory: true, required: true }
}

fn file(path: &Path) -> Mount {
    let from = path.to_path_buf();
    Mount::Bind { from, writable: false, is_directory: false, required: false }
}

/// A home that is the root of the file system, as services have it, cannot be a directory of its own.
fn home_inside(home: &Path) -> PathBuf {
    if home.parent().is_some() { home.to_path_buf() } else { PathBuf::from("/tmp/home") }
}

/// True if the workspace lies in the state directory where the daemon keeps its own files.
fn is_kept(workspace: &Path, state_dir: &Path) -> bool {
    let beneath = workspace.strip_prefix(state_dir).ok().and_then(|beneath| beneath.iter().next());
    beneath.and_then(|name| name.to_str()).is_some_and(|name| {
        // A file system may ignore case.
        let name = name.to_lowercase();
        KEPT.contains(&name.as_str()) || name.starts_with(KEPT_ASIDE)
    })
}

fn check_workspace(places: &Places, hidden: &[PathBuf]) -> Result<(), PlanError> {
    let Places { workspace, run_dir, state_dir, home } = places;
    let refuse = |reason| {
        let workspace = workspace.display().to_string();
        Err(PlanError::Workspace { workspace, reason })
    };
    if let Some(reason) = refusal(workspace, home) {
        return refuse(reason);
    }
    if state_dir.starts_with(workspace) || run_dir.starts_with(workspace) {
        return refuse("holds the daemon's own files");
    }
    if is_kept(workspace, state_dir) {
        return refuse("lies among the daemon's own files");
    }
    if hidden.iter().any(|hidden| workspace.starts_with(hidden)) {
        return refuse("is hidden by the policy");
    }
    // Elsewhere a place for users' files, here one of the worker's own.
    let own = ["/dev", "/run/user"];
    if own.iter().any(|place| workspace.starts_with(place)) {
        return refuse("lies where a worker has files of its own");
    }
    Ok(())
}

#[cfg(test)]
mod tests;

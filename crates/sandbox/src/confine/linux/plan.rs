//! Plans a worker's file system: turns the policy and the host facts into an ordered list of mounts. Pure, so tests
//! of what is visible need no privileges. `mounts` carries out the plan.
//!
//! A file of the host is visible only if code here adds a mount for it.

mod agents;
mod isolated;
mod repositories;

use super::directory_id::DirectoryId;
use super::held::GitLayout;
use super::host_facts::{HostFacts, SessionDirs, SystemDirectory};
use super::limits::ConfinementLimits;
use super::mount::{Mount, ReadOnlyBind};
use super::overlay::CacheDirectory;
use super::toolchains::is_toolchain;
use crate::git;
use crate::pin::Pin;
use crate::workspace_place::workspace_refusal;
use quackd_protocol::policy::{Policy, Profile};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Maximum number of overlays for package caches. Each is a separate file system.
const MAX_CACHES: usize = 16;

/// Content of `resolv.conf` in a network namespace: names the resolver on the loopback.
const RESOLVER_FILE: &str = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";

/// Mounts, pins and limits of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPlan {
    /// Mounts by path. The order puts a directory before its content.
    pub mounts: BTreeMap<PathBuf, Mount>,
    /// Pins in mount order.
    pub pins: Vec<Pin>,
    /// Mounts in git directories that commands can change. They cannot create symbolic links in them.
    pub git_mounts: Vec<PathBuf>,
    /// Git directories whose top commands cannot change. Process 1 carries out permitted changes.
    pub git: GitLayout,
    /// Workspace and initial working directory.
    pub workspace: PathBuf,
    /// Home directory inside, for the environment of commands.
    pub home: PathBuf,
    /// True to keep the machine's network.
    pub network: bool,
    /// Directory that keeps the changes of package caches. They stay in memory without it.
    pub(crate) caches: Option<(PathBuf, DirectoryId)>,
    /// Directory that keeps the changes of [`Mount::Output`].
    pub(crate) outputs: Option<PathBuf>,
    /// Ports of hosts for programs that use no proxy. Empty if these are not served, or without a private network.
    pub host_ports: Vec<u16>,
    /// Limits of processes and files. None by default.
    pub limits: ConfinementLimits,
    /// User id, the same inside and outside.
    pub uid: u32,
    /// Group id, the same inside and outside.
    pub gid: u32,
    /// Expected directory of a [`Mount::Bind`], by its `from`. Keep the directories open until they are mounted, so
    /// that their inode numbers are not reused.
    pub(crate) verified: BTreeMap<PathBuf, DirectoryId>,
    /// Hidden paths of the policy.
    hidden: Vec<PathBuf>,
}

/// Error of a plan. The text is for display to the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The profile has no confinement.
    #[error("full-access has no confinement to plan")]
    FullAccess,
    /// The workspace would make hidden files visible.
    #[error(
        "the workspace {workspace} {reason}; choose a directory beneath it, or allow everything with `quack sandbox set full-access`"
    )]
    Workspace {
        /// The workspace.
        workspace: String,
        /// Reason, to be read after the workspace.
        reason: &'static str,
    },
}

impl MountPlan {
    /// Returns the home inside, if it is a private directory of the worker.
    #[must_use]
    pub fn private_home(&self) -> Option<&Path> {
        matches!(self.mounts.get(&self.home), Some(Mount::Private { .. })).then_some(&*self.home)
    }

    /// Plans the mounts of one worker.
    ///
    /// # Errors
    /// The policy is full access, or the workspace is the root, the home or above it, or a system directory, or it
    /// contains the daemon's state.
    pub fn new(policy: &Policy, facts: &HostFacts) -> Result<Self, PlanError> {
        if policy.profile == Profile::FullAccess {
            return Err(PlanError::FullAccess);
        }
        check_workspace(&facts.places, &policy.hidden)?;

        let mut plan = Self {
            mounts: BTreeMap::new(),
            pins: Vec::new(),
            git_mounts: Vec::new(),
            git: GitLayout::default(),
            workspace: facts.places.workspace.clone(),
            home: home_inside(&facts.places.home),
            network: policy.network,
            caches: None,
            outputs: None,
            host_ports: Vec::new(),
            limits: ConfinementLimits::default(),
            uid: facts.uid,
            gid: facts.gid,
            verified: BTreeMap::new(),
            hidden: policy.hidden.clone(),
        };

        // The order matters: a mount replaces an earlier one of the same path.
        plan.add_system(facts);
        plan.add_hosts_file(facts);
        plan.add_home(facts, &policy.writable_roots);
        plan.add_session(policy, &facts.places);
        plan.hide(policy, facts);
        plan.close_ways(policy);
        Ok(plan)
    }

    /// Adds pins. Sorts a directory before its content, and keeps the stricter of two pins of one path. Process 1
    /// changes nothing that is read-only by a pin.
    pub fn pin(&mut self, pins: Vec<Pin>) {
        let read_only = pins.iter().filter(|pin| pin.read_only).map(|pin| pin.at.clone());
        self.git.read_only.extend(read_only);
        self.pins.extend(pins);

        // Of two pins of one path, the stricter one comes first and stays.
        self.pins.sort_unstable_by(|a, b| a.at.cmp(&b.at).then(b.read_only.cmp(&a.read_only)));
        self.pins.dedup_by(|later, earlier| later.at == earlier.at);
    }

    /// Keeps the changes of package caches in `directory`. Each missing cache becomes a directory there, except in the
    /// user's directories: its mount point would be created in them.
    ///
    /// # Errors
    /// fstat fails.
    pub fn keep_caches(
        &mut self,
        directory: &CacheDirectory,
        missing: &[PathBuf],
    ) -> io::Result<()> {
        self.caches = Some(directory.place()?);

        for cache in missing {
            let nearest = cache.ancestors().find_map(|at| self.mounts.get(at));
            let is_private = matches!(nearest, Some(Mount::Private { .. } | Mount::Way));
            let is_hidden = self.hidden.iter().any(|hidden| cache.starts_with(hidden));
            if is_private && !is_hidden && !self.has_mounts_inside(cache) {
                self.add(cache, Mount::Kept);
            }
        }
        Ok(())
    }

    /// Returns true if a mount is inside the directory `at`. Then a kept layer would contain mount points, which
    /// commands could replace by links for the next worker.
    pub(crate) fn has_mounts_inside(&self, at: &Path) -> bool {
        let mut after = self.mounts.range::<Path, _>((Bound::Excluded(at), Bound::Unbounded));
        after.next().is_some_and(|(next, _)| next.starts_with(at))
    }

    /// Requires that the mount of `path` shows this open directory. Otherwise the worker does not start.
    ///
    /// # Errors
    /// fstat fails.
    pub fn verify(&mut self, path: &Path, directory: impl AsFd) -> io::Result<()> {
        self.verified.insert(path.to_owned(), DirectoryId::of(directory)?);
        Ok(())
    }

    /// Returns true if the profile forbids every change of the workspace.
    pub(crate) fn is_read_only(&self) -> bool {
        let may_write = |mount: &Mount| matches!(mount, Mount::Workspace { writable: true });
        !self.mounts.values().any(may_write)
    }

    /// Returns the writable directories, for the Landlock rules.
    pub fn writable(&self) -> impl Iterator<Item = &Path> {
        self.mounts.iter().filter(|(_, mount)| mount.is_writable()).map(|(at, _)| at.as_path())
    }

    /// Returns true if the host's file at `path` is visible: the nearest mount at `path` or above it shows the host's
    /// files.
    #[must_use]
    pub fn shows(&self, path: &Path) -> bool {
        let nearest = path.ancestors().find_map(|ancestor| self.mounts.get(ancestor));
        nearest.is_some_and(Mount::is_of_the_host)
    }

    /// Returns true if the file at `path` is visible in a mounted directory, and not as a separate mount.
    fn shows_in_a_directory(&self, path: &Path) -> bool {
        !self.mounts.contains_key(path) && self.shows(path)
    }

    fn add(&mut self, at: impl Into<PathBuf>, mount: Mount) {
        self.mounts.insert(at.into(), mount);
    }

    fn add_system(&mut self, facts: &HostFacts) {
        for one in &facts.system {
            match one {
                SystemDirectory::Directory(path) => self.add(path, shown(path)),
                SystemDirectory::Link { at, to } => self.add(at, Mount::Link { to: to.clone() }),
            }
        }

        for (at, mount) in &facts.built {
            self.add(at, mount.clone());
        }

        for (at, mode) in [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755)] {
            self.add(at, Mount::Private { mode });
        }
        self.add("/var/run", Mount::Link { to: "/run".into() });
        self.add("/var/lock", Mount::Link { to: "/run/lock".into() });
        self.add("/run/lock", Mount::Private { mode: 0o1777 });

        // The C library counts the processors there.
        let cpus = "/sys/devices/system/cpu";
        self.add(
            cpus,
            Mount::Bind { from: cpus.into(), writable: false, is_directory: true, required: false },
        );

        if let Some(resolver) = &facts.resolver {
            match (self.network, self.shows_in_a_directory(resolver)) {
                (true, true) => {}
                (true, false) => self.add(resolver, file(resolver)),
                (false, true) => {
                    self.add(resolver, Mount::Over { content: Cow::Borrowed(RESOLVER_FILE) });
                }
                (false, false) => {
                    self.add(resolver, Mount::File { content: RESOLVER_FILE.to_owned() });
                }
            }
        }
    }

    /// Covers the file of host names, unless the machine's network is used.
    fn add_hosts_file(&mut self, facts: &HostFacts) {
        if let (false, Some((path, content))) = (self.network, &facts.hosts_file) {
            let content = content.clone();
            if self.shows_in_a_directory(path) {
                self.add(path, Mount::Over { content: content.into() });
            } else {
                self.add(path, Mount::File { content });
            }
        }
    }

    fn add_home(&mut self, facts: &HostFacts, roots: &[PathBuf]) {
        let home = self.home.clone();
        self.add(&home, Mount::Private { mode: 0o700 });

        for private in facts.private.iter().filter(|one| !roots.iter().any(|r| one.starts_with(r)))
        {
            self.add(private, Mount::Private { mode: 0o700 });
        }

        let is_built = |one: &&ReadOnlyBind| facts.built.iter().any(|(at, _)| *at == one.at);
        for one in facts.shown.iter().filter(|one| !is_built(one)) {
            let mount = Mount::Bind {
                from: one.from.clone(),
                writable: false,
                is_directory: one.is_directory,
                required: false,
            };
            self.add(&one.at, mount);
        }

        // A cache inside a writable root stays a normal directory: the user wants its changes kept.
        let is_written = |cache: &&PathBuf| roots.iter().any(|root| cache.starts_with(root));
        for cache in facts.caches.iter().filter(|cache| !is_written(cache)).take(MAX_CACHES) {
            self.add(cache, Mount::Layer { from: cache.clone() });
        }

        let settings = &facts.git_settings;
        let files = [
            (git::SETTINGS_NAME, settings.to_config("~")),
            (git::EXCLUDES_NAME, settings.excludes.clone()),
            (git::ATTRIBUTES_NAME, settings.attributes.clone()),
        ];
        for (name, content) in files {
            if let Some(content) = content {
                self.add(home.join(name), Mount::File { content });
            }
        }
    }

    fn add_session(&mut self, policy: &Policy, places: &SessionDirs) {
        let writable = policy.may_write();
        for root in &policy.writable_roots {
            let mount =
                Mount::Bind { from: root.clone(), writable, is_directory: true, required: true };
            self.add(root, mount);
        }
        self.add(&places.workspace, Mount::Workspace { writable });

        // Also a read-only session writes its spill files.
        let run_dir = Mount::Bind {
            from: places.run_dir.clone(),
            writable: true,
            is_directory: true,
            required: true,
        };
        self.add(&places.run_dir, run_dir);
    }

    /// Makes the directories read-only that lead from a private directory to the workspace or to a writable
    /// directory. Otherwise files that a command writes next to its workspace would vanish with the worker.
    /// Directories in the home where programs keep settings and caches stay writable.
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

    /// Hides paths. Called after all other mounts are added, because it covers them.
    fn hide(&mut self, policy: &Policy, facts: &HostFacts) {
        let state = std::iter::once(&facts.places.state_dir);
        for path in state.chain(&facts.secrets).chain(&policy.hidden) {
            if !self.shows(path) {
                continue;
            }
            // Mounts inside the hidden directory need a directory for their mount points.
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
            Self::Private { .. } | Self::Layer { .. } | Self::Output { .. } => true,
            // For `Kept`, the rule of the private directory above applies.
            Self::Kept | Self::Link { .. } | Self::File { .. } => false,
            Self::Over { .. } | Self::Empty | Self::Way => false,
        }
    }

    fn is_of_the_host(&self) -> bool {
        matches!(
            self,
            Self::Bind { .. } | Self::Workspace { .. } | Self::Layer { .. } | Self::Output { .. }
        )
    }
}

fn shown(path: &Path) -> Mount {
    Mount::Bind { from: path.into(), writable: false, is_directory: true, required: true }
}

fn file(path: &Path) -> Mount {
    Mount::Bind { from: path.into(), writable: false, is_directory: false, required: false }
}

/// Returns the home inside. A service may have `/` as its home, which cannot be a private directory.
fn home_inside(home: &Path) -> PathBuf {
    if home.parent().is_some() { home.to_path_buf() } else { PathBuf::from("/tmp/home") }
}

fn check_workspace(places: &SessionDirs, hidden: &[PathBuf]) -> Result<(), PlanError> {
    let SessionDirs { workspace, run_dir, state_dir, home } = places;
    match workspace_refusal(workspace, [run_dir, state_dir, home], hidden) {
        Some(reason) => {
            Err(PlanError::Workspace { workspace: workspace.display().to_string(), reason })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

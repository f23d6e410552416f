//! Carries out a plan: builds a new tree from open handles and makes it the root. Called by `enter` in process 1 of
//! new namespaces, the only process with the right to mount there.
//!
//! Opens every source before the first change, without following links, and opens every target under the new root. So
//! no name is resolved twice.

use super::detached::{clone_tree, new_file_system};
use super::directory_id::DirectoryId;
use super::empty_mounts::EmptyMounts;
use super::error::{ConfineError, StepContext};
use super::held::TopMount;
use super::kernel_files;
use super::mount::Mount;
use super::new_root::{MountTargetKind, NewRoot};
use super::overlay::{Layers, mount_output};
use super::plan::MountPlan;
use super::sys::{self, MountAttributes};
use crate::pin::Pin;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{chdir, fchdir, pivot_root};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Default maximum size of a worker's private directories and overlays in bytes. They use memory.
const PRIVATE_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// Their size for each file that they may contain, in bytes. A file takes about 1 KiB of the kernel's memory, also an
/// empty one.
const BYTES_PER_FILE: u64 = 4096;

/// Maximum number of files in them, regardless of their size.
const PRIVATE_FILES: u64 = 400_000;

/// Limits of the root itself, which contains only directories and links.
const ROOT_BYTES: &str = "16m";
const ROOT_FILES: u64 = 20_000;

/// Detached source of a mount at `at`.
struct Source<'p> {
    at: &'p Path,
    tree: OwnedFd,
    kind: MountTargetKind,
}

/// Result of building the tree.
pub(crate) struct BuiltTree {
    /// Reason if the plan keeps package caches and some are in memory.
    pub(crate) caches_in_memory: Option<String>,
    /// Note on ignored directories of an isolated session that are missing or in memory.
    pub(crate) outputs_note: Option<String>,
    /// Writable mounts of the git directories that are read-only in the tree. They have no path.
    pub(crate) git_tops: Vec<TopMount>,
}

/// Builds the planned tree and makes it the root. Afterwards the working directory is the workspace. Before, the
/// working directory must be the workspace with the identity `expected`: a process keeps its working directory in a
/// new mount namespace without resolving its name again.
pub(crate) fn build(plan: &MountPlan, expected: DirectoryId) -> Result<BuiltTree, ConfineError> {
    // pivot_root(2) refuses shared mounts, and no later mount of the host may appear inside.
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).step("make mounts private")?;

    let sources = open_sources(plan, expected)?;
    // Attach the private file system on the old workspace, because that directory certainly exists, and its tree is
    // already open. It leaves with the old root. Its directories that are bound elsewhere stay.
    let bytes = plan.limits.private_bytes.unwrap_or(PRIVATE_BYTES);
    let files = (bytes / BYTES_PER_FILE).min(PRIVATE_FILES);
    let store = NewRoot::attach(tmpfs(&bytes.to_string(), files)?, CWD, ".")?;
    let root = NewRoot::attach_beneath(&store, tmpfs(ROOT_BYTES, ROOT_FILES)?, "root")?;

    let mut sources = sources.into_iter().peekable();
    // Mount the kernel's file systems first: mounts of a plan may be inside them.
    let empty = EmptyMounts::make(&store)?;
    kernel_files::mount_proc(&root, &empty)?;
    kernel_files::mount_dev(&root, &store)?;

    let (mut ways, mut outputs_note) = (Vec::new(), None);
    let mut layers = Layers::open(&store, plan.caches.as_ref(), &plan.home);
    for (number, (at, mount)) in plan.mounts.iter().enumerate() {
        match mount {
            Mount::Bind { .. } | Mount::Workspace { .. } => {
                if let Some(source) = sources.next_if(|source| source.at == at) {
                    root.place(&source.tree, at, source.kind)?;
                }
            }
            Mount::Private { mode } => {
                let directory = store.make_private(&format!("{number}"), *mode)?;
                root.place(&directory, at, MountTargetKind::Directory)?;
            }
            Mount::Way => {
                let directory = store.make_private(&format!("{number}"), 0o755)?;
                root.place(&directory, at, MountTargetKind::Directory)?;
                ways.push((at, directory));
            }
            Mount::Layer { from } => {
                let is_kept = !plan.has_mounts_inside(at);
                layers.mount(&root, from, at, number, is_kept)?;
            }
            Mount::Kept => layers.mount_own(&root, at)?,
            Mount::Output { from } => {
                let layers = plan.outputs.as_deref();
                let note = mount_output(&root, &store, layers, from, at, number);
                outputs_note = outputs_note.or(note);
            }
            Mount::Link { to } => root.link(at, to)?,
            Mount::File { content } => root.file(at, content)?,
            Mount::Over { content } => cover(&root, &store, number, at, content)?,
            Mount::Empty => empty.cover(&root, at)?,
        }
    }

    let git_tops = pin_all(&root, plan)?;
    // Make these directories read-only only now, when all mount points in them exist.
    for (at, way) in ways {
        sys::set_attributes(&way, MountAttributes::READ_ONLY, false).step_on("close", at)?;
    }

    let caches_in_memory = layers.failed;
    enter(root, &plan.workspace)?;
    Ok(BuiltTree { caches_in_memory, outputs_note, git_tops })
}

fn open_sources<'p>(
    plan: &'p MountPlan,
    expected: DirectoryId,
) -> Result<Vec<Source<'p>>, ConfineError> {
    let mut sources = Vec::new();
    for (at, mount) in &plan.mounts {
        let (tree, kind, writable) = match mount {
            Mount::Workspace { writable } => {
                let tree = clone_tree(CWD, ".").step_on("take the workspace", at)?;
                let id = DirectoryId::of(&tree).step_on("look at the workspace", at)?;
                if id != expected {
                    return Err(ConfineError::new("take the workspace", "it was replaced"));
                }
                (tree, MountTargetKind::Directory, *writable)
            }
            Mount::Bind { from, writable, is_directory, required } => {
                let kind =
                    if *is_directory { MountTargetKind::Directory } else { MountTargetKind::File };
                let opened = open_source(from, kind);
                if let Some(expected) = plan.verified.get(from) {
                    let id = opened.as_ref().ok().and_then(|it| DirectoryId::of(it).ok());
                    if id != Some(*expected) {
                        return Err(io::Error::other("it was replaced"))
                            .step_on("take a directory", from);
                    }
                }
                match opened.and_then(|source| clone_tree(&source, "")) {
                    Ok(tree) => (tree, kind, *writable),
                    Err(errno) if !*required && may_be_left_out(errno) => continue,
                    Err(errno) => return Err(errno).step_on("open what is to be shown", from),
                }
            }
            _ => continue,
        };

        let attributes =
            if writable { MountAttributes::WRITABLE } else { MountAttributes::READ_ONLY };
        sys::set_attributes(&tree, attributes, true).step_on("limit a mount", at)?;
        sources.push(Source { at, tree, kind });
    }
    Ok(sources)
}

/// Returns true if an optional source may be omitted: it does not exist, this user may not open it, or its path
/// contains a link.
fn may_be_left_out(errno: Errno) -> bool {
    sys::is_missing(errno) || matches!(errno, Errno::ACCESS | Errno::PERM | Errno::LOOP)
}

/// Opens a path without following links. A link on the path means that a program swapped a directory.
fn open_source(path: &Path, kind: MountTargetKind) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if kind == MountTargetKind::Directory {
        flags |= OFlags::DIRECTORY;
    }
    openat2(
        CWD,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Creates a file system in memory.
fn tmpfs(size: &str, files: u64) -> Result<OwnedFd, ConfineError> {
    let options = [("size", size), ("nr_inodes", &files.to_string()), ("mode", "0755")];
    new_file_system("tmpfs", &options, MountAttributes::WRITABLE)
}

/// Mounts a read-only file with `content` on the file at `at`. Does nothing if there is none.
fn cover(
    root: &NewRoot,
    store: &NewRoot,
    number: usize,
    at: &Path,
    content: &str,
) -> Result<(), ConfineError> {
    let Some((target, MountTargetKind::File)) = root.find(at)? else { return Ok(()) };

    let name = Path::new("/").join(format!("{number}"));
    store.file(&name, content)?;
    let copy = clone_tree(store.open_exactly(&name)?, "").step_on("cover", at)?;
    sys::set_attributes(&copy, MountAttributes::READ_ONLY, false).step_on("cover", at)?;
    root.place_on(&copy, &target, at)
}

/// Mounts all pins. Returns writable mounts of the git directories that become read-only.
fn pin_all(root: &NewRoot, plan: &MountPlan) -> Result<Vec<TopMount>, ConfineError> {
    let mut tops = Vec::new();
    let mut prepared = BTreeMap::new();
    let git: Vec<&Path> = plan.git.tops().collect();
    for pin in &plan.pins {
        // A writable part of a git directory that is read-only by now.
        if let Some(tree) = prepared.remove(&pin.at) {
            let target = root.open_exactly(&pin.at)?;
            root.place_on(tree, target, &pin.at)?;
            continue;
        }
        if git.contains(&pin.at.as_path()) {
            let writable = |at: &Path| -> Result<OwnedFd, ConfineError> {
                clone_tree(root.open_exactly(at)?, "").step_on("pin", at)
            };
            // Take these before the mount that makes their paths read-only.
            tops.push((pin.at.clone(), writable(&pin.at)?));
            let inside = plan.pins.iter().map(|pin| &pin.at).filter(|at| at.starts_with(&pin.at));
            for at in inside.filter(|at| plan.git.writable.contains(*at)) {
                prepared.insert(at, writable(at)?);
            }
        }

        pin_down(root, pin)?;
    }
    Ok(tops)
}

fn pin_down(root: &NewRoot, pin: &Pin) -> Result<(), ConfineError> {
    let target = root.open_exactly(&pin.at)?;
    let copy = clone_tree(&target, "").step_on("pin", &pin.at)?;
    if pin.read_only {
        sys::set_attributes(&copy, MountAttributes::READ_ONLY, true).step_on("pin", &pin.at)?;
    }
    root.place_on(&copy, &target, &pin.at)
}

/// Makes the new tree the root and unmounts the old one.
fn enter(root: NewRoot, workspace: &Path) -> Result<(), ConfineError> {
    fchdir(root.handle()).step("enter the new root")?;
    // `pivot_root(".", ".")` stacks the old root on the new one. The unmount removes it from there.
    pivot_root(".", ".").step("change the root")?;
    unmount(".", UnmountFlags::DETACH).step("leave the old root")?;

    // Not earlier, because mount points were made in the root.
    let read_only = MountAttributes::READ_ONLY;
    sys::set_attributes(root.handle(), read_only, false).step("make the root read-only")?;
    drop(root);
    chdir("/").step("enter the new root")?;
    chdir(workspace).step_on("enter the workspace", workspace)
}

//! Confinement of the supervisor's helpers that read foreign bytes. Both give up files, programs and other processes.
//! The network proxy keeps its sockets and the network, and an agent keeps its open session file only. Each calls it
//! before it reads the first foreign byte.

use super::error::ConfineError;
use super::landlock::{self, FileRights, FileRule, LandlockRules};
use super::privilege;
use super::seccomp;
use super::sys;
use std::path::PathBuf;

/// Files that the system's resolver reads, and the libraries that it loads.
const RESOLVER_FILES: [&str; 10] = [
    "/etc",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    // Libraries of NixOS and Guix.
    "/nix/store",
    "/gnu/store",
];

/// Files of the resolver that are links to other directories on some systems, such as WSL.
const LINKED_FILES: [&str; 5] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];

/// Directories and files that the resolver reads, without links.
fn resolver_files() -> Vec<PathBuf> {
    let all = RESOLVER_FILES.iter().chain(&LINKED_FILES);
    // Missing ones are left out.
    all.filter_map(|path| std::fs::canonicalize(path).ok()).collect()
}

/// Confines this process, which must have one thread. Returns the layers that this system does not have.
///
/// # Errors
/// A step failed. The process must then exit.
pub fn enter_proxy() -> Result<Vec<String>, ConfineError> {
    let filter = seccomp::build_for_proxy()?;
    privilege::drop_held()?;
    privilege::forbid_new_rights()?;

    let mut notes = Vec::new();
    if sys::landlock_version() == 0 {
        notes.push("the kernel has no Landlock: the proxy can read the user's files".to_owned());
    } else {
        let mut files = Vec::new();
        for path in resolver_files() {
            files.extend(FileRule::open(&path, FileRights::ReadFiles)?);
        }
        landlock::apply(LandlockRules { files, forbid_tcp: false })?;
    }

    seccomp::apply(&filter)?;
    Ok(notes)
}

/// Confines this process, which must have one thread, to its open descriptors. Returns the layers that this system does
/// not have.
///
/// # Errors
/// A step failed. The process must then exit.
pub fn enter_agent() -> Result<Vec<String>, ConfineError> {
    let filter = seccomp::build_for_agent()?;
    privilege::drop_held()?;
    privilege::forbid_new_rights()?;

    let mut notes = Vec::new();
    if sys::landlock_version() == 0 {
        notes.push("the kernel has no Landlock: the agent can read the user's files".to_owned());
    } else {
        landlock::apply(LandlockRules { files: Vec::new(), forbid_tcp: true })?;
    }

    seccomp::apply(&filter)?;
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_by_their_targets() {
        let files = resolver_files();
        for file in LINKED_FILES.iter().filter_map(|file| std::fs::canonicalize(file).ok()) {
            assert!(files.contains(&file), "{}", file.display());
        }
        assert!(files.iter().all(|file| std::fs::canonicalize(file).ok().as_ref() == Some(file)));
    }
}

//! Confinement of the network proxy: it keeps its sockets and the network, and gives up files, programs and other
//! processes. Called by the proxy before it reads the first byte of a command.

use super::error::ConfineError;
use super::landlock::{self, FileRights, FileRule, LandlockRules};
use super::privilege;
use super::seccomp;
use super::sys;
use std::path::Path;

/// Files that the system's resolver reads, and the libraries that it loads.
const RESOLVER_FILES: [&str; 8] = [
    "/etc",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
];

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
        for path in RESOLVER_FILES {
            files.extend(FileRule::open(Path::new(path), FileRights::ReadFiles)?);
        }
        landlock::apply(LandlockRules { files, forbid_tcp: false })?;
    }
    seccomp::apply(&filter)?;
    Ok(notes)
}

//! Hidden paths in writable directories. Called by `platform`.

use quackd_protocol::policy::Policy;
use quackd_sandbox::{Pin, git};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Returns pins for the parent directories of hidden files in the open `places`, so that a hidden file cannot be
/// moved away, and the hidden paths that do not exist.
pub(super) fn pins_above_hidden(
    policy: &Policy,
    places: &[(&Path, &OwnedFd)],
    notes: &mut Vec<String>,
) -> (Vec<Pin>, Vec<PathBuf>) {
    let (mut pins, mut absent) = (Vec::new(), Vec::new());
    for hidden in policy.hidden.iter().filter(|_| policy.may_write()) {
        let place = places.iter().find_map(|(root, handle)| {
            hidden.strip_prefix(root).ok().map(|beneath| (root, handle, beneath))
        });
        let Some((root, handle, beneath)) = place else { continue };

        let note = match git::node_at(handle, beneath) {
            Ok(git::Node::Missing) => {
                absent.push(hidden.clone());
                Some(
                    "is not there; the call after it has appeared is the first that does not see it",
                )
            }
            Ok(git::Node::File) => Some(
                "is a hidden file, which a running command can read once a program outside replaces it; hide its directory",
            ),
            _ => None,
        };
        notes.extend(note.map(|note| format!("{} {note}", hidden.display())));

        let above = beneath.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        let above = above.filter(|above| git::node_at(handle, above) == Ok(git::Node::Directory));
        pins.extend(above.map(|above| Pin { at: root.join(above), read_only: false }));
    }
    (pins, absent)
}

//! Errors of the system in the words of the Node daemon, which models know.

use rustix::io::Errno;
use std::io;

/// Code and reason of the errors that file tools meet.
const WORDS: &[(Errno, &str)] = &[
    (Errno::ACCESS, "EACCES: permission denied"),
    (Errno::BUSY, "EBUSY: resource busy or locked"),
    (Errno::DQUOT, "EDQUOT: disk quota exceeded"),
    (Errno::EXIST, "EEXIST: file already exists"),
    (Errno::FBIG, "EFBIG: file too large"),
    (Errno::IO, "EIO: i/o error"),
    (Errno::ISDIR, "EISDIR: illegal operation on a directory"),
    (Errno::LOOP, "ELOOP: too many symbolic links encountered"),
    (Errno::MFILE, "EMFILE: too many open files"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG: name too long"),
    (Errno::NFILE, "ENFILE: file table overflow"),
    (Errno::NOENT, "ENOENT: no such file or directory"),
    (Errno::NOSPC, "ENOSPC: no space left on device"),
    (Errno::NOTDIR, "ENOTDIR: not a directory"),
    (Errno::PERM, "EPERM: operation not permitted"),
    (Errno::ROFS, "EROFS: read-only file system"),
    (Errno::STALE, "ESTALE: stale file handle"),
    (Errno::TXTBSY, "ETXTBSY: text file is busy"),
    (Errno::XDEV, "EXDEV: cross-device link not permitted"),
];

/// Words an error of a system call: `EACCES: permission denied, open '/w/a'`.
pub(crate) fn system_words(error: &io::Error, call: &str) -> String {
    let errno = Errno::from_io_error(error);
    match WORDS.iter().find(|(known, _)| Some(*known) == errno) {
        Some((_, words)) => format!("{words}, {call}"),
        None => format!("{error}, {call}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_errors_have_the_words_of_node_and_others_their_own() {
        let words = |error: io::Error| system_words(&error, "open '/a'");
        let denied = words(Errno::ACCESS.into());
        assert_eq!(denied, "EACCES: permission denied, open '/a'");
        let busy = words(Errno::BUSY.into());
        assert_eq!(busy, "EBUSY: resource busy or locked, open '/a'");
        assert_eq!(words(io::Error::other("no such luck")), "no such luck, open '/a'");
    }
}

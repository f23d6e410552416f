//! System errors with their code, such as `EACCES: permission denied`, which models recognize, and with advice.

use rustix::io::Errno;
use std::io;

/// Maximum length of a path in a hint, in bytes.
const MAX_PATH_BYTES: usize = 200;

/// Code and reason of the errors that file tools encounter, and an explanation with advice for each.
const WORDS: &[(Errno, &str, &str)] = &[
    (
        Errno::ACCESS,
        "EACCES: permission denied",
        "cannot be opened: permission denied; change its permissions or those of its directory",
    ),
    (Errno::BUSY, "EBUSY: resource busy or locked", "is in use or locked; try again later"),
    (
        Errno::DQUOT,
        "EDQUOT: disk quota exceeded",
        "does not fit into the disk quota; delete files, or raise the quota",
    ),
    (Errno::EXIST, "EEXIST: file already exists", "exists already; choose another name"),
    (Errno::FBIG, "EFBIG: file too large", "is larger than the system allows; split it"),
    (Errno::IO, "EIO: i/o error", "cannot be read from or written to its disk; check the disk"),
    (
        Errno::ISDIR,
        "EISDIR: illegal operation on a directory",
        "is a directory; name a file in it, which `find` lists",
    ),
    (
        Errno::LOOP,
        "ELOOP: too many symbolic links encountered",
        "is a symbolic link that leads to itself; name the file itself, or remove the link",
    ),
    (
        Errno::MFILE,
        "EMFILE: too many open files",
        "cannot be opened because too many files are open; wait for running calls",
    ),
    (
        Errno::NAMETOOLONG,
        "ENAMETOOLONG: name too long",
        "is too long; a name has at most 255 bytes, a path 4095",
    ),
    (
        Errno::NFILE,
        "ENFILE: file table overflow",
        "cannot be opened because too many files are open on this system; end other programs",
    ),
    (
        Errno::NOENT,
        "ENOENT: no such file or directory",
        "does not exist; check the path, or make the file with `write_file`",
    ),
    (
        Errno::NOSPC,
        "ENOSPC: no space left on device",
        "does not fit on the disk, which is full; delete files",
    ),
    (
        Errno::NOTDIR,
        "ENOTDIR: not a directory",
        "leads through a file as if it were a directory; check the path",
    ),
    (
        Errno::PERM,
        "EPERM: operation not permitted",
        "may not be changed by the user of the daemon; look at its owner and its attributes",
    ),
    (
        Errno::ROFS,
        "EROFS: read-only file system",
        "is on a file system that is mounted read-only outside of the session; mount it for writing there, or choose another place",
    ),
    (Errno::STALE, "ESTALE: stale file handle", "was removed on its server; try again"),
    (Errno::TXTBSY, "ETXTBSY: text file is busy", "is a program that runs; end it first"),
    (
        Errno::XDEV,
        "EXDEV: cross-device link not permitted",
        "is on another file system; choose a place in the workspace",
    ),
];

fn known(error: &io::Error) -> Option<&'static (Errno, &'static str, &'static str)> {
    let errno = Errno::from_io_error(error)?;
    WORDS.iter().find(|(known, ..)| *known == errno)
}

/// Formats an error of a system call: `EACCES: permission denied, open '/w/a'`.
pub(crate) fn system_words(error: &io::Error, call: &str) -> String {
    match known(error) {
        Some((_, words, _)) => format!("{words}, {call}"),
        None => format!("{error}, {call}"),
    }
}

/// Explains the error, with advice: `` `a` is a directory; name a file in it ``. `None` for unknown errors.
pub(crate) fn hint(error: &io::Error, path: &str) -> Option<String> {
    let (.., plain) = known(error)?;
    let end = path.floor_char_boundary(MAX_PATH_BYTES);
    let (shown, rest) = path.split_at_checked(end).unwrap_or((path, ""));
    let more = if rest.is_empty() { "" } else { "…" };
    Some(format!("`{shown}{more}` {plain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_errors_have_a_code_and_others_their_own_words() {
        let words = |error: io::Error| system_words(&error, "open '/a'");
        let denied = words(Errno::ACCESS.into());
        assert_eq!(denied, "EACCES: permission denied, open '/a'");
        let busy = words(Errno::BUSY.into());
        assert_eq!(busy, "EBUSY: resource busy or locked, open '/a'");
        assert_eq!(words(io::Error::other("no such luck")), "no such luck, open '/a'");
    }

    #[test]
    fn hints_have_no_codes_and_bounded_paths() {
        for (errno, words, _) in WORDS {
            let code = words.split(':').next().unwrap();
            let hint = hint(&(*errno).into(), "a").unwrap();
            assert!(hint.starts_with("`a` ") && !hint.contains(code), "{hint}");
        }
        let long = hint(&Errno::NAMETOOLONG.into(), &"ü".repeat(3000)).unwrap();
        assert!(long.len() < 300 && long.contains("ü…` is too long"), "{long}");
        assert_eq!(hint(&io::Error::other("x"), "a"), None);
    }
}

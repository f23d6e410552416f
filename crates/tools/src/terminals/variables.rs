//! Variables of a program on a terminal, and the program `xdg-open` that two of them name.

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Directory in the session's private directory, and the program in it.
const PROGRAMS: &str = "bin";
const OPENER: &str = "xdg-open";

/// Passes an address through the terminal, so that the attached clients ask the user. It needs nothing but a terminal: a
/// program that writes these bytes itself can do no more and no less.
const OPENER_SCRIPT: &str = r#"#!/bin/sh
# Asks the user whether to open a web page outside of the sandbox.
case $1 in
http://* | https://*) ;;
*)
    echo "xdg-open: a session opens only addresses with http and https" >&2
    exit 2
    ;;
esac
{ printf '\033]8732;open;%s\033\\' "$1" >/dev/tty; } 2>/dev/null && exit 0
printf '%s\n' "$1" >&2
exit 1
"#;

/// Name of a terminal with the sequences that the screen has, in the database of all systems.
const TERM: &str = "xterm-256color";

/// Writes `xdg-open` into the session's private directory. Follows no link that a command has left there.
///
/// # Errors
/// The system refuses, or a command has put something else in the place of the directory.
pub(crate) fn write_opener_blocking(run_dir: &Path) -> io::Result<()> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let run_dir = open(run_dir, directory, Mode::empty())?;
    match mkdirat(&run_dir, PROGRAMS, Mode::RWXU) {
        Err(errno) if errno != Errno::EXIST => return Err(errno.into()),
        _ => {}
    }

    let programs = openat(&run_dir, PROGRAMS, directory, Mode::empty())?;
    match unlinkat(&programs, OPENER, AtFlags::empty()) {
        Err(errno) if errno != Errno::NOENT => return Err(errno.into()),
        _ => {}
    }
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&programs, OPENER, new, Mode::RWXU)?;
    File::from(file).write_all(OPENER_SCRIPT.as_bytes())
}

/// Returns the session's variables without those that keep programs from using a terminal, then `own`, which win. `PATH`
/// begins with the directory of [`write_opener_blocking`]. `label` is that of the session.
pub(crate) fn environment(
    session: &[(String, String)],
    label: &str,
    run_dir: &Path,
    own: &[(String, String)],
) -> Vec<(String, String)> {
    let is_for_pipes = |name: &str, value: &str| match name {
        "NO_COLOR" | "TERM" => true,
        "PAGER" | "GIT_PAGER" => value == "cat",
        _ => false,
    };
    let kept = session.iter().filter(|(name, value)| !is_for_pipes(name, value)).cloned();
    let term = [("TERM".to_owned(), TERM.to_owned())];
    let of_session = (!label.is_empty()).then(|| ("QUACKD_SESSION".to_owned(), label.to_owned()));
    let mut all: Vec<_> = kept.chain(term).chain(of_session).collect();

    let programs = run_dir.join(PROGRAMS);
    // A path with a colon would be two entries of `PATH`.
    let programs = programs.to_str().filter(|path| !path.contains(':'));
    all.extend(programs.map(|path| ("BROWSER".to_owned(), format!("{path}/{OPENER}"))));
    all.extend(own.iter().cloned());
    let path = all.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    if let (Some(programs), Some(path)) = (programs, path) {
        all.push(("PATH".to_owned(), format!("{programs}:{path}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_program_gets_a_terminal_and_no_variable_for_pipes() {
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let session = pairs(&[
            ("PATH", "/bin"),
            ("NO_COLOR", "1"),
            ("TERM", "dumb"),
            ("PAGER", "cat"),
            ("GIT_PAGER", "delta"),
        ]);
        let own = pairs(&[("COLORTERM", "truecolor"), ("PATH", "/opt")]);
        let expected = pairs(&[
            ("PATH", "/bin"),
            ("GIT_PAGER", "delta"),
            ("TERM", "xterm-256color"),
            ("QUACKD_SESSION", "web"),
            ("BROWSER", "/run/s1/bin/xdg-open"),
            ("COLORTERM", "truecolor"),
            ("PATH", "/opt"),
            ("PATH", "/run/s1/bin:/opt"),
        ]);
        assert_eq!(environment(&session, "web", Path::new("/run/s1"), &own), expected);
        let without = environment(&[], "", Path::new("/a:b"), &[]);
        assert_eq!(without, pairs(&[("TERM", "xterm-256color")]));
    }

    #[test]
    fn the_program_is_written_again_and_through_no_link() {
        let world = tempfile::tempdir().unwrap();
        let (run, other) = (world.path().join("run"), world.path().join("other"));
        std::fs::create_dir(&run).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("kept"), "kept").unwrap();
        symlink(&other, run.join(PROGRAMS)).unwrap();
        assert!(write_opener_blocking(&run).is_err());
        assert!(!other.join(OPENER).exists());

        std::fs::remove_file(run.join(PROGRAMS)).unwrap();
        write_opener_blocking(&run).unwrap();
        let program = run.join(PROGRAMS).join(OPENER);
        std::fs::remove_file(&program).unwrap();
        symlink(other.join("kept"), &program).unwrap();
        write_opener_blocking(&run).unwrap();
        assert_eq!(std::fs::read_to_string(other.join("kept")).unwrap(), "kept");
        assert_eq!(std::fs::read_to_string(&program).unwrap(), OPENER_SCRIPT);
        assert!(std::fs::metadata(&program).unwrap().permissions().mode() & 0o100 != 0);
    }
}

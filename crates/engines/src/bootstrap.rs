//! The script that starts the program on a machine that may not have it. The far shell runs it before the handshake.
//!
//! Its arguments are the digest of the program (SHA-256, in hexadecimal), its size in bytes, and the arguments of the
//! program. It prints `quackd: send` if it needs the program, and `quackd: error TEXT` if it fails.

/// The script for a POSIX shell. One line without `'`, `\` and `!`, so that the login shell that passes it on may also be
/// csh or fish.
pub(crate) const BOOTSTRAP: &str = concat!(
    // Slurm passes neither of these with `--export=NONE`.
    r#"PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"; "#,
    r#"[ -n "$HOME" ] || HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"; export PATH HOME; "#,
    // A login script may have printed the beginning of a line.
    r#"e() { echo; echo "quackd: error $*"; exit 1; }; "#,
    r#"d="${XDG_CACHE_HOME:-$HOME/.cache}/quackd"; h="$1"; n="$2"; f="$d/quack-$h"; shift 2; "#,
    // A user who may write to the directory could replace the program between the check and the start. The program keeps
    // the umask of the user.
    r#"(umask 077; mkdir -p "$d") || e "cannot create the directory $d"; "#,
    r#"case "$(ls -ldn "$d/")" in d????-??-?*) ;; *) e "others may write to $d" ;; esac; "#,
    r#"[ -O "$d" ] || e "$d belongs to another user"; "#,
    r#"if command -v sha256sum >/dev/null; then s="sha256sum"; "#,
    r#"elif command -v shasum >/dev/null; then s="shasum -a 256"; "#,
    r#"elif command -v openssl >/dev/null; then s="openssl dgst -sha256"; "#,
    r#"else e "sha256sum, shasum or openssl is needed there"; fi; "#,
    r#"k() { case "$($s <"$1")" in *"$h"*) ;; *) return 1 ;; esac; }; "#,
    r#"if [ -f "$f" ] && k "$f"; then touch "$f"; exec "$f" "$@"; fi; "#,
    // Programs of earlier versions, and what a lost link has left.
    r#"find "$d" -name "quack-*" -type f -mtime +30 -exec rm -f {} + ; "#,
    r#"t="$(mktemp "$d/quack-new.XXXXXX")" || e "cannot write to $d"; "#,
    r#"x() { rm -f "$t"; e "$*"; }; "#,
    r#"echo; echo "quackd: send"; head -c "$n" >"$t"; "#,
    r#"k "$t" || x "the program arrived incomplete: is there space in $d?"; "#,
    // A program for another processor, or one that needs a newer C library, fails here with a text that helps.
    r#"chmod 700 "$t"; "$t" --version >/dev/null || "#,
    r#"x "the program cannot run there: set far.program to a static build for $(uname -m)"; "#,
    r#"mv -f "$t" "$f" || x "cannot write $f"; exec "$f" "$@""#,
);

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// A program as quack: it starts with `--version`, prints its arguments, and copies its input.
    const FAKE: &str =
        "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho \"started $*\"\nexec cat\n";

    fn digest(program: &str) -> String {
        Sha256::digest(program.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Runs the script with this input. Returns its output.
    #[expect(clippy::disallowed_methods, reason = "a test of what a shell does")]
    fn run(shell: &str, home: &Path, program: &str, input: &str) -> String {
        let mut command = Command::new(shell);
        command.args(["-c", BOOTSTRAP, "quackd", &digest(program), &program.len().to_string()]);
        command.args(["worker", "--stdio"]).env("HOME", home).env_remove("XDG_CACHE_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // A script that fails early does not read its input.
        let _early = child.stdin.take().unwrap().write_all(input.as_bytes());
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn the_script_passes_through_every_login_shell() {
        let bad = ['\'', '\\', '!', '\n'];
        assert_eq!(BOOTSTRAP.find(bad), None);
        assert!(!BOOTSTRAP.contains("{digest}") && !BOOTSTRAP.contains("{size}"));
    }

    #[test]
    fn the_program_is_sent_once_and_checked_at_each_start() {
        for shell in ["sh", "bash"] {
            let home = tempfile::tempdir().unwrap();
            let sent = format!("{FAKE}hello\n");
            let first = "\nquackd: send\nstarted worker --stdio\nhello\n";
            assert_eq!(run(shell, home.path(), FAKE, &sent), first, "{shell}");
            let again = run(shell, home.path(), FAKE, "hello\n");
            assert_eq!(again, "started worker --stdio\nhello\n", "{shell}");

            let kept = home.path().join(".cache/quackd");
            let file = kept.join(format!("quack-{}", digest(FAKE)));
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            fs::write(&file, "#!/bin/sh\necho replaced\n").unwrap();
            assert_eq!(run(shell, home.path(), FAKE, &sent), first, "{shell}");
            assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_failure_is_one_line_and_leaves_no_file() {
        let home = tempfile::tempdir().unwrap();
        let kept = home.path().join(".cache/quackd");
        let cut = run("sh", home.path(), FAKE, "#!/bin/sh\n");
        assert!(
            cut.starts_with("\nquackd: send\n\nquackd: error the program arrived incomplete"),
            "{cut}"
        );
        let other = "no program";
        let other = run("sh", home.path(), other, other);
        assert!(
            other.contains("\nquackd: error the program cannot run there: set far.program"),
            "{other}"
        );
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);

        fs::set_permissions(&kept, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = run("sh", home.path(), FAKE, FAKE);
        assert!(refused.starts_with("\nquackd: error others may write to /"), "{refused}");
        let no_home = run("sh", Path::new("/dev/null"), FAKE, "");
        assert!(
            no_home.starts_with("\nquackd: error cannot create the directory /dev/null"),
            "{no_home}"
        );
    }
}

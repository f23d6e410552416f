//! Chooses the shell whose environment is captured, and its arguments. Used by [`crate::capture`].

use nix::unistd::{AccessFlags, User, access, getuid};
use std::path::{Path, PathBuf};

/// Variable with the path of the pipe for the answer. A variable needs no quoting, which differs between shells.
pub(crate) const PIPE_VARIABLE: &str = "QUACKD_LOGIN_PIPE";

/// Last bytes of a complete answer.
pub(crate) const END: &[u8] = b"end=1\n";

/// The script uses the path of `env`, because the start files may have replaced the name by a function or unset PATH.
/// It uses no other program, because `env` is the only one with the same path on every system. (macOS supports `-0`
/// since version 13; not run there.)
const SCRIPT: &str =
    r#"/usr/bin/env -0 >"$QUACKD_LOGIN_PIPE"; /usr/bin/env -i end=1 >"$QUACKD_LOGIN_PIPE""#;

/// Like [`SCRIPT`] for csh, whose `noclobber` otherwise also protects a pipe.
const C_SCRIPT: &str =
    r#"/usr/bin/env -0 >! "$QUACKD_LOGIN_PIPE"; /usr/bin/env -i end=1 >! "$QUACKD_LOGIN_PIPE""#;

/// Program names that the password database contains instead of a shell for users that may not log in.
const NO_SHELLS: &[&str] = &["nologin", "false", "true", "sync", "shutdown", "halt"];

/// Shell used if no other one is found.
const PLAIN_SHELL: &str = "/bin/sh";

/// Entry of this user in the password database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name, for `USER` and `LOGNAME`.
    pub name: String,
    /// Home directory, for `HOME`.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl Account {
    /// Looks up this user. `None` without an entry, for example for a user id that a container invented.
    #[must_use]
    pub fn of_this_user_blocking() -> Option<Self> {
        let user = User::from_uid(getuid()).ok()??;
        Some(Self { name: user.name, home: user.dir, shell: user.shell })
    }
}

/// One way to call a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Options before the script.
    pub(crate) options: &'static [&'static str],
    /// Script that the shell runs, which writes the environment into the pipe.
    pub(crate) script: &'static str,
    /// True if the shell reads the interactive start files.
    pub(crate) interactive: bool,
}

/// Returns the account's shell, otherwise the one in `SHELL`, otherwise the system's.
pub(crate) fn choose(account: Option<&Account>, variable: Option<&str>) -> PathBuf {
    let candidates = [account.map(|account| account.shell.as_path()), variable.map(Path::new)];
    let shell = candidates.into_iter().flatten().find(|path| is_shell(path));
    shell.unwrap_or_else(|| Path::new(PLAIN_SHELL)).to_owned()
}

fn is_shell(path: &Path) -> bool {
    let is_program = || path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    path.is_absolute() && !NO_SHELLS.contains(&name(path)) && is_program()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Returns the ways to call `shell`, the most complete one first. Many users set PATH only in the interactive start
/// file, and some of those files fail without a terminal.
pub(crate) fn attempts(shell: &Path) -> &'static [Attempt] {
    const LOGIN: Attempt = Attempt { options: &["-l", "-c"], script: SCRIPT, interactive: false };
    const INTERACTIVE: Attempt =
        Attempt { options: &["-l", "-i", "-c"], script: SCRIPT, interactive: true };
    // csh always reads its start file, and accepts `-l` only as the sole argument.
    const C_SHELL: Attempt = Attempt { options: &["-c"], script: C_SCRIPT, interactive: false };
    match name(shell) {
        "bash" | "zsh" | "fish" | "ksh" | "ksh93" | "mksh" | "oksh" => &[INTERACTIVE, LOGIN],
        "csh" | "tcsh" => &[C_SHELL],
        _ => &[LOGIN],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(shell: &str) -> Account {
        Account { name: "duck".into(), home: "/home/duck".into(), shell: shell.into() }
    }

    #[test]
    fn the_accounts_shell_wins_unless_it_is_none() {
        for (entry, variable, expected) in [
            (Some("/bin/bash"), Some("/bin/sh"), "/bin/bash"),
            (Some("/usr/sbin/nologin"), Some("/bin/bash"), "/bin/bash"),
            (Some("/bin/false"), None, "/bin/sh"),
            (Some("/no/such/shell"), Some("/bin/bash"), "/bin/bash"),
            (Some(""), Some("bash"), "/bin/sh"),
            (Some("/etc"), Some("/etc/passwd"), "/bin/sh"),
            (None, Some("/bin/bash"), "/bin/bash"),
            (None, None, "/bin/sh"),
        ] {
            let account = entry.map(account);
            let chosen = choose(account.as_ref(), variable);
            assert_eq!(chosen, Path::new(expected), "{entry:?} {variable:?}");
        }
    }

    #[test]
    fn interactive_start_files_are_tried_where_the_shell_has_them() {
        let of = |shell: &str| {
            let attempts = attempts(Path::new(shell)).iter();
            attempts.map(|attempt| attempt.options.join(" ")).collect::<Vec<_>>()
        };
        for shell in ["/bin/bash", "/usr/local/bin/fish", "zsh"] {
            assert_eq!(of(shell), ["-l -i -c", "-l -c"], "{shell}");
        }
        assert_eq!(of("/bin/tcsh"), ["-c"]);
        assert_eq!(of("/bin/sh"), ["-l -c"]);
        assert_eq!(of("/opt/strange"), ["-l -c"]);
    }

    #[test]
    fn the_scripts_name_the_variable_and_write_the_end() {
        let mark = String::from_utf8(END.to_vec()).unwrap();
        for script in [SCRIPT, C_SCRIPT] {
            assert_eq!(script.matches(PIPE_VARIABLE).count(), 2);
            assert!(script.contains(mark.trim_end()));
        }
    }
}

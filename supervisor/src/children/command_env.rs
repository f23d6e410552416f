//! The environment of a session's commands. Only listed names are passed on, because a whole environment may contain
//! keys. The values come from the daemon's own variables and from the user's login shell (see
//! [`crate::children::login_env`]).

use quackd_protocol::environment::{GIT_SETTINGS_VARIABLES, MAX_LOGIN_BYTES, MAX_VALUE_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// Variables, sorted by name.
pub(crate) type Variables = Vec<(String, String)>;

/// Names that are passed on unchanged. Toolchain roots are listed so that `cargo`, `go`, `node` and similar tools work.
/// No key, token or socket is listed.
const ALLOWED_NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TZ",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "ANDROID_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VOLTA_HOME",
    "BUN_INSTALL",
    "PNPM_HOME",
    "SDKMAN_DIR",
    "RBENV_ROOT",
    "NODENV_ROOT",
    "GOENV_ROOT",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "FNM_DIR",
    "MISE_DATA_DIR",
    "DENO_INSTALL",
    "DENO_DIR",
    "MAVEN_HOME",
    "DOTNET_ROOT",
    "ELAN_HOME",
    "OPAMROOT",
    "N_PREFIX",
    "npm_config_prefix",
    "NPM_CONFIG_PREFIX",
    "npm_config_cache",
    "NPM_CONFIG_CACHE",
    "GRADLE_USER_HOME",
    "GOMODCACHE",
    "GOCACHE",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
    "YARN_CACHE_FOLDER",
    "PLAYWRIGHT_BROWSERS_PATH",
    "DEVELOPER_DIR",
    "SDKROOT",
    "HOMEBREW_PREFIX",
    "NIX_PATH",
];

/// Names of locale variables, which are passed on if the value is plausible ([`is_locale`]).
const LOCALE: [&str; 15] = [
    "LANG",
    "LANGUAGE",
    "LC_ADDRESS",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];

/// Maximum length of a locale variable's value, in bytes.
const MAX_LOCALE_BYTES: usize = 128;

/// The daemon's own keys, which no configuration passes on. Other keys pass if the user lists them.
const DENIED_NAMES: &[&str] = &["EXA_API_KEY", "RUBBER_DUCK_EXA_API_KEY"];

/// Maximum number and length of the names that a configuration adds.
const MAX_EXTRA: usize = 256;
const MAX_NAME_BYTES: usize = 256;

/// Set for every command: no pager, no prompt, no color, since there is no terminal.
const FIXED: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// The daemon's own variables that a login shell gets. PATH is not listed: the result is cached, so it must not depend
/// on the environment in which the daemon was started.
const LOGIN: &[&str] = &["HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR"];

/// PATH of login shells, and of a daemon that has no PATH.
const SYSTEM_PATH: &str = quackd_process::SYSTEM_PATH;

/// Allow-list for the environment of commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EnvAllowList {
    extra: BTreeSet<String>,
}

impl EnvAllowList {
    /// Allows the built-in names and `extra`. Also returns the refused names: invalid ones and the daemon's own keys.
    pub(crate) fn new(extra: impl IntoIterator<Item = String>) -> (Self, Vec<String>) {
        let may_pass = |name: &String| {
            !name.is_empty()
                && name.len() <= MAX_NAME_BYTES
                && !name.contains(['=', '\0'])
                && !DENIED_NAMES.contains(&name.as_str())
        };
        let (extra, refused): (Vec<_>, Vec<_>) =
            extra.into_iter().take(MAX_EXTRA).partition(may_pass);
        (Self { extra: extra.into_iter().collect() }, refused)
    }

    /// All allowed names.
    pub(crate) fn names(&self) -> Vec<String> {
        let listed = ALLOWED_NAMES.iter().chain(&LOCALE).chain(&GIT_SETTINGS_VARIABLES);
        let listed = listed.map(|name| (*name).to_owned());
        listed.chain(self.extra.iter().cloned()).collect()
    }

    fn permits(&self, name: &str, value: &str) -> bool {
        ALLOWED_NAMES.contains(&name)
            || GIT_SETTINGS_VARIABLES.contains(&name)
            || (LOCALE.contains(&name) && is_locale(value))
            || self.extra.contains(name)
    }

    /// Returns the allowed part of the daemon's own variables. Leaves out values that are not UTF-8.
    pub(crate) fn own(&self, all: impl Iterator<Item = (OsString, OsString)>) -> Variables {
        let text = all.filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
        let found: BTreeMap<_, _> =
            text.filter(|(name, value)| self.permits(name, value)).collect();
        found.into_iter().collect()
    }

    /// Returns the allowed part of variables from a login shell or a file. `None` if it is too large: the process that
    /// asks the shell is not trusted, and neither is the file.
    pub(crate) fn foreign(&self, all: Variables) -> Option<Variables> {
        let is_sound = |text: &str| text.len() <= MAX_VALUE_BYTES && !text.contains('\0');
        let found: BTreeMap<_, _> = all
            .into_iter()
            .filter(|(name, value)| self.permits(name, value) && is_sound(name) && is_sound(value))
            .collect();
        let bytes: usize = found.iter().map(|(name, value)| name.len() + value.len()).sum();
        (bytes <= MAX_LOGIN_BYTES).then(|| found.into_iter().collect())
    }
}

/// Whether a value can be a locale name or a list of such names, such as `de_DE.UTF-8@euro` and `de:en`.
fn is_locale(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:+,=".contains(&byte);
    value.len() <= MAX_LOCALE_BYTES && value.bytes().all(is_plain)
}

/// Returns the initial environment of a login shell, from the daemon's `own` variables.
pub(crate) fn for_login_shell(own: &[(String, String)]) -> Variables {
    let is_passed = |name: &str| LOGIN.contains(&name) || LOCALE.contains(&name);
    let mut env: Variables = own.iter().filter(|(name, _)| is_passed(name)).cloned().collect();
    env.extend([("PATH", SYSTEM_PATH), ("TERM", "dumb")].map(|(n, v)| (n.into(), v.into())));
    env
}

/// Merges the environment of commands. Fixed values win over the login shell's values, and those over the daemon's.
/// PATH contains the login shell's directories, then the directories that only the daemon has.
pub(crate) fn merge(own: &[(String, String)], login: &[(String, String)]) -> Variables {
    let mut env: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in own.iter().chain(login) {
        env.insert(name, value);
    }
    let path = path(of(login, "PATH"), of(own, "PATH"));
    env.insert("PATH", &path);
    env.extend(FIXED.iter().copied());
    env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the result of [`merge`] for the daemon's own variables alone.
pub(crate) fn for_tools(variables: impl Iterator<Item = (OsString, OsString)>) -> Variables {
    merge(&EnvAllowList::default().own(variables), &[])
}

/// Returns the value of a variable, or an empty string.
pub(crate) fn of<'a>(variables: &'a [(String, String)], name: &str) -> &'a str {
    let found = variables.iter().find(|(there, _)| there == name);
    found.map(|(_, value)| value.as_str()).unwrap_or_default()
}

/// Joins the directories of both lists without duplicates. Leaves out empty and relative entries, which would depend on
/// the command's directory. Cuts the list at the maximum length of a value.
pub(crate) fn path(first: &str, second: &str) -> String {
    let mut seen = BTreeSet::new();
    let mut joined = String::new();
    for entry in first.split(':').chain(second.split(':')) {
        let fits = joined.len() + entry.len() < MAX_VALUE_BYTES;
        if entry.starts_with('/') && fits && seen.insert(entry) {
            if !joined.is_empty() {
                joined.push(':');
            }
            joined.push_str(entry);
        }
    }
    if joined.is_empty() { SYSTEM_PATH.to_owned() } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> Variables {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn os(all: &[(&str, &str)]) -> std::vec::IntoIter<(OsString, OsString)> {
        let all: Vec<_> = all.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect();
        all.into_iter()
    }

    fn allowed(extra: &[&str]) -> EnvAllowList {
        EnvAllowList::new(extra.iter().map(|name| (*name).to_owned())).0
    }

    #[test]
    fn keys_do_not_pass_and_tools_are_found() {
        let env = for_tools(os(&[
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("OPENAI_API_KEY", "secret"),
            ("EXA_API_KEY", "secret"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("RUBBER_DUCK_APP_SUPPORT", "/x"),
            ("TERM", "xterm"),
        ]));
        let names: Vec<&str> = env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["GIT_PAGER", "GIT_TERMINAL_PROMPT", "LC_ALL", "NO_COLOR", "PAGER", "PATH", "TERM"]
        );
        assert!(env.contains(&("TERM".into(), "dumb".into())));
        assert!(for_tools(std::iter::empty()).contains(&("PATH".into(), SYSTEM_PATH.into())));
    }

    #[test]
    fn a_locale_has_known_names_and_plain_values() {
        let long = "x".repeat(MAX_LOCALE_BYTES + 1);
        let env = [
            ("LANG", "en_US.UTF-8"),
            ("LANGUAGE", "de:en_GB"),
            ("LC_ALL", ""),
            ("LC_API_TOKEN", "secret"),
            ("LC_COLLATE", "a b"),
            ("LC_CTYPE", "../x"),
            ("LC_NAME", &long),
            ("LC_PAPER", "a\u{9b}b"),
            ("LC_TIME", "de_DE.UTF-8@euro"),
        ];
        let passed = [env[0], env[1], env[2], env[8]];
        assert_eq!(allowed(&[]).own(os(&env)), variables(&passed));
        assert_eq!(allowed(&[]).foreign(variables(&env)), Some(variables(&passed)));
        assert_eq!(allowed(&["LC_API_TOKEN"]).own(os(&env[3..4])), variables(&env[3..4]));
    }

    #[test]
    fn the_daemons_own_keys_do_not_pass_whoever_lists_them() {
        let extra = ["EXA_API_KEY", "OPENAI_API_KEY", "RUBBER_DUCK_EXA_API_KEY", "", "A=B", "A\0"];
        let (allowed, refused) = EnvAllowList::new(extra.map(str::to_owned));
        assert_eq!(refused, ["EXA_API_KEY", "RUBBER_DUCK_EXA_API_KEY", "", "A=B", "A\0"]);
        let env = [("EXA_API_KEY", "1"), ("OPENAI_API_KEY", "2"), ("ANTHROPIC_API_KEY", "3")];
        let expected = variables(&[("OPENAI_API_KEY", "2")]);
        assert_eq!(allowed.own(os(&env)), expected);
        assert_eq!(allowed.foreign(variables(&env)), Some(expected));
        assert!(allowed.names().contains(&"OPENAI_API_KEY".to_owned()));
        assert!(!allowed.names().contains(&"EXA_API_KEY".to_owned()));
    }

    #[test]
    fn foreign_variables_are_bounded() {
        let long = "x".repeat(MAX_VALUE_BYTES);
        let longer = format!("{long}x");
        let of = |all: &[(&str, &str)]| allowed(&[]).foreign(variables(all));
        assert_eq!(
            of(&[("HOME", &longer), ("SHELL", "a\0b"), ("TZ", "UTC")]),
            Some(variables(&[("TZ", "UTC")]))
        );
        assert!(of(&[("HOME", &long)]).is_some());
        assert_eq!(of(&[("HOME", &long), ("SHELL", &long)]), None);
    }

    #[test]
    fn the_login_shells_values_win_and_both_paths_count() {
        let own = variables(&[
            ("CARGO_HOME", "/own/cargo"),
            ("HOME", "/home"),
            ("MINE", "own"),
            ("PATH", "/usr/bin:/bin:/own/bin"),
        ]);
        let login = variables(&[
            ("CARGO_HOME", "/login/cargo"),
            ("GOPATH", "/login/go"),
            ("PAGER", "less"),
            ("PATH", "/login/bin:/usr/bin"),
        ]);
        let merged = merge(&own, &login);
        let not_fixed: Variables = merged
            .iter()
            .filter(|(name, _)| !FIXED.iter().any(|(n, _)| n == name))
            .cloned()
            .collect();
        let expected = variables(&[
            ("CARGO_HOME", "/login/cargo"),
            ("GOPATH", "/login/go"),
            ("HOME", "/home"),
            ("MINE", "own"),
            ("PATH", "/login/bin:/usr/bin:/bin:/own/bin"),
        ]);
        assert_eq!(not_fixed, expected);
        for (name, value) in FIXED {
            assert_eq!(of(&merged, name), *value);
        }
        assert!(merged.is_sorted());
    }

    #[test]
    fn a_path_has_each_directory_once_and_no_relative_one() {
        let long = format!("/{}", "x".repeat(MAX_VALUE_BYTES));
        for (login, own, expected) in [
            ("/a:/b", "/b:/c", "/a:/b:/c"),
            ("", "/c:/a:/c", "/c:/a"),
            ("/a", "", "/a"),
            ("", "", SYSTEM_PATH),
            (":.:bin:~/bin:", "::../x", SYSTEM_PATH),
            ("/a::/b:.:/a", "bin:/b", "/a:/b"),
            (&long, "/c", "/c"),
        ] {
            assert_eq!(path(login, own), expected, "{login:.20} {own}");
        }
    }

    #[test]
    fn a_login_shell_does_not_inherit_what_its_files_are_to_set() {
        let own = variables(&[
            ("CARGO_HOME", "/stale"),
            ("HOME", "/home"),
            ("LC_ALL", "C"),
            ("PATH", "/venv/bin"),
        ]);
        let expected =
            [("HOME", "/home"), ("LC_ALL", "C"), ("PATH", SYSTEM_PATH), ("TERM", "dumb")];
        assert_eq!(for_login_shell(&own), variables(&expected));
    }
}

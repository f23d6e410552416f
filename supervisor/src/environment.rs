//! The environment that a session's commands get: a list of names, never the daemon's whole
//! environment, which may hold keys.

use std::ffi::OsString;

/// Names that are passed on as they are. Toolchain roots are here so that `cargo`, `go`, `node` and the
/// like find themselves; nothing that is a key, a token or a socket is.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
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
    "DEVELOPER_DIR",
    "SDKROOT",
    "HOMEBREW_PREFIX",
    "NIX_PATH",
];

/// What every command gets: no pager, no prompt, no colour, since nobody looks at a terminal.
const FIXED: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// A daemon that was started with an empty environment still finds the system's tools.
const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Builds the list from the daemon's own variables. Values that are not UTF-8 are left out.
pub(crate) fn for_tools(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| PASSED.contains(&name.as_str()) || name.starts_with("LC_"))
        .collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".to_owned(), FALLBACK_PATH.to_owned()));
    }
    env.extend(FIXED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    env.sort();
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_pass_and_tools_are_found() {
        let variables = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("OPENAI_API_KEY", "secret"),
            ("EXA_API_KEY", "secret"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("RUBBER_DUCK_APP_SUPPORT", "/x"),
            ("TERM", "xterm"),
        ];
        let env = for_tools(variables.map(|(n, v)| (n.into(), v.into())).into_iter());
        let names: Vec<&str> = env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["GIT_PAGER", "GIT_TERMINAL_PROMPT", "LC_ALL", "NO_COLOR", "PAGER", "PATH", "TERM"]
        );
        assert!(env.contains(&("TERM".into(), "dumb".into())));
        assert!(for_tools(std::iter::empty()).contains(&("PATH".into(), FALLBACK_PATH.into())));
    }
}

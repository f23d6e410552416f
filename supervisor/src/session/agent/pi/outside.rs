//! Keeps Pi's start files out of reach of commands. Pi runs unconfined with the user's keys, so no program,
//! search path or variable of Pi may lead into a directory that a session's commands write.
//!
//! Called on the blocking pool: while a Pi is prepared, and before the user's tools are asked for their registries.

use crate::children::command_env::Variables;
use crate::errors::AgentError;
use quackd_process::Writable;
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Directory with the settings of a project, which contain code.
const PROJECT_SETTINGS: &str = ".pi";

/// Variable with the directory of Pi's own settings, and their file.
const AGENT_DIRECTORY: &str = "PI_CODING_AGENT_DIR";
const SETTINGS: &str = "settings.json";

/// Directories of Pi's settings with code. Links there are followed, because the code behind them may have links too.
const CODE: [&str; 3] = ["extensions", "npm", "git"];

/// Keys of `settings.json` with paths of code.
const CODE_KEYS: [&str; 2] = ["extensions", "packages"];

/// Directories that the walk leaves out: Pi runs nothing in them.
const DATA: [&str; 2] = ["sessions", ".git"];

/// Directory of installed packages. The walk sees the packages, which may be links, and not the files in them.
const PACKAGES: &str = "node_modules";

/// Bounds on Pi's settings: entries of all directories, and bytes of the file.
const MAX_ENTRIES: usize = 16_384;
const MAX_SETTINGS_BYTES: u64 = 1024 * 1024;

/// Paths of one variable that the daemon checks.
const MAX_PIECES: usize = 1024;

/// Variables with options of the runtime, and the options that load something.
const OPTIONS: [&str; 2] = ["NODE_OPTIONS", "BUN_OPTIONS"];
const LOADING: [&str; 10] = [
    "--config",
    "--cwd",
    "--env-file",
    "--experimental-config",
    "--experimental-default-config",
    "--experimental-loader",
    "--import",
    "--loader",
    "--preload",
    "--require",
];

/// Variables with files or directories of code.
const LOADERS: [&str; 11] = [
    "BASH_ENV",
    "BUN_INSPECT_PRELOAD",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "PERL5LIB",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
];

/// Refuses settings of Pi that commands can change: a workspace in them, a link that leads into a workspace, or a path
/// that `settings.json` names. Reads the file system.
///
/// # Errors
/// [`AgentError::Held`], or [`AgentError::ManySettings`] for more entries than the daemon checks.
pub(crate) fn check_settings_blocking(
    writable: &Writable,
    env: &Variables,
) -> Result<(), AgentError> {
    let home = Path::new(crate::children::command_env::of(env, "HOME"));
    let expand = |text: &str| match text.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(text),
    };
    let agent = match crate::children::command_env::of(env, AGENT_DIRECTORY) {
        "" => home.join(".pi/agent"),
        named => expand(named),
    };
    let settings = read_settings(&agent.join(SETTINGS));
    let code = CODE_KEYS.iter().filter_map(|key| settings.get(key));
    let code: Vec<_> = code.flat_map(|value| named_in(value.clone())).collect();
    for text in named_in(settings) {
        check_blocking(writable, &agent.join(expand(&text)))?;
    }
    let mut walk = Walk { held: writable, agent: &agent, seen: HashSet::new(), left: MAX_ENTRIES };
    walk.run_blocking(agent.clone())?;
    code.iter().try_for_each(|text| walk.run_blocking(agent.join(expand(text))))
}

/// Refuses a path that is in a writable directory, leads through one, or holds one.
fn check_blocking(writable: &Writable, path: &Path) -> Result<(), AgentError> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match writable.inside(&real).or_else(|| writable.holds_blocking(path)) {
        Some(held) => Err(AgentError::Held { path: path.to_owned(), held: held.to_owned() }),
        None => Ok(()),
    }
}

/// Removes variables and `PATH` entries that lead into a writable directory, such as `NODE_OPTIONS`, `AWS_CONFIG_FILE`
/// or `PI_CODING_AGENT_DIR`. Also removes variables that load code by a relative path. Returns the names of the removed
/// variables. Reads the file system.
pub(crate) fn clean_blocking(writable: &Writable, env: &mut Variables) -> Vec<String> {
    let mut removed = Vec::new();
    let home = crate::children::command_env::of(env, "HOME").to_owned();
    env.retain_mut(|(name, value)| {
        if name == "PATH" {
            *value = writable.clean_path_blocking(value);
            return true;
        }
        let is_safe = !writable.iter().any(|directory| names(value, directory))
            && !leads_in_blocking(writable, value, &home)
            && !is_relative(name, value);
        if !is_safe {
            removed.push(name.clone());
        }
        is_safe
    });
    removed
}

/// Whether a path in a text leads into a writable directory, in any spelling. True for a text with more paths than the
/// daemon checks.
fn leads_in_blocking(writable: &Writable, value: &str, home: &str) -> bool {
    let ends = |c: char| matches!(c, ':' | '=' | ',' | ';' | '"' | '\'' | '`' | '(' | ')');
    let all = value.split(ends).chain(value.split(|c: char| ends(c) || c.is_whitespace()));
    let mut pieces = std::iter::once(value).chain(all).filter(|piece| piece.contains('/'));
    let mut left = MAX_PIECES;
    pieces.any(|piece| {
        left = left.saturating_sub(1);
        let path = match piece.trim_start().split_once("~/") {
            Some(("", rest)) => format!("{home}/{rest}"),
            // An option may have its path without a separator, as in `-I/usr/include`.
            _ => piece.find('/').and_then(|at| piece.get(at..)).unwrap_or_default().to_owned(),
        };
        left == 0 || writable.holds_blocking(Path::new(&path)).is_some()
    })
}

/// One walk through Pi's settings.
struct Walk<'a> {
    held: &'a Writable,
    agent: &'a Path,
    /// Directories already searched, canonical: links may form a loop.
    seen: HashSet<PathBuf>,
    left: usize,
}

impl Walk<'_> {
    /// Checks a file or directory of code, and every link below it.
    fn run_blocking(&mut self, root: PathBuf) -> Result<(), AgentError> {
        check_blocking(self.held, &root)?;
        let is_code = root != self.agent;
        let mut pending = vec![(root, is_code)];

        while let Some((directory, is_code)) = pending.pop() {
            let Ok(real) = fs::canonicalize(&directory) else { continue };
            if !self.seen.insert(real) {
                continue;
            }

            let is_agent = directory == self.agent;
            let is_package = is_package(&directory);
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 {
                    return Err(AgentError::ManySettings { path: directory, max: MAX_ENTRIES });
                }

                let (path, name) = (entry.path(), entry.file_name());
                let is_code = is_code || is_agent && CODE.iter().any(|code| name == *code);
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                if is_link && is_code {
                    check_blocking(self.held, &path)?;
                } else if is_link && let Some(held) = self.held.holds_blocking(&path) {
                    return Err(AgentError::Held { path, held: held.to_owned() });
                }

                let goes_on = if is_link { is_code } else { !is_package };
                if goes_on && !DATA.iter().any(|data| name == *data) && path.is_dir() {
                    pending.push((path, is_code));
                }
            }
        }

        Ok(())
    }
}

/// Whether a directory is one package in `node_modules`, or in a scope there.
fn is_package(directory: &Path) -> bool {
    let mut names = directory.components().rev().skip(1).map(Component::as_os_str);
    let above = names.next().unwrap_or_default();
    let is_scope = above.as_encoded_bytes().starts_with(b"@");
    let is_in_scope =
        directory.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"@"));
    above == PACKAGES && !is_in_scope
        || is_scope && names.next().is_some_and(|name| name == PACKAGES)
}

/// Reads a settings file. Null if it is too large or not JSON.
fn read_settings(settings: &Path) -> Value {
    let is_small = settings.metadata().is_ok_and(|found| found.len() <= MAX_SETTINGS_BYTES);
    let text = is_small.then(|| fs::read_to_string(settings).ok()).flatten().unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// Returns the strings of settings that look like a path.
fn named_in(settings: Value) -> Vec<String> {
    let mut pending = vec![settings];
    let mut paths = Vec::new();
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) if text.starts_with(['/', '~', '.']) => paths.push(text),
            Value::Array(all) => pending.extend(all),
            Value::Object(all) => pending.extend(all.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    paths
}

/// Whether a text contains the path of a directory, or of something in it.
fn names(value: &str, directory: &Path) -> bool {
    let Some(directory) = directory.to_str() else { return false };
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    value.match_indices(directory).any(|(at, found)| {
        let rest = value.get(at + found.len()..).unwrap_or_default();
        !rest.starts_with(goes_on)
    })
}

/// Whether a variable that loads code has a relative path. Pi's directory may be a workspace.
fn is_relative(name: &str, value: &str) -> bool {
    if OPTIONS.contains(&name) {
        return has_relative_option(value);
    }
    let is_of_linker = name.starts_with("LD_") || name.starts_with("DYLD_");
    let is_list = LOADERS.contains(&name) || is_of_linker && name.ends_with("_PATH");
    let mut entries = value.split(|c: char| c == ':' || c == ';' || c.is_whitespace());
    let is_absolute = |entry: &str| entry.starts_with('/');
    !value.is_empty()
        && (is_list || is_of_linker)
        && entries.any(|entry| !is_absolute(entry) && (is_list || entry.contains('/')))
}

/// Whether an option of Node or Bun loads something by another name than an absolute path. Such a name is a relative
/// path, or a package, which Node searches for in the working directory.
fn has_relative_option(value: &str) -> bool {
    // Quotes, escapes and encoded characters may hide a path.
    if value.contains(['"', '\'', '\\', '%']) {
        return true;
    }

    let mut words = value.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let (option, given) = match word.split_once('=') {
            Some((option, given)) => (option, Some(given)),
            None => (word, None),
        };

        let option = option.replace('_', "-");
        let loads = option == "-r" || LOADING.iter().any(|known| option.starts_with(known));
        let given = if loads { given.or_else(|| words.next()).or(Some("")) } else { given };

        let is_absolute = |text: &str| text.starts_with('/') || text.starts_with("file:///");
        if given.is_some_and(|given| (loads || given.contains('/')) && !is_absolute(given)) {
            return true;
        }
        if !word.starts_with(['-', '/']) && word.contains('/') {
            return true;
        }
    }

    false
}

/// Finds the project settings that a Pi in `workspace` would load: `.pi` in it or in a parent below `home`. A name
/// that cannot be read counts as found. Reads the file system.
pub(crate) fn project_settings_blocking(workspace: &Path, home: &Path) -> Option<PathBuf> {
    let home = fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    let directories = workspace.ancestors().take_while(|directory| *directory != home);
    // The kernel also finds `.PI` if the file system ignores case. A link counts as found, regardless of its target.
    directories.map(|directory| directory.join(PROJECT_SETTINGS)).find(|path| {
        !path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn variables_that_lead_into_a_workspace_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let ws = fs::canonicalize(dir.path()).unwrap().join("ws");
        fs::create_dir(&ws).unwrap();
        let at = ws.display().to_string();
        let writable = Writable::of_blocking(vec![ws], Path::new("/home/duck"));
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut env = vec![
            own("HOME", "/home/duck"),
            own("NODE_OPTIONS", &format!("--max-old-space-size=9 --require={at}/x.js")),
            own("OTHER", &format!("{at}-backup/x")),
            own("PATH", &format!("bin::{at}/bin:/usr/bin:./x")),
            own("VIRTUAL_ENV", &at),
        ];
        assert_eq!(clean_blocking(&writable, &mut env), ["NODE_OPTIONS", "VIRTUAL_ENV"]);
        let expected = [
            own("HOME", "/home/duck"),
            own("OTHER", &format!("{at}-backup/x")),
            own("PATH", "/usr/bin"),
        ];
        assert_eq!(env, expected);
    }

    #[test]
    fn a_variable_that_spells_a_workspace_in_another_way_is_removed() {
        let home = TestDir::with(&["my ws/d"]);
        symlink("my ws", home.join("dl")).unwrap();
        let writable = Writable::of_blocking(vec![home.join("my ws")], &home);
        let at = home.display().to_string();
        let is_kept = |value: &str| {
            let mut env = vec![
                ("HOME".to_owned(), at.clone()),
                ("ANY".to_owned(), value.replace("{at}", &at)),
            ];
            clean_blocking(&writable, &mut env).is_empty()
        };
        for value in [
            "--require={at}/dl/x.js",
            "--a --require {at}/dl/x.js --b",
            "{at}//my ws/x",
            "'{at}/./my ws/d'",
            "{at}/out/../my ws",
            "/usr/lib:{at}/dl",
            "~/dl/x",
            "a=~/dl,b",
            "-I{at}/dl/include",
            "file://{at}/dl/x.mjs",
            "{at}/dl/not/there",
        ] {
            assert!(!is_kept(value), "{value}");
        }
        for value in ["{at}/dlx", "~/other", "https://host/dl/x", "{at}", "/", "dl/x", "a b", ""] {
            assert!(is_kept(value), "{value}");
        }
        assert!(!is_kept(&"/a:".repeat(MAX_PIECES)));
    }

    #[test]
    fn a_variable_that_loads_code_by_a_relative_path_is_removed() {
        for (name, value) in [
            ("NODE_OPTIONS", "--require ./x.js"),
            ("NODE_OPTIONS", "--require=x.js"),
            ("NODE_OPTIONS", "-r dotenv/config"),
            ("NODE_OPTIONS", "--experimental_loader=ts-node"),
            ("NODE_OPTIONS", "--max-old-space-size=9 --import tsx"),
            ("NODE_OPTIONS", "--import=file:///a/%77s/x.mjs"),
            ("NODE_OPTIONS", "--diagnostic-dir=./x"),
            ("NODE_OPTIONS", "-r"),
            ("BUN_OPTIONS", "--preload x.ts"),
            ("NODE_PATH", "/usr/lib/node:lib"),
            ("NODE_REPL_EXTERNAL_MODULE", "x.js"),
            ("LD_LIBRARY_PATH", "/usr/lib:"),
            ("LD_PRELOAD", "./x.so"),
            ("DYLD_INSERT_LIBRARIES", "x/y.dylib"),
            ("PYTHONPATH", "."),
            ("BASH_ENV", ".rc"),
        ] {
            assert!(is_relative(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("NODE_OPTIONS", ""),
            ("NODE_OPTIONS", "--max-old-space-size=9 --dns-result-order=ipv4first"),
            ("NODE_OPTIONS", "--require /usr/lib/x.js --use-openssl-ca"),
            ("NODE_PATH", "/usr/lib/node:/x"),
            ("LD_LIBRARY_PATH", "/usr/lib"),
            ("LD_LIBRARY_PATH", ""),
            ("LD_PRELOAD", "libjemalloc.so /usr/lib/y.so"),
            ("LD_DEBUG", "all"),
            ("EDITOR", "bin/ed"),
        ] {
            assert!(!is_relative(name, value), "{name}={value}");
        }
    }

    #[test]
    fn a_link_anywhere_in_pis_settings_is_found() {
        for link in [
            "models.json",
            "auth.json",
            "extensions",
            "extensions/e/index.ts",
            "npm/node_modules/@a/b",
            "git/host/user/repo/src/a/b/c/x.ts",
            "skills/s/SKILL.md",
            "../../code/index.ts",
            "../../named/index.ts",
        ] {
            let home = TestDir::with(&["ws", "code", "named", "npm-cache", ".pi/agent"]);
            let agent = home.join(".pi/agent");
            fs::write(agent.join("settings.json"), r#"{"packages": [{"source": "~/named"}]}"#)
                .unwrap();
            fs::create_dir_all(agent.join(link).parent().unwrap()).unwrap();
            if link != "extensions" {
                fs::create_dir_all(agent.join("extensions")).unwrap();
                symlink(home.join("code"), agent.join("extensions/code")).unwrap();
                symlink("..", agent.join("extensions/loop")).unwrap();
            }
            symlink(home.join("npm-cache"), agent.join("cache")).unwrap();
            let env = vec![("HOME".to_owned(), home.display().to_string())];
            let writable = Writable::of_blocking(vec![home.join("ws")], &home);
            check_settings_blocking(&writable, &env).unwrap();
            symlink(home.join("ws/x"), agent.join(link)).unwrap();
            let found = check_settings_blocking(&writable, &env).unwrap_err();
            assert!(
                matches!(&found, AgentError::Held { held, .. } if *held == home.join("ws")),
                "{link}"
            );
        }
    }

    #[test]
    fn settings_with_too_many_entries_are_refused_and_installed_packages_do_not_count() {
        let home = TestDir::empty();
        let agent = home.join(".pi/agent");
        let package = agent.join("npm/node_modules/p");
        for at in [package.join("lib"), agent.join("sessions/s")] {
            fs::create_dir_all(at).unwrap();
        }
        let fill = |at: PathBuf| {
            for n in 0..MAX_ENTRIES {
                fs::File::create(at.join(n.to_string())).unwrap();
            }
        };
        fill(package.join("lib"));
        fill(agent.join("sessions/s"));
        let env = vec![("HOME".to_owned(), home.display().to_string())];
        let writable = Writable::of_blocking(vec![home.join("ws")], &home);
        check_settings_blocking(&writable, &env).unwrap();
        fs::create_dir(agent.join("many")).unwrap();
        fill(agent.join("many"));
        let found = check_settings_blocking(&writable, &env).unwrap_err();
        assert!(matches!(found, AgentError::ManySettings { .. }), "{found}");
    }

    #[test]
    fn settings_of_pi_that_a_command_can_change_are_found() {
        let home = TestDir::with(&["ws/ext", ".pi/agent/extensions/own", "out"]);
        let env = vec![("HOME".to_owned(), home.display().to_string())];
        let held = |workspace: &str| {
            let writable = Writable::of_blocking(vec![home.join(workspace)], &home);
            match check_settings_blocking(&writable, &env) {
                Ok(()) => None,
                Err(AgentError::Held { path, .. }) => Some(path),
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(held("ws"), None);
        // A workspace inside of the settings.
        assert_eq!(held(".pi/agent/extensions/own"), Some(home.join(".pi/agent")));
        fs::write(home.join(".pi/agent/settings.json"), r#"{"packages": ["npm:x", "~/ws/ext"]}"#)
            .unwrap();
        assert_eq!(held("ws"), Some(home.join("ws/ext")));
        assert_eq!(held("out"), None);
        fs::write(home.join(".pi/agent/settings.json"), "{}").unwrap();
        symlink(home.join("ws/ext"), home.join(".pi/agent/extensions/linked")).unwrap();
        assert_eq!(held("ws"), Some(home.join(".pi/agent/extensions/linked")));
    }

    #[test]
    fn project_settings_are_found_up_to_the_home() {
        let home = TestDir::empty();
        let ws = home.join("a/ws");
        fs::create_dir_all(&ws).unwrap();
        fs::create_dir(home.join(".pi")).unwrap();
        assert_eq!(project_settings_blocking(&ws, &home), None);
        symlink("/nowhere", home.join("a/.pi")).unwrap();
        assert_eq!(project_settings_blocking(&ws, &home), Some(home.join("a/.pi")));
        fs::write(ws.join(".pi"), "").unwrap();
        assert_eq!(project_settings_blocking(&ws, &home), Some(ws.join(".pi")));
    }
}

//! Keeps what Pi is started with out of reach of commands. Pi runs unconfined with the user's keys, so no program,
//! search path or variable of Pi may lead into a directory that a session's commands write.
//!
//! Called while a Pi is prepared, on the blocking pool.

use crate::environment::Variables;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Directory with the settings of a project, which contain code.
const PROJECT_SETTINGS: &str = ".pi";

/// Variable with the directory of Pi's own settings, and their file.
const AGENT_DIRECTORY: &str = "PI_CODING_AGENT_DIR";
const SETTINGS: &str = "settings.json";

/// Bounds on Pi's settings: entries of one directory, and bytes of the file.
const MAX_EXTENSIONS: usize = 256;
const MAX_SETTINGS_BYTES: u64 = 1024 * 1024;

/// Symbolic links followed on one path, as in Linux (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Directories that commands of sessions may write, canonical.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Writable(Vec<PathBuf>);

impl Writable {
    /// Canonicalizes the directories. Reads the file system.
    pub(crate) fn of_blocking(directories: Vec<PathBuf>, home: &Path) -> Self {
        let canonical = |path: PathBuf| fs::canonicalize(&path).unwrap_or(path);
        let home = canonical(home.to_owned());
        // No worker starts in the home or above it. They would also leave no Pi to start.
        let is_narrow = |path: &PathBuf| !home.starts_with(path);
        Self(directories.into_iter().map(canonical).filter(is_narrow).collect())
    }

    /// Returns a file or directory of Pi's own settings that commands can change, and the writable directory: the
    /// settings, an extension there, or a path that `settings.json` names. Reads the file system.
    pub(crate) fn settings_held_blocking(&self, env: &Variables) -> Option<(PathBuf, PathBuf)> {
        let home = Path::new(crate::environment::of(env, "HOME"));
        let expand = |text: &str| match text.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(text),
        };
        let agent = match crate::environment::of(env, AGENT_DIRECTORY) {
            "" => home.join(".pi/agent"),
            named => expand(named),
        };
        let mut paths = vec![agent.clone(), agent.join(SETTINGS)];
        for directory in ["extensions", "npm", "git"].map(|name| agent.join(name)) {
            let entries = fs::read_dir(&directory).into_iter().flatten().take(MAX_EXTENSIONS);
            paths.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        }
        paths.extend(named_in(&agent.join(SETTINGS)).iter().map(|text| agent.join(expand(text))));
        paths.into_iter().find_map(|path| {
            let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            let inside = self.0.iter().find(|directory| directory.starts_with(&real));
            let held = inside.map(PathBuf::as_path).or_else(|| self.holds_blocking(&path))?;
            Some((path, held.to_owned()))
        })
    }

    /// Returns the writable directory that `path` is in or leads through. Every symbolic link on the way counts: a
    /// link inside a workspace can be changed, whatever it names now. Reads the file system.
    pub(crate) fn holds_blocking(&self, path: &Path) -> Option<&Path> {
        let mut pending = Vec::new();
        push_reversed(&mut pending, path);
        let (mut at, mut n_links) = (PathBuf::from("/"), 0);
        while let Some(name) = pending.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(&name);
            if let Some(found) = self.0.iter().find(|directory| at.starts_with(directory)) {
                return Some(found);
            }
            let Ok(target) = fs::read_link(&at) else { continue };
            n_links += 1;
            if MAX_LINKS < n_links {
                return None;
            }
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            push_reversed(&mut pending, &target);
        }
        None
    }

    /// Removes what leads into a writable directory: entries of `PATH`, and every other variable whose value names
    /// such a directory (`NODE_OPTIONS`, `AWS_CONFIG_FILE`, `PI_CODING_AGENT_DIR`). Returns the names of the removed
    /// variables. Reads the file system.
    pub(crate) fn clean_blocking(&self, env: &mut Variables) -> Vec<String> {
        let mut removed = Vec::new();
        env.retain_mut(|(name, value)| {
            if name == "PATH" {
                let is_safe = |entry: &&str| {
                    entry.starts_with('/') && self.holds_blocking(Path::new(entry)).is_none()
                };
                *value = value.split(':').filter(is_safe).collect::<Vec<_>>().join(":");
                return true;
            }
            let is_safe = !self.0.iter().any(|directory| names(value, directory));
            if !is_safe {
                removed.push(name.clone());
            }
            is_safe
        });
        removed
    }
}

/// Returns the strings of a settings file that look like a path. None if it is too large or no JSON.
fn named_in(settings: &Path) -> Vec<String> {
    let is_small = settings.metadata().is_ok_and(|found| found.len() <= MAX_SETTINGS_BYTES);
    let text = is_small.then(|| fs::read_to_string(settings).ok()).flatten().unwrap_or_default();
    let mut pending = vec![serde_json::from_str(&text).unwrap_or(Value::Null)];
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

fn push_reversed(pending: &mut Vec<OsString>, path: &Path) {
    pending.extend(path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    }));
}

/// Finds the project settings that a Pi in `workspace` would load: `.pi` in it or in a parent below `home`. A name
/// that cannot be read counts as found. Reads the file system.
pub(crate) fn project_settings_blocking(workspace: &Path, home: &Path) -> Option<PathBuf> {
    let home = fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    let directories = workspace.ancestors().take_while(|directory| *directory != home);
    // The kernel folds case where the file system does, and a link counts whatever it names.
    directories.map(|directory| directory.join(PROJECT_SETTINGS)).find(|path| {
        !path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_in_a_workspace_counts_whatever_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        for name in ["ws/bin", "out"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        symlink(base.join("out"), base.join("ws/back")).unwrap();
        symlink("ws/back", base.join("there")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let writable = Writable::of_blocking(
            vec![base.join("ws"), "/".into(), base.clone()],
            &base.join("home"),
        );
        let held = |path: &str| writable.holds_blocking(&base.join(path)).is_some();
        for path in ["ws", "ws/bin", "ws/not/there/yet", "there", "out/../ws/bin", "there/x"] {
            assert!(held(path), "{path}");
        }
        for path in ["out", "wsx", "ws/../out", "loop"] {
            assert_eq!(held(path), path == "ws/../out", "{path}");
        }
    }

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
        assert_eq!(writable.clean_blocking(&mut env), ["NODE_OPTIONS", "VIRTUAL_ENV"]);
        let expected = [
            own("HOME", "/home/duck"),
            own("OTHER", &format!("{at}-backup/x")),
            own("PATH", "/usr/bin"),
        ];
        assert_eq!(env, expected);
    }

    #[test]
    fn settings_of_pi_that_a_command_can_change_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        for name in ["ws/ext", ".pi/agent/extensions/own", "out"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        let env = vec![("HOME".to_owned(), home.display().to_string())];
        let held = |workspace: &str| {
            let writable = Writable::of_blocking(vec![home.join(workspace)], &home);
            writable.settings_held_blocking(&env).map(|(path, _)| path)
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
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
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

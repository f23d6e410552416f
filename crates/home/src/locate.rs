//! Chooses the state directory by the rule of each platform, from the environment and the existing
//! directories. Used by [`crate::Home`] only.
//!
//! Both rules are compiled and tested on every platform. The macOS rule has not been tested on macOS.

use crate::HomeError;
use crate::platform::HAS_APP_SUPPORT;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Platform whose rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Platform {
    Linux,
    MacOs,
}

impl Platform {
    pub(crate) const CURRENT: Self = if HAS_APP_SUPPORT { Self::MacOs } else { Self::Linux };
}

/// Result of the rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// The directory exactly as in the environment. Clients hash this text; see `socket.rs`.
    pub(crate) given: String,
    /// Another candidate that also contains metadata.
    pub(crate) rival: Option<PathBuf>,
    /// True if the platform's rule chose the directory. Other programs do not use that name.
    pub(crate) is_by_rule: bool,
}

/// Applies the rule. Accesses the disk only to check which candidates exist.
pub(crate) fn locate_blocking(
    platform: Platform,
    var: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Located, HomeError> {
    if let Some(given) = text(var, "RUBBER_DUCK_APP_SUPPORT")? {
        return Ok(Located { given, rival: None, is_by_rule: false });
    }
    // A relative HOME would make the result depend on the client's working directory.
    let home = text(var, "HOME")?.map(PathBuf::from);
    let home = home.filter(|path| path.is_absolute()).ok_or(HomeError::NoHome)?;

    let (chosen, other) = match platform {
        Platform::MacOs => macos(&home),
        Platform::Linux => linux(&home, text(var, "XDG_STATE_HOME")?),
    };

    let given = chosen.into_os_string().into_string();
    let given = given.map_err(|_path| HomeError::NotUtf8 { variable: "HOME" })?;
    let rival = Some(other).filter(|path| holds_metadata(path));
    Ok(Located { given, rival, is_by_rule: true })
}

/// Prefers the app's own directory, then the directory of its sandbox container.
fn macos(home: &Path) -> (PathBuf, PathBuf) {
    let plain = home.join(APP_SUPPORT);
    let container = home.join("Library/Containers/co.blode.rubber-duck/Data").join(APP_SUPPORT);
    if !plain.exists() && container.exists() { (container, plain) } else { (plain, container) }
}

/// Prefers the directory that quackd already uses. Otherwise, installing upstream's program would silently
/// switch the state directory.
fn linux(home: &Path, xdg_state_home: Option<String>) -> (PathBuf, PathBuf) {
    // The XDG base directory specification says to ignore a relative path.
    let state = xdg_state_home.map(PathBuf::from).filter(|path| path.is_absolute());
    let ours = state.unwrap_or_else(|| home.join(".local/state")).join("quackd");
    let shared = home.join(APP_SUPPORT);
    // A daemon without saved state has at least created its lock file.
    let in_use = holds_metadata(&ours) || ours.join("quackd.lock").exists();
    if !in_use && shared.is_dir() { (shared, ours) } else { (ours, shared) }
}

const APP_SUPPORT: &str = "Library/Application Support/RubberDuck";

/// Also true if the metadata is damaged or unreadable, or if only its backup exists.
fn holds_metadata(dir: &Path) -> bool {
    ["metadata.json", "metadata.json.bak"].iter().any(|f| dir.join(f).symlink_metadata().is_ok())
}

/// Returns the trimmed value of a variable that is not blank.
fn text(
    var: &dyn Fn(&str) -> Option<OsString>,
    variable: &'static str,
) -> Result<Option<String>, HomeError> {
    let Some(value) = var(variable) else { return Ok(None) };
    let value = value.into_string().map_err(|_value| HomeError::NotUtf8 { variable })?;
    let value = value.trim();
    Ok(if value.is_empty() { None } else { Some(value.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Creates a home directory with the given files and applies the rule.
    fn located(platform: Platform, files: &[&str], xdg: Option<&str>) -> (String, Option<String>) {
        let home = tempfile::tempdir().unwrap();
        for file in files {
            let path = home.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let var = |name: &str| match name {
            "HOME" => Some(home.path().into()),
            "XDG_STATE_HOME" => xdg.map(OsString::from),
            _ => None,
        };
        let found = locate_blocking(platform, &var).unwrap();
        let relative = |path: &Path| {
            path.strip_prefix(home.path()).unwrap_or(path).to_str().unwrap().to_owned()
        };
        (relative(Path::new(&found.given)), found.rival.as_deref().map(relative))
    }

    const OURS: &str = ".local/state/quackd";

    #[test]
    fn linux_prefers_the_directory_that_is_already_in_use() {
        let ours = ".local/state/quackd/metadata.json";
        let shared = "Library/Application Support/RubberDuck/metadata.json";
        let empty_shared = "Library/Application Support/RubberDuck/other";
        let lock = ".local/state/quackd/quackd.lock";
        let table: [(&[&str], &str, Option<&str>); 7] = [
            (&[], OURS, None),
            (&[ours], OURS, None),
            (&[lock, shared], OURS, Some(APP_SUPPORT)),
            (&[shared], APP_SUPPORT, None),
            (&[empty_shared], APP_SUPPORT, None),
            (&[ours, empty_shared], OURS, None),
            (&[ours, shared], OURS, Some(APP_SUPPORT)),
        ];
        for (files, chosen, rival) in table {
            let wanted = (chosen.to_owned(), rival.map(str::to_owned));
            assert_eq!(located(Platform::Linux, files, None), wanted, "{files:?}");
        }
    }

    #[test]
    fn a_backup_without_its_metadata_still_marks_our_directory() {
        let files =
            [".local/state/quackd/metadata.json.bak", "Library/Application Support/RubberDuck/x"];
        assert_eq!(located(Platform::Linux, &files, None), (OURS.to_owned(), None));
    }

    #[test]
    fn an_absolute_xdg_state_home_is_used_and_a_relative_one_is_not() {
        assert_eq!(located(Platform::Linux, &[], Some("/s")), ("/s/quackd".to_owned(), None));
        assert_eq!(located(Platform::Linux, &[], Some("s")), (OURS.to_owned(), None));
    }

    #[test]
    fn macos_uses_the_container_only_when_it_is_the_only_one() {
        let container =
            "Library/Containers/co.blode.rubber-duck/Data/Library/Application Support/RubberDuck";
        let in_container = format!("{container}/metadata.json");
        let in_plain = format!("{APP_SUPPORT}/metadata.json");
        let table: [(&[&str], &str, Option<&str>); 3] = [
            (&[], APP_SUPPORT, None),
            (&[&in_container], container, None),
            (&[&in_container, &in_plain], APP_SUPPORT, Some(container)),
        ];
        for (files, chosen, rival) in table {
            let wanted = (chosen.to_owned(), rival.map(str::to_owned));
            assert_eq!(located(Platform::MacOs, files, None), wanted, "{files:?}");
        }
    }

    #[test]
    fn the_explicit_variable_wins_and_needs_no_home() {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| " /a//b/ \n".into());
        let found = locate_blocking(Platform::Linux, &var).unwrap();
        assert_eq!(found, Located { given: "/a//b/".to_owned(), rival: None, is_by_rule: false });
    }

    #[test]
    fn a_home_that_is_unset_blank_or_relative_is_an_error_that_says_so() {
        for home in [None, Some(""), Some("  "), Some("relative")] {
            let var = |name: &str| home.filter(|_| name == "HOME").map(OsString::from);
            let error = locate_blocking(Platform::Linux, &var).unwrap_err();
            assert!(matches!(error, HomeError::NoHome), "{home:?}: {error}");
        }
    }

    #[test]
    fn a_path_that_is_not_text_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let var = |_: &str| Some(OsString::from_vec(vec![b'/', 0xff]));
        let error = locate_blocking(Platform::Linux, &var).unwrap_err();
        assert_eq!(error.to_string(), "RUBBER_DUCK_APP_SUPPORT is not valid UTF-8");
    }
}

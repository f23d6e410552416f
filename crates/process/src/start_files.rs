//! Names of the files that a login shell runs when it starts or exits. Used before a login shell is started outside of a
//! session, and to tell the user about files that sessions could change.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of files of one directory that are listed.
const MAX_FILES: usize = 1024;

const BASH: &[&str] = &[".bash_profile", ".bash_login", ".profile", ".bashrc", ".bash_logout"];
const ZSH: &[&str] = &[".zshenv", ".zprofile", ".zshrc", ".zlogin", ".zlogout"];
const KSH: &[&str] = &[".profile", ".kshrc", ".mkshrc", ".shrc"];
const CSH: &[&str] = &[".cshrc", ".tcshrc", ".login", ".logout"];

/// Files of the system that shells run.
const SYSTEM: &[&str] = &[
    "/etc/profile",
    "/etc/profile.d",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/zshenv",
    "/etc/zprofile",
    "/etc/zshrc",
    "/etc/zlogin",
    "/etc/zsh",
    "/etc/fish",
    "/etc/csh.cshrc",
    "/etc/csh.login",
];

/// Directories with files that fish runs, relative to its own one.
const OF_FISH: [&str; 3] = ["conf.d", "functions", "completions"];

/// Returns the start files of a shell, existing or not: in the home, in `config` (`XDG_CONFIG_HOME`) and of the system.
/// Without a known shell, those of all shells. A file that one of them runs is not listed. Reads directories.
#[must_use]
pub fn start_files_blocking(shell: Option<&Path>, home: &Path, config: &Path) -> Vec<PathBuf> {
    let name = shell.and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
    let fish = config.join("fish");
    let in_home: &[&[&str]] = match name {
        "bash" | "rbash" => &[BASH],
        "zsh" => &[ZSH],
        "fish" => &[],
        "ksh" | "ksh93" | "mksh" | "oksh" => &[KSH],
        "csh" | "tcsh" => &[CSH],
        "sh" | "dash" | "ash" => &[&[".profile"]],
        _ => &[BASH, ZSH, KSH, CSH],
    };

    let mut files: Vec<PathBuf> =
        in_home.iter().flat_map(|names| names.iter()).map(|name| home.join(name)).collect();

    if in_home.is_empty() || 1 < in_home.len() {
        files.extend([fish.join("config.fish"), fish.join("fish_variables")]);
        let directories = OF_FISH.map(|name| fish.join(name));
        files.extend(directories.into_iter().flat_map(with_entries_blocking));
    }

    files.extend(SYSTEM.iter().map(PathBuf::from).flat_map(with_entries_blocking));
    files
}

/// Returns a path and, if it is a directory, the first 1,024 names in it. Reads the directory.
#[must_use]
pub fn with_entries_blocking(path: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(&path).into_iter().flatten().flatten().take(MAX_FILES);
    let entries: Vec<_> = entries.map(|entry| entry.path()).collect();
    std::iter::once(path).chain(entries).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_its_files_and_an_unknown_one_those_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let (home, config) = (Path::new("/home/u"), dir.path());
        let plugin = config.join("fish/conf.d/a.fish");
        fs::create_dir_all(plugin.parent().unwrap()).unwrap();
        fs::write(&plugin, "").unwrap();
        let has = |shell: &str, file: PathBuf| {
            let shell = Some(Path::new(shell)).filter(|shell| !shell.as_os_str().is_empty());
            start_files_blocking(shell, home, config).contains(&file)
        };
        for (shell, own, other) in [
            ("/bin/bash", ".bashrc", ".zshrc"),
            ("/usr/bin/zsh", ".zshenv", ".bashrc"),
            ("/bin/sh", ".profile", ".bashrc"),
            ("tcsh", ".tcshrc", ".profile"),
        ] {
            assert!(has(shell, home.join(own)) && !has(shell, home.join(other)), "{shell}");
            assert!(!has(shell, plugin.clone()) && has(shell, "/etc/profile".into()), "{shell}");
        }
        assert!(has("/usr/bin/fish", plugin.clone()) && !has("fish", home.join(".bashrc")));
        for file in [home.join(".zlogin"), home.join(".bash_logout"), plugin] {
            assert!(has("", file.clone()) && has("/opt/odd", file));
        }
    }
}

//! The user's name and email address for commits. A worker gets no other git settings of the user.

use super::config::{self, Entry};
use super::openat;
use std::path::{Path, PathBuf};

/// Maximum size of a settings file in bytes.
const MAX_FILE: u64 = 256 * 1024;

/// Maximum length of a name or email address in bytes.
const MAX_VALUE: usize = 512;

/// Maximum number of settings files, including `include.path` files.
const MAX_INCLUDES: usize = 8;

/// Name and email address in git's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// `user.name`.
    pub name: Option<String>,
    /// `user.email`.
    pub email: Option<String>,
}

impl Identity {
    /// Reads the user's settings in `home`. Unreadable settings count as missing.
    #[must_use]
    pub fn of_home_blocking(home: &Path) -> Self {
        let mut identity = Self::default();
        let mut left = MAX_INCLUDES;
        // Git reads both files. The later one wins.
        for file in [".config/git/config", ".gitconfig"] {
            identity.read(&home.join(file), home, &mut left);
        }
        identity
    }

    fn read(&mut self, file: &Path, home: &Path, left: &mut usize) {
        let Some(text) = (*left).checked_sub(1).and_then(|now| {
            *left = now;
            read_bounded(file)
        }) else {
            return;
        };
        for entry in config::parse(&text) {
            match entry {
                Entry { value: Some(value), .. } if MAX_VALUE < value.len() => {}
                ref e if e.is("user", "name") => self.name = entry.value,
                ref e if e.is("user", "email") => self.email = entry.value,
                Entry { value: Some(value), section, key, subsection }
                    if section == "include" && key == "path" && subsection.is_empty() =>
                {
                    self.read(&resolve(&value, file, home), home, left);
                }
                _ => {}
            }
        }
    }

    /// Returns the text of a settings file with only these two settings. `None` if both are missing.
    #[must_use]
    pub fn to_config(&self) -> Option<String> {
        let mut text = String::from("[user]\n");
        for (key, value) in [("name", &self.name), ("email", &self.email)] {
            if let Some(value) = value {
                text.push_str(&format!("\t{key} = {}\n", quote(value)));
            }
        }
        (self.name.is_some() || self.email.is_some()).then_some(text)
    }
}

fn resolve(value: &str, file: &Path, home: &Path) -> PathBuf {
    match value.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => file.parent().unwrap_or(home).join(value),
    }
}

fn read_bounded(file: &Path) -> Option<String> {
    String::from_utf8(openat::read_own(file, MAX_FILE).ok()?).ok()
}

fn quote(value: &str) -> String {
    let mut quoted = String::from("\"");
    for one in value.chars() {
        match one {
            '"' | '\\' => quoted.extend(['\\', one]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {}
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_name_and_mail_are_carried() {
        let home = tempfile::tempdir().unwrap();
        let text = "[user]\nname = \"O'Neil; \\\"x\\\"\"\n[include]\npath=more\n[credential]\nhelper=!evil\n";
        fs::write(home.path().join(".gitconfig"), text).unwrap();
        fs::write(home.path().join("more"), "[user]\nemail=a@b.c\n[core]\npager=x\n").unwrap();
        let identity = Identity::of_home_blocking(home.path());
        let config = identity.to_config().unwrap();
        assert_eq!(config, "[user]\n\tname = \"O'Neil; \\\"x\\\"\"\n\temail = \"a@b.c\"\n");
        let back = config::parse(&config);
        assert_eq!(back[0].value, identity.name);
        assert_eq!(Identity::default().to_config(), None);
    }

    #[test]
    fn settings_that_include_themselves_end() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(".gitconfig"), "[include]\npath=.gitconfig\n[user]\nname=n\n")
            .unwrap();
        assert_eq!(Identity::of_home_blocking(home.path()).name.as_deref(), Some("n"));
    }
}

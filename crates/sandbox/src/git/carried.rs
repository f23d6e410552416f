//! The user's git settings that git has in a session: a safe subset of them, and the files with ignored names and
//! attributes for every repository. docs/security.md has the list, and the reasons for those that are left out.
//!
//! Git runs inside the confinement, so no setting can do harm. Left out is what holds secrets (`http.*`, `url.*`,
//! `credential.*`) and what names programs or files that a session does not have. In place of some of these, git gets
//! settings by which it uses the user's credentials ([`super::user_credentials`]).

use super::openat;
use super::user_credentials::{Unsigned, UserCredentials};
use crate::git_config::{self as config, Entry};
use globset::GlobBuilder;
use std::path::{Path, PathBuf};

/// Name of the file of settings in a session's home.
pub const SETTINGS_NAME: &str = ".gitconfig";

/// Name of the file of ignored names in a session's home. No program of the user has a file of this name, so that it
/// covers none in a workspace.
pub const EXCLUDES_NAME: &str = ".gitignore_of_user";

/// Name of the file of attributes in a session's home.
pub const ATTRIBUTES_NAME: &str = ".gitattributes_of_user";

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 256 * 1024;

/// Maximum length of a value in bytes.
const MAX_VALUE: usize = 1024;

/// Maximum number of settings.
const MAX_ENTRIES: usize = 512;

/// Maximum number of settings files, with included ones.
const MAX_FILES: usize = 16;

/// Settings that are carried: a section and its keys. Empty for all keys of the section.
const CARRIED: &[(&str, &[&str])] = &[
    ("advice", &[]),
    ("apply", &["whitespace", "ignorewhitespace"]),
    ("author", &["name", "email"]),
    (
        "blame",
        &[
            "blankboundary",
            "coloring",
            "date",
            "markignoredlines",
            "markunblamablelines",
            "showemail",
            "showroot",
        ],
    ),
    ("branch", &["autosetupmerge", "autosetuprebase", "sort"]),
    ("checkout", &["defaultremote", "guess"]),
    ("clone", &["defaultremotename"]),
    ("color", &[]),
    ("column", &[]),
    ("commit", &["cleanup", "status", "verbose"]),
    ("committer", &["name", "email"]),
    (
        "core",
        &[
            "abbrev",
            "autocrlf",
            "commentchar",
            "commentstring",
            "eol",
            "precomposeunicode",
            "quotepath",
            "safecrlf",
            "whitespace",
        ],
    ),
    (
        "diff",
        &[
            "algorithm",
            "colormoved",
            "colormovedws",
            "context",
            "dirstat",
            "indentheuristic",
            "interhunkcontext",
            "mnemonicprefix",
            "noprefix",
            "relative",
            "renamelimit",
            "renames",
            "statgraphwidth",
            "submodule",
            "wserrorhighlight",
        ],
    ),
    ("fetch", &["prune", "prunetags", "recursesubmodules"]),
    ("format", &["pretty"]),
    ("grep", &["column", "extendedregexp", "fallbacktonoindex", "linenumber", "patterntype"]),
    ("i18n", &[]),
    ("init", &["defaultbranch", "defaultobjectformat"]),
    ("log", &["abbrevcommit", "date", "decorate", "follow", "showroot"]),
    ("merge", &["conflictstyle", "directoryrenames", "ff", "renamelimit", "renames", "stat"]),
    ("pretty", &[]),
    ("pull", &["ff", "octopus", "rebase", "twohead"]),
    ("push", &["autosetupremote", "default", "followtags", "useforceifincludes"]),
    (
        "rebase",
        &[
            "abbreviatecommands",
            "autosquash",
            "autostash",
            "missingcommitscheck",
            "rebasemerges",
            "updaterefs",
        ],
    ),
    ("rerere", &["autoupdate", "enabled"]),
    ("safe", &["directory"]),
    ("stash", &["showincludeuntracked", "showpatch", "showstat"]),
    ("status", &[]),
    ("submodule", &["recurse"]),
    ("tag", &["sort"]),
    ("user", &["name", "email", "useconfigonly"]),
    ("versionsort", &["suffix"]),
    ("worktree", &["guessremote"]),
];

/// The user's settings for git in a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CarriedSettings {
    /// In the order in which git reads them.
    entries: Vec<Entry>,
    /// Text of the file of ignored names.
    pub excludes: Option<String>,
    /// Text of the file of attributes.
    pub attributes: Option<String>,
    /// Reason why commits are not signed, although the user's are.
    pub unsigned: Option<Unsigned>,
    credentials: UserCredentials,
}

/// State of a read.
struct Reader<'a> {
    home: &'a Path,
    /// Directories that sessions may write.
    writable: &'a [PathBuf],
    /// The git directory of the workspace, with and without links in its path.
    git_directories: Vec<PathBuf>,
    files_left: usize,
    excludes: Option<PathBuf>,
    attributes: Option<PathBuf>,
    settings: CarriedSettings,
}

impl CarriedSettings {
    /// Reads the settings of the user with this home directory and environment, for commands in `workspace`. Settings that
    /// cannot be read count as missing. A settings file in one of the `writable` directories names no file outside of
    /// them: a session could have written it, to read that file.
    #[must_use]
    pub fn read_blocking(
        home: &Path,
        variables: &[(String, String)],
        workspace: &Path,
        writable: &[PathBuf],
    ) -> Self {
        let of = |name: &str| {
            let variable = variables.iter().find(|(known, _)| known == name);
            variable.map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        let programs = of("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("git");
        let mut reader = Reader {
            home,
            writable,
            git_directories: git_directories(workspace),
            files_left: MAX_FILES,
            excludes: Some(programs.join("ignore")),
            attributes: Some(programs.join("attributes")),
            settings: Self::default(),
        };

        // In git's order: the last value of a setting counts.
        reader.read(&of("GIT_CONFIG_SYSTEM").unwrap_or_else(|| "/etc/gitconfig".into()));
        match of("GIT_CONFIG_GLOBAL") {
            Some(file) => reader.read(&file),
            None => {
                reader.read(&programs.join("config"));
                reader.read(&home.join(".gitconfig"));
            }
        }

        let text = |path: Option<PathBuf>| path.and_then(|path| read_bounded(&path));
        let mut credentials = reader.settings.credentials;
        credentials.read_key_blocking();
        Self {
            excludes: text(reader.excludes),
            attributes: text(reader.attributes),
            unsigned: credentials.unsigned(),
            credentials,
            entries: reader.settings.entries,
        }
    }

    /// Adds the settings by which git uses the user's credentials: `ssh` to sign with the user's ssh agent, and `git` to
    /// reach hosts with a credential helper through the session's proxy.
    pub fn use_credentials(&mut self, ssh: bool, git: bool) {
        if ssh {
            let signing = self.credentials.signing();
            if !signing.is_empty() {
                self.unsigned = None;
            }
            self.entries.extend(signing);
        }
        if git {
            self.entries.extend(self.credentials.gateways());
        }
    }

    /// Returns the text of a settings file, for files of ignored names and attributes in `directory`, as git writes it.
    /// `None` without any setting.
    #[must_use]
    pub fn to_config(&self, directory: &str) -> Option<String> {
        let file = |text: &Option<String>, key: &str, name: &str| {
            let path = text.as_ref().map(|_| format!("{directory}/{name}"));
            path.map(|path| Entry {
                section: "core".to_owned(),
                subsection: String::new(),
                key: key.to_owned(),
                value: Some(path),
            })
        };

        let files = [
            file(&self.excludes, "excludesFile", EXCLUDES_NAME),
            file(&self.attributes, "attributesFile", ATTRIBUTES_NAME),
        ];
        let text = crate::git_config::to_text(self.entries.iter().chain(files.iter().flatten()));
        (!text.is_empty()).then_some(text)
    }
}

impl Reader<'_> {
    fn read(&mut self, file: &Path) {
        let Some(left) = self.files_left.checked_sub(1) else { return };
        self.files_left = left;
        let Some(text) = read_bounded(file) else { return };
        // Behind a link, the file may be in a workspace.
        let own = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let is_writable = self.is_writable(&own);

        for entry in config::parse(&text) {
            if entry.value.as_ref().is_some_and(|value| MAX_VALUE < value.len()) {
                continue;
            }
            // A file that a session could have written must not lead to files that the session cannot read.
            let path = |value: &Option<String>| {
                let path = resolve(value.as_deref()?, file, self.home)?;
                (!is_writable || self.is_writable(&path)).then_some(path)
            };
            match (entry.section.as_str(), entry.subsection.as_str(), entry.key.as_str()) {
                ("core", "", "excludesfile") => self.excludes = path(&entry.value),
                ("core", "", "attributesfile") => self.attributes = path(&entry.value),
                ("user", "", "signingkey") => {
                    let file = path(&entry.value);
                    let value = entry.value.as_deref().unwrap_or_default();
                    self.settings.credentials.take_key(value, file);
                }
                ("include", "", "path") => {
                    if let Some(next) = path(&entry.value) {
                        self.read(&next);
                    }
                }
                ("includeif", condition, "path") if self.holds(condition, file) => {
                    if let Some(next) = path(&entry.value) {
                        self.read(&next);
                    }
                }
                _ if self.settings.credentials.take(&entry) => {}
                _ if is_carried(&entry) && self.settings.entries.len() < MAX_ENTRIES => {
                    self.settings.entries.push(entry);
                }
                _ => {}
            }
        }
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|writable| path.starts_with(writable))
    }

    /// Whether the condition of an `includeIf` section holds. Conditions about branches and remotes do not.
    fn holds(&self, condition: &str, file: &Path) -> bool {
        let (pattern, ignores_case) = match condition.split_once(':') {
            Some(("gitdir", pattern)) => (pattern, false),
            Some(("gitdir/i", pattern)) => (pattern, true),
            _ => return false,
        };
        let Some(pattern) = directory_pattern(pattern, file, self.home) else { return false };

        let glob = GlobBuilder::new(&pattern)
            .literal_separator(true)
            .case_insensitive(ignores_case)
            .build();
        let Ok(glob) = glob.map(|glob| glob.compile_matcher()) else { return false };
        self.git_directories.iter().any(|directory| glob.is_match(directory))
    }
}

/// Reads the text of the user's own file of ignored names.
#[must_use]
pub fn user_excludes_blocking(home: &Path, workspace: &Path) -> Option<String> {
    let writable = [workspace.to_owned()];
    CarriedSettings::read_blocking(home, &[], workspace, &writable).excludes
}

/// The pattern of a `gitdir` condition, as git-config(1) completes it.
fn directory_pattern(pattern: &str, file: &Path, home: &Path) -> Option<String> {
    let mut full = match (pattern.strip_prefix("~/"), pattern.strip_prefix("./")) {
        (Some(rest), _) => format!("{}/{rest}", home.to_str()?),
        (None, Some(rest)) => format!("{}/{rest}", file.parent()?.to_str()?),
        (None, None) if pattern.starts_with('/') => pattern.to_owned(),
        (None, None) => format!("**/{pattern}"),
    };
    if full.ends_with('/') {
        full.push_str("**");
    }
    Some(full)
}

/// The git directory of the repository of `workspace`, as it is named and without links.
fn git_directories(workspace: &Path) -> Vec<PathBuf> {
    let nearest = workspace.ancestors().map(|above| above.join(".git")).find(|git| git.exists());
    let Some(git) = nearest else { return Vec::new() };

    // A linked worktree or a submodule: the file names the directory.
    let named = read_bounded(&git).and_then(|text| {
        let name = text.strip_prefix("gitdir:")?.trim().to_owned();
        Some(git.parent()?.join(name))
    });
    let git = named.unwrap_or(git);
    let real = std::fs::canonicalize(&git).ok();
    std::iter::once(git).chain(real).collect()
}

fn is_carried(entry: &Entry) -> bool {
    let value = entry.value.as_deref().unwrap_or_default();
    match (entry.section.as_str(), entry.subsection.as_str()) {
        // Both forms of an alias. One with `!` runs a program of the user.
        ("alias", _) => !value.trim_start().starts_with('!') && entry.value.is_some(),
        // Git LFS: without it, git would take whole files for changes of their pointers.
        ("filter", "lfs") => entry.key == "required" || value.starts_with("git-lfs "),
        // Programs that read what git prints do not expect colors.
        ("color" | "column", _) if value == "always" => false,
        (section, _) => CARRIED.iter().any(|(known, keys)| {
            *known == section && (keys.is_empty() || keys.contains(&entry.key.as_str()))
        }),
    }
}

/// Resolves a path as git does. `None` for another user's home and for git's own prefix.
fn resolve(value: &str, file: &Path, home: &Path) -> Option<PathBuf> {
    match value.strip_prefix("~/") {
        Some(rest) => Some(home.join(rest)),
        None if value.is_empty() || value.starts_with(['~', '%']) => None,
        None => Some(file.parent()?.join(value)),
    }
}

fn read_bounded(file: &Path) -> Option<String> {
    String::from_utf8(openat::read_own(file, MAX_FILE).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::write_file;

    struct World {
        home: tempfile::TempDir,
    }

    impl World {
        fn new(settings: &str) -> Self {
            let world = Self { home: tempfile::tempdir().unwrap() };
            world.write(".gitconfig", settings);
            world
        }

        fn write(&self, name: &str, text: &str) {
            write_file(self.home.path().join(name), text);
        }

        fn read(&self) -> CarriedSettings {
            let workspace = self.home.path().join("work/app");
            let none = [("GIT_CONFIG_SYSTEM".to_owned(), "/nowhere".to_owned())];
            let writable = [workspace.clone()];
            CarriedSettings::read_blocking(self.home.path(), &none, &workspace, &writable)
        }

        fn value(&self, section: &str, key: &str) -> Option<String> {
            let config = self.read().to_config("~").unwrap_or_default();
            config::parse(&config).into_iter().rfind(|entry| entry.is(section, key))?.value
        }
    }

    #[test]
    fn a_safe_subset_is_carried() {
        let world = World::new(
            "[user]\nname = \"O'Neil; \\\"x\\\"\"\nsigningKey=k\n[include]\npath=more\n[credential]\nhelper=!evil\n\
             [alias]\nst = status -sb\nrun = !sh -c x\n[safe]\ndirectory=/a\ndirectory=*\n[pull]\nrebase\n\
             [color \"diff\"]\nmeta = blue\n[url \"https://token@h/\"]\ninsteadOf=h:\n[core]\npager=x\nautocrlf=input\n\
             [filter \"lfs\"]\nclean = git-lfs clean -- %f\nprocess = evil\nrequired = true\n",
        );
        world.write(
            "more",
            "[user]\nemail=a@b.c\n[core]\nhooksPath=x\n[http]\nextraHeader=secret\n",
        );
        let config = world.read().to_config("~").unwrap();
        assert_eq!(
            config,
            "[user]\n\tname = \"O'Neil; \\\"x\\\"\"\n\temail = \"a@b.c\"\n[alias]\n\tst = \"status -sb\"\n\
             [safe]\n\tdirectory = \"/a\"\n\tdirectory = \"*\"\n[pull]\n\trebase\n[color \"diff\"]\n\tmeta = \"blue\"\n\
             [core]\n\tautocrlf = \"input\"\n[filter \"lfs\"]\n\tclean = \"git-lfs clean -- %f\"\n\trequired = \"true\"\n"
        );
        assert_eq!(CarriedSettings::default().to_config("~"), None);
    }

    #[test]
    fn ignored_names_and_attributes_are_found_where_git_finds_them() {
        let world = World::new("");
        assert_eq!(world.read().excludes, None);
        world.write(".config/git/ignore", "*.by-default\n");
        world.write(".config/git/attributes", "*.txt text\n");
        assert_eq!(world.read().excludes.as_deref(), Some("*.by-default\n"));
        assert_eq!(world.value("core", "excludesfile").unwrap(), format!("~/{EXCLUDES_NAME}"));
        assert_eq!(world.read().attributes.as_deref(), Some("*.txt text\n"));
        world.write(".config/git/config", "[core]\nexcludesFile=~/a\n");
        world.write("a", "*.a\n");
        assert_eq!(world.read().excludes.as_deref(), Some("*.a\n"));
        world.write(".gitconfig", "[core]\nexcludesFile=b\n");
        world.write("b", "*.b\n");
        assert_eq!(world.read().excludes.as_deref(), Some("*.b\n"));
        world.write(".gitconfig", "[core]\nexcludesFile=\n");
        assert_eq!(world.read().excludes, None, "the user has switched it off");
    }

    #[test]
    fn a_settings_file_that_a_session_may_write_names_no_file_outside() {
        let world = World::new("[include]\npath=work/app/gitconfig\n");
        world.write("secret", "key\n");
        world.write("work/app/ignore", "*.x\n");
        world.write(
            "work/app/gitconfig",
            "[core]\nexcludesFile=~/secret\nattributesFile=ignore\n[include]\npath=~/other\n",
        );
        world.write("other", "[user]\nname=n\n");
        let read = world.read();
        assert_eq!((read.excludes, read.attributes.as_deref()), (None, Some("*.x\n")));
        assert_eq!(world.value("user", "name"), None);
    }

    #[test]
    fn conditions_about_the_git_directory_are_those_of_git() {
        for (condition, holds) in [
            ("gitdir:~/work/", true),
            ("gitdir:~/work/**", true),
            ("gitdir:~/other/", false),
            ("gitdir:work/", true),
            ("gitdir:WORK/", false),
            ("gitdir/i:WORK/", true),
            ("gitdir:./work/app/.git", true),
            ("gitdir:**/app/.git", true),
            ("gitdir:app", false),
            ("onbranch:main", false),
        ] {
            let world = World::new(&format!(
                "[user]\nemail=home\n[includeIf \"{condition}\"]\npath=at-work\n"
            ));
            world.write("at-work", "[user]\nemail=work\n");
            world.write("work/app/.git/HEAD", "ref: refs/heads/main\n");
            let expected = if holds { "work" } else { "home" };
            assert_eq!(world.value("user", "email").as_deref(), Some(expected), "{condition}");
        }
    }

    #[test]
    fn credentials_are_used_only_if_the_session_may() {
        let world = World::new(
            "[gpg]\nformat=ssh\n[commit]\ngpgSign\n[user]\nsigningKey=~/id.pub\n[credential]\nhelper=store\n",
        );
        world.write("id.pub", "ssh-ed25519 AAAA me\n");
        let mut settings = world.read();
        settings.use_credentials(false, false);
        assert_eq!((settings.to_config("~"), settings.unsigned), (None, Some(Unsigned::NoAgent)));
        settings.use_credentials(true, true);
        let config = settings.to_config("~").unwrap();
        assert!(config.contains("signingKey = \"key::ssh-ed25519 AAAA\""), "{config}");
        assert!(config.contains("insteadOf = \"https://\""), "{config}");
        assert_eq!(settings.unsigned, None);
        // A settings file that a session may write does not name a key outside.
        world.write(".gitconfig", "[include]\npath=work/app/gitconfig\n");
        world.write(
            "work/app/gitconfig",
            "[gpg]\nformat=ssh\n[commit]\ngpgSign\n[user]\nsigningKey=~/id\n",
        );
        assert_eq!(world.read().unsigned, Some(Unsigned::NoKey));
    }

    #[test]
    fn settings_that_include_themselves_end() {
        let world = World::new("[include]\npath=.gitconfig\n[user]\nname=n\n");
        assert_eq!(world.value("user", "name").as_deref(), Some("n"));
        let unsigned = |text: &str| World::new(text).read().unsigned;
        assert_eq!(unsigned("[commit]\ngpgSign\n"), Some(Unsigned::Format));
        assert_eq!(unsigned("[commit]\ngpgSign=false\n"), None);
    }
}

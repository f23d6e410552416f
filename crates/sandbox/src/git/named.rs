//! Finds the files of a workspace that git's configuration of any scope names: hooks, filters, editors and other
//! programs, also as words of a command line, and further settings. Called by stage 0, which pins the existing ones.
//! The audit compares all of them.
//!
//! Every `includeIf` counts as if its condition were true. A repository's settings are hostile; the user's are not.

use super::config_paths::{self, Setting};
use super::gitdir::{self, LinkedRepository};
use super::named_path::resolve;
use super::openat::{self, Node};
use super::protection_gap::ProtectionGap;
use super::user_settings::UserSettings;
use super::walk::{FoundRepositories, NodeKind};
use super::words::{Word, words};
use crate::pin::Pin;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of named files. With more, the rest is neither pinned nor compared, and a note reports it.
const MAX_NAMED: usize = 256;

/// Maximum number of paths whose existence is checked.
const MAX_CHECKED: usize = 8_192;

/// Maximum number of directories on one command line from which its words are resolved.
const MAX_DIRECTORIES: usize = 4;

/// Programs whose arguments are often programs.
const RUNNERS: [&str; 26] = [
    "ash", "awk", "bash", "bun", "command", "dash", "deno", "env", "exec", "fish", "gawk", "ksh",
    "lua", "make", "nice", "node", "perl", "php", "python", "ruby", "sed", "sh", "source", "sudo",
    "xargs", "zsh",
];

/// A writable directory of the session and the repositories in it.
#[derive(Debug, Clone, Copy)]
pub struct WritableTree<'a> {
    /// Handle of the directory.
    pub handle: BorrowedFd<'a>,
    /// Canonical path of the directory.
    pub path: &'a Path,
    /// The repositories in it.
    pub found: &'a FoundRepositories,
}

/// A file that a setting names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// Absolute path.
    pub at: PathBuf,
    /// Name of the setting, such as `filter.x.clean`.
    pub setting: String,
}

/// The files that git's configuration names.
#[derive(Debug, Default)]
pub struct NamedFiles {
    /// Files to compare, existing or not.
    pub files: Vec<NamedFile>,
    /// Pins of the existing ones, and of the directories above them.
    pub pins: Vec<Pin>,
    /// Names that cannot be pinned. For display to the user.
    pub troubles: Vec<ProtectionGap>,
    /// False if something was left out because of a limit or an unreadable file.
    pub is_complete: bool,
}

/// Finds the files in `trees` that the settings of `user` and of the repositories name. Stops at `until`.
#[must_use]
pub fn named_blocking(
    trees: &[WritableTree<'_>],
    user: &UserSettings,
    until: Instant,
) -> NamedFiles {
    let rest = NamedFiles { is_complete: user.is_complete(), ..NamedFiles::default() };
    let mut search = Search { trees, until, checked: 0, pins: BTreeMap::new(), rest };

    for file in user.files() {
        search.path(&file, "the user's settings", Strength::Missing);
    }

    let mut repositories = Vec::new();
    for tree in trees {
        let worktree = Worktree { path: tree.path.to_owned(), home: user.home() };
        search.settings(user.settings(), &worktree);
        repositories.extend(tree.found.repositories.iter().map(|(at, kind)| (tree, at, *kind)));
    }

    // A session can create repositories in subdirectories. They must not use up the limits of the others.
    repositories.sort_by_key(|(_, at, _)| at.components().count());
    for (tree, at, kind) in repositories {
        search.repository(tree, at, kind, user);
    }

    let Search { pins, mut rest, .. } = search;
    rest.pins = pins.into_iter().map(|(at, read_only)| Pin { at, read_only }).collect();
    rest
}

/// Directory from which git runs programs.
struct Worktree<'a> {
    path: PathBuf,
    home: &'a Path,
}

/// Effect of a named path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strength {
    /// An existing file or directory is pinned. A missing one is noted.
    Path,
    /// An existing file or directory is pinned. A missing one is only compared.
    Missing,
    /// An existing file is pinned. A missing one is noted.
    Program,
    /// An existing file is pinned.
    Argument,
    /// An existing file is compared.
    Operand,
    /// An existing file is pinned. A missing one does not count.
    Whole,
}

struct Search<'a> {
    trees: &'a [WritableTree<'a>],
    until: Instant,
    checked: usize,
    /// Pins by path. The value is true for read-only.
    pins: BTreeMap<PathBuf, bool>,
    rest: NamedFiles,
}

impl Search<'_> {
    /// Adds the files that the settings of the repository of a `.git` name.
    fn repository(
        &mut self,
        tree: &WritableTree<'_>,
        at: &Path,
        kind: NodeKind,
        user: &UserSettings,
    ) {
        let worktree = at.parent().unwrap_or(at);
        // Git refuses the repository of another user.
        if kind == NodeKind::Other || !openat::is_own_repository(tree.handle, at) {
            return;
        }

        let worktree = Worktree { path: tree.path.join(worktree), home: user.home() };
        // For the top of the tree, `named_blocking` has resolved them.
        if worktree.path != tree.path {
            self.settings(user.settings(), &worktree);
        }

        let mut read =
            |base: BorrowedFd<'_>, base_path: &Path, git: &Path| match config_paths::settings(
                base,
                base_path,
                git,
                Some(user.home()),
            ) {
                Ok((settings, is_complete)) => {
                    self.rest.is_complete &= is_complete;
                    self.settings(&settings, &worktree);
                }
                Err(_) => self.rest.is_complete = false,
            };

        match kind {
            NodeKind::Directory => read(tree.handle, tree.path, at),
            NodeKind::File => match gitdir::follow(tree.handle, tree.path, at) {
                LinkedRepository::Inside(all) => {
                    let own = gitdir::target(tree.handle, tree.path, at);
                    let own =
                        own.and_then(|own| Some(own.strip_prefix(tree.path).ok()?.to_owned()));
                    for git in own.iter().filter(|own| !all.contains(own)).chain(&all) {
                        read(tree.handle, tree.path, git);
                    }
                }
                LinkedRepository::Outside(main) => {
                    let own = gitdir::target(tree.handle, tree.path, at);
                    let own =
                        own.and_then(|own| Some(own.strip_prefix(&main.path).ok()?.to_owned()));
                    for git in own.iter().map(PathBuf::as_path).chain([Path::new("")]) {
                        read(main.handle.as_fd(), &main.path, git);
                    }
                }
                LinkedRepository::Nowhere => {}
            },
            NodeKind::Other => {}
        }
    }

    fn settings(&mut self, settings: &[Setting], worktree: &Worktree<'_>) {
        for setting in settings {
            let Setting { name, value, from, .. } = setting;
            if setting.is_path {
                let from = from.as_deref().unwrap_or(&worktree.path);
                let value = value.strip_prefix(":(optional)").unwrap_or(value);
                if let Some(path) = resolve(value, from, Some(worktree.home)) {
                    self.path(&path, name, Strength::Path);
                }
                continue;
            }

            let all = words(value);
            let runs = all.iter().any(|word| word.is_first && is_runner(&word.text));

            // Git starts some programs without a shell.
            let whole = Word { text: value.clone(), is_first: true, follows_value: false };
            self.word(&whole, name, worktree, Strength::Whole);

            let directories = self.directories(&all, worktree);
            for word in &all {
                let strength = match (word.is_first, name.starts_with("alias.") && !runs) {
                    (true, _) => Strength::Program,
                    (false, false) => Strength::Argument,
                    (false, true) => Strength::Operand,
                };
                self.word(word, name, worktree, strength);
                for directory in &directories {
                    self.word(word, name, directory, Strength::Whole);
                }
            }
        }
    }

    /// Returns the directories among the words, as in `cd tools && ./x`.
    fn directories<'b>(&self, words: &[Word], worktree: &Worktree<'b>) -> Vec<Worktree<'b>> {
        let paths = words.iter().filter(|word| !word.is_first).filter_map(|word| {
            let path = resolve(word.text.as_str(), &worktree.path, Some(worktree.home))?;
            let (tree, relative) = self.inside(&path)?;
            let is_directory = openat::node_at(tree.handle, &relative) == Ok(Node::Directory);
            is_directory.then_some(Worktree { path, home: worktree.home })
        });
        paths.take(MAX_DIRECTORIES).collect()
    }

    fn word(&mut self, word: &Word, name: &str, worktree: &Worktree<'_>, strength: Strength) {
        let text = word.text.as_str();
        // The shell finds a first word without a slash in PATH.
        if word.is_first && !text.contains('/') {
            return;
        }

        if let Some(path) = resolve(text, &worktree.path, Some(worktree.home)) {
            self.path(&path, name, strength);
        }

        if word.follows_value
            && let Some(path) =
                resolve(text.trim_start_matches('/'), &worktree.path, Some(worktree.home))
        {
            self.path(&path, name, strength);
        }
    }

    /// Adds a path that a setting names, if it is in a writable directory.
    fn path(&mut self, path: &Path, setting: &str, strength: Strength) {
        if self.rest.files.iter().any(|known| known.at == path) {
            return;
        }
        if self.checked == MAX_CHECKED
            || MAX_NAMED <= self.rest.files.len()
            || self.until <= Instant::now()
        {
            return self.rest.is_complete = false;
        }
        self.checked += 1;

        let Some((tree, relative)) = self.inside(path) else {
            // A file of the user may be a link into a writable directory.
            return match fs::canonicalize(path) {
                Ok(real) if self.inside(&real).is_some() => self.path(&real, setting, strength),
                _ => {}
            };
        };

        let allows_directory = matches!(strength, Strength::Path | Strength::Missing);
        match openat::node_at(tree.handle, &relative) {
            Ok(Node::File) => self.hold(path, setting, strength),
            Ok(Node::Directory) if allows_directory => self.hold(path, setting, strength),
            Ok(Node::Directory) => {}
            Ok(Node::Missing) => self.missing(path, &relative, setting, strength),
            Ok(Node::Other) => self.linked(path, setting, strength),
            Err(_) => self.rest.is_complete = false,
        }
    }

    fn inside(&self, path: &Path) -> Option<(WritableTree<'_>, PathBuf)> {
        let tree = self.trees.iter().find(|tree| path.starts_with(tree.path))?;
        let relative = path.strip_prefix(tree.path).ok()?;
        (!relative.as_os_str().is_empty()).then(|| (*tree, relative.to_owned()))
    }

    fn watch(&mut self, path: &Path, setting: &str) {
        self.rest.files.push(NamedFile { at: path.to_owned(), setting: setting.to_owned() });
    }

    fn hold(&mut self, path: &Path, setting: &str, strength: Strength) {
        self.watch(path, setting);
        let Some((tree, relative)) = self.inside(path) else { return };
        if strength == Strength::Operand {
            return;
        }

        let root = tree.path.to_owned();
        // A writable mount of a directory in `.git` would lift its protection.
        let is_in_git = relative.iter().any(|name| name == ".git");
        let above = path.ancestors().skip(1).take_while(|above| !is_in_git && *above != root);
        for above in above {
            self.pins.entry(above.to_owned()).or_default();
        }
        self.pins.insert(path.to_owned(), true);
    }

    fn missing(&mut self, path: &Path, relative: &Path, setting: &str, strength: Strength) {
        // A word without a slash and a dot is rarely a file.
        let is_file = || relative.components().count() != 1 || relative.extension().is_some();
        match strength {
            Strength::Operand | Strength::Whole => return,
            Strength::Argument if !is_file() => return,
            _ => {}
        }

        self.watch(path, setting);
        if matches!(strength, Strength::Path | Strength::Program) {
            let what = "is named by git's configuration, does not exist and can be made";
            self.rest.troubles.push(ProtectionGap { path: path.to_owned(), what });
        }
    }

    /// Adds the links on the way to a path, and the file to which they lead.
    fn linked(&mut self, path: &Path, setting: &str, strength: Strength) {
        self.watch(path, setting);
        let Some((tree, _)) = self.inside(path) else { return };
        let root = tree.path.to_owned();
        let links: Vec<PathBuf> = path
            .ancestors()
            .skip(1)
            .take_while(|above| *above != root)
            .filter(|above| fs::symlink_metadata(above).is_ok_and(|it| it.is_symlink()))
            .map(Path::to_owned)
            .collect();
        links.iter().for_each(|link| self.watch(link, setting));

        let what = "is named by git's configuration and reached by a link";
        self.rest.troubles.push(ProtectionGap { path: path.to_owned(), what });

        if let Ok(real) = fs::canonicalize(path)
            && real != *path
        {
            self.path(&real, setting, strength);
        }
    }
}

fn is_runner(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    RUNNERS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Walk;
    use quackd_testkit::TestDir;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    struct World {
        base: TestDir,
        home: PathBuf,
        workspace: PathBuf,
    }

    impl World {
        fn new() -> Self {
            let base = TestDir::empty();
            let world = Self { home: base.join("home"), workspace: base.join("ws"), base };
            world.write("home/x", "");
            world.write("ws/.git/HEAD", "ref: refs/heads/m");
            world
        }

        fn write(&self, path: &str, text: &str) {
            self.base.write(path, text);
        }

        fn named(&self, env: &[(&str, &str)]) -> NamedFiles {
            let env: Vec<_> = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            let user = UserSettings::read_blocking(&self.home, &env);
            let handle = fs::File::open(&self.workspace).unwrap();
            let mut walk = Walk::new(&handle).unwrap();
            walk.step(10_000);
            let found = walk.finish();
            let tree =
                WritableTree { handle: handle.as_fd(), path: &self.workspace, found: &found };
            named_blocking(&[tree], &user, Instant::now() + Duration::from_secs(20))
        }

        /// `path setting` of each named file, with the mark of its pin.
        fn told(&self, env: &[(&str, &str)]) -> Vec<String> {
            let named = self.named(env);
            assert!(named.is_complete);
            let mut lines = Vec::new();
            for NamedFile { at, setting } in &named.files {
                let is_held = named.pins.iter().any(|pin| pin.at == *at && pin.read_only);
                let at = at.strip_prefix(&self.workspace).unwrap().display();
                lines.push(format!("{at} {setting}{}", if is_held { " held" } else { "" }));
            }
            lines.sort();
            lines
        }
    }

    #[test]
    fn every_scope_of_the_configuration_is_read() {
        let world = World::new();
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            world.write(&format!("ws/tools/{name}"), "x");
        }
        world.write("home/.gitconfig", "[core]\nfsmonitor=./tools/a\n[include]\npath=more\n");
        world.write(
            "home/more",
            "[includeIf \"onbranch:x\"]\npath=branch\n[filter \"x\"]\nclean=./tools/b\n",
        );
        world.write("home/branch", "[diff \"x\"]\ntextconv=sh ./tools/c\n");
        world.write("home/xdg/git/config", "[merge \"x\"]\ndriver=python3 tools/d %A\n");
        world.write(
            "home/global",
            "[core]\nsshCommand=\"$(git rev-parse --show-toplevel)/tools/e\"\n",
        );
        world.write("home/system", "[core]\nhooksPath=tools/hooks\n");
        world.write("ws/.git/config", "[gpg]\nprogram=./tools/f\n[include]\npath=../shared\n");
        world.write("ws/shared", "[alias]\nx=!./tools/g && cat README\n");
        world.write("ws/README", "x");
        let path = |name: &str| world.home.join(name).display().to_string();
        let env = [
            ("XDG_CONFIG_HOME", path("xdg")),
            ("GIT_CONFIG_GLOBAL", path("global")),
            ("GIT_CONFIG_SYSTEM", path("system")),
        ];
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let expected = [
            "README alias.x",
            "shared include.path held",
            "tools/a core.fsmonitor held",
            "tools/b filter.x.clean held",
            "tools/c diff.x.textconv held",
            "tools/d merge.x.driver held",
            "tools/e core.sshCommand held",
            "tools/f gpg.program held",
            "tools/g alias.x held",
            "tools/hooks core.hooksPath",
        ];
        assert_eq!(world.told(&env), expected);
        let named = world.named(&env);
        assert!(named.pins.contains(&Pin { at: world.workspace.join("tools"), read_only: false }));
        assert_eq!(named.troubles.len(), 1, "the missing directory of hooks: {:?}", named.troubles);
    }

    #[test]
    fn links_and_the_users_own_files_in_the_workspace_are_found() {
        let world = World::new();
        world.write("ws/dotfiles/gitconfig", "[core]\nfsmonitor=./link/x\n");
        world.write("ws/real/x", "x");
        symlink(world.workspace.join("dotfiles/gitconfig"), world.home.join(".gitconfig")).unwrap();
        symlink(world.workspace.join("real"), world.workspace.join("link")).unwrap();
        let expected = [
            "dotfiles/gitconfig the user's settings held",
            "link core.fsmonitor",
            "link/x core.fsmonitor",
            "real/x core.fsmonitor held",
        ];
        assert_eq!(world.told(&[]), expected);
    }

    #[test]
    fn programs_of_submodules_and_linked_worktrees_are_found_from_their_worktree() {
        let world = World::new();
        world.write("ws/.git/modules/m/HEAD", "x");
        world.write("ws/.git/modules/m/config", "[core]\nworktree=../../../m\nfsmonitor=./x\n");
        world.write("ws/m/.git", "gitdir: ../.git/modules/m\n");
        world.write("ws/m/x", "x");
        world.write("ws/.git/worktrees/w/commondir", "../..\n");
        world.write("ws/.git/worktrees/w/config.worktree", "[core]\neditor=./y\n");
        world.write("ws/.git/config", "[core]\npager=./z\n");
        world.write("ws/w/.git", "gitdir: ../.git/worktrees/w\n");
        world.write("ws/w/y", "x");
        let found = world.told(&[]);
        for expected in
            ["m/x core.fsmonitor held", "w/y core.editor held", "w/z core.pager", "z core.pager"]
        {
            assert!(found.iter().any(|line| line == expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn words_are_resolved_from_the_directories_of_a_command_line() {
        let world = World::new();
        world.write("ws/tools/x", "x");
        world.write("ws/.git/config", "[filter \"f\"]\nclean=cd tools && ./x\n");
        assert_eq!(world.told(&[]), ["tools/x filter.f.clean held", "x filter.f.clean"]);
    }

    #[test]
    fn the_search_is_bounded_and_says_so() {
        assert!(RUNNERS.is_sorted());
        let world = World::new();
        let many: String = (0..400).map(|n| format!("[alias]\na{n}=!./tools/{n}\n")).collect();
        world.write("ws/.git/config", &many);
        let named = world.named(&[]);
        assert_eq!((named.files.len(), named.is_complete), (MAX_NAMED, false));
    }
}

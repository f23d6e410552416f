//! Rules of the profile about git: what decides what a later git runs cannot be changed, and no directory above it can be
//! moved away.

use super::rules::{HOME_SECRETS, MacPaths, Repositories, Seatbelt, matcher};
use super::spelling::{self, Extent};
use crate::git::protected_names::{NAMES, PARENTS, WORKTREE_NAMES};
use quackd_protocol::policy::Policy;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Maximum number of repositories in which git can write.
pub(super) const MAX_REPOSITORIES: usize = 128;

/// Number of paths that a rule names beside its pattern, in case that macOS understands the pattern otherwise.
const MAX_NAMED: usize = 32;

/// Forbids creating, renaming and removing a directory.
const PIN: &str = "deny file-write-create file-write-unlink";

/// Note for a session if [`Seatbelt::has_read_only_repositories`], to be read after the workspace.
pub const MANY_REPOSITORIES: &str = "has more than 128 git repositories, or long paths to them: in those farthest from its top, in submodules and in \
     linked worktrees git cannot write";

impl Seatbelt {
    /// Forbids changes of what decides what git runs: the names in each git directory, and the files that its settings
    /// name. Also forbids creating and unlinking the directories above. Otherwise a rename would bypass the rules.
    pub(super) fn protect(&mut self, policy: &Policy, places: &MacPaths) {
        let roots: BTreeSet<&Path> =
            policy.writable_roots.iter().chain([&places.workspace]).map(PathBuf::as_path).collect();
        let mut kept = match self.repositories {
            Repositories::Each => self.protect_each(places),
            Repositories::Nearest(most) => self.protect_nearest(&roots, places, most),
        };
        let read_only = places.pins.iter().filter(|pin| pin.read_only).map(|pin| pin.at.clone());
        let read_only: Vec<_> = read_only.chain(places.git.read_only.iter().cloned()).collect();
        self.forbid_names("deny file-write*", Extent::Tree, "FIXED", &read_only, &[]);

        // A path in a directory that was moved would have no rule.
        kept.extend(read_only);
        kept.extend(places.pins.iter().map(|pin| pin.at.clone()));
        kept.extend(policy.hidden.iter().chain(&places.original).cloned());
        kept.extend(HOME_SECRETS.iter().map(|secret| places.home.join(secret)));
        kept.extend(roots.iter().map(|root| root.to_path_buf()));
        let is_inside = |at: &&Path| roots.iter().any(|root| at.starts_with(root) && at != root);
        let above = kept.iter().flat_map(|path| path.ancestors().filter(is_inside));
        let above: BTreeSet<PathBuf> = above.map(Path::to_path_buf).collect();
        self.forbid_names(PIN, Extent::Name, "PIN", &Vec::from_iter(above), &[]);
        roots.into_iter().for_each(|root| self.pin(root));
    }

    /// Protects the names in each git directory. Returns the paths whose directories must stay.
    fn protect_each(&mut self, places: &MacPaths) -> Vec<PathBuf> {
        let git = &places.git;
        self.forbid_names("deny file-write*", Extent::Tree, "GIT", &git.repositories, &NAMES);
        self.forbid_names(PIN, Extent::Name, "PIN", &git.repositories, &PARENTS);
        let names = &WORKTREE_NAMES;
        self.forbid_names("deny file-write*", Extent::Tree, "WORKTREE", &git.worktrees, names);
        let all: Vec<PathBuf> = git.repositories.iter().chain(&git.worktrees).cloned().collect();
        self.forbid_links(&all);
        git.outside.iter().for_each(|outside| self.pin(outside));
        all
    }

    /// Protects every `.git` as a whole, wherever the session can write, but for the names that git needs in some of them.
    fn protect_nearest(
        &mut self,
        roots: &BTreeSet<&Path>,
        places: &MacPaths,
        most: usize,
    ) -> Vec<PathBuf> {
        let is_plain = |git: &&PathBuf| git.file_name().is_some_and(|name| name == ".git");
        let is_inside = |git: &&PathBuf| roots.iter().any(|root| git.starts_with(root));
        let (plain, named): (Vec<_>, Vec<_>) =
            places.git.repositories.iter().filter(is_inside).partition(is_plain);
        // Those of submodules are in a `.git`.
        let named = named.into_iter().filter(|git| !git.iter().any(|name| name == ".git"));
        let named: Vec<PathBuf> = named.cloned().collect();
        self.forbid_names("deny file-write*", Extent::Tree, "FIXED", &named, &[]);

        // A directory could be moved there, changed and moved back.
        let own = [places.run_dir.as_path(), &places.temporary];
        for above in roots.iter().copied().chain(own) {
            let pattern = spelling::pattern_at_any_depth(above, ".git", Extent::Tree);
            let _written = writeln!(self.text, "(deny file-write* (regex #\"{pattern}\"))");
        }
        // These rules come after those that hide the state directory and the workspace of the user, and would open them.
        let hidden = || places.original.iter().chain([&places.state_dir]);
        let is_copy = places.workspace.starts_with(&places.state_dir);
        let is_hidden = |git: &PathBuf| {
            let is_own = is_copy && git.starts_with(&places.workspace);
            !is_own && hidden().any(|tree| git.starts_with(tree))
        };
        let plain = plain.into_iter().filter(|git| !is_hidden(git)).take(most);
        let plain: Vec<PathBuf> = plain.cloned().collect();
        for git in &plain {
            self.rule("allow file-write*", "subpath", "NEAR", git);
        }
        let names = [NAMES.as_slice(), &["modules", "worktrees"]].concat();
        self.forbid_names("deny file-write*", Extent::Tree, "GIT", &plain, &names);
        self.forbid_names(PIN, Extent::Name, "PIN", &plain, &PARENTS);
        self.forbid_links(&plain);
        [plain, named].concat()
    }

    /// Forbids something about names in directories; without names, about the directories.
    fn forbid_names(
        &mut self,
        action: &str,
        extent: Extent,
        name: &str,
        directories: &[PathBuf],
        names: &[&str],
    ) {
        if directories.is_empty() {
            return;
        }
        let filters = self.filters_of(extent, name, directories, names);
        let _written = writeln!(self.text, "({action}{filters})");
    }

    /// Forbids making a symbolic link in directories: git follows it when it writes a file of its own.
    fn forbid_links(&mut self, directories: &[PathBuf]) {
        if directories.is_empty() {
            return;
        }
        let filters = self.filters_of(Extent::Tree, "LINK", directories, &[]);
        let _written = writeln!(
            self.text,
            "(deny file-write-create (require-all (vnode-type SYMLINK) (require-any{filters})))"
        );
    }

    /// Returns the filters of names in directories: their paths as parameters, and a pattern of all spellings.
    fn filters_of(
        &mut self,
        extent: Extent,
        name: &str,
        directories: &[PathBuf],
        names: &[&str],
    ) -> String {
        let matcher = matcher(extent);
        let mut filters = String::new();
        for directory in directories.iter().take(MAX_NAMED) {
            let beneath = names.iter().map(|name| directory.join(name));
            let itself = names.is_empty().then(|| directory.clone());
            for path in beneath.chain(itself) {
                let parameter = self.parameter(name, &path);
                let _written = write!(filters, " ({matcher} (param \"{parameter}\"))");
            }
        }
        let pattern = spelling::pattern_of(directories, names, extent);
        let _written = write!(filters, " (regex #\"{pattern}\")");
        filters
    }
}

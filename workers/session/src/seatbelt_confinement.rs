//! Tier M: `/usr/bin/sandbox-exec` of macOS starts each command with a profile made from the policy. The worker itself is
//! not confined: its file tools use handles under the workspace. Never run on a Mac. The tests run it on Linux with a
//! program that enforces the profile in place of `sandbox-exec`. Called by `platform`.

use crate::confinement_result::ConfinementResult;
use crate::private_files;
use crate::start_error::WorkerStartError;
use crate::trees::{
    LOOK_LIMIT, Tree, cut_notes, hold_roots, known_without_limits, named_files, notes_of,
    repositories, too_many_repositories, trees_of,
};
use crate::user_git::{NO_SETTINGS, of_user, user_settings, write_settings_blocking};
use quackd_process::{find_processes_by_list, mark_commands_with};
use quackd_protocol::foreign_text::one_line_cut;
use quackd_protocol::policy::{NetworkMode, Policy, Profile};
use quackd_protocol::tiers::Tier;
use quackd_protocol::worker::{IsolatedStart, Start};
use quackd_sandbox::audit::Known;
use quackd_sandbox::confine::PrivateNetwork;
use quackd_sandbox::git::{self, GitDirectories};
use quackd_sandbox::{
    MANY_REPOSITORIES, MacPaths, Root, Seatbelt, canonicalise_existing, path_directories_blocking,
    workspace_refusal,
};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Largest file of the copy's repository that is read, in bytes.
const MAX_ALTERNATES: u64 = 1024 * 1024;

/// Error of an isolated session whose copy was not completed or was deleted.
pub(crate) const NO_COPY: &str =
    "the session has no complete copy of the workspace; `quack discard` makes a new one";

/// Error of a workspace whose profile would be too long.
const TOO_MANY_PATHS: &str = "what `.git` files and settings of git in the workspace name has too many or too long paths to protect each; remove some, \
     or use `quack sandbox set read-only`";

/// Most directories that a note names, and the longest path in it, in characters.
const MAX_NAMED: usize = 8;
const MAX_SHOWN: usize = 80;

/// Prepares the words in front of commands. Without `sandbox_exec` the worker starts unconfined, unless the user asked
/// for this tier. The worker has no monitor, also in the tests on Linux, because macOS has none.
///
/// # Errors
/// The directory for temporary files cannot be created, or the user asked for this tier and
/// `sandbox_exec` does not exist.
pub(crate) fn enter(
    start: &Start,
    sandbox_exec: &Path,
) -> Result<ConfinementResult, WorkerStartError> {
    let has_seatbelt = sandbox_exec.exists();
    let mut places = places(start);
    let policy = policy_of_places(&start.sandbox.policy, &places);
    let (policy, roots, mut notes) = hold_roots(policy, &places.home);
    if let Some(why) = refusal(start, &places, Some(sandbox_exec).filter(|_| !has_seatbelt)) {
        return Err(WorkerStartError::Confinement(why));
    }

    let isolated = start.sandbox.isolated.as_ref();
    if let Some(isolated) = isolated {
        notes.extend(prepare_copy_blocking(&places, isolated)?);
    }
    let settings = user_settings(start);
    let is_limited = has_seatbelt && policy.profile != Profile::FullAccess;
    let known = if is_limited {
        Some(look_blocking(start, policy.may_write(), &roots, &mut places, &mut notes)?)
    } else {
        known_without_limits(start)
    };
    cut_notes(&mut notes);
    drop(roots);

    // Without a monitor, a list of processes and a mark find those of commands.
    find_processes_by_list();
    mark_commands_with(&places.state_dir)
        .map_err(WorkerStartError::at("cannot read the state directory"))?;
    private_files::make_directory_blocking(&places.temporary)
        .map_err(WorkerStartError::at("cannot make a directory"))?;

    let has_proxy = is_limited && policy.network_mode() == NetworkMode::Hosts;
    let private_network = has_proxy.then(PrivateNetwork::on_the_machine).transpose();
    let private_network =
        private_network.map_err(WorkerStartError::at("cannot listen for the network proxy"))?;
    // Before the profiles, which let commands reach the proxy.
    places.proxy = private_network.as_ref().map(|network| network.port);

    let profile = |policy: &Policy| Seatbelt::new(policy, &places).filter(|_| has_seatbelt);
    let words = |profile: Option<&Seatbelt>| {
        let words =
            profile.map(|profile| [vec![sandbox_exec.into()], profile.arguments()].concat());
        words.unwrap_or_default()
    };
    let read_only = profile(&Policy { profile: Profile::ReadOnly, ..policy.clone() });
    let profile = profile(&policy);
    notes.splice(0..0, note_on_length(profile.as_ref(), &places)?);

    let is_confined = profile.is_some();
    let env =
        if is_confined { variables_blocking(&places, &settings, &mut notes) } else { Vec::new() };
    let mut result = ConfinementResult::new(&policy, notes, of_user(&settings));
    result.report.tier = Some(if is_confined { Tier::M } else { Tier::Unconfined });
    result.report.network |= !is_confined;
    Ok(ConfinementResult {
        copy: isolated.map(|_| places.workspace.clone()),
        is_confined,
        env,
        command_words: words(profile.as_ref()),
        read_only_words: words(read_only.as_ref()),
        policy: Some(policy),
        profile,
        known,
        private_network,
        ..result
    })
}

/// Returns the note on a profile that protects many repositories as a whole, if it does.
fn note_on_length(
    profile: Option<&Seatbelt>,
    places: &MacPaths,
) -> Result<Option<String>, WorkerStartError> {
    let Some(profile) = profile else { return Ok(None) };
    if !profile.is_short_enough() {
        return Err(WorkerStartError::confinement(TOO_MANY_PATHS));
    }
    let is_limited = profile.has_read_only_repositories();
    Ok(is_limited.then(|| format!("{} {MANY_REPOSITORIES}", places.workspace.display())))
}

/// Returns the reason why the session may not start. `missing` is the path of `sandbox-exec`, if it does not exist.
fn refusal(start: &Start, places: &MacPaths, missing: Option<&Path>) -> Option<String> {
    let needed = match (start.sandbox.tier, &start.sandbox.isolated) {
        (Some(Tier::M), _) => Some("tier M was asked for"),
        (_, Some(_)) => Some("the session is isolated"),
        _ => None,
    };
    if let (Some(needed), Some(program)) = (needed, missing) {
        return Some(format!("{needed}, but there is no {}", program.display()));
    }

    let policy = &start.sandbox.policy;
    if policy.profile == Profile::FullAccess {
        let is_isolated = start.sandbox.isolated.is_some();
        return is_isolated.then(|| "full-access cannot be isolated".to_owned());
    }
    if policy.hidden.iter().any(|hidden| places.workspace.starts_with(hidden)) {
        return Some(format!("{} is hidden by the policy", places.workspace.display()));
    }
    let workspace = places.original.as_ref().unwrap_or(&places.workspace);
    let own = [places.run_dir.as_path(), &places.state_dir, &places.home];
    let why = workspace_refusal(workspace, own, &policy.hidden)?;
    Some(format!("{} {why}", workspace.display()))
}

/// Returns the policy for these places. Hidden paths are also hidden at their paths without links, and those in the user's
/// workspace also in its copy.
fn policy_of_places(policy: &Policy, places: &MacPaths) -> Policy {
    let mut policy = policy.clone();
    // The system compares paths without links with the profile, such as `/private/tmp/x` for `/tmp/x`.
    let real = policy.hidden.iter().filter_map(|path| canonicalise_existing(path)).collect();
    add_new(&mut policy.hidden, real);

    let in_copy = |hidden: &PathBuf| {
        let beneath = hidden.strip_prefix(places.original.as_ref()?).ok()?;
        Some(places.workspace.join(beneath)).filter(|_| beneath != Path::new(""))
    };
    let copied = policy.hidden.iter().filter_map(in_copy).collect();
    add_new(&mut policy.hidden, copied);
    policy
}

fn add_new(paths: &mut Vec<PathBuf>, more: Vec<PathBuf>) {
    for path in more {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
}

/// Lends the copy of an isolated session the objects of the user's repository. There they have the path that they have
/// outside. Returns notes about what the copy does not have.
fn prepare_copy_blocking(
    places: &MacPaths,
    isolated: &IsolatedStart,
) -> Result<Vec<String>, WorkerStartError> {
    let tree =
        Root::open(&places.workspace).map_err(|_missing| WorkerStartError::confinement(NO_COPY))?;
    if let Some(objects) = &places.objects {
        // A link could lead to any directory of the user, also to the daemon's own.
        if real(objects) != *objects {
            let why =
                "the objects of the repository are elsewhere now; `quack discard` makes a new copy";
            return Err(WorkerStartError::confinement(why));
        }
        lend_blocking(&tree, objects).map_err(WorkerStartError::at(
            "cannot lend the copy the objects of the repository (`quack discard` makes a new copy)",
        ))?;
    }

    let outputs = &isolated.copied.outputs;
    if outputs.is_empty() {
        return Ok(Vec::new());
    }
    let names = outputs.iter().take(MAX_NAMED);
    let names: Vec<_> =
        names.map(|path| one_line_cut(&path.to_string_lossy(), MAX_SHOWN)).collect();
    let more = match outputs.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Ok(vec![format!("ignored directories are not in the copy: {}{more}", names.join(", "))])
}

/// Writes the directory with the objects of the user's repository into the repository of the copy.
fn lend_blocking(tree: &Root, objects: &Path) -> io::Result<()> {
    let line = format!("{}\n", objects.display());
    let mut text = String::new();
    if let Ok(alternates) = tree.open_file(".git/objects/info/alternates") {
        // A file that cannot be read, or is cut, differs, so it is written again.
        alternates.file.take(MAX_ALTERNATES).read_to_string(&mut text).ok();
    }
    if text == line {
        return Ok(());
    }
    let info = tree.open_directory(Path::new(".git/objects/info"))?;
    private_files::write_in_blocking(info, "alternates", &line)
}

/// Finds what must not change in the directories that the session may write, and adds it to the places. Returns what the
/// audit compares. Adds notes on what is not protected.
fn look_blocking(
    start: &Start,
    may_write: bool,
    roots: &[(PathBuf, OwnedFd)],
    places: &mut MacPaths,
    notes: &mut Vec<String>,
) -> Result<Known, WorkerStartError> {
    let until = Instant::now() + LOOK_LIMIT;
    let path = places.workspace.clone();
    let workspace = git::hold_directory_blocking(&path)
        .map_err(WorkerStartError::at("cannot open the workspace"))?;
    let repositories = repositories(&workspace, until)
        .map_err(WorkerStartError::at("cannot read the workspace"))?;

    let known = Known::from(&repositories);
    if !may_write {
        return Ok(known);
    }
    if repositories.has_more_repositories {
        return Err(too_many_repositories());
    }

    let trees = trees_of(Tree { handle: &workspace, path: &path, repositories }, roots, until)?;
    let visible: Vec<&Path> = trees.iter().map(|tree| tree.path).collect();
    for tree in &trees {
        places.git.add_blocking(&tree.as_writable(), &visible);
    }
    add_protection_notes(notes, places, &visible);

    let settings = git::UserSettings::read_blocking(Path::new(&start.sandbox.home), &start.env);
    let named = named_files(&trees, &settings, until, notes);
    places.pins.clone_from(&named.pins);
    Ok(known.naming(&named))
}

/// Adds notes on git directories without the usual protection. Those on a whole directory in `trees` come before all other
/// notes, because each can stand for many repositories.
fn add_protection_notes(notes: &mut Vec<String>, places: &MacPaths, trees: &[&Path]) {
    let troubles = places.git.troubles.iter().cloned();
    let (of_trees, others): (Vec<_>, Vec<_>) =
        troubles.partition(|trouble| trees.contains(&trouble.path.as_path()));
    let mut all = notes_of(&of_trees);
    all.append(notes);
    all.extend(notes_of(&others));
    *notes = all;
}

/// Returns the variables of confined commands.
///
/// The profile hides the user's settings of git, and git fails if it may not read them. So the session has files of its
/// own, also of ignored names and of attributes, instead of the default ones in the home. If they cannot be written, for
/// example because the disk is full, it has none, and a note.
fn variables_blocking(
    places: &MacPaths,
    settings: &git::CarriedSettings,
    notes: &mut Vec<String>,
) -> Vec<(&'static str, String)> {
    let mut settings = settings.clone();
    settings.excludes.get_or_insert_default();
    settings.attributes.get_or_insert_default();
    let more = if places.git.has_unseen_worktrees { git::KEEP_WORKTREES } else { "" };
    let file =
        write_settings_blocking(&places.temporary, &settings, more).unwrap_or_else(|error| {
            notes.push(format!("git has none of your settings: they cannot be written: {error}"));
            NO_SETTINGS.to_owned()
        });
    vec![("TMPDIR", places.temporary.display().to_string()), ("GIT_CONFIG_GLOBAL", file)]
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn places(start: &Start) -> MacPaths {
    let isolated = start.sandbox.isolated.as_ref();
    let copy = isolated.map(|isolated| Path::new(&isolated.directory).join("tree"));
    let original = real(Path::new(&start.workspace));
    let (workspace, original) = match &copy {
        Some(copy) => (real(copy), Some(original)),
        None => (original, None),
    };

    let objects = isolated.and_then(|isolated| isolated.copied.objects.clone());
    let home = real(Path::new(&start.sandbox.home));
    let path = start.env.iter().find(|(name, _)| name == "PATH");
    let toolchains = path.map(|(_, path)| path_directories_blocking(path, &home));
    let run_dir = real(Path::new(&start.run_dir));
    MacPaths {
        temporary: run_dir.join("tmp"),
        run_dir,
        state_dir: real(Path::new(&start.sandbox.state_dir)),
        home,
        toolchains: toolchains.unwrap_or_default(),
        git: GitDirectories::default(),
        pins: Vec::new(),
        original,
        objects,
        proxy: None,
        workspace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::MAX_NOTES;
    use quackd_sandbox::git::ProtectionGap;
    use std::os::unix::fs::symlink;

    fn places_in(base: &Path) -> MacPaths {
        MacPaths {
            workspace: base.join("w"),
            run_dir: base.join("run"),
            state_dir: base.join("state"),
            home: base.join("home"),
            temporary: base.join("run/tmp"),
            toolchains: Vec::new(),
            git: GitDirectories::default(),
            pins: Vec::new(),
            original: None,
            objects: None,
            proxy: None,
        }
    }

    #[test]
    fn hidden_paths_behind_links_are_hidden_at_their_real_paths_and_in_the_copy() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("private/w/a")).unwrap();
        symlink("private", base.join("link")).unwrap();

        let given = ["link/w/a/.env", "private/w/a/.env", "link/w/missing/key", "other"];
        let hidden: Vec<PathBuf> = given.iter().map(|path| base.join(path)).collect();
        let policy = Policy { hidden: hidden.clone(), ..Policy::default() };
        let mut places = places_in(&base);
        places.workspace = base.join("private/w");
        let expected = [hidden, vec![base.join("private/w/missing/key")]].concat();
        assert_eq!(policy_of_places(&policy, &places).hidden, expected);

        places.workspace = base.join("copy");
        places.original = Some(base.join("private/w"));
        let in_copy = ["copy/a/.env", "copy/missing/key"].map(|path| base.join(path));
        let expected = [expected, in_copy.to_vec()].concat();
        assert_eq!(policy_of_places(&policy, &places).hidden, expected);
    }

    #[test]
    fn notes_on_many_repositories_come_first_and_the_last_one_counts_the_rest() {
        let mut places = places_in(Path::new("/"));
        let gap = |path: &Path, what| ProtectionGap { path: path.to_owned(), what };
        let link = |n: usize| gap(&places.workspace.join(format!("{n}/.git")), "is a link");
        let mut troubles: Vec<_> = (0..MAX_NOTES).map(link).collect();
        troubles.push(gap(&places.workspace, "is too large"));
        places.git.troubles = troubles;

        let mut notes = vec!["/beside is no directory".to_owned()];
        add_protection_notes(&mut notes, &places, &[&places.workspace]);
        assert_eq!(notes.len(), MAX_NOTES + 2);
        cut_notes(&mut notes);
        assert_eq!(notes.len(), MAX_NOTES);
        assert_eq!(
            notes[..3],
            ["/w is too large", "/beside is no directory", "/w/0/.git is a link"]
        );
        assert_eq!(notes[MAX_NOTES - 1], "and 3 more");

        let mut few = vec!["one".to_owned()];
        cut_notes(&mut few);
        assert_eq!(few, ["one"]);
    }
}

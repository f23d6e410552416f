//! Tier M: `/usr/bin/sandbox-exec` of macOS starts each command with a profile made from the policy. The worker itself is
//! not confined: its file tools use handles under the workspace. Never run on a Mac. The tests run it on Linux with a
//! program that enforces the profile in place of `sandbox-exec`. Called by `platform`.

use crate::confinement_result::ConfinementResult;
use crate::private_files;
use crate::start_error::WorkerStartError;
use quackd_process::{SessionPaths, find_processes_by_list, split_off_monitor_of};
use quackd_protocol::foreign_text::one_line_cut;
use quackd_protocol::policy::{NetworkMode, Policy, Profile};
use quackd_protocol::tiers::Tier;
use quackd_protocol::worker::{IsolatedStart, SandboxReport, Start};
use quackd_sandbox::confine::PrivateNetwork;
use quackd_sandbox::{
    MacPaths, Root, Seatbelt, git_config, path_directories_blocking, workspace_refusal,
};
use quackd_tools::UserGit;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// File with settings of git, in the directory for temporary files.
const GIT_SETTINGS: &str = "gitconfig";

/// Largest file of git's settings that is read, in bytes.
const MAX_GIT_SETTINGS: u64 = 1024 * 1024;

/// Error of an isolated session whose copy was not completed or was deleted.
pub(crate) const NO_COPY: &str =
    "the session has no complete copy of the workspace; `quack discard` makes a new one";

/// Most directories that a note names, and the longest path in it, in characters.
const MAX_NAMED: usize = 8;
const MAX_SHOWN: usize = 80;

/// Splits off the monitor and prepares the words in front of commands. Without `sandbox_exec` the worker starts
/// unconfined, unless the user asked for this tier.
///
/// # Errors
/// The monitor cannot start, the directory for temporary files cannot be created, or the user asked for this tier and
/// `sandbox_exec` does not exist.
pub(crate) fn enter(
    start: &Start,
    cgroup: Option<&SessionPaths>,
    sandbox_exec: &Path,
) -> Result<ConfinementResult, WorkerStartError> {
    let has_seatbelt = sandbox_exec.exists();
    let mut places = places(start);
    let policy = &policy_of_places(&start.sandbox.policy, &places);
    if let Some(why) = refusal(start, &places, Some(sandbox_exec).filter(|_| !has_seatbelt)) {
        return Err(WorkerStartError::Confinement(why));
    }
    let isolated = start.sandbox.isolated.as_ref();
    let notes = match isolated {
        Some(isolated) => prepare_copy_blocking(&places, isolated)?,
        None => Vec::new(),
    };
    split_off_monitor_of(cgroup)
        .map_err(|source| WorkerStartError::System { step: "cannot start the monitor", source })?;
    find_processes_by_list();
    private_files::make_directory_blocking(&places.temporary)
        .map_err(|source| WorkerStartError::System { step: "cannot make a directory", source })?;
    let private_network = match policy.network_mode() {
        NetworkMode::Hosts if has_seatbelt && policy.profile != Profile::FullAccess => {
            let made = PrivateNetwork::on_the_machine();
            Some(made.map_err(|source| WorkerStartError::System {
                step: "cannot listen for the network proxy",
                source,
            })?)
        }
        _ => None,
    };
    places.proxy = private_network.as_ref().map(|network| network.port);
    let profile = |policy: &Policy| Seatbelt::new(policy, &places).filter(|_| has_seatbelt);
    let words = |profile: Option<&Seatbelt>| -> Vec<OsString> {
        let words =
            profile.map(|profile| [vec![sandbox_exec.into()], profile.arguments()].concat());
        words.unwrap_or_default()
    };
    let read_only = profile(&Policy { profile: Profile::ReadOnly, ..policy.clone() });
    let profile = profile(policy);
    let is_confined = profile.is_some();
    Ok(ConfinementResult {
        report: SandboxReport {
            tier: Some(if is_confined { Tier::M } else { Tier::Unconfined }),
            policy: Some(policy.profile),
            network: policy.network || !is_confined,
            hosts: false,
            git: None,
            notes,
        },
        copy: isolated.map(|_| places.workspace.clone()),
        is_confined,
        spawn_thread: None,
        pid: std::process::id(),
        env: if is_confined { variables_blocking(&places)? } else { Vec::new() },
        pins: Vec::new(),
        read_only_pins: Vec::new(),
        absent: Vec::new(),
        sources: None,
        private_home: None,
        has_private_tmp: false,
        command_words: words(profile.as_ref()),
        read_only_words: words(read_only.as_ref()),
        policy: Some(policy.clone()),
        profile,
        exe: None,
        known: None,
        user_git: UserGit::default(),
        private_network,
    })
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

/// Returns the policy for these places. Paths that are hidden in the user's workspace are also hidden in its copy.
fn policy_of_places(policy: &Policy, places: &MacPaths) -> Policy {
    let in_copy = |hidden: &PathBuf| {
        let beneath = hidden.strip_prefix(places.original.as_ref()?).ok()?;
        Some(places.workspace.join(beneath)).filter(|_| beneath != Path::new(""))
    };
    let hidden: Vec<PathBuf> = policy.hidden.iter().filter_map(in_copy).collect();
    let mut policy = policy.clone();
    policy.hidden.extend(hidden);
    policy
}

/// Lends the copy of an isolated session the objects of the user's repository. There they have the path that they have
/// outside. Returns notes about what the copy does not have.
fn prepare_copy_blocking(
    places: &MacPaths,
    isolated: &IsolatedStart,
) -> Result<Vec<String>, WorkerStartError> {
    let tree = Root::open(&places.workspace)
        .map_err(|_missing| WorkerStartError::Confinement(NO_COPY.to_owned()))?;
    if let Some(objects) = &places.objects {
        // A link could lead to any directory of the user, also to the daemon's own.
        if real(objects) != *objects {
            let why =
                "the objects of the repository are elsewhere now; `quack discard` makes a new copy";
            return Err(WorkerStartError::Confinement(why.to_owned()));
        }
        lend_blocking(&tree, objects).map_err(|source| WorkerStartError::System {
            step: "cannot lend the copy the objects of the repository (`quack discard` makes a new copy)",
            source,
        })?;
    }
    let outputs = &isolated.copied.outputs;
    if outputs.is_empty() {
        return Ok(Vec::new());
    }
    let shown = outputs.iter().take(MAX_NAMED).map(|path| path.to_string_lossy());
    let names: Vec<_> = shown.map(|path| one_line_cut(&path, MAX_SHOWN)).collect();
    let more = match outputs.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Ok(vec![format!("ignored directories are not in the copy: {}{more}", names.join(", "))])
}

/// Writes the directory with the objects of the user's repository into the repository of the copy.
fn lend_blocking(tree: &Root, objects: &Path) -> io::Result<()> {
    let line = format!("{}\n", objects.display());
    let mut found = String::new();
    if let Ok(alternates) = tree.open_file(".git/objects/info/alternates") {
        alternates.file.take(MAX_GIT_SETTINGS).read_to_string(&mut found).ok();
    }
    if found == line {
        return Ok(());
    }
    let info = tree.open_directory(Path::new(".git/objects/info"))?;
    private_files::write_in_blocking(info, "alternates", &line)
}

/// Returns the variables of confined commands.
///
/// The profile hides the user's settings of git, and git fails if it may not read them. So the session has a file with
/// the user's name and email address, and files of ignored names and of attributes, which are empty, instead of the
/// default ones in the home.
fn variables_blocking(places: &MacPaths) -> Result<Vec<(&'static str, String)>, WorkerStartError> {
    let mut settings = git_user_blocking(&places.home.join(".gitconfig"));
    settings.push_str("[core]\n");
    for key in ["excludesFile", "attributesFile"] {
        settings.push_str(&format!("\t{key} = /dev/null\n"));
    }
    private_files::write_blocking(&places.temporary, GIT_SETTINGS, &settings).map_err(
        |source| WorkerStartError::System { step: "cannot write the settings of git", source },
    )?;
    Ok(vec![
        ("TMPDIR", places.temporary.display().to_string()),
        ("GIT_CONFIG_GLOBAL", places.temporary.join(GIT_SETTINGS).display().to_string()),
    ])
}

/// Returns settings of git with the user's name and email address, as far as the user's file has them.
fn git_user_blocking(file: &Path) -> String {
    let is_small = |file: &std::fs::Metadata| file.is_file() && file.len() <= MAX_GIT_SETTINGS;
    let text = file.metadata().ok().filter(is_small).and_then(|_| std::fs::read(file).ok());
    let text = text.unwrap_or_default();
    let entries = git_config::parse(&String::from_utf8_lossy(&text));
    let mut settings = String::from("[user]\n");
    for key in ["name", "email"] {
        // The last one counts, as for git.
        let last = entries.iter().rev().find(|entry| entry.is("user", key));
        let value = last.and_then(|entry| entry.value.as_deref()).unwrap_or_default();
        if !value.is_empty() && !value.contains(char::is_control) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            settings.push_str(&format!("\t{key} = \"{value}\"\n"));
        }
    }
    settings
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
    let repository = workspace.join(".git");
    let repositories: Vec<PathBuf> =
        repository.exists().then_some(repository).into_iter().collect();
    MacPaths {
        temporary: run_dir.join("tmp"),
        run_dir,
        state_dir: real(Path::new(&start.sandbox.state_dir)),
        home,
        toolchains: toolchains.unwrap_or_default(),
        repositories,
        original,
        objects,
        proxy: None,
        workspace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_address_of_the_user_are_kept_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gitconfig");
        assert_eq!(git_user_blocking(&file), "[user]\n");
        let text =
            "[user]\nname = A\nemail = a@b\nname = \"A \\\"B\\\" \\\\ C\"\n[core]\npager = evil\n";
        std::fs::write(&file, text).unwrap();
        let expected = "[user]\n\tname = \"A \\\"B\\\" \\\\ C\"\n\temail = \"a@b\"\n";
        assert_eq!(git_user_blocking(&file), expected);
        assert_eq!(git_config::parse(expected)[0].value.as_deref(), Some("A \"B\" \\ C"));
    }
}

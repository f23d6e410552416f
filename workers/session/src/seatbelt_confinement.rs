//! Tier M: `/usr/bin/sandbox-exec` of macOS starts each command with a profile made from the policy. The worker itself is
//! not confined: its file tools use handles under the workspace. Never run on a Mac. The tests run it on Linux with a
//! program that enforces the profile in place of `sandbox-exec`. Called by [`crate::confinement`].

use crate::confinement_result::ConfinementResult;
use crate::start_error::WorkerStartError;
use quackd_process::{SessionPaths, split_off_monitor_of};
use quackd_protocol::policy::{NetworkMode, Policy, Profile};
use quackd_protocol::tiers::Tier;
use quackd_protocol::worker::{SandboxReport, Start};
use quackd_sandbox::confine::PrivateNetwork;
use quackd_sandbox::{MacPaths, Seatbelt};
use quackd_tools::UserGit;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    if start.sandbox.tier == Some(Tier::M) && !has_seatbelt {
        let path = sandbox_exec.display();
        let why = format!("tier M was asked for, but there is no {path}");
        return Err(WorkerStartError::Confinement(why));
    }
    split_off_monitor_of(cgroup)
        .map_err(|source| WorkerStartError::System { step: "cannot start the monitor", source })?;
    let policy = &start.sandbox.policy;
    let temporary = Path::new(&start.run_dir).join("tmp");
    if let Err(source) = std::fs::create_dir_all(&temporary) {
        return Err(WorkerStartError::System { step: "cannot make a directory", source });
    }
    let mut places = places(start, &temporary);
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
    let words = |policy: &Policy| -> Vec<OsString> {
        let profile = Seatbelt::new(policy, &places).filter(|_| has_seatbelt);
        let words =
            profile.map(|profile| [vec![sandbox_exec.into()], profile.arguments()].concat());
        words.unwrap_or_default()
    };
    let command_words = words(policy);
    let read_only_words = words(&Policy { profile: Profile::ReadOnly, ..policy.clone() });
    let is_confined = !command_words.is_empty();
    Ok(ConfinementResult {
        report: SandboxReport {
            tier: Some(if is_confined { Tier::M } else { Tier::Unconfined }),
            policy: Some(policy.profile),
            network: policy.network || !is_confined,
            hosts: false,
            git: None,
            notes: Vec::new(),
        },
        is_confined,
        spawn_thread: None,
        pid: std::process::id(),
        env: match is_confined {
            true => vec![("TMPDIR", places.temporary.display().to_string())],
            false => Vec::new(),
        },
        pins: Vec::new(),
        read_only_pins: Vec::new(),
        absent: Vec::new(),
        sources: None,
        private_home: None,
        has_private_tmp: false,
        command_words,
        read_only_words,
        exe: None,
        known: None,
        user_git: UserGit::default(),
        private_network,
    })
}

fn places(start: &Start, temporary: &Path) -> MacPaths {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let workspace = real(Path::new(&start.workspace));
    let path = start.env.iter().find(|(name, _)| name == "PATH");
    let toolchains = path.map(|(_, path)| path.split(':').map(Path::new).map(real).collect());
    let repository = workspace.join(".git");
    let repositories: Vec<PathBuf> =
        repository.exists().then_some(repository).into_iter().collect();
    MacPaths {
        run_dir: real(Path::new(&start.run_dir)),
        state_dir: real(Path::new(&start.sandbox.state_dir)),
        home: real(Path::new(&start.sandbox.home)),
        temporary: real(temporary),
        toolchains: toolchains.unwrap_or_default(),
        repositories,
        proxy: None,
        workspace,
    }
}

//! Confining this worker's commands where the kernel is not Linux: on macOS each is started by
//! `/usr/bin/sandbox-exec` with a profile made from the policy (tier M). The worker itself is not confined
//! there: its file tools go by handles beneath the workspace. Type-checked only; it has not been run.
//! Called by [`crate::stage0`].

use crate::confined::Confined;
use crate::stage0::StartError;
use quackd_process::{Group, SessionPaths, split_off_monitor_of};
use quackd_protocol::policy::{Policy, Profile};
use quackd_protocol::worker::{SandboxReport, Start, UNCONFINED};
use quackd_sandbox::{MacPlaces, SANDBOX_EXEC, Seatbelt};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The words before a command that must not write.
#[derive(Debug)]
pub(crate) struct ReadOnly(Vec<OsString>);

impl ReadOnly {
    pub(crate) fn words(&self) -> Vec<OsString> {
        self.0.clone()
    }
}

/// Says how commands are to be started.
///
/// # Errors
/// There is no directory for temporary files.
pub(crate) fn enter(
    start: &Start,
    cgroup: Option<&SessionPaths>,
    _group: Option<&Group>,
) -> Result<Confined, StartError> {
    split_off_monitor_of(cgroup)
        .map_err(|source| StartError::System { step: "cannot start the monitor", source })?;
    let policy = &start.sandbox.policy;
    let temporary = Path::new(&start.run_dir).join("tmp");
    if let Err(source) = std::fs::create_dir_all(&temporary) {
        return Err(StartError::System { step: "cannot make a directory", source });
    }
    let places = places(start, &temporary);
    let has_seatbelt = cfg!(target_os = "macos") && Path::new(SANDBOX_EXEC).exists();
    let words = |policy: &Policy| -> Vec<OsString> {
        let profile = Seatbelt::new(policy, &places).filter(|_| has_seatbelt);
        let words =
            profile.map(|profile| [vec![SANDBOX_EXEC.into()], profile.arguments()].concat());
        words.unwrap_or_default()
    };
    let command_words = words(policy);
    let read_only = words(&Policy { profile: Profile::ReadOnly, ..policy.clone() });
    let is_confined = !command_words.is_empty();
    Ok(Confined {
        report: SandboxReport {
            tier: if is_confined { "M" } else { UNCONFINED }.to_owned(),
            policy: policy.profile.name().to_owned(),
            network: policy.network || !is_confined,
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
        command_words,
        read_only: (!read_only.is_empty()).then_some(ReadOnly(read_only)),
        known: None,
        no_network: None,
    })
}

fn places(start: &Start, temporary: &Path) -> MacPlaces {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let workspace = real(Path::new(&start.workspace));
    let path = start.env.iter().find(|(name, _)| name == "PATH");
    let toolchains = path.map(|(_, path)| path.split(':').map(Path::new).map(real).collect());
    let repository = workspace.join(".git");
    let repositories: Vec<PathBuf> =
        repository.exists().then_some(repository).into_iter().collect();
    MacPlaces {
        run_dir: real(Path::new(&start.run_dir)),
        state_dir: real(Path::new(&start.sandbox.state_dir)),
        home: real(Path::new(&start.sandbox.home)),
        temporary: real(temporary),
        toolchains: toolchains.unwrap_or_default(),
        repositories,
        workspace,
    }
}

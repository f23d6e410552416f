//! The confined copy of this program. It gets all input in one environment variable.

use quackd_protocol::policy::{Policy, Profile};
use quackd_protocol::tiers::GitProtection;
use quackd_sandbox::confine::ConfinementLimits;
use quackd_sandbox::confine::{
    HostFacts, Monitor, MountPlan, SessionDirs, Side, enter_alone, git_mounts,
    rules_alone_blocking, split,
};
use quackd_sandbox::git;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, exit};
use std::time::{Duration, Instant};

/// The variable.
pub(crate) const VARIABLE: &str = "CONFINEMENT_TEST_REQUEST";

/// Task of the copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) policy: Policy,
    pub(crate) workspace: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) path: String,
    pub(crate) script: String,
    /// True for tier D.
    pub(crate) alone: bool,
    /// True to protect the names in git directories one by one.
    pub(crate) names: bool,
    /// Processes, open files, size of files.
    pub(crate) limits: [Option<u64>; 3],
}

impl Request {
    pub(crate) fn from_environment() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        Some(serde_json::from_str(&text).expect("request"))
    }

    /// Becomes monitor, process 1 and worker. The worker's exit code is this process's.
    pub(crate) fn run(self) -> ! {
        let start = Instant::now();
        if self.policy.profile == Profile::FullAccess {
            self.work();
        }
        let places = SessionDirs {
            workspace: self.workspace.clone(),
            run_dir: self.run_dir.clone(),
            state_dir: self.state_dir.clone(),
            home: self.home.clone(),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let workspace = openat(CWD, &self.workspace, flags, Mode::empty()).expect("workspace");
        let facts = HostFacts::gather_blocking(places, &self.path, &[], &[]);
        let mut walk = git::Walk::new(&workspace).expect("walk");
        walk.step(200_000);
        let found = walk.finish();
        if self.alone {
            self.enter_alone(&facts, &found, &workspace);
        }
        let mut plan = match MountPlan::new(&self.policy, &facts) {
            Ok(plan) => plan,
            Err(error) => {
                eprintln!("{error}");
                exit(70);
            }
        };
        plan.limits = self.limits();
        let registry = self.state_dir.join("placeholders");
        let mut placeholders =
            git_mounts::Placeholders::open_blocking(&registry).expect("registry");
        self.protect(&mut plan, &workspace, &found, &mut placeholders);
        let gathered = start.elapsed();
        let init = match split(workspace.as_fd(), plan.network) {
            Ok(Side::Monitor(monitor)) => watch(monitor),
            Ok(Side::Init(init)) => init,
            Err(error) => {
                eprintln!("{error}");
                exit(71);
            }
        };
        drop(placeholders);
        match init.enter(&plan, Vec::new()) {
            Ok(entered) => {
                if self.script == "#speed" {
                    println!("{} {}", gathered.as_micros(), start.elapsed().as_micros());
                    exit(0);
                }
                let number = entered.host_pid.expect("host pid");
                assert_ne!(number, std::process::id());
                entered.command_filter.apply_to_thread().expect("the filter of commands");
                self.work()
            }
            Err(error) => {
                eprintln!("{error}");
                exit(71);
            }
        }
    }

    fn protect(
        &self,
        plan: &mut MountPlan,
        workspace: &OwnedFd,
        found: &git::FoundRepositories,
        placeholders: &mut git_mounts::Placeholders,
    ) {
        if !self.policy.may_write() {
            return;
        }
        let settings = git_mounts::ProtectionSettings {
            mode: if self.names { GitProtection::Names } else { GitProtection::Top },
            until: Instant::now() + Duration::from_secs(60),
            visible: &[&self.workspace],
        };
        let protection =
            git_mounts::protect_blocking(workspace, &self.workspace, found, settings, placeholders);
        let protection = protection.expect("protect");
        for trouble in &protection.troubles {
            eprintln!("trouble: {} {}", trouble.path.display(), trouble.what);
        }
        plan.protect(&protection).expect("the plan");
    }

    fn limits(&self) -> ConfinementLimits {
        let [processes, open_files, file_size] = self.limits;
        ConfinementLimits { processes, open_files, file_size, private_bytes: None }
    }

    fn enter_alone(
        self,
        facts: &HostFacts,
        found: &git::FoundRepositories,
        workspace: &OwnedFd,
    ) -> ! {
        let rules = rules_alone_blocking(&self.policy, facts, workspace.as_fd(), found);
        let entered = rules.and_then(|r| enter_alone(&self.limits(), &self.policy, r));
        match entered {
            Ok(_) => self.work(),
            Err(error) => {
                eprintln!("{error}");
                exit(71);
            }
        }
    }

    fn work(self) -> ! {
        let status = Command::new("/bin/bash")
            .args(["--noprofile", "--norc", "-c", &self.script])
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", &self.home)
            .env("TMPDIR", if self.alone { self.run_dir.clone() } else { "/tmp".into() })
            .env(
                "GIT_CONFIG_GLOBAL",
                if self.alone { "/dev/null".into() } else { self.home.join(".gitconfig") },
            )
            .env("LANG", "C.UTF-8")
            .current_dir(&self.workspace)
            .stdin(std::process::Stdio::null())
            .status()
            .expect("bash");
        exit(status.code().unwrap_or(99))
    }
}

fn watch(monitor: Monitor) -> ! {
    let init = Pid::from_raw(monitor.init.cast_signed()).expect("pid");
    let (_, status) = waitpid(Some(init), WaitOptions::empty()).expect("wait").expect("status");
    let mut raw = Vec::new();
    std::fs::File::from(monitor.status).read_to_end(&mut raw).expect("pipe");
    match <[u8; 4]>::try_from(raw.as_slice()) {
        Ok(raw) => {
            let raw = i32::from_le_bytes(raw);
            exit(if raw & 0x7f == 0 { (raw >> 8) & 0xff } else { 128 + (raw & 0x7f) })
        }
        Err(_) => exit(status.exit_status().unwrap_or(98)),
    }
}

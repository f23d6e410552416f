//! The service of this user: its manager, paths and program, and the content of its files.

use crate::connect::connect;
use crate::display::plain;
use crate::exit::CliError;
use crate::run_program::ask;
use crate::subcommands::restart::look;
use anyhow::Context;
use quackd_home::Home;
use quackd_protocol::client::DaemonData;
use quackd_service::commands::{Step, commands};
use quackd_service::{Manager, Service, launchd, place, systemd};
use std::ffi::OsString;
use std::path::PathBuf;

/// A unit or property list.
#[derive(Debug)]
pub(crate) struct ServiceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Service manager, directory and program of this user's service.
#[derive(Debug)]
pub(crate) struct ServiceContext {
    pub(crate) manager: Manager,
    pub(crate) home: Home,
    pub(crate) service: Service,
    pub(crate) directory: PathBuf,
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

impl ServiceContext {
    /// Finds the paths of the service.
    ///
    /// # Errors
    /// If a path is not absolute or not UTF-8.
    pub(crate) fn find(manager: Manager) -> anyhow::Result<Self> {
        let home = Home::from_process_env_blocking()?;
        let socket = home.socket();
        let program = program().context("cannot find this program's own file")?;
        let service = Service::new(&program, home.dir(), &socket.path, socket.fallback, &variable)?;
        let directory = place::directory(manager, &variable).map_err(CliError::failed)?;
        Ok(Self { manager, home, service, directory })
    }

    /// Returns the service's files with their content.
    ///
    /// # Errors
    /// If a property list cannot be generated, which is not expected.
    pub(crate) fn wanted(&self) -> anyhow::Result<Vec<ServiceFile>> {
        let texts = match self.manager {
            Manager::Systemd => {
                vec![systemd::socket_unit(&self.service), systemd::service_unit(&self.service)]
            }
            Manager::Launchd => vec![launchd::agent(&self.service)?],
        };

        let paths = place::files(self.manager, &self.directory);
        Ok(paths.into_iter().zip(texts).map(|(path, text)| ServiceFile { path, text }).collect())
    }

    /// Returns the description of the daemon that answers. It may be another one than the service's.
    ///
    /// # Errors
    /// Those of connecting and of the request.
    pub(crate) async fn daemon(&self) -> anyhow::Result<DaemonData> {
        look(&connect(&self.home).await?).await
    }

    /// Whether the daemon was started by the service manager.
    pub(crate) fn owns(&self, daemon: &DaemonData) -> bool {
        daemon.managed_by.as_deref() == Some(self.manager.name())
    }

    /// Returns the commands of a step.
    pub(crate) fn commands(&self, step: Step) -> Vec<Vec<String>> {
        let uid = rustix::process::getuid().as_raw();
        let files = place::files(self.manager, &self.directory);
        commands(self.manager, step, uid, files.last().unwrap_or(&self.directory))
    }

    /// Returns the reason why the manager cannot be reached. `None` if it can.
    pub(crate) async fn unreachable(&self) -> Option<String> {
        let uid = rustix::process::getuid().as_raw();
        let answer = match self.manager {
            Manager::Systemd => ask(&["systemctl", "--user", "show", "--property=Version"]).await,
            Manager::Launchd => ask(&["launchctl", "print", &format!("gui/{uid}")]).await,
        };

        let reason = match answer {
            Ok(answer) if answer.succeeded => return None,
            Ok(answer) => answer.complaint(),
            Err(error) => format!("{error:#}"),
        };

        let need = match self.manager {
            Manager::Systemd => {
                "a login session with `systemd --user` is needed (XDG_RUNTIME_DIR and a bus; \
                 `su` and containers have none)"
            }
            Manager::Launchd => "a graphical login session is needed",
        };

        Some(format!("{} cannot be reached: {}; {need}", self.manager.name(), plain(&reason)))
    }
}

/// Returns the path by which this program was called, or its entry in the PATH. Keeps links, so that the service
/// follows a link that a package manager changes with each upgrade.
pub(crate) fn program() -> std::io::Result<PathBuf> {
    let running = std::env::current_exe()?;
    let real = std::fs::canonicalize(&running)?;
    let is_it = |path: &PathBuf| std::fs::canonicalize(path).is_ok_and(|target| target == real);

    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.is_absolute() && is_it(&called) {
        return Ok(called);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let name = running.file_name().unwrap_or_default().to_owned();
    let mut candidates =
        std::env::split_paths(&paths).filter(|dir| dir.is_absolute()).map(|dir| dir.join(&name));
    Ok(candidates.find(is_it).unwrap_or(running))
}

//! Starts worker processes for the main thread: as forks of a template, or as starts of the program if there is no
//! template.

use quackd_process::{SelfExe, SpawnError, SpawnedChild, Template, spawn_worker_blocking};
use std::os::fd::OwnedFd;

/// The subcommand that runs as a session's worker.
pub(crate) const WORKER: &str = "worker";

/// The subcommand that connects to a session's worker on another machine.
pub(crate) const LINK: &str = "link";

/// The template, if one runs.
#[derive(Debug, Default)]
pub(super) struct WorkerSource {
    template: Option<Template>,
}

impl WorkerSource {
    /// Process id of the template, which is a child of the supervisor but no worker.
    pub(super) fn pid(&self) -> Option<u32> {
        self.template.as_ref().map(Template::pid)
    }

    /// Starts a worker. If the template has exited, starts the program instead.
    ///
    /// # Errors
    /// See [`SpawnError`]. After `Template` the caller must kill unknown children, and start again with another `stdin`.
    pub(super) fn spawn(
        &mut self,
        exe: &SelfExe,
        stdin: OwnedFd,
    ) -> Result<SpawnedChild, SpawnError> {
        use std::os::fd::AsFd;

        let Some(template) = &mut self.template else {
            return spawn_worker_blocking(exe, &[WORKER], stdin);
        };
        let forked = template.fork_blocking(stdin.as_fd());
        if let Err(SpawnError::Io(error) | SpawnError::Template(error)) = &forked {
            tracing::warn!(%error, "the template of workers failed and is replaced");
            self.discard();
        }
        match forked {
            Err(SpawnError::Io(_)) => spawn_worker_blocking(exe, &[WORKER], stdin),
            other => other,
        }
    }

    /// Makes sure that the next worker has a template with forks left. Does not wait for it. Not for workers of
    /// `worker.launcher`: a template starts without it.
    pub(super) fn prepare(&mut self, exe: &SelfExe) {
        use quackd_ipc::first::write_first_blocking;
        use quackd_protocol::worker::ToWorker;
        use std::os::fd::AsFd;

        if self.template.as_ref().is_some_and(Template::is_used_up) {
            self.discard();
        }
        if self.template.is_some() {
            return;
        }
        match Template::start_blocking(exe, &[WORKER]) {
            Ok(template) => {
                let told = write_first_blocking(template.as_fd(), &ToWorker::Template {});
                self.template = Some(template);
                if told.is_err() {
                    self.discard();
                }
            }
            Err(error) => tracing::debug!(%error, "no template of workers"),
        }
    }

    /// Ends the template.
    pub(super) fn discard(&mut self) {
        if let Some(template) = self.template.take() {
            template.end_blocking();
        }
    }
}

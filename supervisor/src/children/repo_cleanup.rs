//! Starts `quack clean-repositories`, which removes placeholders that workers created in git repositories. A worker's
//! monitor removes them at the worker's end. The cleanup process does it if the monitor was killed: the supervisor
//! itself does not touch the user's files. Runs at the daemon's start and after a worker has crashed.

use super::one_shot::{OneShot, reap_or_kill};
use super::spawner::Spawner;
use quackd_home::Home;
use quackd_supervision::{Cause, Exit};
use std::cell::Cell;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Delay before a cleanup. The kernel releases the locks of a killed monitor shortly after its exit.
const DELAY: Duration = Duration::from_millis(200);

/// Directory in the state directory that lists the placeholders by repository. Workers write it in stage 0.
const REGISTRY: &str = "placeholders";

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct RepoCleanup {
    registry: PathBuf,
    spawner: Spawner,
    process: OneShot,
    /// A cleanup is scheduled. It inspects every repository, so a second one would find nothing more.
    is_scheduled: Cell<bool>,
}

impl RepoCleanup {
    pub(crate) fn new(home: &Home, spawner: Spawner, process: OneShot) -> Rc<Self> {
        let registry = home.dir().join(REGISTRY);
        Rc::new(Self { registry, spawner, process, is_scheduled: Cell::new(false) })
    }

    /// The cleanup process, for `quack.tree`.
    pub(crate) fn process(&self) -> &OneShot {
        &self.process
    }

    /// Runs a cleanup after a short delay, unless one is scheduled.
    pub(crate) fn schedule(self: &Rc<Self>) {
        if self.is_scheduled.replace(true) {
            return;
        }
        let cleanup = Rc::clone(self);
        actix::spawn(async move {
            tokio::time::sleep(DELAY).await;
            cleanup.is_scheduled.set(false);
            if let Err(error) = cleanup.run().await {
                tracing::warn!(%error, "repository cleanup failed");
            }
        });
    }

    async fn run(&self) -> io::Result<()> {
        let registry = self.registry.clone();
        let stdin = actix_rt::task::spawn_blocking(move || prepare(&registry));
        let Some(stdin) = stdin.await.map_err(io::Error::other)?? else { return Ok(()) };
        let spec = self.process.spec();
        let spawned = self.spawner.spawn(spec.name, stdin).await.map_err(io::Error::other)?;
        self.process.started(spawned.process.pid());
        let ended = reap_or_kill(&self.spawner, spawned.process, spec.start).await;
        let cause = match ended {
            (_, true) => Some(format!("not done after {} s", spec.start.as_secs())),
            (Some(Exit::Code(0)) | None, false) => None,
            (Some(exit), false) => Some(Cause::from(exit).to_string()),
        };
        self.process.ended(cause.as_deref());
        cause.map_or(Ok(()), |cause| Err(io::Error::other(cause)))
    }
}

/// The process's whole input: the registry's path. `None` if nothing was ever made.
fn prepare(registry: &Path) -> io::Result<Option<OwnedFd>> {
    if registry.read_dir().is_ok_and(|mut entries| entries.next().is_none()) || !registry.exists() {
        return Ok(None);
    }
    let (reader, mut writer) = std::io::pipe()?;
    // At most 4 KiB, which a pipe takes without a reader.
    writer.write_all(registry.as_os_str().as_encoded_bytes())?;
    Ok(Some(reader.into()))
}

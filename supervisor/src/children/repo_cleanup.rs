//! What workers make in repositories only to protect it is removed by their monitors. If a monitor was killed
//! somebody else has to: a process of its own (`quack clean-repositories`), since the supervisor does not touch
//! the user's files. Run at the daemon's start and after a worker has died.

use crate::children::see_off;
use crate::services::Services;
use quackd_process::Exit;
use std::cell::Cell;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The kernel lets go of a killed monitor's locks a moment after its end.
const PAUSE: Duration = Duration::from_millis(200);

thread_local! {
    /// One cleaning at a time looks at everything; more would not see more.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Beneath the state directory: what was made, by repository. Written by workers' stage 0.
const REGISTRY: &str = "placeholders";

/// Starts a cleaning in a moment, unless one is about to run.
pub(crate) fn clean_soon(services: &Rc<Services>) {
    if IS_RUNNING.replace(true) {
        return;
    }
    let services = Rc::clone(services);
    actix::spawn(async move {
        tokio::time::sleep(PAUSE).await;
        IS_RUNNING.set(false);
        if let Err(error) = clean(&services).await {
            tracing::warn!(%error, "repositories were not cleaned");
        }
    });
}

async fn clean(services: &Services) -> io::Result<()> {
    let registry = services.home.dir().join(REGISTRY);
    let stdin = actix_rt::task::spawn_blocking(move || prepare(&registry));
    let Some(stdin) = stdin.await.map_err(io::Error::other)?? else { return Ok(()) };
    let errand = &services.cleaner;
    let spec = errand.spec();
    let spawned = services.spawner.spawn(spec.name, stdin).await.map_err(io::Error::other)?;
    errand.started(spawned.process.pid());
    let ended = see_off(&services.spawner, spawned.process, spec.start).await;
    let cause = match ended {
        (_, true) => Some(format!("not done after {} s", spec.start.as_secs())),
        (Some(Exit::Code(0)) | None, false) => None,
        (Some(Exit::Code(code)), false) => Some(format!("exit code {code}")),
        (Some(Exit::Signal(signal)), false) => Some(format!("signal {signal}")),
    };
    errand.ended(cause.as_deref());
    cause.map_or(Ok(()), |cause| Err(io::Error::other(cause)))
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

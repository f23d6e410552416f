//! The probe: the layers of confinement that work on this system for this user. A separate process (`quack probe`)
//! finds them at the daemon's start, before any session's command runs, and exits. Every worker gets its result.
//!
//! No worker supplies or changes the result. A worker that gets none probes for itself only: with
//! `worker.launcher` it may run on another system.

use crate::children::spawner::{ProbeError, Spawner};
use crate::children::{Deaths, OneShot, reap_or_kill, stderr_tail};
use crate::platform::HAS_NAMESPACES;
use quackd_protocol::tiers::Probe;
use quackd_supervision::{Exit, SYSTEM_PROBE};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Number of processes that are started one after the other before the caller gets an error.
const ATTEMPTS: usize = 2;

/// Longest time that a starting worker waits for the result. An attempt that is still running goes on.
const RESULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest result, in bytes.
const MAX_RESULT: u64 = 4096;

/// One per daemon.
#[derive(Debug)]
pub(crate) struct Probing {
    one_shot: Rc<OneShot>,
    result: OnceCell<Probe>,
    /// False if workers do not confine themselves on this system.
    is_needed: bool,
}

impl Probing {
    /// Starts nothing yet. `has_launcher` if workers are started through another program.
    pub(crate) fn new(has_launcher: bool, deaths: Rc<Deaths>) -> Self {
        let one_shot = Rc::new(OneShot::new(&SYSTEM_PROBE, deaths));
        let is_needed = HAS_NAMESPACES && !has_launcher;
        Self { one_shot, result: OnceCell::new(), is_needed }
    }

    /// For `quack.tree`.
    pub(crate) fn one_shot(&self) -> &OneShot {
        &self.one_shot
    }

    /// Returns the result and probes first if there is none. `None` if workers probe for themselves.
    ///
    /// # Errors
    /// All attempts failed, or [`RESULT_TIMEOUT`] is over. The next caller probes again.
    pub(crate) async fn result(&self, spawner: &Spawner) -> Result<Option<Probe>, ProbeError> {
        if !self.is_needed {
            return Ok(None);
        }
        let probing = self.result.get_or_try_init(|| attempts(Rc::clone(&self.one_shot), spawner));
        let found = timeout(RESULT_TIMEOUT, probing)
            .await
            .map_err(|_| ProbeError::Silent(RESULT_TIMEOUT))?;
        Ok(Some(found?.clone()))
    }
}

async fn attempts(one_shot: Rc<OneShot>, spawner: &Spawner) -> Result<Probe, ProbeError> {
    let spawner = spawner.clone();
    // A separate task: it reaps its process also if the caller stops waiting.
    let attempts = actix::spawn(async move {
        let mut result = attempt(&one_shot, &spawner).await;
        for _ in 1..ATTEMPTS {
            if let Err(error) = &result {
                tracing::warn!(%error, "system probe failed");
                result = attempt(&one_shot, &spawner).await;
            }
        }
        result
    });
    attempts.await.unwrap_or_else(|error| Err(ProbeError::Ended(error.to_string())))
}

async fn attempt(one_shot: &OneShot, spawner: &Spawner) -> Result<Probe, ProbeError> {
    let (channel, far_end) = quackd_ipc::link::pair().map_err(ProbeError::Channel)?;
    let spec = one_shot.spec();
    let spawned = spawner.spawn(spec.name, far_end).await.map_err(Box::new)?;
    one_shot.started(spawned.process.pid());

    let words = actix::spawn(stderr_tail(spawned.stderr));
    let answer = timeout(spec.start, read(channel)).await;
    let (exit, _was_killed) = reap_or_kill(spawner, spawned.process, spec.shutdown).await;

    let result = match (answer, exit) {
        (Err(_late), _) => Err(ProbeError::Silent(spec.start)),
        (Ok(Ok(body)), Some(Exit::Code(0)) | None) => {
            serde_json::from_slice(&body).map_err(|error| ProbeError::Malformed(error.to_string()))
        }
        (Ok(_), exit) => {
            let words = timeout(spec.shutdown, words).await;
            let words = words.map_or(String::new(), |words| words.unwrap_or_default());
            Err(ProbeError::Ended(format!("{exit:?}: {}", words.trim())))
        }
    };

    one_shot.ended(result.as_ref().err().map(ToString::to_string).as_deref());
    result
}

/// Reads up to the end of the channel.
async fn read(channel: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    channel.take(MAX_RESULT).read_to_end(&mut body).await?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::spawner;

    fn probing(has_launcher: bool) -> Probing {
        Probing::new(has_launcher, Rc::default())
    }

    #[test]
    fn a_probe_that_cannot_be_started_is_an_error_and_not_a_result() {
        let (spawner, jobs) = spawner::spawner();
        // The main thread is gone.
        drop(jobs);
        let probing = probing(false);
        actix::System::new().block_on(async {
            for _ in 0..3 {
                let result = probing.result(&spawner).await;
                if HAS_NAMESPACES {
                    assert!(matches!(result, Err(ProbeError::Spawn(_))), "{result:?}");
                } else {
                    assert!(matches!(result, Ok(None)));
                }
            }
        });
    }

    #[test]
    fn workers_behind_a_launcher_get_no_result() {
        let (spawner, _jobs) = spawner::spawner();
        let probing = probing(true);
        let result = actix::System::new().block_on(probing.result(&spawner));
        assert!(matches!(result, Ok(None)), "{result:?}");
    }

    #[tokio::test]
    async fn a_result_is_cut_and_then_malformed() {
        let long = vec![b' '; 10_000];
        assert_eq!(read(long.as_slice()).await.unwrap().len(), 4096);
        assert!(serde_json::from_slice::<Probe>(b"{\"landlock_abi\":7}").is_err());
    }
}

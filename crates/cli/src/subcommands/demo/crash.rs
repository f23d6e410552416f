//! Second half of the demo: kills a worker during a call while another session keeps running.

use super::report::{Report, ms};
use super::session::{DemoSession, Timed, quoted};
use crate::display;
use crate::exit::CliError;
use crate::platform::is_below;
use crate::time_format::span;
use anyhow::{Context, bail, ensure};
use quackd_protocol::client::WorkerInfo;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Command that is running when its worker is killed.
const DOOMED: &str = "sleep 30";

/// Command of the other session. It outlasts the kill and the restart.
const WITNESS: &str = "sleep 1; echo undisturbed";

/// Timeout until both commands are running.
const RUNNING_DEADLINE: Duration = Duration::from_secs(10);

/// Interval between checks of the process tree.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Kills the worker of `session` and shows the effects on both sessions.
///
/// # Errors
/// If other clients use the session, in which case nothing is killed, or if the result differs from the promise.
pub(crate) async fn run(
    session: &DemoSession<'_>,
    witness: &DemoSession<'_>,
    supervisor: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let others = session.worker().await?.calls.len();
    if others != 0 {
        let calls = display::count(others, "call");
        return Err(CliError::busy(format!("{calls} of other clients in flight, which a kill would end\ntry again later, or in another directory")).into());
    }

    let witness_pid = witness.pid().await?;

    let doomed_call = async {
        let call = session.bash(DOOMED).await?;
        anyhow::Ok((call, Instant::now()))
    };

    // The call that dies, the kill, and a call of the other session run at the same time.
    let kill = kill_once_running(session, witness, supervisor, report);
    let ((answer, answered_at), victim, testimony) =
        tokio::try_join!(doomed_call, kill, witness.bash(WITNESS))?;

    show_death(&answer, answered_at.duration_since(victim.killed_at), report)?;

    report.figures.killed_pid = Some(victim.pid);
    recover(session, &victim, report).await?;

    let text = testimony.text().context("the other session was disturbed")?;
    ensure!(text.starts_with("undisturbed"), "the other session was disturbed: {text}");
    let now = witness.pid().await?;
    ensure!(now == witness_pid, "the other session has another worker: {witness_pid}, now {now}");
    report.figures.neighbour_undisturbed = true;

    let summary = format!(
        "`{WITNESS}` ran through it in {}, worker {now}",
        display::plain(&witness.workspace)
    );
    report.step("neighbour", Some(testimony.took), summary, quoted(text, 1))
}

/// Worker that was killed.
struct KilledWorker {
    pid: u32,
    killed_at: Instant,
}

async fn kill_once_running(
    session: &DemoSession<'_>,
    witness: &DemoSession<'_>,
    supervisor: u32,
    report: &Report,
) -> anyhow::Result<KilledWorker> {
    let start = Instant::now();

    // Both sessions must be at work, and no call of another client may be hit.
    let worker = loop {
        let worker = session.worker().await?;
        if worker.calls.len() == 1 && !witness.worker().await?.calls.is_empty() {
            break worker;
        }
        // Another client's call would be lost.
        ensure!(
            worker.calls.len() <= 1,
            "other clients began to use the session; nothing was killed"
        );
        ensure!(start.elapsed() < RUNNING_DEADLINE, "`{DOOMED}` did not start in time");
        tokio::time::sleep(POLL_INTERVAL).await;
    };

    let (pid, target) = target(&worker, supervisor)?;
    report.say(&format!(
        "\nNow a worker dies: `{DOOMED}` runs in worker {pid} of {}, and gets SIGKILL.\n\
         Only this session can notice; nothing of yours is touched.\n\n",
        display::name(&session.name)
    ))?;

    // Before the signal, so that the reported time is not too short.
    let killed_at = Instant::now();
    kill_process(target, Signal::KILL).context("cannot kill the worker")?;
    Ok(KilledWorker { pid, killed_at })
}

/// Returns the process to kill: the worker, or its monitor if the worker's id belongs to another PID namespace. Never
/// signals a process that is not a descendant of the supervisor.
fn target(worker: &WorkerInfo, supervisor: u32) -> anyhow::Result<(u32, Pid)> {
    let pid = worker.pid.context("the worker has no process id")?;
    for candidate in [Some(pid), worker.monitor_pid].into_iter().flatten() {
        if is_below(candidate, supervisor) {
            let raw = i32::try_from(candidate)?;
            return Ok((pid, Pid::from_raw(raw).context("process id 0")?));
        }
    }
    bail!("process {pid} is not one of the supervisor's; nothing was killed")
}

fn show_death(answer: &Timed, after: Duration, report: &mut Report) -> anyhow::Result<()> {
    let result = &answer.result;
    ensure!(
        result.info.worker_died,
        "the caller did not get the crash error, but: {}",
        display::first_line(&result.text, 200)
    );

    report.figures.death_told_ms = Some(ms(after));
    let summary = format!("the caller knew {} after the kill:", span(after));
    report.step("kill -9", None, summary, quoted(&result.text, 2))
}

async fn recover(
    session: &DemoSession<'_>,
    victim: &KilledWorker,
    report: &mut Report,
) -> anyhow::Result<()> {
    let call = session.bash("echo back").await?;
    let text = call.text().context("the next call failed")?;
    ensure!(text.starts_with("back"), "the next call gave: {}", display::first_line(text, 200));

    let pid = session.pid().await?;
    ensure!(pid != victim.pid, "the next call ran in the dead worker {pid}");
    report.figures.recovery_ms = Some(ms(call.took));
    report.figures.new_pid = Some(pid);

    let summary = format!("the next call ran in worker {pid}, its start included");
    report.step("recover", Some(call.took), summary, Vec::new())
}

#[cfg(test)]
mod tests;

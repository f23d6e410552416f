//! The life of one worker as data: events in, decisions out.
//!
//! ```text
//! Absent ──demand──▶ Starting ──hello──▶ Ready ──drain──▶ Draining ──exit──▶ Absent
//!    ▲                  │ crash, timeout   │ crash            │ exit, condemned
//!    └──demand── Failed ◀──too many── Backoff ◀───────────────┘
//! ```
//!
//! Owns no process and no timer. The supervisor's worker handle feeds it one event at a time and does
//! what it answers; "busy" is `Ready` with calls in flight, which only the handle can count.
//!
//! Invariants: at most one process at a time, so `Start` is answered in `Absent`, `Backoff` and
//! `Failed` only; at most `intensity` restarts in any `period`.

use crate::{
    AfterExit, Cause, ChildSpec, Demand, Demander, Exit, Hello, Load, Order, Restart,
    RestartWindow, State,
};
use std::time::{Duration, Instant};

/// A timer that fires this much after its time tells of a supervisor that was stopped, not of a
/// worker that was slow, and the worker's time begins anew.
const LATE: Duration = Duration::from_secs(2);

/// One worker of one session.
#[derive(Debug, Clone)]
pub struct Worker {
    spec: ChildSpec,
    state: State,
    /// When it came into this state; `None` if it was never in another one.
    changed: Option<Instant>,
    window: RestartWindow,
    /// The last process crashed, so the next one is a restart.
    owes_restart: bool,
    crashes: u32,
    last_crash: Option<Cause>,
}

impl Worker {
    /// A worker without a process.
    #[must_use]
    pub fn new(spec: ChildSpec) -> Self {
        Self {
            spec,
            state: State::Absent,
            changed: None,
            window: RestartWindow::default(),
            owes_restart: false,
            crashes: 0,
            last_crash: None,
        }
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// What it is promised.
    #[must_use]
    pub const fn spec(&self) -> &ChildSpec {
        &self.spec
    }

    /// How long it has been in its state; `None` if it was never in another one.
    #[must_use]
    pub fn in_state_for(&self, now: Instant) -> Option<Duration> {
        self.changed.map(|changed| now.saturating_duration_since(changed))
    }

    /// Restarts that are not forgiven yet: at most the intensity.
    #[must_use]
    pub fn recent_restarts(&self, now: Instant) -> u32 {
        self.window.count(self.spec.period, now)
    }

    /// The machine slept, or this process was stopped: who is starting or ending has its time anew.
    pub fn renew(&mut self, now: Instant) {
        match &mut self.state {
            State::Starting { since } => *since = now,
            State::Draining { kill_at, .. } => *kill_at = now + self.spec.shutdown,
            _ => {}
        }
    }

    fn enter(&mut self, now: Instant, state: State) {
        self.state = state;
        self.changed = Some(now);
    }

    /// Crashes since it was made.
    #[must_use]
    pub const fn crashes(&self) -> u32 {
        self.crashes
    }

    /// The last crash, if there was one.
    #[must_use]
    pub const fn last_crash(&self) -> Option<&Cause> {
        self.last_crash.as_ref()
    }

    /// When [`Worker::on_timer`] wants to be called, at the latest.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        match self.state {
            State::Starting { since } => Some(since + self.spec.start),
            State::Draining { kill_at, .. } => Some(kill_at),
            _ => None,
        }
    }

    /// Somebody wants the worker. On `Start` it counts as starting from here on.
    pub fn on_demand(&mut self, now: Instant, demander: Demander) -> Demand {
        match &self.state {
            State::Ready { .. } => return Demand::Use,
            State::Starting { .. } | State::Draining { .. } => return Demand::WaitForReady,
            State::Backoff { until, .. } if now < *until => return Demand::WaitUntil(*until),
            State::Failed { cause, at } => {
                let asked_again = demander == Demander::Attach
                    || self.spec.forgiveness <= now.saturating_duration_since(*at);
                if !asked_again {
                    return Demand::Refuse(cause.clone());
                }
                self.window.clear();
                self.owes_restart = false;
            }
            State::Absent | State::Backoff { .. } => {}
        }
        self.enter(now, State::Starting { since: now });
        Demand::Start
    }

    /// The process that [`Demand::Start`] asked for exists. `Kill`: it is not wanted any more.
    pub fn on_spawned(&mut self, now: Instant) -> Order {
        if std::mem::take(&mut self.owes_restart) {
            self.window.record(now);
        }
        match &mut self.state {
            State::Starting { since } => {
                *since = now;
                Order::Nothing
            }
            // Its hello was faster than the report that it exists.
            State::Ready { .. } => Order::Nothing,
            _ => Order::Kill,
        }
    }

    /// The process that [`Demand::Start`] asked for could not be made: [`Cause::CannotStart`], which
    /// is tried again after the shortest delay and counts as no crash, or [`Cause::CannotExec`].
    pub fn on_spawn_failed(
        &mut self,
        now: Instant,
        cause: Cause,
        waiting: bool,
        random: u64,
    ) -> AfterExit {
        match self.state {
            State::Starting { .. } => {}
            // It was to end before it began. No exit will come.
            State::Draining { .. } => return self.rest(now, waiting),
            _ => return AfterExit::Stay,
        }
        if self.is_terminal(&cause) {
            return self.fail(now, cause);
        }
        self.back_off(now, self.spec.backoff.delay(0, random), cause, waiting)
    }

    /// What it was started for cannot be had, and nobody waits for it any more: there is no process, no crash
    /// and no delay.
    pub fn on_not_started(&mut self, now: Instant) -> AfterExit {
        match self.state {
            State::Starting { .. } | State::Draining { .. } => self.rest(now, false),
            _ => AfterExit::Stay,
        }
    }

    /// The worker said hello, in our version of the protocol.
    pub fn on_hello(&mut self, now: Instant) -> Hello {
        match self.state {
            State::Starting { .. } => {
                self.enter(now, State::Ready { since: now });
                Hello::Ready
            }
            State::Draining { .. } => Hello::Late,
            _ => Hello::Unexpected,
        }
    }

    /// Time has passed; see [`Worker::next_wakeup`]. Too early is harmless.
    pub fn on_timer(&mut self, now: Instant) -> Order {
        let Some(due) = self.next_wakeup().filter(|due| *due <= now) else { return Order::Nothing };
        let late = LATE < now.saturating_duration_since(due);
        match &mut self.state {
            State::Starting { since } if late => {
                *since = now;
                Order::Nothing
            }
            State::Starting { .. } => self.condemn(now, Cause::StartTimeout(self.spec.start)),
            // Again and again: a process in an uninterruptible wait dies when it comes out of it.
            State::Draining { kill_at, .. } => {
                *kill_at = now + self.spec.shutdown;
                Order::Kill
            }
            _ => Order::Nothing,
        }
    }

    /// The process must go, for a reason of the supervisor's: it does not respond, or broke the
    /// protocol. The first reason is the one that is told.
    pub fn condemn(&mut self, now: Instant, cause: Cause) -> Order {
        let kill_at = now + self.spec.shutdown;
        match &mut self.state {
            State::Starting { .. } | State::Ready { .. } => {
                self.enter(now, State::Draining { since: now, kill_at, cause: Some(cause) });
                Order::Kill
            }
            // It was asked to end, and now it is made to; its end stays a normal one.
            State::Draining { kill_at: when, cause: None, .. } => {
                *when = kill_at;
                Order::Kill
            }
            _ => Order::Nothing,
        }
    }

    /// The worker is not wanted any more: idle for long, session ended, daemon stops. A process that
    /// has not said hello has nothing to finish and is killed.
    pub fn drain(&mut self, now: Instant) -> Order {
        let order = match self.state {
            State::Ready { .. } => Order::Shutdown,
            State::Starting { .. } => Order::Kill,
            State::Backoff { .. } => {
                self.enter(now, State::Absent);
                return Order::Nothing;
            }
            State::Absent | State::Draining { .. } | State::Failed { .. } => return Order::Nothing,
        };
        let kill_at = now + self.spec.shutdown;
        self.enter(now, State::Draining { since: now, kill_at, cause: None });
        order
    }

    /// The process has ended and was reaped. `random` is any number that differs from worker to
    /// worker.
    pub fn on_exit(&mut self, now: Instant, exit: Exit, load: Load, random: u64) -> AfterExit {
        let idle_exit = exit == Exit::Code(0) && !load.in_flight;
        let crash = match &mut self.state {
            State::Draining { cause, .. } => cause.take(),
            State::Ready { .. } if idle_exit && self.spec.restart == Restart::Transient => None,
            State::Ready { .. } | State::Starting { .. } => Some(Cause::from(exit)),
            // Not our process: there is none.
            State::Absent | State::Backoff { .. } | State::Failed { .. } => return AfterExit::Stay,
        };
        let Some(cause) = crash else {
            self.owes_restart = false;
            return self.rest(now, load.waiting);
        };
        self.crashes = self.crashes.saturating_add(1);
        self.last_crash = Some(cause.clone());
        if self.is_terminal(&cause) {
            return self.fail(now, cause);
        }
        if matches!(self.spec.restart, Restart::Temporary | Restart::Escalate) {
            return self.rest(now, false);
        }
        // Counted when the restart happens, not here: the promise is about restarts. No restart
        // comes in between, so what is allowed here is still allowed then.
        let recent = self.window.recent(self.spec.period, now);
        if self.spec.intensity <= recent {
            let ChildSpec { intensity, period, .. } = self.spec;
            let last = Box::new(cause);
            return self.fail(now, Cause::TooManyRestarts { intensity, period, last });
        }
        self.owes_restart = true;
        self.back_off(now, self.spec.backoff.delay(recent, random), cause, load.waiting)
    }

    fn is_terminal(&self, cause: &Cause) -> bool {
        self.spec.terminal.contains(&cause.kind())
    }

    fn rest(&mut self, now: Instant, waiting: bool) -> AfterExit {
        self.enter(now, State::Absent);
        if waiting { AfterExit::RestartAt(now) } else { AfterExit::Stay }
    }

    fn back_off(
        &mut self,
        now: Instant,
        delay: Duration,
        cause: Cause,
        waiting: bool,
    ) -> AfterExit {
        let until = now + delay;
        self.enter(now, State::Backoff { until, cause });
        if waiting { AfterExit::RestartAt(until) } else { AfterExit::Stay }
    }

    fn fail(&mut self, at: Instant, cause: Cause) -> AfterExit {
        self.enter(at, State::Failed { cause, at });
        AfterExit::GaveUp
    }
}

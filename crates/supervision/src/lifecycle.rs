//! The life cycle of one child process, a state machine: events in, decisions out.
//!
//! ```text
//! Absent ──demand──▶ Starting ──hello──▶ Ready ──drain──▶ Draining ──exit──▶ Absent
//!    ▲                  │ crash, timeout   │ crash            │ exit, killed
//!    └──demand── Failed ◀──too many── Backoff ◀───────────────┘
//! ```
//!
//! Owns no process and no timer. The supervisor passes in one event at a time and executes
//! the decision. "Busy" is `Ready` with calls in flight, which only the supervisor can count.
//!
//! Invariants: at most one process, so `Start` is returned only in `Absent`, `Backoff` and `Failed`. At most
//! `intensity` restarts in any `period`.

use crate::{
    AfterExit, Cause, ChildSpec, Demand, Demander, Exit, Hello, Load, Order, Restart,
    RestartWindow, State,
};
use std::time::{Duration, Instant};

/// A timer that fires later than this means that the supervisor was suspended, not that the child was slow.
/// The child's deadline then restarts.
const SUSPEND_THRESHOLD: Duration = Duration::from_secs(2);

/// Life cycle of one child process.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    spec: ChildSpec,
    state: State,
    /// Time of the last state change; `None` if the state never changed.
    changed: Option<Instant>,
    window: RestartWindow,
    /// True after a crash: the next process is a restart.
    owes_restart: bool,
    crashes: u32,
    last_crash: Option<Cause>,
    /// Cause of the last failed start. `None` after one that succeeded.
    failed_start: Option<Cause>,
}

impl Lifecycle {
    /// Creates the life cycle of a child without a process.
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
            failed_start: None,
        }
    }

    /// Returns the current state.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the specification of the child.
    #[must_use]
    pub const fn spec(&self) -> &ChildSpec {
        &self.spec
    }

    /// Returns the time in the current state; `None` if the state never changed.
    #[must_use]
    pub fn in_state_for(&self, now: Instant) -> Option<Duration> {
        self.changed.map(|changed| now.saturating_duration_since(changed))
    }

    /// Returns the number of restarts in the current window, at most the intensity.
    #[must_use]
    pub fn recent_restarts(&self, now: Instant) -> u32 {
        self.window.count(self.spec.period, now)
    }

    /// Restarts the deadlines of a starting or draining process after a suspend.
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

    /// Returns the number of crashes since creation.
    #[must_use]
    pub const fn crashes(&self) -> u32 {
        self.crashes
    }

    /// Returns the cause of the last crash.
    #[must_use]
    pub const fn last_crash(&self) -> Option<&Cause> {
        self.last_crash.as_ref()
    }

    /// Returns why there is probably no process: the cause of the last failed start, else that of the last crash.
    #[must_use]
    pub fn why_absent(&self) -> Option<&Cause> {
        self.failed_start.as_ref().or_else(|| self.last_crash())
    }

    /// Returns the latest time for the next [`Lifecycle::on_timer`].
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        match self.state {
            State::Starting { since } => Some(since + self.spec.start),
            State::Draining { kill_at, .. } => Some(kill_at),
            _ => None,
        }
    }

    /// Handles a demand for the worker. After `Start` the worker counts as starting.
    pub fn on_demand(&mut self, now: Instant, demander: Demander) -> Demand {
        match &self.state {
            State::Ready { .. } => return Demand::Use,
            State::Starting { .. } | State::Draining { .. } => return Demand::WaitForReady,
            State::Backoff { until, .. } if now < *until => return Demand::WaitUntil(*until),
            State::Failed { cause, at } => {
                let may_retry = demander == Demander::Attach
                    || self.spec.forgiveness <= now.saturating_duration_since(*at);
                if !may_retry {
                    return Demand::Refuse(cause.clone());
                }
                // The user or the time has forgiven earlier crashes, so the restarts are counted
                // from zero.
                self.window.clear();
                self.owes_restart = false;
            }
            State::Absent | State::Backoff { .. } => {}
        }

        self.enter(now, State::Starting { since: now });
        Demand::Start
    }

    /// Handles the spawn of the process. `Kill`: it is no longer needed.
    pub fn on_spawned(&mut self, now: Instant) -> Order {
        if std::mem::take(&mut self.owes_restart) {
            self.window.record(now);
        }

        match &mut self.state {
            State::Starting { since } => {
                // The time until the spawn is the supervisor's, not the child's.
                *since = now;
                Order::Nothing
            }
            // The hello arrived before the report of the spawn.
            State::Ready { .. } => Order::Nothing,
            _ => Order::Kill,
        }
    }

    /// Handles a failed spawn. [`Cause::CannotStart`] is retried after the shortest delay and is not a crash.
    /// [`Cause::CannotExec`] is terminal.
    pub fn on_spawn_failed(
        &mut self,
        now: Instant,
        cause: Cause,
        waiting: bool,
        random: u64,
    ) -> AfterExit {
        match self.state {
            State::Starting { .. } => {}
            // A shutdown was requested before the spawn. No exit will follow.
            State::Draining { .. } => return self.rest(now, waiting),
            _ => return AfterExit::Stay,
        }

        self.failed_start = Some(cause.clone());
        if self.is_terminal(&cause) {
            return self.fail(now, cause);
        }
        self.back_off(now, self.spec.backoff.delay(0, random), cause, waiting)
    }

    /// Handles a start that was abandoned and has no waiting callers. Causes no crash and no delay.
    pub fn on_not_started(&mut self, now: Instant) -> AfterExit {
        match self.state {
            State::Starting { .. } | State::Draining { .. } => self.rest(now, false),
            _ => AfterExit::Stay,
        }
    }

    /// Handles a hello with the correct protocol version.
    pub fn on_hello(&mut self, now: Instant) -> Hello {
        match self.state {
            State::Starting { .. } => {
                self.failed_start = None;
                self.enter(now, State::Ready { since: now });
                Hello::Ready
            }
            State::Draining { .. } => Hello::Late,
            _ => Hello::Unexpected,
        }
    }

    /// Handles a timer; see [`Lifecycle::next_wakeup`]. Calling too early is harmless.
    pub fn on_timer(&mut self, now: Instant) -> Order {
        let Some(due) = self.next_wakeup().filter(|due| *due <= now) else { return Order::Nothing };

        let late = SUSPEND_THRESHOLD < now.saturating_duration_since(due);
        match &mut self.state {
            // The child may have sent its hello during the suspend.
            State::Starting { since } if late => {
                *since = now;
                Order::Nothing
            }
            State::Starting { .. } => self.condemn(now, Cause::StartTimeout(self.spec.start)),
            // Repeat the kill: a process in uninterruptible sleep dies only when it wakes up.
            State::Draining { kill_at, .. } => {
                *kill_at = now + self.spec.shutdown;
                Order::Kill
            }
            _ => Order::Nothing,
        }
    }

    /// Kills the process for a cause, such as a missing heartbeat or a protocol violation. Its exit counts as
    /// a crash. The first cause wins.
    pub fn condemn(&mut self, now: Instant, cause: Cause) -> Order {
        let kill_at = now + self.spec.shutdown;

        match &mut self.state {
            State::Starting { .. } | State::Ready { .. } => {
                self.enter(now, State::Draining { since: now, kill_at, cause: Some(cause) });
                Order::Kill
            }
            // A shutdown was requested before, so the exit still counts as normal.
            State::Draining { kill_at: when, cause: None, .. } => {
                *when = kill_at;
                Order::Kill
            }
            _ => Order::Nothing,
        }
    }

    /// Stops the worker: it is idle, its session ended, or the daemon shuts down. A process without a hello
    /// has no work and is killed.
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

    /// Handles the exit of the process. `random` is any number that differs between workers.
    pub fn on_exit(&mut self, now: Instant, exit: Exit, load: Load, random: u64) -> AfterExit {
        let idle_exit = exit == Exit::Code(0) && !load.in_flight;
        let crash = match &mut self.state {
            State::Draining { cause, .. } => cause.take(),
            State::Ready { .. } if idle_exit && self.spec.restart == Restart::Transient => None,
            State::Ready { .. } | State::Starting { .. } => Some(Cause::from(exit)),
            // There is no process, so the report is of another one.
            State::Absent | State::Backoff { .. } | State::Failed { .. } => return AfterExit::Stay,
        };

        let Some(cause) = crash else {
            // A normal exit, so the next process does not count as a restart.
            self.owes_restart = false;
            return self.rest(now, load.waiting);
        };

        self.crashes = self.crashes.saturating_add(1);
        self.last_crash = Some(cause.clone());

        if self.is_terminal(&cause) {
            return self.fail(now, cause);
        }

        // Such a child is started again only by the next demand.
        if matches!(self.spec.restart, Restart::Temporary | Restart::Escalate) {
            return self.rest(now, false);
        }

        // The restart is counted when it happens, because the limit applies to restarts. No other restart can
        // happen in between, so one that is allowed here is still allowed then.
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

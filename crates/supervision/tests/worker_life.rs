//! The decision for each event in each state.

#[cfg(test)]
mod tests {
    use quackd_supervision::{
        AfterExit, Cause, Demand, Demander, ENVIRONMENT_WORKER, EXIT_TERMINAL, Exit, Hello,
        Lifecycle, Load, Order, Restart, SESSION_WORKER, State,
    };
    use std::time::{Duration, Instant};

    const QUIET: Load = Load { in_flight: false, waiting: false };
    const WAITING: Load = Load { in_flight: false, waiting: true };
    const IN_FLIGHT: Load = Load { in_flight: true, waiting: false };
    const BOTH: Load = Load { in_flight: true, waiting: true };

    /// Random number that results in no jitter.
    const NO_JITTER: u64 = 10;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn absent() -> Lifecycle {
        Lifecycle::new(SESSION_WORKER)
    }

    fn starting(now: Instant) -> Lifecycle {
        let mut worker = absent();
        assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
        assert_eq!(worker.on_spawned(now), Order::Nothing);
        worker
    }

    fn ready(now: Instant) -> Lifecycle {
        let mut worker = starting(now);
        assert_eq!(worker.on_hello(now), Hello::Ready);
        worker
    }

    fn draining(now: Instant) -> Lifecycle {
        let mut worker = ready(now);
        assert_eq!(worker.drain(now), Order::Shutdown);
        worker
    }

    fn condemned(now: Instant) -> Lifecycle {
        let mut worker = ready(now);
        assert_eq!(worker.condemn(now, Cause::NotResponding), Order::Kill);
        worker
    }

    fn backoff(now: Instant) -> Lifecycle {
        let mut worker = ready(now);
        let after = worker.on_exit(now, Exit::Signal(11), QUIET, NO_JITTER);
        assert_eq!(after, AfterExit::Stay);
        worker
    }

    fn failed(now: Instant) -> Lifecycle {
        let mut worker = ready(now);
        let after = worker.on_exit(now, Exit::Code(EXIT_TERMINAL), QUIET, NO_JITTER);
        assert_eq!(after, AfterExit::GaveUp);
        worker
    }

    /// Summary of the effect of an exit.
    #[derive(Debug, PartialEq, Eq)]
    enum Outcome {
        /// The exit of an unknown process.
        Ignored,
        Normal,
        Crash(Cause),
        Terminal(Cause),
    }

    fn outcome(before: &Lifecycle, now: Instant, exit: Exit, load: Load) -> Outcome {
        let mut worker = before.clone();
        let after = worker.on_exit(now, exit, load, NO_JITTER);
        if worker.state() == before.state() {
            assert_eq!(after, AfterExit::Stay);
            return Outcome::Ignored;
        }
        match worker.state().clone() {
            State::Absent => {
                let wanted = if load.waiting { AfterExit::RestartAt(now) } else { AfterExit::Stay };
                assert_eq!(after, wanted);
                assert_eq!((worker.crashes(), worker.last_crash()), (0, None));
                Outcome::Normal
            }
            State::Backoff { until, cause } => {
                assert_eq!(until, now + ms(200));
                let wanted =
                    if load.waiting { AfterExit::RestartAt(until) } else { AfterExit::Stay };
                assert_eq!(after, wanted);
                assert_eq!((worker.crashes(), worker.last_crash()), (1, Some(&cause)));
                Outcome::Crash(cause)
            }
            State::Failed { cause, at } => {
                assert_eq!((after, at), (AfterExit::GaveUp, now));
                Outcome::Terminal(cause)
            }
            other => panic!("a process that ended is still in {other:?}"),
        }
    }

    #[test]
    fn every_exit_in_every_state_has_its_outcome() {
        let now = Instant::now();
        let exits = [
            Exit::Code(0),
            Exit::Code(3),
            Exit::Code(EXIT_TERMINAL),
            Exit::Signal(9),
            Exit::OutOfMemory,
        ];
        for load in [QUIET, WAITING, IN_FLIGHT, BOTH] {
            for exit in exits {
                let crash = if exit == Exit::Code(EXIT_TERMINAL) {
                    Outcome::Terminal(exit.into())
                } else {
                    Outcome::Crash(exit.into())
                };
                let check = |worker: &Lifecycle, wanted: &Outcome| {
                    let got = outcome(worker, now, exit, load);
                    assert_eq!(&got, wanted, "{exit:?} with {load:?} in {:?}", worker.state());
                };
                for none in [absent(), backoff(now), failed(now)] {
                    check(&none, &Outcome::Ignored);
                }
                check(&starting(now), &crash);
                check(&draining(now), &Outcome::Normal);
                check(&condemned(now), &Outcome::Crash(Cause::NotResponding));
                let may_leave = exit == Exit::Code(0) && !load.in_flight;
                check(&ready(now), if may_leave { &Outcome::Normal } else { &crash });
            }
        }
    }

    #[test]
    fn a_permanent_child_may_not_leave_unasked() {
        let now = Instant::now();
        let spec = quackd_supervision::ChildSpec { restart: Restart::Permanent, ..SESSION_WORKER };
        let mut worker = Lifecycle::new(spec);
        assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
        assert_eq!(worker.on_hello(now), Hello::Ready);
        assert_eq!(outcome(&worker, now, Exit::Code(0), QUIET), Outcome::Crash(Cause::ExitCode(0)));
    }

    #[test]
    fn a_demand_is_answered_by_the_state() {
        let now = Instant::now();
        let refused = Demand::Refuse(Cause::ExitCode(EXIT_TERMINAL));
        let table = [
            (absent(), Demand::Start),
            (starting(now), Demand::WaitForReady),
            (ready(now), Demand::Use),
            (draining(now), Demand::WaitForReady),
            (condemned(now), Demand::WaitForReady),
            (backoff(now), Demand::WaitUntil(now + ms(200))),
            (failed(now), refused),
        ];
        for (mut worker, wanted) in table {
            let before = worker.state().name();
            assert_eq!(worker.on_demand(now, Demander::Call), wanted, "{before}");
            // The first demand starts a process; the second does not start another one.
            if wanted == Demand::Start {
                assert_eq!(worker.on_demand(now, Demander::Attach), Demand::WaitForReady);
            }
        }
        let mut worker = backoff(now);
        assert_eq!(worker.on_demand(now + ms(200), Demander::Call), Demand::Start);
    }

    #[test]
    fn the_names_are_those_of_ps() {
        let now = Instant::now();
        let workers =
            [absent(), starting(now), ready(now), draining(now), backoff(now), failed(now)];
        assert_eq!(
            workers.map(|worker| worker.state().name()),
            ["absent", "starting", "ready", "draining", "backoff", "failed"]
        );
    }

    /// Crashes the worker until it fails. Returns the delays and the time of the failure.
    fn crash_until_failed(worker: &mut Lifecycle, mut now: Instant) -> (Vec<u128>, Instant) {
        let mut delays = Vec::new();
        loop {
            assert_eq!(worker.on_spawned(now), Order::Nothing);
            assert_eq!(worker.on_hello(now), Hello::Ready);
            match worker.on_exit(now, Exit::Signal(9), BOTH, NO_JITTER) {
                AfterExit::RestartAt(until) => {
                    delays.push(until.duration_since(now).as_millis());
                    now = until;
                    assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
                }
                AfterExit::GaveUp => return (delays, now),
                AfterExit::Stay => panic!("a caller waits"),
            }
        }
    }

    #[test]
    fn a_worker_that_always_crashes_is_restarted_five_times_with_growing_delays_and_then_fails() {
        let mut now = Instant::now();
        let mut worker = starting(now);
        // A new demand starts again: by attach at once, by a call after 60 s.
        for (demander, pause) in [(Demander::Attach, 0), (Demander::Call, 60_000)] {
            let (delays, end) = crash_until_failed(&mut worker, now);
            assert_eq!(delays, [200, 400, 800, 1600, 3200]);
            let text = match worker.on_demand(end + ms(59_999), Demander::Call) {
                Demand::Refuse(cause) => cause.to_string(),
                other => panic!("{other:?}"),
            };
            assert_eq!(text, "failed 5 times in 60 s (last: signal 9)");
            now = end + ms(pause);
            assert_eq!(worker.on_demand(now, demander), Demand::Start);
        }
        assert_eq!(worker.crashes(), 12);
    }

    #[test]
    fn a_minute_of_quiet_forgives() {
        let mut now = Instant::now();
        let mut worker = ready(now);
        for _ in 0..100 {
            let after = worker.on_exit(now, Exit::Code(1), WAITING, NO_JITTER);
            assert_eq!(after, AfterExit::RestartAt(now + ms(200)));
            now += ms(200);
            assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
            assert_eq!(worker.on_spawned(now), Order::Nothing);
            assert_eq!(worker.on_hello(now), Hello::Ready);
            now += ms(60_000);
        }
    }

    #[test]
    fn causes_that_another_start_cannot_change_fail_at_once() {
        let now = Instant::now();
        let mismatch = Cause::VersionMismatch { ours: 1, theirs: 2 };
        let mut worker = starting(now);
        assert_eq!(worker.condemn(now, mismatch.clone()), Order::Kill);
        assert_eq!(worker.on_exit(now, Exit::Signal(9), WAITING, 0), AfterExit::GaveUp);
        assert_eq!(worker.state(), &State::Failed { cause: mismatch, at: now });

        let missing = Cause::CannotExec("no such file or directory".to_owned());
        let mut worker = absent();
        assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
        assert_eq!(worker.on_spawn_failed(now, missing.clone(), true, 0), AfterExit::GaveUp);
        assert_eq!(worker.state(), &State::Failed { cause: missing, at: now });
    }

    #[test]
    fn want_of_descriptors_is_tried_again_soon_for_ever_and_is_no_crash() {
        let mut now = Instant::now();
        let mut worker = absent();
        let full = Cause::CannotStart("too many open files".to_owned());
        for _ in 0..100 {
            assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
            let after = worker.on_spawn_failed(now, full.clone(), true, NO_JITTER);
            now += ms(200);
            assert_eq!(after, AfterExit::RestartAt(now));
        }
        assert_eq!((worker.crashes(), worker.last_crash()), (0, None));

        // The cause is known during the next start, and until one succeeds.
        assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
        assert_eq!(worker.why_absent(), Some(&full));
        assert_eq!(worker.on_hello(now), Hello::Ready);
        assert_eq!(worker.why_absent(), None);

        // A report without a start is ignored.
        let mut worker = ready(now);
        assert_eq!(worker.on_spawn_failed(now, full, true, 0), AfterExit::Stay);
        assert_eq!(worker.state(), &State::Ready { since: now });
    }

    #[test]
    fn a_worker_that_never_says_hello_is_killed_and_its_cause_is_told() {
        let start = Instant::now();
        let mut worker = starting(start);
        let due = start + ms(10_000);
        assert_eq!(worker.next_wakeup(), Some(due));
        assert_eq!(worker.on_timer(due - ms(1)), Order::Nothing);
        assert_eq!(worker.on_timer(due), Order::Kill);
        assert_eq!(worker.on_hello(due), Hello::Late);
        // The kill is repeated until the exit is reported.
        assert_eq!(worker.next_wakeup(), Some(due + ms(5_000)));
        assert_eq!(worker.on_timer(due + ms(5_000)), Order::Kill);
        let cause = Cause::StartTimeout(ms(10_000));
        let got = outcome(&worker, due, Exit::Signal(9), WAITING);
        assert_eq!(got, Outcome::Crash(cause));
    }

    #[test]
    fn a_supervisor_that_was_stopped_gives_a_starting_worker_its_time_anew() {
        let start = Instant::now();
        let mut worker = starting(start);
        let back = start + ms(70_000);
        assert_eq!(worker.on_timer(back), Order::Nothing);
        assert_eq!(worker.next_wakeup(), Some(back + ms(10_000)));
        assert_eq!(worker.on_timer(back + ms(10_000)), Order::Kill);
    }

    #[test]
    fn draining_asks_first_and_kills_after_the_grace() {
        let now = Instant::now();
        let mut worker = draining(now);
        assert_eq!(worker.drain(now), Order::Nothing);
        assert_eq!(worker.on_timer(now + ms(4_999)), Order::Nothing);
        assert_eq!(worker.on_timer(now + ms(5_000)), Order::Kill);

        let mut worker = starting(now);
        assert_eq!(worker.drain(now), Order::Kill);
        let mut worker = backoff(now);
        assert_eq!(worker.drain(now), Order::Nothing);
        assert_eq!(worker.state(), &State::Absent);
    }

    #[test]
    fn a_start_that_is_called_off_while_the_process_is_being_made_leaves_nothing_behind() {
        let now = Instant::now();
        let mut called_off = absent();
        assert_eq!(called_off.on_demand(now, Demander::Call), Demand::Start);
        assert_eq!(called_off.drain(now), Order::Kill);

        let mut worker = called_off.clone();
        assert_eq!(worker.on_spawned(now), Order::Kill);
        assert_eq!(outcome(&worker, now, Exit::Signal(9), WAITING), Outcome::Normal);

        let full = Cause::CannotStart("too many open files".to_owned());
        let mut worker = called_off;
        assert_eq!(worker.on_spawn_failed(now, full, true, 0), AfterExit::RestartAt(now));
        assert_eq!(worker.state(), &State::Absent);
    }

    #[test]
    fn the_first_reason_to_kill_is_the_one_that_is_told() {
        let now = Instant::now();
        let mut worker = condemned(now);
        assert_eq!(worker.condemn(now, Cause::Protocol("x".to_owned())), Order::Nothing);
        let got = outcome(&worker, now, Exit::Signal(9), QUIET);
        assert_eq!(got, Outcome::Crash(Cause::NotResponding));
        // A draining worker that violates the protocol is killed, and that is not a crash.
        let mut worker = draining(now);
        assert_eq!(worker.condemn(now, Cause::NotResponding), Order::Kill);
        assert_eq!(outcome(&worker, now, Exit::Signal(9), QUIET), Outcome::Normal);
        // No process exists, so nothing is killed.
        for mut worker in [absent(), backoff(now), failed(now)] {
            assert_eq!(worker.condemn(now, Cause::NotResponding), Order::Nothing);
        }
    }

    #[test]
    fn a_hello_is_expected_once() {
        let now = Instant::now();
        assert_eq!(starting(now).on_hello(now), Hello::Ready);
        assert_eq!(condemned(now).on_hello(now), Hello::Late);
        for mut worker in [absent(), ready(now), backoff(now), failed(now)] {
            assert_eq!(worker.on_hello(now), Hello::Unexpected);
        }
    }

    #[test]
    fn a_temporary_child_is_not_started_again_for_those_who_waited() {
        let now = Instant::now();
        let mut worker = Lifecycle::new(ENVIRONMENT_WORKER);
        for _ in 0..10 {
            assert_eq!(worker.on_demand(now, Demander::Call), Demand::Start);
            assert_eq!(worker.on_spawned(now), Order::Nothing);
            let after = worker.on_exit(now, Exit::Signal(9), BOTH, NO_JITTER);
            assert_eq!((after, worker.state()), (AfterExit::Stay, &State::Absent));
        }
        assert_eq!(worker.crashes(), 10);
    }

    #[test]
    fn time_anew_is_time_for_who_starts_and_for_who_ends() {
        let now = Instant::now();
        let later = now + SESSION_WORKER.start - ms(1);
        let mut worker = starting(now);
        worker.renew(later);
        assert_eq!(worker.next_wakeup(), Some(later + SESSION_WORKER.start));
        let mut worker = draining(now);
        worker.renew(later);
        assert_eq!(worker.next_wakeup(), Some(later + SESSION_WORKER.shutdown));
        assert_eq!(worker.in_state_for(later), Some(later - now));
    }
}

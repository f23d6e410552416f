//! Properties that every sequence of events must satisfy.

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quackd_supervision::{
        AfterExit, Cause, Demand, Demander, Exit, Lifecycle, Load, Order, SESSION_WORKER, State,
    };
    use std::time::{Duration, Instant};

    #[derive(Debug, Clone)]
    enum Event {
        Demand(Demander),
        SpawnOk,
        SpawnFailed {
            terminal: bool,
        },
        Hello,
        Exit(Exit, Load),
        Timer,
        Condemn,
        Drain,
        /// Follows the machine's decision: waits until a restart is allowed, then demands.
        Obey,
    }

    fn event() -> impl Strategy<Value = Event> {
        let exit = prop_oneof![
            (0..3_i32).prop_map(Exit::Code),
            (1..15_i32).prop_map(Exit::Signal),
            Just(Exit::OutOfMemory)
        ];
        let load =
            any::<(bool, bool)>().prop_map(|(in_flight, waiting)| Load { in_flight, waiting });
        prop_oneof![
            4 => Just(Event::Obey),
            4 => Just(Event::SpawnOk),
            3 => Just(Event::Hello),
            4 => (exit, load).prop_map(|(exit, load)| Event::Exit(exit, load)),
            1 => Just(Event::Demand(Demander::Call)),
            1 => any::<bool>().prop_map(|terminal| Event::SpawnFailed { terminal }),
            1 => Just(Event::Timer),
            1 => Just(Event::Condemn),
            1 => Just(Event::Drain),
        ]
    }

    /// State outside of the machine: whether a process exists, and the times of restarts.
    struct World {
        worker: Lifecycle,
        now: Instant,
        start_ordered: bool,
        alive: bool,
        /// The last process crashed, and since then there was no failure and no normal exit.
        crashed: bool,
        restarts: Vec<Instant>,
    }

    impl World {
        fn demand(&mut self, demander: Demander) {
            let failed = matches!(self.worker.state(), State::Failed { .. });
            match self.worker.on_demand(self.now, demander) {
                Demand::Start => {
                    assert!(!self.alive && !self.start_ordered, "a second process");
                    self.start_ordered = true;
                    self.crashed &= !failed;
                }
                Demand::Use => assert!(self.alive),
                Demand::WaitUntil(until) => assert!(self.now < until),
                Demand::WaitForReady => assert!(self.alive || self.start_ordered),
                Demand::Refuse(_) => assert!(failed),
            }
        }

        fn exit(&mut self, exit: Exit, load: Load, random: u64) {
            if !std::mem::take(&mut self.alive) {
                return;
            }
            let crashes = self.worker.crashes();
            let after = self.worker.on_exit(self.now, exit, load, random);
            self.crashed = crashes < self.worker.crashes();
            match after {
                AfterExit::GaveUp => {
                    assert!(matches!(self.worker.state(), State::Failed { .. }));
                }
                AfterExit::RestartAt(at) => assert!(load.waiting && self.now <= at),
                AfterExit::Stay => assert!(!load.waiting),
            }
        }

        /// A kill during the spawn is executed when the process exists.
        fn obey(&mut self, order: Order, random: u64) {
            if order == Order::Kill {
                self.exit(Exit::Signal(9), Load::default(), random);
            }
        }

        fn apply(&mut self, event: Event, random: u64) {
            match event {
                Event::Demand(demander) => self.demand(demander),
                Event::Obey => {
                    if let State::Backoff { until, .. } = self.worker.state() {
                        self.now = self.now.max(*until);
                    }
                    self.demand(Demander::Call);
                }
                Event::SpawnOk if self.start_ordered => {
                    self.start_ordered = false;
                    self.alive = true;
                    if std::mem::take(&mut self.crashed) {
                        self.restarts.push(self.now);
                    }
                    let order = self.worker.on_spawned(self.now);
                    self.obey(order, random);
                }
                Event::SpawnFailed { terminal } if self.start_ordered => {
                    self.start_ordered = false;
                    let text = "x".to_owned();
                    let cause =
                        if terminal { Cause::CannotExec(text) } else { Cause::CannotStart(text) };
                    let _after = self.worker.on_spawn_failed(self.now, cause, true, random);
                }
                Event::Hello if self.alive => {
                    let _hello = self.worker.on_hello(self.now);
                }
                Event::Exit(exit, load) => self.exit(exit, load, random),
                Event::Timer => {
                    let order = self.worker.on_timer(self.now);
                    self.obey(order, random);
                }
                Event::Condemn => {
                    let order = self.worker.condemn(self.now, Cause::NotResponding);
                    self.obey(order, random);
                }
                Event::Drain => {
                    let order = self.worker.drain(self.now);
                    self.obey(order, random);
                }
                _ => {}
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn at_most_intensity_restarts_in_any_period_and_one_process_at_a_time(
            events in prop::collection::vec((event(), 0..3_000_u64, any::<u64>()), 1..400)
        ) {
            let now = Instant::now();
            let mut world = World {
                worker: Lifecycle::new(SESSION_WORKER),
                now,
                start_ordered: false,
                alive: false,
                crashed: false,
                restarts: Vec::new(),
            };
            for (event, pause, random) in events {
                world.now += Duration::from_millis(pause);
                world.apply(event, random);
            }
            let intensity = usize::try_from(SESSION_WORKER.intensity).unwrap();
            for too_many in world.restarts.windows(intensity + 1) {
                let stretch = too_many[intensity].duration_since(too_many[0]);
                prop_assert!(SESSION_WORKER.period <= stretch, "{} restarts in {stretch:?}", intensity + 1);
            }
        }
    }
}

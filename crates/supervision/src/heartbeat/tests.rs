//! Heartbeat tests in seconds: times of pings, and the actions after a missing answer.

use super::*;

const SPEC: HeartbeatSpec = HeartbeatSpec {
    busy: Duration::from_secs(2),
    idle: Duration::from_secs(30),
    missed: 3,
    kill: Duration::from_secs(15),
};

/// A heartbeat with times in seconds since the worker became ready.
struct Scene {
    start: Instant,
    heart: Heartbeat,
}

impl Scene {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, heart: Heartbeat::new(SPEC, start) }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn seconds(&self, at: Instant) -> f64 {
        at.duration_since(self.start).as_secs_f64()
    }

    /// Polls. Returns the action and the time of the next poll.
    fn poll(&mut self, seconds: f64) -> (Action, f64) {
        let (action, due) = self.heart.poll(self.at(seconds));
        assert_eq!(due, self.heart.next_wakeup());
        (action, self.seconds(due))
    }

    fn busy(&mut self, seconds: f64) -> f64 {
        let due = self.heart.on_busy(self.at(seconds));
        self.seconds(due)
    }

    fn idle(&mut self, seconds: f64) -> f64 {
        let due = self.heart.on_idle(self.at(seconds));
        self.seconds(due)
    }

    fn pong(&mut self, seq: u64, seconds: f64) -> f64 {
        let due = self.heart.on_pong(seq, self.at(seconds));
        self.seconds(due)
    }

    /// Polls at the requested times until `until`. Returns all actions except `Nothing`.
    fn run(&mut self, until: f64) -> Vec<(f64, Action)> {
        let mut seen = Vec::new();
        while self.seconds(self.heart.next_wakeup()) <= until {
            let due = self.heart.next_wakeup();
            let (action, next) = self.heart.poll(due);
            assert!(due < next, "the next wakeup lies ahead");
            if action != Action::Nothing {
                seen.push((self.seconds(due), action));
            }
        }
        seen
    }
}

#[test]
fn an_idle_worker_that_answers_costs_one_wakeup_in_thirty_seconds() {
    let mut scene = Scene::new();
    for seq in 1..=10_u32 {
        let time = f64::from(seq) * 30.0;
        assert_eq!(scene.poll(time), (Action::Ping(seq.into()), time + 6.0));
        assert_eq!(scene.pong(seq.into(), time + 0.1), time + 30.0);
    }
}

#[test]
fn a_busy_worker_that_answers_is_asked_every_two_seconds() {
    let mut scene = Scene::new();
    assert_eq!(scene.busy(5.0), 7.0);
    for seq in 1..=10_u32 {
        let time = 5.0 + f64::from(seq) * 2.0;
        assert_eq!(scene.poll(time).0, Action::Ping(seq.into()));
        assert_eq!(scene.pong(seq.into(), time + 0.5), time + 2.0);
    }
    assert_eq!(scene.idle(26.0), 55.0);
    assert_eq!(scene.poll(54.9), (Action::Nothing, 55.0));
}

#[test]
fn short_calls_cause_no_pings_but_do_not_put_off_the_idle_one() {
    let mut scene = Scene::new();
    for n in 0..299_u32 {
        let time = f64::from(n) * 0.1;
        assert!(scene.busy(time) <= 30.0);
        assert_eq!(scene.poll(time + 0.05).0, Action::Nothing);
        assert_eq!(scene.idle(time + 0.05), 30.0);
    }
    assert_eq!(scene.poll(30.0).0, Action::Ping(1));
}

#[test]
fn a_worker_that_stops_in_a_call_is_unresponsive_after_three_intervals_and_killed_after_fifteen_seconds()
 {
    let mut scene = Scene::new();
    scene.busy(0.0);
    let seen = scene.run(18.0);
    assert_eq!(seen, [(2.0, Action::Ping(1)), (8.0, Action::Unresponsive), (17.0, Action::Kill)]);
}

#[test]
fn a_worker_that_stops_while_idle_is_killed_too() {
    let mut scene = Scene::new();
    let seen = scene.run(45.0);
    assert_eq!(seen, [(30.0, Action::Ping(1)), (36.0, Action::Unresponsive), (45.0, Action::Kill)]);
}

#[test]
fn a_pong_makes_an_unresponsive_worker_responsive_again() {
    let mut scene = Scene::new();
    scene.busy(0.0);
    scene.run(12.0);
    assert!(scene.heart.is_unresponsive());
    // A number that was never sent is ignored.
    scene.pong(99, 12.0);
    scene.pong(0, 12.0);
    assert!(scene.heart.is_unresponsive());
    scene.pong(1, 12.0);
    assert!(!scene.heart.is_unresponsive());
    assert_eq!(scene.poll(12.0).0, Action::Ping(2));
}

#[test]
fn a_kill_that_was_not_carried_out_is_repeated_whatever_happens_in_between() {
    let mut scene = Scene::new();
    scene.busy(0.0);
    scene.run(17.0);
    assert_eq!(scene.poll(18.0), (Action::Kill, 19.0));
    assert_eq!(scene.idle(18.5), 19.0);
    assert_eq!(scene.poll(19.0), (Action::Kill, 21.0));
}

#[test]
fn a_supervisor_that_was_stopped_gives_every_worker_its_grace_anew() {
    // Stopped for a minute right after the ping, regardless of the event that wakes it first.
    type First = fn(&mut Scene);
    let first: [First; 3] = [
        |scene| assert_eq!(scene.poll(90.0), (Action::Nothing, 96.0)),
        |scene| assert_eq!(scene.busy(90.0), 96.0),
        |scene| assert_eq!(scene.idle(90.0), 96.0),
    ];
    for wake in first {
        let mut scene = Scene::new();
        assert_eq!(scene.poll(30.0).0, Action::Ping(1));
        wake(&mut scene);
        let seen = scene.run(105.0);
        assert_eq!(seen, [(96.0, Action::Unresponsive), (105.0, Action::Kill)]);
    }
}

#[test]
fn a_stop_of_any_length_at_any_time_does_not_kill_a_worker_that_had_answered() {
    for stopped_at in (0..200).map(|n| 30.0 + f64::from(n) * 0.1) {
        for length in (0..200).map(|n| f64::from(n) * 0.1) {
            let mut scene = Scene::new();
            // The worker answers at once, but the answer is not read before the stop, and the timer fires
            // first.
            let mut seen = Vec::new();
            while scene.seconds(scene.heart.next_wakeup()) < stopped_at {
                let due = scene.heart.next_wakeup();
                let (action, _) = scene.heart.poll(due);
                seen.push(action);
                if let Action::Ping(seq) = action {
                    // Whether this answer is read depends on the time of the stop.
                    if scene.seconds(due) + 0.05 < stopped_at {
                        scene.pong(seq, scene.seconds(due) + 0.05);
                    }
                }
            }
            let back = (stopped_at + length).max(scene.seconds(scene.heart.next_wakeup()));
            seen.push(scene.poll(back).0);
            assert!(!seen.contains(&Action::Kill), "{stopped_at} for {length}: {seen:?}");
        }
    }
}

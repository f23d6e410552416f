//! Measures the duration of a start: from the first line of the program to the worker's first line, and in total.

use crate::world::World;
use std::time::Instant;

const ROUNDS: usize = 60;

pub(crate) fn measure(world: &World) {
    let (mut gathered, mut ready, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut command = world.command("#speed");
        world.become_user(&mut command);
        let start = Instant::now();
        let output = command.output().expect("start");
        whole.push(start.elapsed().as_micros());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers =
            text.split_whitespace().map(|number| number.parse::<u128>().expect("number"));
        gathered.push(numbers.next().unwrap_or_else(|| {
            panic!("no numbers: {} {}", text, String::from_utf8_lossy(&output.stderr))
        }));
        ready.push(numbers.next().expect("ready"));
    }
    println!(
        "speed ({}): facts {}, facts to worker {}, start to end of all {} (p50/p95 µs, {ROUNDS} rounds)",
        world.user,
        percentiles(gathered),
        percentiles(ready),
        percentiles(whole),
    );
}

fn percentiles(mut values: Vec<u128>) -> String {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    format!("{}/{}", at(50), at(95))
}

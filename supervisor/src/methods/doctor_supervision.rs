//! The check `supervision` of `doctor`: memory, suspends, exits of children, and the delay of the daemon's own timers.

use crate::services::Services;
use quackd_protocol::client::{Check, CheckStatus, LoopLag, PauseInfo, PauseKind};
use std::time::Duration;

/// Timer delay above which the daemon counts as slow.
const SLOW: Duration = Duration::from_millis(250);

const NAME: &str = "supervision";

pub(super) fn check(services: &Services) -> Check {
    let mut words: Vec<_> = services.loop_monitor.pauses().last().map(paused).into_iter().collect();
    let deaths = services.sessions.children.deaths.list();
    words.push(match (services.sessions.children.deaths.total(), deaths.last()) {
        (0, _) | (_, None) => "no deaths".to_owned(),
        (1, Some(last)) => format!("1 death ({})", last.cause),
        (n, Some(last)) => format!("{n} deaths (last: {})", last.cause),
    });
    let evictions = services.sessions.metrics.evictions.get();
    if evictions != 0 {
        words.push(format!("{evictions} ended for want of use"));
    }
    let LoopLag { max_us, p99_us, .. } = services.loop_monitor.lag();
    let max_ms = Duration::from_micros(max_us).as_secs_f64() * 1e3;
    words.push(format!("timers at most {max_ms:.1} ms late"));

    let short = services.health.memory_pressure.borrow().clone();
    if let Some(why) = &short {
        words.insert(0, format!("memory is short: {why}"));
    }

    let is_slow = SLOW < Duration::from_micros(p99_us);
    let hint = match (&short, is_slow) {
        (Some(_), _) => {
            Some("idle workers are evicted; `quack doctor --tree` shows the memory of each")
        }
        (None, true) => Some(
            "the machine is overloaded, or its disk hangs; `quack doctor --tree` shows details",
        ),
        (None, false) => None,
    };

    Check {
        name: NAME.to_owned(),
        status: if hint.is_some() { CheckStatus::Warn } else { CheckStatus::Ok },
        message: words.join("; "),
        hint: hint.map(str::to_owned),
    }
}

fn paused(pause: &PauseInfo) -> String {
    let length = format!("{} s", pause.ms.unsigned_abs() / 1000);
    let what = match pause.kind {
        PauseKind::Suspended => format!("the machine slept for {length}"),
        PauseKind::Stopped => format!("the daemon was stopped for {length}"),
        PauseKind::Clock => format!("the clock was set by {length}"),
    };
    format!("{what}, {}", pause.at)
}

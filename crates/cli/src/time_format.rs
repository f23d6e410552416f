//! Formats times for display (`3m ago`) and for `--json` (ISO 8601 with the local offset). Used by the subcommands.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Age in seconds from which a date is shown instead.
const MAX_AGE: i64 = 30 * DAY;

/// Returns the age of the time `iso`, its date if it is older than [`MAX_AGE`], or `unknown` if it cannot be parsed.
pub(crate) fn ago(iso: &str, now: Timestamp, zone: &TimeZone) -> String {
    let Ok(then) = iso.parse::<Timestamp>() else { return "unknown".to_owned() };
    // A time in the future means that the clock was set back. Show it as current.
    match now.as_second().saturating_sub(then.as_second()) {
        ..MINUTE => "just now".to_owned(),
        age @ MINUTE..HOUR => format!("{}m ago", age / MINUTE),
        age @ HOUR..DAY => format!("{}h ago", age / HOUR),
        age @ DAY..MAX_AGE => format!("{}d ago", age / DAY),
        _ => then.to_zoned(zone.clone()).strftime("%Y-%m-%d").to_string(),
    }
}

/// Returns `iso` with the offset of `zone`, or unchanged if it cannot be parsed.
pub(crate) fn local(iso: &str, zone: &TimeZone) -> String {
    formatted(iso, zone, "%Y-%m-%dT%H:%M:%S%.f%:z")
}

/// Returns `iso` as date and time of `zone` to the second, or unchanged if it cannot be parsed.
pub(crate) fn local_second(iso: &str, zone: &TimeZone) -> String {
    formatted(iso, zone, "%Y-%m-%d %H:%M:%S")
}

fn formatted(iso: &str, zone: &TimeZone, format: &str) -> String {
    iso.parse::<Timestamp>().map_or_else(
        |_no_time| iso.to_owned(),
        |time| time.to_zoned(zone.clone()).strftime(format).to_string(),
    )
}

/// Formats a duration: `4.2 ms`, `1.3 s`, `2m 5s`, `3h 12m`, `5d 1h`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if seconds == 0 {
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    } else if minutes == 0 {
        format!("{:.1} s", time.as_secs_f64())
    } else if hours == 0 {
        format!("{minutes}m {}s", seconds % 60)
    } else if days == 0 {
        format!("{hours}h {}m", minutes % 60)
    } else {
        format!("{days}d {}h", hours % 24)
    }
}

/// Parses an age (`10m`, `2h`) or a time (`2026-03-10T12:00:00Z`).
///
/// # Errors
/// If the text is neither.
pub(crate) fn moment(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let ago = text.parse::<SignedDuration>().ok().filter(|ago| !ago.is_negative());
    ago.and_then(|ago| now.checked_sub(ago).ok())
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "give a time such as 10m, 2h or 2026-03-10T12:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::offset;

    #[test]
    fn an_age_is_one_number_with_one_unit() {
        let now: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
        for (then, shown) in [
            ("2026-03-10T12:00:00Z", "just now"),
            ("2026-03-10T12:30:00Z", "just now"),
            ("2026-03-10T11:59:01Z", "just now"),
            ("2026-03-10T11:59:00Z", "1m ago"),
            ("2026-03-10T11:00:01.5Z", "59m ago"),
            ("2026-03-10T11:00:00Z", "1h ago"),
            ("2026-03-09T12:00:01Z", "23h ago"),
            ("2026-03-09T12:00:00Z", "1d ago"),
            ("2026-02-09T12:00:00Z", "29d ago"),
            ("2026-02-08T12:00:00Z", "2026-02-08"),
            ("0000-01-01T00:00:00Z", "0000-01-01"),
            ("yesterday", "unknown"),
            ("", "unknown"),
        ] {
            assert_eq!(ago(then, now, &TimeZone::UTC), shown, "{then}");
        }
    }

    #[test]
    fn json_times_carry_the_local_offset() {
        let zone = TimeZone::fixed(offset(-3));
        assert_eq!(local("2026-03-10T01:00:00Z", &zone), "2026-03-09T22:00:00-03:00");
        assert_eq!(local("2026-03-10T01:00:00.250Z", &zone), "2026-03-09T22:00:00.25-03:00");
        assert_eq!(local("unknown", &zone), "unknown");
    }

    #[test]
    fn a_span_has_at_most_two_units() {
        let shown = [0.0042, 0.9999, 1.34, 125.0, 11_520.0, 435_600.0]
            .map(|seconds| span(Duration::from_secs_f64(seconds)));
        assert_eq!(shown, ["4.2 ms", "999.9 ms", "1.3 s", "2m 5s", "3h 12m", "5d 1h"]);
    }

    #[test]
    fn a_moment_is_so_long_ago_or_a_time() {
        let now: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
        for (text, time) in [
            ("10m", "2026-03-10T11:50:00Z"),
            ("1h 30m", "2026-03-10T10:30:00Z"),
            ("2026-03-10T09:00:00+02:00", "2026-03-10T07:00:00Z"),
        ] {
            assert_eq!(moment(text, now), Ok(time.parse().unwrap()), "{text}");
        }
        for text in ["", "10", "-5m", "yesterday"] {
            assert!(moment(text, now).is_err(), "{text}");
        }
    }
}

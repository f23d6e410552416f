//! ISO 8601 times with milliseconds in UTC, as in session files.

const DAY_MS: i64 = 86_400_000;

/// Returns the time as text, such as `2026-10-05T11:22:33.044Z`. Clamps the time to the years 1 to 9999.
#[must_use]
pub fn iso_time(unix_ms: i64) -> String {
    let unix_ms = unix_ms.clamp(-62_135_596_800_000, 253_402_300_799_999);
    let (days, ms) = (unix_ms.div_euclid(DAY_MS), unix_ms.rem_euclid(DAY_MS));
    let (year, month, day) = date(days);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1000 % 60, ms % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Returns the Unix time in milliseconds of a text such as [`iso_time`] returns. The fraction may be missing or have any
/// number of digits. `None` for all other texts.
#[must_use]
pub fn parse_iso_time(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));

    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    if !fraction.bytes().all(|c| c.is_ascii_digit()) || !(1..=12).contains(&month) {
        return None;
    }
    // Second 60 is a leap second.
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }

    // A shorter fraction gets zeros, a longer one is cut.
    let ms: String = fraction.chars().chain("000".chars()).take(3).collect();
    let seconds = (hour * 60 + minute) * 60 + second;
    Some(days(year, month, day) * DAY_MS + seconds * 1000 + ms.parse::<i64>().ok()?)
}

/// Parses three numbers with these counts of digits.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut values = [0; 3];
    for (number, digits) in values.iter_mut().zip(digits) {
        let part = parts.next().filter(|it| it.len() == digits)?;
        *number = part.bytes().all(|c| c.is_ascii_digit()).then(|| part.parse().ok())??;
    }

    parts.next().is_none().then_some(values)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
///
/// A year begins on March 1 here, so that the leap day is its last day.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    // From March on, each five months have 153 days.
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // March 1 of the year 0 is 719,468 days before 1970.
    year * 365 + leap_days + day_of_year - 719_468
}

/// Returns year, month and day.
fn date(days_since_1970: i64) -> (i64, i64, i64) {
    let shifted = days_since_1970 + 719_468;
    // 400 years have 146,097 days. The estimate is at most one year too high or too low.
    let mut year = shifted * 400 / 146_097;
    while days(year + 1, 3, 1) <= days_since_1970 {
        year += 1;
    }
    while days(year, 3, 1) > days_since_1970 {
        year -= 1;
    }

    let day_of_year = days_since_1970 - days(year, 3, 1);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_written_and_read() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_700_000_000_001, "2023-11-14T22:13:20.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_time(ms), text);
            assert_eq!(parse_iso_time(text), Some(ms), "{text}");
        }
        assert_eq!(iso_time(i64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(iso_time(i64::MIN), "0001-01-01T00:00:00.000Z");
    }

    #[test]
    fn every_day_of_four_centuries_returns() {
        for day in 0..146_097 {
            let ms = day * DAY_MS + 1;
            assert_eq!(parse_iso_time(&iso_time(ms)), Some(ms));
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "ISO-TIME",
            "2024-1-01T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T00:00:00",
            "+024-01-01T00:00:00Z",
            "2024-01-01T00:00:00.é1Z",
        ] {
            assert_eq!(parse_iso_time(text), None, "{text}");
        }
        assert_eq!(parse_iso_time("1970-01-01T00:00:01Z"), Some(1000));
        assert_eq!(parse_iso_time("1970-01-01T00:00:01.5Z"), Some(1500));
    }
}

//! Reads the head of a provider's answer: the status, and when and whether to try again.

use jiff::fmt::rfc2822;
use quackd_protocol::model::ModelHead;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Epoch values above this one are milliseconds: as seconds, they would be after the year 5000.
const LARGEST_EPOCH_S: f64 = 1e11;

/// Maximum wait that is reported: 30 days.
const MAX_WAIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Maximum length of a content type, in bytes. A longer one is ignored.
const MAX_CONTENT_TYPE: usize = 100;

/// Reads the head. A successful answer has no wait: its rate limits are for other requests.
pub(super) fn read(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> ModelHead {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let should_retry = match text("x-should-retry") {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    };

    let wait = if status.is_success() { None } else { wait(text, now) };
    let retry_after_ms =
        wait.map(|wait| u64::try_from(wait.min(MAX_WAIT).as_millis()).unwrap_or(u64::MAX));

    let content_type = text("content-type").filter(|value| value.len() <= MAX_CONTENT_TYPE);
    let content_type = content_type.map(str::to_owned);
    ModelHead { status: status.as_u16(), retry_after_ms, should_retry, content_type }
}

/// Returns the time after which the provider wants the request again, from the first header that is a time.
fn wait<'a>(text: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Option<Duration> {
    let number = |name: &str| text(name)?.parse::<f64>().ok().filter(|n| n.is_finite());
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MAX_WAIT);
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    // Some providers give milliseconds.
    let epoch = |n: f64| if n < LARGEST_EPOCH_S { n } else { n / 1000.0 };

    number("retry-after-ms")
        .map(|ms| duration(ms / 1000.0))
        .or_else(|| number("retry-after").map(duration))
        .or_else(|| {
            let date = rfc2822::parse(text("retry-after")?).ok()?;
            Some(duration(date.timestamp().as_duration().as_secs_f64() - now))
        })
        .or_else(|| number("x-ratelimit-reset-after").map(duration))
        .or_else(|| number("x-ratelimit-reset").map(|n| duration(epoch(n) - now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderName;

    fn retry_after(status: StatusCode, headers: &[(&'static str, &str)]) -> Option<u64> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        read(status, &headers, now).retry_after_ms
    }

    #[test]
    fn the_wait_is_read_in_every_notation() {
        for (headers, expected) in [
            (&[("retry-after", "2")][..], Some(2000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "-3")], Some(0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")], Some(10_000)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:27 GMT")], Some(0)),
            (&[("retry-after-ms", "70"), ("retry-after", "9")], Some(70)),
            (&[("retry-after", "soon"), ("x-ratelimit-reset-after", "1.5")], Some(1500)),
            (&[("x-ratelimit-reset", "784111780")], Some(3000)),
            (&[("x-ratelimit-reset", "784111780000")], Some(3000)),
            (&[("x-ratelimit-reset", "1")], Some(0)),
            (&[("retry-after", "1e300")], Some(30 * 24 * 60 * 60 * 1000)),
            (&[("retry-after", "NaN")], None),
            (&[], None),
        ] {
            assert_eq!(
                retry_after(StatusCode::TOO_MANY_REQUESTS, headers),
                expected,
                "{headers:?}"
            );
        }
        assert_eq!(retry_after(StatusCode::OK, &[("retry-after", "2")]), None);
    }

    #[test]
    fn the_provider_may_forbid_another_attempt() {
        let head = |value: &str| {
            let headers = [(HeaderName::from_static("x-should-retry"), value.parse().unwrap())];
            read(StatusCode::OK, &headers.into_iter().collect(), UNIX_EPOCH).should_retry
        };
        assert_eq!([head("true"), head("false"), head("x")], [Some(true), Some(false), None]);
    }
}

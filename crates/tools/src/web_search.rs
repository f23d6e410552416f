//! web_search: parses the arguments of a search and writes the answer text.
//!
//! The supervisor makes the search: it has the key and the endpoint, and decides whether the session may
//! search. The safe mode of a single call does not restrict a search, because it changes nothing.

use crate::arguments::Arguments;
use crate::call_limits::{CallLimits, StopCause};
use crate::conversions::leading_integer;
use crate::web_results::{cut, results};
use crate::{Call, Output, Toolbox};
use quackd_protocol::limits::{MAX_WEB_DOMAIN_BYTES, MAX_WEB_DOMAINS, MAX_WEB_QUERY_BYTES};
use quackd_protocol::tools::{WEB_SEARCH, WebSearchArguments};
use quackd_protocol::white_space::trim;
use quackd_protocol::worker::{WebOutcome, WebSearch};
use serde_json::Value;
use std::time::Duration;

/// Maximum and default number of results of one search.
const MAX_RESULTS: u32 = 10;

/// Reason for rejecting a search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum WebSearchError {
    #[error("Missing required parameter 'query'")]
    NoQuery,
    #[error("query exceeds {MAX_WEB_QUERY_BYTES} bytes")]
    LongQuery,
    #[error("{0} exceeds {MAX_WEB_DOMAINS} domains")]
    ManyDomains(&'static str),
    #[error("{0} holds a domain that exceeds {MAX_WEB_DOMAIN_BYTES} bytes")]
    LongDomain(&'static str),
}

pub(crate) async fn web_search(
    toolbox: &Toolbox,
    call: &Call,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let search = match search(arguments) {
        Ok(search) => search,
        Err(error) => return Output::error(error),
    };

    let outcome = match &toolbox.web {
        None => WebOutcome::NoKey,
        Some(web) => tokio::select! {
            biased;
            () = bounds.cancel.cancelled() => {
                return Output::cut_off(WEB_SEARCH.name, bounds, StopCause::Aborted);
            }
            outcome = web.search(&call.spec.call_id, search.clone()) => outcome,
            () = tokio::time::sleep_until(bounds.deadline.into()) => {
                WebOutcome::TimedOut { after_ms: rounded_ms(bounds.limit) }
            }
        },
    };
    answer(outcome, &search)
}

/// Parses the arguments of a call.
fn search(arguments: &Arguments) -> Result<WebSearch, WebSearchError> {
    let params = WebSearchArguments::of(arguments.object());
    let query = params.query.ok_or(WebSearchError::NoQuery)?;
    if MAX_WEB_QUERY_BYTES < query.len() {
        return Err(WebSearchError::LongQuery);
    }
    Ok(WebSearch {
        query,
        num_results: num_results(params.num_results.as_ref()),
        include_text: params.include_text,
        include_domains: domains("include_domains", params.include_domains)?,
        exclude_domains: domains("exclude_domains", params.exclude_domains)?,
    })
}

/// Parses a number, or a text that begins with one. Anything else counts as absent.
fn num_results(given: Option<&Value>) -> u32 {
    let requested = match given {
        Some(Value::Number(number)) => number.as_f64().map(f64::trunc),
        Some(Value::String(text)) => leading_integer(text),
        _ => None,
    };
    let at_least = |requested: f64| (1..MAX_RESULTS).find(|n| requested <= f64::from(*n));
    requested.filter(|requested| requested.is_finite()).and_then(at_least).unwrap_or(MAX_RESULTS)
}

fn domains(name: &'static str, given: Vec<String>) -> Result<Vec<String>, WebSearchError> {
    if MAX_WEB_DOMAINS < given.len() {
        return Err(WebSearchError::ManyDomains(name));
    }
    if given.iter().any(|domain| MAX_WEB_DOMAIN_BYTES < domain.len()) {
        return Err(WebSearchError::LongDomain(name));
    }
    Ok(given)
}

/// Returns a limit in milliseconds, rounded to 100 ms from one second on: see [`crate::call_limits::seconds`].
fn rounded_ms(limit: Duration) -> u64 {
    let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    if ms < 1000 { ms } else { ms.saturating_add(50) / 100 * 100 }
}

/// Formats the outcome of a search.
fn answer(outcome: WebOutcome, search: &WebSearch) -> Output {
    match outcome {
        WebOutcome::Reply { status: 200..=299, body, .. } => results(&body, search),
        WebOutcome::Reply { status, status_text, body } => refusal(status, &status_text, &body),
        WebOutcome::Refused { ask } => {
            let why = if ask {
                "needs a person's leave in this session, and quackd cannot ask for it yet"
            } else {
                "is off in this session"
            };
            Output::error(format_args!(
                "web_search {why}: a query leaves the machine. Nothing was sent. To allow it with \
                 `quack sandbox set --web-search on`"
            ))
        }
        WebOutcome::NoKey => Output::error(
            "EXA_API_KEY not configured. Set EXA_API_KEY (or RUBBER_DUCK_EXA_API_KEY) to enable web_search.",
        ),
        WebOutcome::Busy => Output::error("web_search is busy: too many searches are running"),
        WebOutcome::TimedOut { after_ms } => {
            let mut output =
                Output::error(format_args!("web_search request timed out after {after_ms}ms"));
            output.report.timed_out = true;
            output
        }
        WebOutcome::TooLong { limit } => {
            Output::error(format_args!("web_search response exceeds {limit} bytes"))
        }
        WebOutcome::Failed { reason } => {
            Output::error(format_args!("web_search request failed: {reason}"))
        }
    }
}

/// Formats an unsuccessful status of the provider.
fn refusal(status: u16, status_text: &str, body: &str) -> Output {
    let status = format!("{status} {status_text}");
    let (status, body) = (status.trim_end(), trim(body));
    let mut output = if body.is_empty() {
        Output::error(format_args!("web_search failed ({status})"))
    } else {
        Output::error(format_args!("web_search failed ({status}): {body}"))
    };
    cut(&mut output);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_in_true_milliseconds() {
        let told = [30_000, 29_985, 9_000, 1_340, 996, 150]
            .map(|ms| rounded_ms(Duration::from_millis(ms)));
        assert_eq!(told, [30_000, 30_000, 9_000, 1_300, 996, 150]);
        assert!(rounded_ms(Duration::MAX) > 1 << 60);
    }
}

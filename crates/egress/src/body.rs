//! What is posted, and what is refused before that: the worker that asked is not believed.

use quackd_protocol::limits::{MAX_WEB_DOMAIN_BYTES, MAX_WEB_DOMAINS, MAX_WEB_QUERY_BYTES};
use quackd_protocol::worker::WebSearch;
use serde::Serialize;
use std::ops::RangeInclusive;

/// Results that may be asked for: each one costs the owner of the key.
const NUM_RESULTS: RangeInclusive<u32> = 1..=10;

/// Why a search is not made. A worker that keeps the rules never sees these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the query is empty or too long")]
    Query,
    #[error("the number of results is not between 1 and 10")]
    NumResults,
    #[error("too many domains, or one is empty or too long")]
    Domains,
    #[error("the search cannot be written")]
    Unwritable,
}

/// The provider's request, in the order of its documentation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    query: &'a str,
    num_results: u32,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<bool>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    include_domains: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    exclude_domains: &'a [String],
}

/// Checks a search and writes its body.
pub(crate) fn of(search: &WebSearch) -> Result<Vec<u8>, Refusal> {
    if !is_text(&search.query, MAX_WEB_QUERY_BYTES) {
        return Err(Refusal::Query);
    }
    if !NUM_RESULTS.contains(&search.num_results) {
        return Err(Refusal::NumResults);
    }
    for domains in [&search.include_domains, &search.exclude_domains] {
        let is_sound = domains.len() <= MAX_WEB_DOMAINS
            && domains.iter().all(|domain| is_text(domain, MAX_WEB_DOMAIN_BYTES));
        if !is_sound {
            return Err(Refusal::Domains);
        }
    }
    let body = Body {
        query: &search.query,
        num_results: search.num_results,
        r#type: "auto",
        text: search.include_text.then_some(true),
        include_domains: &search.include_domains,
        exclude_domains: &search.exclude_domains,
    };
    serde_json::to_vec(&body).map_err(|_| Refusal::Unwritable)
}

fn is_text(text: &str, max_bytes: usize) -> bool {
    !text.is_empty() && text.len() <= max_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> WebSearch {
        WebSearch {
            query: "a \"b\"".into(),
            num_results: 10,
            include_text: false,
            include_domains: vec![],
            exclude_domains: vec![],
        }
    }

    fn text(search: &WebSearch) -> Result<String, Refusal> {
        of(search).map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn the_keys_are_in_the_providers_order_and_empty_ones_are_left_out() {
        let short = r#"{"query":"a \"b\"","numResults":10,"type":"auto"}"#;
        assert_eq!(text(&search()), Ok(short.to_owned()));
        let full = WebSearch {
            num_results: 1,
            include_text: true,
            include_domains: vec!["a.b".into(), "c".into()],
            exclude_domains: vec!["d".into()],
            ..search()
        };
        let expected = r#"{"query":"a \"b\"","numResults":1,"type":"auto","text":true,"includeDomains":["a.b","c"],"excludeDomains":["d"]}"#;
        assert_eq!(text(&full), Ok(expected.to_owned()));
    }

    #[test]
    fn what_a_hostile_worker_asks_is_refused() {
        let long = |n: usize| "x".repeat(n);
        let domains = |n: usize| vec!["d".to_owned(); n];
        let cases = [
            (WebSearch { query: String::new(), ..search() }, Refusal::Query),
            (WebSearch { query: long(MAX_WEB_QUERY_BYTES + 1), ..search() }, Refusal::Query),
            (WebSearch { num_results: 0, ..search() }, Refusal::NumResults),
            (WebSearch { num_results: 11, ..search() }, Refusal::NumResults),
            (WebSearch { num_results: u32::MAX, ..search() }, Refusal::NumResults),
            (WebSearch { include_domains: domains(65), ..search() }, Refusal::Domains),
            (WebSearch { exclude_domains: domains(65), ..search() }, Refusal::Domains),
            (WebSearch { include_domains: vec![String::new()], ..search() }, Refusal::Domains),
            (WebSearch { exclude_domains: vec![long(254)], ..search() }, Refusal::Domains),
        ];
        for (search, refusal) in cases {
            assert_eq!(of(&search), Err(refusal), "{search:?}");
        }
        let longest = WebSearch {
            query: long(MAX_WEB_QUERY_BYTES),
            include_domains: vec![long(MAX_WEB_DOMAIN_BYTES); MAX_WEB_DOMAINS],
            ..search()
        };
        assert!(of(&longest).is_ok());
    }
}

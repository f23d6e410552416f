//! Creates the body of the request, and rejects invalid queries: the worker is not trusted.

use quackd_protocol::limits::{MAX_WEB_DOMAIN_BYTES, MAX_WEB_DOMAINS, MAX_WEB_QUERY_BYTES};
use quackd_protocol::worker::WebSearch;
use serde::Serialize;
use std::ops::RangeInclusive;

/// Permitted number of results. The owner of the key pays for each one.
const NUM_RESULTS: RangeInclusive<u32> = 1..=10;

/// Reason for rejecting a query. A correct worker never gets these errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    #[error("the query is empty or too long")]
    Query,
    #[error("the number of results is not between 1 and 10")]
    NumResults,
    #[error("too many domains, or one is empty or too long")]
    Domains,
    #[error("the search cannot be written")]
    Unwritable,
}

/// The provider's request, with the fields in the order of its documentation.
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

/// Checks a search and returns its body.
pub(crate) fn of(search: &WebSearch) -> Result<Vec<u8>, QueryError> {
    if !is_text(&search.query, MAX_WEB_QUERY_BYTES) {
        return Err(QueryError::Query);
    }
    if !NUM_RESULTS.contains(&search.num_results) {
        return Err(QueryError::NumResults);
    }

    for domains in [&search.include_domains, &search.exclude_domains] {
        let is_sound = domains.len() <= MAX_WEB_DOMAINS
            && domains.iter().all(|domain| is_text(domain, MAX_WEB_DOMAIN_BYTES));
        if !is_sound {
            return Err(QueryError::Domains);
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
    serde_json::to_vec(&body).map_err(|_| QueryError::Unwritable)
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

    fn text(search: &WebSearch) -> Result<String, QueryError> {
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
            (WebSearch { query: String::new(), ..search() }, QueryError::Query),
            (WebSearch { query: long(MAX_WEB_QUERY_BYTES + 1), ..search() }, QueryError::Query),
            (WebSearch { num_results: 0, ..search() }, QueryError::NumResults),
            (WebSearch { num_results: 11, ..search() }, QueryError::NumResults),
            (WebSearch { num_results: u32::MAX, ..search() }, QueryError::NumResults),
            (WebSearch { include_domains: domains(65), ..search() }, QueryError::Domains),
            (WebSearch { exclude_domains: domains(65), ..search() }, QueryError::Domains),
            (WebSearch { include_domains: vec![String::new()], ..search() }, QueryError::Domains),
            (WebSearch { exclude_domains: vec![long(254)], ..search() }, QueryError::Domains),
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

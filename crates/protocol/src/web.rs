//! A web search and its result, between the worker that asks and the supervisor that has the key.

use serde::{Deserialize, Serialize};

/// One web search, in the provider's terms. The supervisor checks its bounds before it sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebSearch {
    /// Text of the query.
    pub query: String,
    /// Number of requested results, 1 to 10.
    pub num_results: u32,
    /// Whether to include the texts of the pages.
    pub include_text: bool,
    /// Search only these domains. Empty for all domains.
    pub include_domains: Vec<String>,
    /// Exclude these domains.
    pub exclude_domains: Vec<String>,
}

/// Result of a web search. The worker creates the text. The supervisor does not parse the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebOutcome {
    /// The provider answered, with any status.
    Reply {
        /// HTTP status.
        status: u16,
        /// Reason phrase of the status, empty if the provider sent none.
        status_text: String,
        /// The body as text. Invalid UTF-8 is replaced.
        body: String,
    },
    /// The session's policy does not permit the search. Nothing was sent.
    Refused {
        /// True for [`crate::policy::WebSearchRule::Ask`], false for `Off`.
        ask: bool,
    },
    /// No key is configured.
    NoKey,
    /// Too many searches are running.
    Busy,
    /// No reply arrived before the timeout.
    TimedOut {
        /// The timeout in milliseconds.
        after_ms: u64,
    },
    /// The body is longer than the limit.
    TooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// The request failed.
    Failed {
        /// Reason, without the key and without the secrets of the address.
        reason: String,
    },
}

//! Parameters of web_search.

use super::arguments::arguments;
use super::row::{Action, Kind, Offer, Parameter, READS, Tool, flag, text, whole};
use serde_json::Value;

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[WEB_SEARCH];

arguments! {
    /// Arguments of `web_search`.
    WebSearchArguments {
        query: Option<String> = text("Search query, at most 8 KiB.").also(&["q", "search", "prompt"]).required(),
        num_results: Option<Value> = whole(1, 10, "How many results.").also(&["numResults"]).or("10"),
        include_text: bool = flag("Also the beginning of each page's text.")
            .also(&["includeText"])
            .or("false"),
        include_domains: Vec<String> = Parameter::new(Kind::List, "Only pages of these domains.")
            .also(&["includeDomains", "domains"]),
        exclude_domains: Vec<String> = Parameter::new(Kind::List, "No pages of these domains.")
            .also(&["excludeDomains"]),
    }
}

/// Searches the web.
pub const WEB_SEARCH: Tool = Tool {
    name: "web_search",
    about: "Searches the web for pages: titles, addresses and, if requested, the start of their text.",
    main: Some("query"),
    action: Action::Fetch,
    offer: Offer::Ask,
    parameters: WebSearchArguments::PARAMETERS,
    ..READS
};

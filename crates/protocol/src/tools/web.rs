//! Parameters of web_search.

use super::row::{Action, Kind, Offer, Parameter, READS, Tool, flag, text, whole};

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[WEB_SEARCH];

/// Searches the web.
pub const WEB_SEARCH: Tool = Tool {
    name: "web_search",
    about: "Searches the web for pages: titles, addresses and, if requested, the start of their text.",
    main: Some("query"),
    action: Action::Fetch,
    offer: Offer::Ask,
    parameters: &[
        text("query", "Search query, at most 8 KiB.").also(&["q", "search", "prompt"]).required(),
        whole("num_results", 1, 10, "How many results.").also(&["numResults"]).or("10"),
        flag("include_text", "Also the beginning of each page's text.")
            .also(&["includeText"])
            .or("false"),
        Parameter::new("include_domains", Kind::List, "Only pages of these domains.")
            .also(&["includeDomains", "domains"]),
        Parameter::new("exclude_domains", Kind::List, "No pages of these domains.")
            .also(&["excludeDomains"]),
    ],
    ..READS
};

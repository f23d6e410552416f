//! Formats the results of a web search as text and as data. All content is untrusted.

use crate::Output;
use crate::conversions::{first_units, to_fixed_3};
use crate::truncate::{self, TRUNCATED};
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::surrogates::without_lone_surrogates;
use quackd_protocol::white_space::{is_space, trim};
use quackd_protocol::worker::WebSearch;
use serde_json::{Map, Value, json};

/// Maximum length of a snippet in UTF-16 units.
const MAX_SNIPPET_UNITS: usize = 400;

/// Title of a result without one.
const UNTITLED: &str = "(untitled)";

/// Formats the body of a successful answer.
pub(crate) fn results(body: &str, search: &WebSearch) -> Output {
    // serde_json does not accept a byte order mark.
    let body = body.strip_prefix('\u{feff}').unwrap_or(body);
    let mut payload: Value = match serde_json::from_str(&without_lone_surrogates(body)) {
        Ok(payload) => payload,
        Err(error) => {
            return Output::error(format_args!("web_search returned invalid JSON: {error}"));
        }
    };
    let Some(Value::Array(given)) = payload.get_mut("results").map(Value::take) else {
        return Output::error("web_search response missing expected 'results' array");
    };

    let (mut text, mut list) = (String::new(), Vec::new());
    let parsed = given.iter().filter_map(|given| read(given.as_object()?, search.include_text));
    for (rank, result) in (1_usize..).zip(parsed) {
        write(&mut text, rank, &result);
        list.push(data(rank, result));
        if MAX_OUTPUT_BYTES < text.trim_end_matches(is_space).len() {
            // Further results exceed the limit of the answer.
            break;
        }
    }

    if list.is_empty() {
        text = format!("No web results found for '{}'", search.query);
    }
    // The text begins with a digit or a letter, so only its end can be white space.
    text.truncate(text.trim_end_matches(is_space).len());

    let mut output = Output::success(text);
    cut(&mut output);
    output.data = Some(json!({ "results": list }).into());
    output
}

/// One search result.
#[derive(Debug)]
struct WebResult<'a> {
    title: &'a str,
    url: &'a str,
    published: Option<&'a str>,
    score: Option<f64>,
    snippet: Option<String>,
}

/// Parses a result. `None` without a URL.
fn read(given: &Map<String, Value>, include_text: bool) -> Option<WebResult<'_>> {
    let text = |name: &str| Some(trim(given.get(name)?.as_str()?)).filter(|text| !text.is_empty());
    Some(WebResult {
        url: text("url")?,
        title: text("title").unwrap_or(UNTITLED),
        published: text("publishedDate"),
        score: given.get("score").and_then(Value::as_f64),
        snippet: if include_text { text("text").map(snippet) } else { None },
    })
}

/// Returns the start of a page's text on one line.
fn snippet(text: &str) -> String {
    let words: Vec<&str> = text.split(is_space).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match first_units(&line, MAX_SNIPPET_UNITS) {
        Some(beginning) => format!("{beginning}..."),
        None => line,
    }
}

fn write(text: &mut String, rank: usize, result: &WebResult<'_>) {
    text.push_str(&format!("{rank}. {}\n   URL: {}\n", result.title, result.url));
    if let Some(published) = result.published {
        text.push_str(&format!("   Published: {published}\n"));
    }
    if let Some(score) = result.score {
        text.push_str(&format!("   Score: {}\n", to_fixed_3(score)));
    }
    if let Some(snippet) = &result.snippet {
        text.push_str(&format!("   Snippet: {snippet}\n"));
    }
    text.push('\n');
}

fn data(rank: usize, result: WebResult<'_>) -> Value {
    let fields = [
        ("rank", Some(rank.into())),
        ("title", Some(result.title.into())),
        ("url", Some(result.url.into())),
        ("published", result.published.map(Value::from)),
        ("score", result.score.map(Value::from)),
        ("snippet", result.snippet.map(Value::from)),
    ];
    let known = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(known.collect())
}

/// Cuts a long text of the web at the output limit.
pub(crate) fn cut(output: &mut Output) {
    if output.text.len() <= MAX_OUTPUT_BYTES {
        return;
    }
    let head = truncate::head(output.text.as_bytes(), MAX_OUTPUT_BYTES);
    output.text = format!("{}\n{TRUNCATED}", head.text);
    output.report.truncated = true;
}

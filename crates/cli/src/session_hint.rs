//! Hint for an unknown session: the labels of sessions with a similar name. Used when a subcommand has failed.

use crate::connect::{self, connect};
use crate::display;
use crate::exit::Advised;
use crate::suggest::{MAX_SHOWN, nearest};
use quackd_client::ClientError;
use quackd_home::Home;
use quackd_protocol::client::{ErrorCode, SessionInfo, SessionsParams};
use serde_json::Value;
use std::time::Duration;

/// Timeout for the list of sessions. It is short because the subcommand has already failed.
const LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of sessions whose names are compared.
const MAX_SESSIONS: usize = 10_000;

/// Adds advice to the error of a subcommand, if it reports an unknown session or an unknown method. Applied last, before
/// the error is printed.
pub(crate) async fn explained(error: anyhow::Error) -> anyhow::Error {
    connect::explained(hinted(error).await).await
}

/// Adds a hint to `error` if it reports an unknown session.
async fn hinted(error: anyhow::Error) -> anyhow::Error {
    let Some(ClientError::Refused { text, code: code @ Some(ErrorCode::SessionNotFound) }) =
        error.downcast_ref()
    else {
        return error;
    };

    // With this code, the text ends with the reference; see docs/protocol.md.
    let unknown = text.split_once(": ").map_or("", |(_, unknown)| unknown);

    // Without names, the hint refers to the list.
    let names = tokio::time::timeout(LIMIT, names()).await.ok().flatten().unwrap_or_default();

    let hint = hint(unknown, &names);
    Advised { error: ClientError::Refused { text: text.clone(), code: *code }, hint }.into()
}

/// Returns the labels and names of all sessions.
async fn names() -> Option<Vec<(String, String)>> {
    let client = connect(&Home::from_process_env_blocking().ok()?).await.ok()?;
    let all = SessionsParams { all: Value::Bool(true), ..SessionsParams::default() };
    let known = client.call_within(all, LIMIT).await.ok()?;
    Some(known.sessions.into_iter().take(MAX_SESSIONS).map(named).collect())
}

fn named(SessionInfo { label, name, .. }: SessionInfo) -> (String, String) {
    (display::label(&label, &name).to_owned(), name)
}

/// Suggests similar labels, or else the labels of sessions with a similar name.
fn hint(unknown: &str, known: &[(String, String)]) -> String {
    // The typed text itself is no suggestion, even if a session has this name by now.
    let is_other = |text: &&str| text.to_lowercase() != unknown.to_lowercase();

    let labels = || known.iter().map(|(label, _)| label.as_str());
    let mut near = nearest(unknown, labels().filter(is_other));
    if near.is_empty() {
        let names = nearest(unknown, known.iter().map(|(_, name)| name.as_str()).filter(is_other));
        let has_name = |(_, name): &&(String, String)| names.contains(&name.as_str());
        let labels = known.iter().filter(has_name).map(|(label, _)| label.as_str());
        near = labels.take(MAX_SHOWN).collect();
    }

    let quoted: Vec<String> =
        near.into_iter().map(|label| format!("`{}`", display::name(label))).collect();

    match quoted.as_slice() {
        [] if known.is_empty() => "there is none; `quack` makes one".to_owned(),
        [] => "`quack sessions` lists them".to_owned(),
        some => format!("did you mean {}?", some.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_few_and_the_nearest_come_first() {
        let names = ["duck-1", "duck-2", "review", "duck-1", "Refactoring", "über-ente"];
        let mut names = names.map(|name| (name.to_owned(), name.to_owned())).to_vec();
        names.push(("api/fix".to_owned(), "Aufräumen".to_owned()));
        for (wanted, expected) in [
            ("duk-1", "did you mean `duck-1` or `duck-2`?"),
            ("reveiw", "did you mean `review`?"),
            ("refactor", "did you mean `Refactoring`?"),
            ("uber-ente", "did you mean `über-ente`?"),
            ("aufraeumen", "did you mean `api/fix`?"),
            ("zzz", "`quack sessions` lists them"),
            ("", "`quack sessions` lists them"),
            ("duck-1", "did you mean `duck-2`?"),
            ("Review", "`quack sessions` lists them"),
        ] {
            assert_eq!(hint(wanted, &names), expected, "{wanted}");
        }
        assert_eq!(hint("x", &[]), "there is none; `quack` makes one");
    }

    #[test]
    fn a_hint_is_short_and_steers_nothing() {
        let names = (0..1000).map(|n| format!("duck\u{1b}[2J\u{202e}{n}"));
        let names: Vec<_> = names.map(|name| (name.clone(), name)).collect();
        let shown = hint("duck\u{1b}[2J\u{202e}1", &names);
        assert_eq!(shown.matches('`').count(), 2 * MAX_SHOWN, "{shown}");
        assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown:?}");
        let long = vec![("x".repeat(1 << 20), "x".repeat(1 << 20))];
        assert!(hint(&"x".repeat(1 << 20), &long).chars().count() < 150);
    }

    #[tokio::test]
    async fn another_error_is_left_as_it_is() {
        for error in [
            anyhow::anyhow!("Session not found: x"),
            ClientError::Refused { text: "Message is required".to_owned(), code: None }.into(),
            ClientError::Disconnected.into(),
        ] {
            let text = error.to_string();
            assert_eq!(hinted(error).await.to_string(), text);
        }
    }
}

//! Which session a verb means by a name that several have, and by none. Every verb that takes a session asks the
//! daemon with [`request`].
//!
//! The daemon takes an id, a name, or the beginning of one, and refuses what is not unique: each repository's first
//! session has the same name. A person who stands in a repository means the one of that.

use crate::connect::REPLY_TIMEOUT;
use crate::display;
use quackd_client::{Client, ClientError};
use quackd_home::resolve_workspace_blocking;
use quackd_protocol::client::{
    SessionInfo, SessionsData, SessionsParams, WorkspaceInfo, WorkspacesData,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// What the daemon says; see docs/protocol.md.
pub(crate) const NOT_FOUND: &str = "Session not found: ";

/// Sessions that are listed for a person to choose from.
const MAX_LISTED: usize = 10;

/// Asks the daemon with `params`, whose `sessionId` is what a person gave. If several sessions have that name it
/// is the one of the current directory.
///
/// # Errors
/// Of the request; `Refused` with the sessions that may be meant if the directory does not decide.
pub(crate) async fn request<P: Serialize, D: DeserializeOwned>(
    client: &Client,
    method: &str,
    params: P,
    limit: Duration,
) -> Result<D, ClientError> {
    let mut params = serde_json::to_value(params)
        .map_err(|error| ClientError::Protocol(format!("cannot write the request: {error}")))?;
    let error = match client.request(method, &params, limit).await {
        Err(error) => error,
        answered => return answered,
    };
    // Nothing was done: it is as if it had not been asked.
    let ClientError::Refused(text) = &error else { return Err(error) };
    let wanted = params.get("sessionId").and_then(Value::as_str).filter(|it| !it.is_empty());
    let Some(wanted) = wanted.filter(|wanted| text.strip_prefix(NOT_FOUND) == Some(wanted)) else {
        return Err(error);
    };
    let all = SessionsParams { all: Value::Bool(true), ..SessionsParams::default() };
    let Ok(SessionsData { sessions }) = client.request("sessions", all, REPLY_TIMEOUT).await else {
        return Err(error);
    };
    match meant(wanted, current().as_deref(), &sessions) {
        Meant::One(id) => {
            if let Some(session) = params.get_mut("sessionId") {
                *session = Value::from(id);
            }
            client.request(method, &params, limit).await
        }
        Meant::Several(text) => Err(ClientError::Refused(text)),
        Meant::Nobody => Err(error),
    }
}

/// The session of the current directory, if there is one; else a verb means the active one. Makes none.
///
/// # Errors
/// Of the request; a daemon that does not know it knows of no directory.
pub(crate) async fn here(client: &Client) -> Result<Option<String>, ClientError> {
    let Some(workspace) = current() else { return Ok(None) };
    match of_directory(client, &workspace).await {
        Err(ClientError::Refused(_)) => Ok(None),
        found => found,
    }
}

/// The session of a workspace that `attach` would give. Makes none: who looks changes nothing.
///
/// # Errors
/// Of the request.
pub(crate) async fn of_directory(
    client: &Client,
    path: &str,
) -> Result<Option<String>, ClientError> {
    let data: WorkspacesData = client.request("workspaces", json!({}), REPLY_TIMEOUT).await?;
    let workspace = data.workspaces.iter().find(|workspace| workspace.path == path);
    Ok(workspace.and_then(preferred))
}

/// The one that was last active, else the first.
fn preferred(workspace: &WorkspaceInfo) -> Option<String> {
    let last = workspace.last_active_session_id.as_ref();
    let mut sessions = workspace.sessions.iter();
    let session =
        sessions.clone().find(|session| Some(&session.id) == last).or_else(|| sessions.next());
    session.map(|session| session.id.0.clone())
}

/// The workspace of the current directory, which may be gone.
pub(crate) fn current() -> Option<String> {
    resolve_workspace_blocking(Path::new(".")).ok()
}

/// What a reference that the daemon does not take may mean.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    /// The session with this id.
    One(String),
    /// More than one, listed.
    Several(String),
    Nobody,
}

fn meant(wanted: &str, here: Option<&str>, known: &[SessionInfo]) -> Meant {
    let lower = wanted.to_lowercase();
    let shown = display::name(wanted);
    let named: Vec<&SessionInfo> =
        known.iter().filter(|session| session.name.to_lowercase() == lower).collect();
    let is_here = |session: &&SessionInfo| Some(session.workspace_path.as_str()) == here;
    let of_here: Vec<&SessionInfo> = named.iter().copied().filter(is_here).collect();
    match (named.as_slice(), of_here.as_slice()) {
        // The one may have been made since the daemon was asked.
        ([one], _) | (_, [one]) => return Meant::One(one.id.0.clone()),
        ([], _) => {}
        (named, of_here) => {
            let of_here = match of_here.len() {
                0 => "none".to_owned(),
                n => n.to_string(),
            };
            let n = named.len();
            return Meant::Several(list(
                &format!(
                    "{n} sessions have the name `{shown}`, {of_here} of them in this directory"
                ),
                named,
            ));
        }
    }
    let begun: Vec<&SessionInfo> =
        known.iter().filter(|session| session.name.to_lowercase().starts_with(&lower)).collect();
    match begun.as_slice() {
        [] => Meant::Nobody,
        [one] => Meant::One(one.id.0.clone()),
        several => {
            let n = several.len();
            Meant::Several(list(
                &format!("the names of {n} sessions begin with `{shown}`"),
                several,
            ))
        }
    }
}

/// A refusal with the sessions to choose from, a line each.
fn list(why: &str, sessions: &[&SessionInfo]) -> String {
    let home_dir = std::env::var("HOME").ok();
    let line = |session: &&SessionInfo| {
        format!(
            "\n  {}  {}  {}",
            display::name(session.id.as_str()),
            display::name_cell(&session.name),
            display::path_cell(&session.workspace_path, home_dir.as_deref())
        )
    };
    let lines: String = sessions.iter().take(MAX_LISTED).map(line).collect();
    let more = match sessions.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        n => format!("\n  and {n} more: `quack sessions --all` lists them"),
    };
    format!("{why}; use the id:{lines}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, name: &str, path: &str) -> SessionInfo {
        serde_json::from_value(json!({
            "id": id, "name": name, "workspacePath": path, "isActive": false, "isRunning": false,
            "lastActiveAt": ""
        }))
        .unwrap()
    }

    #[test]
    fn a_name_that_several_have_means_the_one_of_the_directory() {
        let known = [
            session("i1", "duck-1", "/a"),
            session("i2", "Duck-1", "/b"),
            session("i3", "duck-10", "/b"),
            session("i4", "review", "/c"),
        ];
        let one = |id: &str| Meant::One(id.to_owned());
        for (wanted, here, expected) in [
            ("duck-1", Some("/a"), one("i1")),
            ("DUCK-1", Some("/b"), one("i2")),
            ("review", Some("/a"), one("i4")),
            ("rev", None, one("i4")),
            ("nobody", Some("/a"), Meant::Nobody),
        ] {
            assert_eq!(meant(wanted, here, &known), expected, "{wanted} {here:?}");
        }
        for here in [None, Some("/c")] {
            let text = "2 sessions have the name `duck-1`, none of them in this directory; use the id:\n  \
                        i1  duck-1  /a\n  i2  Duck-1  /b";
            assert_eq!(meant("duck-1", here, &known), Meant::Several(text.to_owned()));
        }
        // Nobody is chosen by half a name, in whatever directory.
        let text = "the names of 3 sessions begin with `duck`; use the id:\n  i1  duck-1  /a\n  i2  Duck-1  /b\n  \
                    i3  duck-10  /b";
        assert_eq!(meant("duck", Some("/a"), &known), Meant::Several(text.to_owned()));
    }

    #[test]
    fn a_list_is_short_steers_nothing_and_says_so_if_the_directory_has_several() {
        let known: Vec<SessionInfo> =
            (0..13).map(|n| session(&format!("i\u{1b}{n}"), "duck", "/a\u{202e}")).collect();
        let Meant::Several(text) = meant("duck", Some("/a\u{202e}"), &known) else { panic!() };
        assert!(
            text.starts_with("13 sessions have the name `duck`, 13 of them in this directory; "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1 + MAX_LISTED + 1, "{text}");
        assert!(text.ends_with("\n  and 3 more: `quack sessions --all` lists them"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }

    #[test]
    fn a_directory_means_the_session_that_was_last_active_there_else_its_first() {
        let workspace = |last: Value| -> WorkspaceInfo {
            let one = |id: &str| json!({"id": id, "name": id, "isActive": false, "isRunning": false, "lastActiveAt": ""});
            serde_json::from_value(json!({
                "id": "w", "path": "/a", "lastActiveSessionId": last, "sessionCount": 2,
                "sessions": [one("i1"), one("i2")]
            }))
            .unwrap()
        };
        for (last, expected) in [(json!("i2"), "i2"), (json!("gone"), "i1"), (Value::Null, "i1")] {
            assert_eq!(preferred(&workspace(last)).as_deref(), Some(expected));
        }
    }
}

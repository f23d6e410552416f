//! The daemon's sessions: connecting, checking directories, creating, listing.

use crate::rpc::RpcError;
use crate::session::{Facts, REPLY_TIMEOUT};
use quackd_client::{Client, ClientError, Connector, printable_name};
use quackd_protocol::client::{
    ClientName, FindParams, ForkParams, HelloParams, SessionNewParams, SessionsData, SessionsParams,
};
use quackd_protocol::foreign_text::one_line;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;

/// Name of a client that does not say its own.
const UNNAMED: &str = "acp";

/// Sessions of one page of a list.
const PAGE: usize = 100;

/// Attempts to create a session, if other clients create sessions with the same name.
const MAX_ATTEMPTS: u32 = 3;

/// Maximum wait for a new session with its copy of the workspace.
const COPY_TIMEOUT: Duration = Duration::from_secs(160);

/// Time to look at the directory of a session.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a path in an error, in characters.
const MAX_SHOWN: usize = 200;

/// Connects, and introduces the client to the daemon.
pub(crate) async fn connect(connector: &Connector, facts: &Facts) -> Result<Client, RpcError> {
    let client = connector().await.map_err(|error| RpcError::internal(error.to_string()))?;
    let printable = |text: &str| Some(printable_name(text)).filter(|text| !text.is_empty());
    let name = printable(&facts.name).unwrap_or_else(|| UNNAMED.to_owned());
    let introduced = ClientName { name, version: printable(&facts.version) };

    let hello = HelloParams { client: introduced, door: Some("acp".to_owned()) };
    client.call_within(hello, REPLY_TIMEOUT).await?;
    Ok(client)
}

/// Checks the directory of a session before anything is created. A disk that hangs counts as fine.
pub(crate) async fn check_directory(cwd: &str) -> Result<(), RpcError> {
    let path = PathBuf::from(cwd);
    if !path.is_absolute() {
        return Err(RpcError::invalid_params("cwd must be an absolute path"));
    }

    let checking = tokio::task::spawn_blocking(move || path.metadata());
    let checked = timeout(DIRECTORY_TIMEOUT, checking).await;
    let cwd: String = cwd.chars().take(MAX_SHOWN).collect();
    let refused = |problem: &str| Err(RpcError::invalid_params(format!("cwd {cwd} {problem}")));
    match checked {
        Ok(Ok(Ok(metadata))) if metadata.is_dir() => Ok(()),
        Ok(Ok(Ok(_))) => refused("is not a directory"),
        Ok(Ok(Err(error))) => refused(&format!("cannot be opened: {error}")),
        // The daemon reports a disk that hangs.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Returns the workspace of the user's session that contains `cwd`, else `cwd`. Outside of repositories the workspace may be
/// above `cwd`, as it is for the user there.
pub(crate) async fn workspace(client: &Client, cwd: &str) -> String {
    let params =
        FindParams { path: Some(cwd.to_owned()), own: Some(true), ..FindParams::default() };
    let reply = client.call_within(params, REPLY_TIMEOUT).await;
    let session = reply.ok().and_then(|reply| reply.session);
    session.map_or_else(|| cwd.to_owned(), |session| session.workspace_path)
}

/// Creates a session in the workspace of `cwd`, named after the client. Returns its id.
pub(crate) async fn create(client: &Client, cwd: &str, facts: &Facts) -> Result<String, RpcError> {
    let mut attempt = 1;
    loop {
        let name = new_name(client, facts).await?;

        // Restrictions of a session protect files of its workspace, also from the agent of an editor.
        let params = SessionNewParams {
            path: Some(cwd.to_owned()),
            name: Some(name.clone()),
            restrictions_of: Some("*".to_owned()),
            isolated: facts.isolated.then_some(true),
            ..SessionNewParams::default()
        };
        let limit = if facts.isolated { COPY_TIMEOUT } else { REPLY_TIMEOUT };

        match client.call_within(params, limit).await {
            Ok(created) => return Ok(created.session.id.0),
            Err(error @ ClientError::Refused { .. }) if attempt < MAX_ATTEMPTS => {
                // Only another client with the same name is a reason to try again.
                let now = all(client).await?;
                if now.sessions.iter().all(|session| session.name != name) {
                    return Err(error.into());
                }
                attempt += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Copies the conversation of a session into a new one, named after the client. Returns its id.
pub(crate) async fn fork(client: &Client, of: &str, facts: &Facts) -> Result<String, RpcError> {
    let name = Some(new_name(client, facts).await?);
    let params = ForkParams { session_id: of.into(), name, ..ForkParams::default() };
    Ok(client.call_within(params, REPLY_TIMEOUT).await?.session_id.0)
}

/// Returns a page of the sessions, the last used first; with `cwd`, those of its workspace.
pub(crate) async fn list(
    client: &Client,
    cwd: Option<&str>,
    cursor: Option<&str>,
) -> Result<Value, RpcError> {
    let skipped = cursor.map_or(Ok(0), str::parse::<usize>);
    let skipped = skipped.map_err(|_| RpcError::invalid_params("unknown cursor"))?;

    let mut sessions = all(client).await?.sessions;
    sessions.retain(|session| {
        cwd.is_none_or(|cwd| Path::new(cwd).starts_with(&session.workspace_path))
    });
    sessions.sort_by(|left, right| right.last_active_at.cmp(&left.last_active_at));

    let page = sessions.iter().skip(skipped).take(PAGE).map(|session| {
        json!({"sessionId": session.id, "cwd": session.workspace_path, "title": one_line(&session.name),
            "updatedAt": session.last_active_at})
    });

    let mut result = json!({"sessions": page.collect::<Vec<_>>()});
    let next = skipped.saturating_add(PAGE);
    if let (true, Some(result)) = (next < sessions.len(), result.as_object_mut()) {
        result.insert("nextCursor".to_owned(), next.to_string().into());
    }
    Ok(result)
}

async fn all(client: &Client) -> Result<SessionsData, RpcError> {
    let params = SessionsParams { all: true.into(), ..SessionsParams::default() };
    Ok(client.call_within(params, REPLY_TIMEOUT).await?)
}

/// Returns a name for a new session of the client, which no session has.
async fn new_name(client: &Client, facts: &Facts) -> Result<String, RpcError> {
    let all = all(client).await?;
    let taken = all.sessions.iter().map(|session| session.name.as_str());
    Ok(free_name(&base_name(&facts.name), taken))
}

/// Returns the client's name in lower case, with `-` for other characters.
fn base_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().take(32).map(plain).collect();
    let name = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    if name.is_empty() { UNNAMED.to_owned() } else { name }
}

fn free_name<'a>(base: &str, taken: impl Iterator<Item = &'a str>) -> String {
    let taken: Vec<&str> = taken.collect();
    let mut names = (1_u64..).map(|n| format!("{base}-{n}"));
    names.find(|name| !taken.contains(&name.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_session_is_named_after_the_client() {
        assert_eq!(base_name("Zed"), "zed");
        assert_eq!(base_name("JetBrains IDE (2026.2)"), "jetbrains-ide-2026-2");
        assert_eq!(base_name("\u{202e} /"), "acp");
        assert_eq!(free_name("zed", ["zed-1", "zed-3"].into_iter()), "zed-2");
        assert_eq!(free_name("zed", ["zed"].into_iter()), "zed-1");
    }

    /// Creates a session with a daemon that replies to each request in turn. Returns the error and the methods of the
    /// requests.
    async fn refused(replies: Vec<Value>) -> (RpcError, Vec<Value>) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quackd-acp-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = tokio::task::spawn_blocking(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut methods = Vec::new();
            let mut replies = replies.into_iter();
            for line in lines.map_while(Result::ok) {
                let mut request: Value = serde_json::from_str(&line).unwrap();
                let mut reply = replies.next().expect("a reply");
                reply["id"] = request["id"].take();
                writeln!(stream, "{reply}").unwrap();
                methods.push(request["method"].take());
            }
            methods
        });
        let client = Client::connect(&path, REPLY_TIMEOUT).await.unwrap();
        let facts = Facts { name: "zed".to_owned(), ..Facts::default() };
        let error = create(&client, "/repo", &facts).await.unwrap_err();
        drop(client);
        std::fs::remove_file(path).unwrap();
        (error, daemon.await.unwrap())
    }

    #[tokio::test]
    async fn a_refused_creation_is_sent_again_only_if_its_name_was_taken() {
        let no = json!({"ok": false, "error": "no"});
        let sessions = |names: &[&str]| {
            let session = |name: &&str| {
                json!({"id": name, "name": name, "workspaceId": "w", "workspacePath": "/repo",
                    "isActive": false, "isRunning": false, "piSessionFile": "",
                    "createdAt": "", "lastActiveAt": ""})
            };
            let all: Vec<_> = names.iter().map(session).collect();
            json!({"ok": true, "data": {"sessions": all}})
        };
        let (list, new) = ("sessions", "quack.session_new");
        let (error, methods) = refused(vec![sessions(&[]), no.clone(), sessions(&[])]).await;
        assert_eq!(error, RpcError::internal("no"));
        assert_eq!(methods, [list, new, list]);
        let (one, two) = (sessions(&["zed-1"]), sessions(&["zed-1", "zed-2"]));
        let taken =
            vec![sessions(&[]), no.clone(), one.clone(), one, no.clone(), two.clone(), two, no];
        let (_, methods) = refused(taken).await;
        assert_eq!(methods, [list, new, list, list, new, list, list, new]);
    }
}

//! The file with a session's conversation, in Pi's format. Its first line names the directory in which Pi works. Pi
//! itself starts elsewhere: the runtimes below Pi (node, bun, version managers) read settings in their start directory,
//! and commands may write a workspace.

use crate::clock::now_text;
use quackd_home::{Home, own_file};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the format. Pi migrates a file with an older one.
const VERSION: u64 = 3;

/// Longest file that is copied.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// A header holds one path.
const MAX_HEADER_BYTES: u64 = 8 * 1024;

/// Returns the file to resume: `known` if it has a conversation, else one in `dir` whose header names `workspace`.
/// `now` is RFC 3339. Writes the file system.
///
/// # Errors
/// The file cannot be written, or is not a regular file of this user.
pub(crate) fn prepare_blocking(
    dir: &Path,
    known: &str,
    workspace: &str,
    now: &str,
) -> io::Result<PathBuf> {
    let known = (!known.is_empty()).then(|| PathBuf::from(known));
    if let Some(known) = &known
        && known.metadata().is_ok_and(|found| found.is_file() && found.len() != 0)
    {
        return Ok(known.clone());
    }
    let id = new_id()?;
    let name = format!("{}_{id}.jsonl", now.replace([':', '.'], "-"));
    let path = known.filter(|known| known.parent() == Some(dir)).unwrap_or_else(|| dir.join(name));
    let header = json!({
        "type": "session", "version": VERSION, "id": id, "timestamp": now, "cwd": workspace,
    });
    own_file::append_blocking(&path)?.write_all(format!("{header}\n").as_bytes())?;
    Ok(path)
}

/// Longest id of a conversation, in bytes.
const MAX_ID: usize = 128;

/// Whether Pi takes this id of a conversation: it begins and ends with a letter or digit.
pub(crate) fn is_conversation_id(id: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric();
    let ends = [id.as_bytes().first(), id.as_bytes().last()];
    id.len() <= MAX_ID
        && ends.iter().all(|end| end.is_some_and(|end| is_plain(*end)))
        && id.bytes().all(|c| is_plain(c) || b"._-".contains(&c))
}

/// Creates the file of a conversation with this id. Writes the file system.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn create_blocking(home: &Home, workspace: &str, id: &str) -> io::Result<String> {
    let sessions = home.prepare_pi_sessions_blocking().map_err(io::Error::other)?;
    let now = now_text();
    let path = sessions.join(format!("{}_{id}.jsonl", now.replace([':', '.'], "-")));
    let header = json!({
        "type": "session", "version": VERSION, "id": id, "timestamp": now, "cwd": workspace,
    });
    own_file::append_blocking(&path)?.write_all(format!("{header}\n").as_bytes())?;
    Ok(path.display().to_string())
}

/// A new session file with a part of another one.
#[derive(Debug)]
pub(crate) struct Forked {
    pub(crate) path: String,
    /// Text of the message at which the conversation was left.
    pub(crate) text: Option<String>,
}

/// Part of an entry that a fork needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    parent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// A line of the file, and the index of the line that it follows.
struct Entry<'a> {
    line: &'a str,
    link: Link<'a>,
    parent: Option<usize>,
    /// Whether lines are lost between the two.
    is_bridged: bool,
}

/// Returns the line with another parent.
fn with_parent(line: &str, parent: &str) -> io::Result<String> {
    let mut members: serde_json::Map<String, Value> = serde_json::from_str(line)?;
    members.insert("parentId".to_owned(), parent.into());
    Ok(serde_json::to_string(&members)?)
}

/// Copies the conversation before the message `entry`, or all of it, into a new file. Reads and writes the file system.
///
/// # Errors
/// There is no conversation or no such message, or a file cannot be read or written.
pub(crate) fn fork_blocking(
    home: &Home,
    source: &str,
    workspace: &str,
    entry: Option<&str>,
) -> io::Result<Forked> {
    let no_such = |text: &str| io::Error::new(io::ErrorKind::NotFound, text.to_owned());
    if source.is_empty() {
        return Err(no_such("the session has no conversation yet"));
    }

    let bytes = own_file::read_blocking(Path::new(source), MAX_FILE_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);

    let mut lines = text.lines();
    let header = lines.next().and_then(|line| serde_json::from_str::<Value>(line).ok());
    match header.as_ref().map(|header| (&header["type"], header["version"].as_u64())) {
        Some((kind, Some(VERSION))) if kind == "session" => {}
        Some((kind, _)) if kind == "session" => {
            return Err(no_such("the session file has an old format; open it once with Pi"));
        }
        _ => return Err(no_such("the session file has no header")),
    }

    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    let mut has_lost = false;
    for line in lines {
        let Ok(link) = serde_json::from_str::<Link<'_>>(line) else {
            has_lost = true;
            continue;
        };

        let parent = link.parent_id.as_deref().and_then(|parent| at.get(parent)).copied();
        // After lost lines the entry follows the one before them, as the agent reads the file.
        let is_bridged = parent.is_none() && link.parent_id.is_some() && has_lost;
        let parent = parent.or_else(|| entries.len().checked_sub(1).filter(|_| is_bridged));
        has_lost = false;

        if let Some(id) = &link.id {
            at.insert(id.clone().into_owned(), entries.len());
        }
        entries.push(Entry { line, link, parent, is_bridged });
    }

    let (mut next, left) = match entry {
        None => (entries.len().checked_sub(1), None),
        Some(entry) => {
            let found = at.get(entry).and_then(|index| entries.get(*index));
            let found = found.ok_or_else(|| no_such("no message has this id"))?;
            let left = found.link.message.and_then(user_text);
            let left = left.ok_or_else(|| no_such("the entry is not a message of the user"))?;
            (found.parent, Some(left))
        }
    };

    let mut kept = Vec::new();
    while let Some(entry) = next.and_then(|index| entries.get(index)) {
        // A parent comes before its child, so the walk ends.
        next = entry.parent;
        let parent =
            entry.parent.and_then(|parent| entries.get(parent)).filter(|_| entry.is_bridged);
        kept.push(match parent.and_then(|parent| parent.link.id.as_deref()) {
            Some(parent) => Cow::Owned(with_parent(entry.line, parent)?),
            None => Cow::Borrowed(entry.line),
        });
    }

    let sessions = home.prepare_pi_sessions_blocking().map_err(io::Error::other)?;
    let (id, now) = (new_id()?, now_text());
    let path = sessions.join(format!("{}_{id}.jsonl", now.replace([':', '.'], "-")));
    let header = json!({
        "type": "session", "version": VERSION, "id": id, "timestamp": now, "cwd": workspace,
        "parentSession": source,
    });

    let mut file = own_file::append_blocking(&path)?;
    let mut whole = format!("{header}\n");
    for line in kept.iter().rev() {
        whole.push_str(line);
        whole.push('\n');
    }
    file.write_all(whole.as_bytes())?;
    file.sync_all()?;

    Ok(Forked { path: path.display().to_string(), text: left })
}

/// Returns the text of a message of the user.
fn user_text(message: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct User {
        role: String,
        content: Value,
    }
    let User { role, content } = serde_json::from_str(message.get()).ok()?;
    if role != "user" {
        return None;
    }
    let text = |block: &Value| block.get("text").and_then(Value::as_str).map(str::to_owned);
    Some(match &content {
        Value::String(text) => text.clone(),
        content => content.as_array()?.iter().filter_map(text).collect(),
    })
}

/// Pi wants an id that begins and ends with a letter or digit.
fn new_id() -> io::Result<String> {
    Ok(quackd_home::new_id()?.replace(['-', '_'], "0"))
}

/// Deletes the file of a deleted session if it has no conversation, only the header. Writes the file system.
pub(crate) fn discard_unused_blocking(path: &Path) {
    let is_ours = path.parent().is_some_and(|dir| dir.ends_with("pi-sessions"));
    let Ok(text) = own_file::read_blocking(path, MAX_HEADER_BYTES) else { return };
    let n_lines = text.iter().filter(|byte| **byte == b'\n').count();
    if is_ours && n_lines <= 1 {
        // `quack gc --histories` finds it otherwise.
        std::fs::remove_file(path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_conversation_is_kept_and_a_missing_one_begun_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let now = "2026-01-02T03:04:05Z";
        let prepare = |known: &str| prepare_blocking(dir.path(), known, "/w", now).unwrap();
        let begun = prepare("");
        assert_eq!(begun.parent(), Some(dir.path()));
        let text = fs::read_to_string(&begun).unwrap();
        let header: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!((&header["type"], &header["cwd"]), (&json!("session"), &json!("/w")));
        assert_eq!(prepare(begun.to_str().unwrap()), begun);
        assert_eq!(fs::read_to_string(&begun).unwrap(), text);
        let gone = dir.path().join("gone.jsonl");
        assert_eq!(prepare(gone.to_str().unwrap()), gone);
        assert!(gone.is_file());
        let elsewhere = prepare("/nowhere/x.jsonl");
        assert_eq!(elsewhere.parent(), Some(dir.path()));
    }

    #[test]
    fn a_fork_links_over_lost_lines_and_an_old_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let app = dir.path().join("app").into_os_string();
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| app.clone());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        let source = dir.path().join("s.jsonl");
        let fork = |version: u64, entry: &str| {
            let message = |id: &str, parent: &str, text: &str| {
                json!({"type": "message", "id": id, "parentId": parent,
                    "message": {"role": "user", "content": text}})
            };
            let first = message("a", "", "one");
            let (later, last) = (message("c", "b", "three"), message("d", "c", "four"));
            let header = json!({"type": "session", "version": version, "id": "x"});
            fs::write(&source, format!("{header}\n{first}\n\n{later}\n{last}\n")).unwrap();
            fork_blocking(&home, source.to_str().unwrap(), "/w", Some(entry))
        };
        let forked = fork(3, "d").unwrap();
        let text = fs::read_to_string(forked.path).unwrap();
        let entries: Vec<Value> =
            text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        let links: Vec<_> =
            entries.iter().map(|entry| (&entry["id"], &entry["parentId"])).collect();
        assert_eq!(links, [(&json!("a"), &json!("")), (&json!("c"), &json!("a"))]);
        assert_eq!(fork(3, "c").unwrap().text.as_deref(), Some("three"));
        assert!(fork(2, "d").unwrap_err().to_string().contains("old format"));
    }

    #[test]
    fn only_a_header_is_deleted_with_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("pi-sessions");
        fs::create_dir(&dir).unwrap();
        let begun = prepare_blocking(&dir, "", "/w", "2026-01-02T03:04:05Z").unwrap();
        let used = dir.join("used.jsonl");
        fs::write(&used, "{}\n{}\n").unwrap();
        for path in [&begun, &used, &dir.join("none")] {
            discard_unused_blocking(path);
        }
        assert!(!begun.exists() && used.exists());
    }
}

//! Commands that read a conversation: its tree, and its export as a page.

use super::calls::{COMMAND_TIMEOUT, refused, send};
use crate::subcommands::export::read_transcript_blocking;
use crate::user_file;
use quackd_client::{Client, ClientError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Maximum size of the entries of a tree, in bytes.
const MAX_TREE_BYTES: usize = 64 * 1024 * 1024;

/// A page of the entries.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    entries: Vec<Box<RawValue>>,
    leaf_id: Option<String>,
}

/// The members of an entry that its place depends on.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    id: String,
    parent_id: Option<String>,
    #[serde(default)]
    r#type: String,
    target_id: Option<String>,
    label: Option<String>,
}

/// Answers `get_tree`: every entry in its parent. The text is not parsed again, because a long conversation is as many
/// levels deep as it has entries.
pub(super) async fn tree(client: &Client, session: &str) -> Result<Box<RawValue>, ClientError> {
    let mut entries: Vec<(Link, Box<RawValue>)> = Vec::new();
    let mut bytes = 0;
    let leaf = loop {
        let since = entries.last().map(|(link, _)| link.id.clone());
        let command = match &since {
            None => json!({ "type": "get_entries" }),
            Some(id) => json!({ "type": "get_entries", "since": id }),
        };

        let data = send(client, session, command).await?.data;
        let page = data.as_ref().and_then(|data| serde_json::from_str::<Page>(data.get()).ok());
        let page = page.ok_or_else(|| refused("the agent did not list its entries"))?;

        // A page without entries is the last one, also if the leaf is an earlier entry.
        let is_last = page.entries.is_empty();
        for entry in page.entries {
            bytes += entry.get().len();
            let link = serde_json::from_str::<Link>(entry.get());
            entries.push((link.map_err(|error| refused(error.to_string()))?, entry));
        }

        if MAX_TREE_BYTES < bytes {
            return Err(refused(format!("the conversation has more than {MAX_TREE_BYTES} bytes")));
        }

        if is_last || entries.last().map(|(link, _)| &link.id) == page.leaf_id.as_ref() {
            break page.leaf_id;
        }
    };

    let text = nested(&entries, leaf.as_deref());
    RawValue::from_string(text).map_err(|error| refused(error.to_string()))
}

/// A step of writing the tree.
enum Step {
    Open { entry: usize, is_first: bool },
    Close(usize),
}

/// Writes `{tree, leafId}`, without recursion: a conversation may be as deep as it is long.
fn nested(entries: &[(Link, Box<RawValue>)], leaf: Option<&str>) -> String {
    let at: HashMap<&str, usize> =
        entries.iter().enumerate().map(|(index, (link, _))| (link.id.as_str(), index)).collect();

    // A later label replaces an earlier one, and one without a text removes it.
    let mut labels: HashMap<&str, &str> = HashMap::new();
    for (link, _) in entries.iter().filter(|(link, _)| link.r#type == "label") {
        match (&link.target_id, &link.label) {
            (Some(target), Some(label)) => drop(labels.insert(target, label)),
            (Some(target), None) => drop(labels.remove(target.as_str())),
            (None, _) => {}
        }
    }

    let mut children: Vec<Vec<usize>> = entries.iter().map(|_| Vec::new()).collect();
    let mut roots = Vec::new();
    for (index, (link, _)) in entries.iter().enumerate() {
        let parent = link.parent_id.as_deref().and_then(|parent| at.get(parent)).copied();
        // A parent comes before its child, so that there is no cycle.
        match parent.filter(|parent| *parent < index).and_then(|parent| children.get_mut(parent)) {
            Some(siblings) => siblings.push(index),
            None => roots.push(index),
        }
    }

    let mut text = String::from("{\"tree\":[");
    // Reversed, because the last step of the stack is the next one.
    let steps = |list: &[usize]| {
        let steps = list.iter().enumerate().rev();
        steps.map(|(n, entry)| Step::Open { entry: *entry, is_first: n == 0 }).collect::<Vec<_>>()
    };

    let mut stack = steps(&roots);
    while let Some(step) = stack.pop() {
        match step {
            Step::Open { entry, is_first } => {
                let Some((_, json)) = entries.get(entry) else { continue };
                text.push_str(if is_first { "{\"entry\":" } else { ",{\"entry\":" });
                text.push_str(json.get());
                text.push_str(",\"children\":[");
                stack.push(Step::Close(entry));
                stack.extend(children.get(entry).map(|list| steps(list)).unwrap_or_default());
            }
            Step::Close(entry) => {
                text.push(']');
                let label = entries.get(entry).and_then(|(link, _)| labels.get(link.id.as_str()));
                if let Some(label) = label {
                    text.push_str(&format!(",\"label\":{}", Value::from(*label)));
                }
                text.push('}');
            }
        }
    }

    text.push_str(&format!("],\"leafId\":{}}}", leaf.map_or(Value::Null, Value::from)));
    text
}

/// Answers `export_html`: writes the conversation as a page to the named file, or to one in the current directory.
pub(super) async fn export_html(session: String, path: Option<&str>) -> Result<Value, ClientError> {
    let path = path.filter(|path| !path.is_empty()).map(PathBuf::from);
    let export = tokio::task::spawn_blocking(move || export_blocking(&session, path));
    match tokio::time::timeout(COMMAND_TIMEOUT, export).await {
        Ok(Ok(Ok(path))) => Ok(json!({ "path": path })),
        Ok(Ok(Err(error))) => Err(refused(format!("{error:#}"))),
        Ok(Err(_)) | Err(_) => Err(refused("the conversation cannot be exported")),
    }
}

fn export_blocking(session: &str, path: Option<PathBuf>) -> anyhow::Result<String> {
    let (file, transcript) = read_transcript_blocking(session)?
        .ok_or_else(|| anyhow::anyhow!("the session has no conversation yet"))?;

    // Without a path, the page is named after the file of the conversation.
    let path = path.unwrap_or_else(|| {
        let stem = Path::new(&file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        PathBuf::from(format!("pi-session-{stem}.html"))
    });

    let page = quackd_agent::export::html(&transcript);
    user_file::write_blocking(&path, page.as_bytes(), user_file::PRIVATE)?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, parent: Option<&str>) -> (Link, Box<RawValue>) {
        let json = json!({ "type": "message", "id": id, "parentId": parent });
        let raw = serde_json::value::to_raw_value(&json).unwrap();
        (serde_json::from_str(raw.get()).unwrap(), raw)
    }

    #[test]
    fn every_entry_is_in_its_parent() {
        let mut entries = vec![entry("a", None), entry("b", Some("a")), entry("c", Some("a"))];
        entries.extend([entry("d", Some("b")), entry("lost", Some("none"))]);
        let label = json!({ "type": "label", "id": "l", "parentId": "d", "targetId": "a", "label": "x\"y" });
        let raw = serde_json::value::to_raw_value(&label).unwrap();
        entries.push((serde_json::from_str(raw.get()).unwrap(), raw));
        let tree: Value = serde_json::from_str(&nested(&entries, Some("l"))).unwrap();
        let a = &tree["tree"][0];
        assert_eq!((&a["entry"]["id"], &a["label"]), (&json!("a"), &json!("x\"y")));
        let ids = |of: &Value| {
            let children = of["children"].as_array().unwrap().iter();
            children.map(|it| it["entry"]["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids(a), ["b", "c"]);
        assert_eq!(ids(&a["children"][0]), ["d"]);
        assert_eq!(tree["tree"][1]["entry"]["id"], "lost");
        assert_eq!(tree["leafId"], "l");
        assert_eq!(nested(&[], None), "{\"tree\":[],\"leafId\":null}");
    }

    #[test]
    fn a_conversation_of_any_length_has_a_tree() {
        let name = |n: usize| n.to_string();
        let entries: Vec<_> =
            (0..20_000).map(|n| entry(&name(n), n.checked_sub(1).map(name).as_deref())).collect();
        let text = nested(&entries, None);
        assert_eq!(text.matches("\"children\":[").count(), 20_000);
        RawValue::from_string(text).unwrap();
    }
}

//! Finds the sessions that a client names: by a reference, by the file of a conversation, or by its id.

use super::calls::refused;
use crate::subcommands::gc::own_metadata_blocking;
use quackd_client::{Client, ClientError};
use quackd_home::Home;
use quackd_protocol::client::StateParams;
use std::path::Path;

/// Result of looking a session up.
pub(super) enum Lookup {
    Known(String),
    /// The file does not exist. The id is that of its conversation.
    Missing(Option<String>),
}

/// Finds a session like [`find`]. As in Pi, a file that does not exist is a conversation that begins. It is created in
/// quackd's state directory, and found again by the same path.
pub(super) async fn find_path(
    client: &Client,
    reference: &str,
    workspace: &str,
) -> Result<Lookup, ClientError> {
    let error = match find(client, reference).await {
        Ok(id) => return Ok(Lookup::Known(id)),
        Err(error) => error,
    };

    let is_path = reference.contains('/') || reference.ends_with(".jsonl");
    if !is_path {
        return Err(error);
    }

    let path = std::path::absolute(reference).unwrap_or_else(|_| reference.into());
    let id = conversation_of(&path);
    // A new file has no conversation, but its name may contain the id of one.
    if let Some(id) = id.clone()
        && let Some(known) =
            of_conversation(Conversation::Id { id, path: workspace.to_owned() }).await
    {
        return Ok(Lookup::Known(known));
    }

    let exists = tokio::task::spawn_blocking(move || path.exists()).await;
    match exists {
        Ok(true) => Err(refused(format!("{reference} is not the file of a session of quackd"))),
        Ok(false) | Err(_) => Ok(Lookup::Missing(id)),
    }
}

/// Returns the id of the conversation that the name of a file contains, as Pi writes it: `<time>_<id>.jsonl`. For another
/// name an id that belongs to this path.
fn conversation_of(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    let is_time = |text: &str| text.starts_with("20") && text.contains('T') && text.ends_with('Z');

    let named = stem.split_once('_').filter(|(time, _)| is_time(time)).map(|(_, id)| id.to_owned());
    let own = || {
        // FNV-1a: the same path has the same id in every version.
        let bytes = path.as_os_str().as_encoded_bytes().iter();
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{stem}-{hash:016x}")
    };

    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let id: String = named.unwrap_or_else(own).chars().map(plain).collect();
    let id = id.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    // The end differs between paths.
    let id: String = id.chars().skip(id.chars().count().saturating_sub(100)).collect();
    let id = id.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    (!id.is_empty()).then_some(id)
}

/// Finds a session by its file, by a reference, or by the beginning of the id of its conversation.
pub(super) async fn find(client: &Client, reference: &str) -> Result<String, ClientError> {
    let of_file = if reference.contains('/') {
        of_conversation(Conversation::File(reference.to_owned())).await
    } else {
        None
    };

    // The daemon finds a session by its own names only.
    let session = of_file.unwrap_or_else(|| reference.to_owned());
    match client.call(StateParams::of(session)).await {
        Ok(state) => Ok(state.session_id.0),
        Err(error) => of_conversation(Conversation::Begin(reference.to_owned())).await.ok_or(error),
    }
}

/// A conversation by its file or its id.
pub(super) enum Conversation {
    File(String),
    Id { id: String, path: String },
    Begin(String),
}

/// Returns the session with this conversation, according to the daemon's state.
pub(super) async fn of_conversation(choice: Conversation) -> Option<String> {
    tokio::task::spawn_blocking(move || of_conversation_blocking(&choice)).await.ok().flatten()
}

fn of_conversation_blocking(choice: &Conversation) -> Option<String> {
    let home = Home::from_process_env_blocking().ok()?;
    let state = own_metadata_blocking(&home.state_file()).ok()?;

    let mut sessions = state.sessions.iter().filter(|session| {
        let file = session.pi_session_file.as_str();
        let name = file.rsplit('/').next().unwrap_or_default().strip_suffix(".jsonl");
        let id_of_file = name.and_then(|name| name.split_once('_')).map(|(_, id)| id);
        match (choice, id_of_file) {
            (Conversation::File(path), _) => file == path,
            (Conversation::Id { id, path }, Some(known)) => {
                let mut all = state.workspaces.iter();
                let is_here = all.any(|workspace| {
                    workspace.id == session.workspace_id && workspace.path == *path
                });
                is_here && known == id
            }
            (Conversation::Begin(begin), Some(known)) => {
                !begin.is_empty() && known.starts_with(begin)
            }
            (Conversation::Id { .. } | Conversation::Begin(_), None) => false,
        }
    });
    sessions.next().map(|session| session.id.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_conversation() {
        let of = |path: &str| conversation_of(Path::new(path)).unwrap();
        assert_eq!(of("/a/2026-11-28T01-07-08-398Z_01a21fb1-13ee.jsonl"), "01a21fb1-13ee");
        let (one, other) = (of("/a/my task.jsonl"), of("/b/my task.jsonl"));
        assert!(one.starts_with("my-task-") && one != other, "{one} {other}");
        assert_eq!(one, of("/a/my task.jsonl"));
        assert!(of(&format!("/a/{}.jsonl", "_x".repeat(200))).len() <= 100);
    }
}

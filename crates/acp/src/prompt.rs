//! A prompt of the editor as one message for the agent.

use crate::params::{Content, Resource};
use crate::rpc::RpcError;
use serde_json::{Value, json};
use url::Url;

/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 80;

/// A prompt for the agent: its text, and its images in order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PromptMessage {
    pub(crate) text: String,
    /// Images in the shape of Pi's protocol.
    pub(crate) images: Vec<Value>,
}

/// Returns a prompt as one message. Resources follow as fenced blocks, so that the model can tell them from the request.
///
/// # Errors
/// Sound, which this agent does not offer, and an empty prompt.
pub(crate) fn message(prompt: &[Content]) -> Result<PromptMessage, RpcError> {
    let (mut text, mut context, mut images) = (String::new(), String::new(), Vec::new());
    for block in prompt {
        match block {
            Content::Text { text: more } => text.push_str(more),
            Content::ResourceLink { uri, name } => text.push_str(&link(uri, name)),
            Content::Resource { resource: Resource::Text { uri, text: content } } => {
                text.push_str(&link(uri, ""));
                context.push_str(&format!("\n\n{}:\n{}", place(uri), fenced(content)));
            }
            Content::Resource { resource: Resource::Blob { uri, blob } } => {
                // The blob is in Base64, where 4 characters are 3 bytes.
                let bytes = blob.len() / 4 * 3;
                text.push_str(&link(uri, ""));
                context.push_str(&format!("\n\n{}: about {bytes} bytes, not shown", place(uri)));
            }
            Content::Image { data, mime_type } => {
                images.push(json!({ "type": "image", "data": data, "mimeType": mime_type }));
            }
            Content::Audio {} => {
                return Err(RpcError::invalid_params("sound is not supported"));
            }
        }
    }

    if text.trim().is_empty() && images.is_empty() {
        return Err(RpcError::invalid_params("the prompt is empty"));
    }

    // Behind the request, so that long content does not hide it.
    text.push_str(&context);
    Ok(PromptMessage { text, images })
}

/// Prompt that is a command, and no text for the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptCommand<'a> {
    /// `/compact`, with the text that the summary must keep.
    Compact(&'a str),
    /// `/undo`: take back the changes of the last turn.
    Undo,
}

/// Returns the command that a text is.
pub(crate) fn command(text: &str) -> Option<PromptCommand<'_>> {
    let text = text.trim();
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    match (name, rest.trim()) {
        ("/compact", kept) => Some(PromptCommand::Compact(kept)),
        ("/undo", "") => Some(PromptCommand::Undo),
        _ => None,
    }
}

/// Returns the first line of a text as a title.
pub(crate) fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// Returns the text in a block that no fence in it ends.
pub(crate) fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(3.max(longest + 1));
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

fn link(uri: &str, name: &str) -> String {
    let place = place(uri);
    let is_path = place != uri;
    if is_path || name.is_empty() { format!("`{place}`") } else { format!("[{name}]({uri})") }
}

/// Returns the path of a file, else the address.
fn place(uri: &str) -> String {
    let url = Url::parse(uri).ok().filter(|url| url.scheme() == "file");
    let path = url.and_then(|url| url.to_file_path().ok());
    path.map_or_else(|| uri.to_owned(), |path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(blocks: Value) -> Result<String, RpcError> {
        message(&serde_json::from_value::<Vec<Content>>(blocks).unwrap()).map(|it| it.text)
    }

    #[test]
    fn resources_are_named_in_the_text_and_quoted_after_it() {
        let text = of(json!([
            {"type": "text", "text": "Explain "},
            {"type": "resource_link", "uri": "file:///a%20b.rs", "name": "a b.rs"},
            {"type": "text", "text": " and "},
            {"type": "resource_link", "uri": "https://example.org/", "name": "page"},
            {"type": "text", "text": " with "},
            {"type": "resource", "resource": {"uri": "file:///c.md", "text": "```\nx\n```", "mimeType": "text/markdown"}},
            {"type": "resource", "resource": {"uri": "file:///d.bin", "blob": "AAAA"}},
        ]));
        assert_eq!(
            text.unwrap(),
            "Explain `/a b.rs` and [page](https://example.org/) with `/c.md``/d.bin`\n\n\
             /c.md:\n````\n```\nx\n```\n````\n\n/d.bin: about 3 bytes, not shown"
        );
    }

    #[test]
    fn images_are_sent_in_the_shape_of_pi() {
        let blocks = json!([{"type": "image", "data": "AA==", "mimeType": "image/png"}]);
        let message = message(&serde_json::from_value::<Vec<Content>>(blocks).unwrap()).unwrap();
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        assert_eq!((message.text.as_str(), &*message.images), ("", &[image][..]));
    }

    #[test]
    fn what_the_agent_does_not_offer_is_refused() {
        for blocks in [
            json!([]),
            json!([{"type": "text", "text": " \n"}]),
            json!([{"type": "text", "text": "a"}, {"type": "audio", "data": "", "mimeType": "audio/wav"}]),
        ] {
            assert!(of(blocks.clone()).is_err(), "{blocks}");
        }
    }

    #[test]
    fn a_command_is_a_whole_word() {
        assert_eq!(command(" /compact\n"), Some(PromptCommand::Compact("")));
        assert_eq!(
            command("/compact keep the plan"),
            Some(PromptCommand::Compact("keep the plan"))
        );
        assert_eq!(command("/undo "), Some(PromptCommand::Undo));
        for text in ["/compacted", "please /compact", "/undo the last commit", "/undone", ""] {
            assert_eq!(command(text), None, "{text}");
        }
    }

    #[test]
    fn a_title_is_the_start_of_the_first_line() {
        assert_eq!(title("\n Fix it \nnow"), "Fix it");
        assert_eq!(title(&"é".repeat(81)), format!("{}…", "é".repeat(80)));
        assert_eq!(title(&"é".repeat(80)), "é".repeat(80));
    }
}

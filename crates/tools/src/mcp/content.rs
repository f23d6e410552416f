//! Turns the result of an MCP tool into the answer for the model.

use super::connection::Reply;
use crate::truncate::{TRUNCATED, head};
use crate::{Data, Output};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest image, in bytes of base64. Providers refuse larger ones.
const MAX_IMAGE: usize = 4 * 1024 * 1024;

/// Types of images that providers take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Result of `tools/call`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    structured_content: Option<Value>,
    #[serde(default)]
    is_error: bool,
}

/// A piece of the content.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
        mime_type: String,
    },
    #[serde(rename_all = "camelCase")]
    Audio {
        data: String,
        mime_type: String,
    },
    Resource {
        resource: Resource,
    },
    ResourceLink {
        uri: String,
        #[serde(default)]
        name: String,
    },
}

#[derive(Deserialize)]
struct Resource {
    uri: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    blob: Option<String>,
}

/// Returns the answer: texts in their order, and at most one image.
pub(super) fn output(reply: &Reply) -> Output {
    let Ok(result) = serde_json::from_str::<CallResult>(reply.get()) else {
        return Output::error("The MCP server's result is invalid");
    };
    let CallResult { content, structured_content, is_error } = result;

    let mut image = None;
    let mut texts: Vec<String> = Vec::new();

    for piece in content {
        texts.push(match serde_json::from_value(piece) {
            Ok(Piece::Text { text }) => text,
            Ok(Piece::Image { data, mime_type }) => {
                let mime_type = plain(&mime_type);
                let is_shown = image.is_none()
                    && data.len() <= MAX_IMAGE
                    && IMAGES.contains(&&*mime_type)
                    && STANDARD.decode(&data).is_ok();
                if is_shown {
                    let text = format!("[Image, {mime_type}]");
                    image = Some(json!({ "mime_type": mime_type, "data": data }));
                    text
                } else {
                    format!("[Image, {mime_type}, not shown]")
                }
            }
            Ok(Piece::Audio { data, mime_type }) => {
                format!("[Audio, {}, {} bytes of base64, not shown]", plain(&mime_type), data.len())
            }
            Ok(Piece::Resource { resource: Resource { uri, text: Some(text), .. } }) => {
                format!("[Resource {}]\n{text}", plain(&uri))
            }
            Ok(Piece::Resource { resource: Resource { uri, blob, .. } }) => {
                let bytes = blob.map_or(0, |blob| blob.len());
                format!("[Resource {}, {bytes} bytes of base64, not shown]", plain(&uri))
            }
            Ok(Piece::ResourceLink { uri, name }) => {
                format!("[Resource {} {}]", plain(&uri), plain(&name))
            }
            Err(_) => "[Content of an unknown type, not shown]".to_owned(),
        });
    }

    // Servers repeat structured content as text, so it is used only without any text.
    if texts.is_empty()
        && let Some(structured) = structured_content
    {
        texts.push(structured.to_string());
    }

    let mut text = texts.join("\n");
    if is_error && !text.starts_with("Error") {
        text.insert_str(0, "Error: ");
    }

    let is_cut = MAX_OUTPUT_BYTES < text.len();
    if is_cut {
        text = format!("{}\n{TRUNCATED}", head(text.as_bytes(), MAX_OUTPUT_BYTES).text);
    }

    let data = image.map(|image| Data::from(json!({ "image": image })));
    let mut output = Output { data, ..Output::success(text) };
    output.report.is_error = is_error;
    output.report.truncated = is_cut;
    output
}

/// Returns a short text of the server on one line.
fn plain(text: &str) -> String {
    stripped_line(text, 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::to_raw_value;

    fn of(result: &Value) -> Output {
        output(&to_raw_value(result).unwrap())
    }

    #[test]
    fn content_becomes_text_and_at_most_one_image() {
        let png = json!({ "type": "image", "mimeType": "image/png", "data": "aGk=" });
        let given = of(&json!({ "content": [
            { "type": "text", "text": "one" }, png, png,
            { "type": "image", "mimeType": "image/svg+xml", "data": "aGk=" },
            { "type": "image", "mimeType": "image/png", "data": "no base64" },
            { "type": "audio", "mimeType": "audio/wav", "data": "aGk=" },
            { "type": "resource", "resource": { "uri": "file:///a\n", "text": "two" } },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": "aGk=" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c" },
            { "type": "hologram" },
        ] }));
        assert_eq!(
            given.text,
            "one\n[Image, image/png]\n[Image, image/png, not shown]\n\
             [Image, image/svg+xml, not shown]\n[Image, image/png, not shown]\n\
             [Audio, audio/wav, 4 bytes of base64, not shown]\n[Resource file:///a]\ntwo\n\
             [Resource file:///b, 4 bytes of base64, not shown]\n[Resource file:///c c]\n\
             [Content of an unknown type, not shown]"
        );
        let image = json!({ "image": { "mime_type": "image/png", "data": "aGk=" } });
        assert_eq!(given.data.unwrap().value(), image);
        assert!(!given.report.is_error);
    }

    #[test]
    fn errors_structured_results_and_long_texts_are_told() {
        let failed = of(&json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }));
        assert_eq!((failed.text.as_str(), failed.report.is_error), ("Error: no", true));
        let structured = of(&json!({ "structuredContent": { "n": 1 } }));
        assert_eq!(structured.text, r#"{"n":1}"#);
        let text = "ä".repeat(MAX_OUTPUT_BYTES);
        let long = of(&json!({ "content": [{ "type": "text", "text": text }] }));
        assert!(long.text.ends_with(TRUNCATED) && long.report.truncated);
        assert!(long.text.len() <= MAX_OUTPUT_BYTES + TRUNCATED.len() + 1);
        assert!(of(&json!("no result")).report.is_error);
    }
}

//! What a prompt has besides its text: images, and a schema of the answer.

use super::Agent;
use crate::message::Block;
use crate::providers::has_schemas;
use serde_json::Value;

/// Images of one message.
const MAX_IMAGES: usize = 16;

/// Longest schema of an answer, in bytes.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

impl Agent {
    /// Reads the schema of the answer to a prompt.
    pub(super) fn schema(&self, fields: &Value) -> Result<Option<Value>, String> {
        let schema = match fields.get("outputSchema") {
            None | Some(Value::Null) => return Ok(None),
            Some(schema) => schema,
        };
        if !schema.is_object() || MAX_SCHEMA_BYTES < schema.to_string().len() {
            return Err(format!(
                "outputSchema must be a JSON object of at most {MAX_SCHEMA_BYTES} bytes"
            ));
        }
        let (provider, id) = (&self.model.provider, &self.model.id);
        match has_schemas(&self.model) {
            true => Ok(Some(schema.clone())),
            false => Err(format!(
                "{provider}/{id} cannot be held to a schema: its provider has no structured output. Choose another model"
            )),
        }
    }
}

/// Reads the images of a prompt.
pub(super) fn images(fields: &Value) -> Result<Vec<Block>, String> {
    let Some(images) = fields.get("images").and_then(Value::as_array) else {
        return Ok(Vec::new());
    };
    if MAX_IMAGES < images.len() {
        return Err(format!("At most {MAX_IMAGES} images can be sent with one message"));
    }
    let read = |image: &Value| {
        let text = |name: &str| image.get(name).and_then(Value::as_str).map(str::to_owned);
        let mime_type = text("mimeType")?;
        let is_known =
            ["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&mime_type.as_str());
        let data = text("data").filter(|data| {
            is_known && data.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
        })?;
        Some(Block::Image { data, mime_type })
    };
    let read: Option<Vec<_>> = images.iter().map(read).collect();
    read.ok_or_else(|| "An image must have data in base64 and a known mimeType".to_owned())
}

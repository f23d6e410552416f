//! Parts of a prompt besides its text: images, which a provider may refuse, and a schema of the answer.

use super::Agent;
use crate::message::{Block, Message, StopReason};
use crate::providers::history::has_images;
use crate::providers::{ErrorKind, ProviderError, has_schemas};
use quackd_protocol::model::ModelInfo;
use serde_json::Value;

/// Maximum number of images in one message.
const MAX_IMAGES: usize = 16;

/// Maximum size of the schema of an answer, in bytes.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

impl Agent {
    /// Reads the schema of the answer to a prompt.
    pub(super) fn schema(&self, fields: &Value) -> Result<Option<Value>, String> {
        let schema = match fields.get("outputSchema") {
            None | Some(Value::Null) => return Ok(None),
            Some(schema) => schema,
        };

        // The schema is part of each request of the run.
        if !schema.is_object() || MAX_SCHEMA_BYTES < schema.to_string().len() {
            return Err(format!(
                "outputSchema must be a JSON object of at most {MAX_SCHEMA_BYTES} bytes"
            ));
        }

        let (provider, id) = (&self.model.provider, &self.model.id);
        if has_schemas(&self.model) {
            Ok(Some(schema.clone()))
        } else {
            Err(format!(
                "{provider}/{id} cannot be held to a schema: its provider has no structured output. Choose another model"
            ))
        }
    }

    /// Decides whether a failure means that later requests have none of the images of this one, and adds it to the text.
    /// Without images, the failure has another remedy.
    pub(super) fn leave_out_images(&self, error: &mut ProviderError, model: &ModelInfo) -> bool {
        if !matches!(error.kind, ErrorKind::Images | ErrorKind::TooLarge) {
            return false;
        }
        let messages = self.transcript.messages();
        let has_images = has_images(messages.iter().map(AsRef::as_ref), model);

        error.kind = match (error.kind, has_images) {
            (_, true) => ErrorKind::Images,
            (ErrorKind::TooLarge, false) => ErrorKind::Overflow,
            (_, false) => ErrorKind::Fatal,
        };

        if has_images {
            error.text.push_str(if self.has_own_image() {
                " (the image was left out of the conversation: send a smaller PNG, JPEG, GIF or WebP, or choose a \
                     model that reads images)"
            } else {
                " (sent again without the images)"
            });
        }
        has_images
    }

    /// Whether the user has sent an image in this run since the last answer. The model cannot answer to it without the
    /// image.
    pub(super) fn has_own_image(&self) -> bool {
        let Some(run) = &self.run else { return false };
        let is_answer = |message: &&Message| match message {
            Message::Assistant(answer) => {
                !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted)
            }
            _ => false,
        };

        let new = run.messages.iter().rev().take_while(|message| !is_answer(message));
        new.into_iter().any(|message| matches!(message, Message::User(_)) && message.has_image())
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
        // The data goes into the request unchanged, so only base64 may pass.
        let data = text("data").filter(|data| {
            is_known && data.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
        })?;
        Some(Block::Image { data, mime_type })
    };

    let read: Option<Vec<_>> = images.iter().map(read).collect();
    read.ok_or_else(|| "An image must have data in base64 and a known mimeType".to_owned())
}

//! Entries of a session file, and how they are read and written. Used by the other files of the module.

use crate::message::{Content, Message, Usage};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Version of the format that is written. Older and newer files are read as well.
pub const VERSION: u32 = 3;

/// First line of a session file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Id of the session.
    pub id: String,
    /// Version of the format in the file. Newly written headers have [`VERSION`].
    pub version: u32,
    /// ISO time of its creation.
    pub timestamp: String,
    /// Working directory of the session.
    pub cwd: String,
    /// File of the session that this one was forked from.
    pub parent_session: Option<String>,
}

impl Header {
    /// Parses the first line. `None` if it is not a header.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        if value.get("type")? != "session" {
            return None;
        }

        // The first version had no such member.
        let version = value.get("version").and_then(Value::as_u64).unwrap_or(1);
        Some(Self {
            id: text("id")?,
            version: u32::try_from(version).unwrap_or(u32::MAX),
            timestamp: text("timestamp").unwrap_or_default(),
            cwd: text("cwd").unwrap_or_default(),
            parent_session: text("parentSession"),
        })
    }

    /// Returns the first line of a new file, with its line feed.
    #[must_use]
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Line<'a> {
            r#type: &'a str,
            version: u32,
            id: &'a str,
            timestamp: &'a str,
            cwd: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            parent_session: Option<&'a str>,
        }

        let line = Line {
            r#type: "session",
            version: VERSION,
            id: &self.id,
            timestamp: &self.timestamp,
            cwd: &self.cwd,
            parent_session: self.parent_session.as_deref(),
        };
        to_line(&line)
    }
}

/// An entry of a session file.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Unique in the file; 8 hexadecimal digits in files of Pi.
    pub id: String,
    /// Id of the entry before it on its branch, as the file has it. It may not exist.
    pub parent_id: Option<String>,
    /// ISO time.
    pub timestamp: String,
    /// Contents, by the kind of the entry.
    pub kind: EntryKind,
    /// Position of the entry before it on its branch. Always lower than the own position.
    pub(super) parent: Option<usize>,
    /// The JSON text, if [`Entry::kind`] lacks a part of it.
    pub(super) line: Option<Box<str>>,
}

/// Contents of an [`Entry`].
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum EntryKind {
    /// A message of the conversation.
    #[serde(skip)]
    Message(Message),
    /// The session uses this model from here on.
    ModelChange {
        /// Name of the provider.
        provider: String,
        /// The provider's name of the model.
        model_id: String,
    },
    /// The session uses this thinking level from here on.
    ThinkingLevelChange {
        /// Name of the level. It may be one of a newer Pi.
        thinking_level: String,
    },
    /// A summary replaces the entries before `first_kept_entry_id` in the context.
    Compaction {
        /// The summary.
        summary: String,
        /// First entry before this one that stays in the context. Empty if none does.
        #[serde(default, deserialize_with = "null_as_empty")]
        first_kept_entry_id: String,
        /// Tokens of the context before the compaction.
        #[serde(default)]
        tokens_before: u64,
        /// `readFiles` and `modifiedFiles`, unless an extension made the summary.
        details: Option<Value>,
        /// Tokens and cost of the summary.
        usage: Option<Usage>,
    },
    /// Summary of a branch that the user left.
    BranchSummary {
        /// Last entry of the branch.
        from_id: String,
        /// The summary.
        summary: String,
        /// Facts of its author.
        details: Option<Value>,
        /// Tokens and cost of the summary.
        usage: Option<Usage>,
    },
    /// State of an extension. Not in the context.
    Custom {
        /// The extension's name of its kind.
        custom_type: String,
        /// The state.
        data: Option<Value>,
    },
    /// A message of an extension. In the context.
    CustomMessage {
        /// The extension's name of its kind.
        custom_type: String,
        /// Text and images.
        content: Content,
        /// Whether clients display it.
        #[serde(default)]
        display: bool,
        /// Facts for the extension.
        details: Option<Value>,
    },
    /// Hides an earlier message from the model, or replaces its content. Written by newer Pis.
    ContextEdit {
        /// The entry with the message.
        target_id: String,
        /// An object with `content`. `None` hides the message.
        replacement: Option<Value>,
    },
    /// Tokens and cost outside of a message. Written by newer Pis.
    Usage {
        /// Tokens and cost.
        usage: Usage,
    },
    /// Names an entry.
    Label {
        /// The named entry.
        target_id: String,
        /// The label. `None` removes it.
        label: Option<String>,
    },
    /// Names the session.
    SessionInfo {
        /// The name. Empty if it is removed.
        #[serde(default, deserialize_with = "null_as_empty")]
        name: String,
    },
    /// An entry of another kind, or one without a required member: all its members.
    #[serde(skip)]
    Other(Value),
}

fn null_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl EntryKind {
    /// Takes the contents out of the members of an entry.
    pub(super) fn parse(mut members: Map<String, Value>) -> Self {
        if members.get("type").is_some_and(|name| name == "message") {
            let message = members.remove("message").map(Message::deserialize);
            if let Some(Ok(message)) = message {
                return Self::Message(message);
            }
            return Self::Other(Value::Object(members));
        }
        // Parsing from a reference keeps the members for the other case.
        let members = Value::Object(members);
        Self::deserialize(&members).unwrap_or(Self::Other(members))
    }

    fn name(&self) -> &str {
        match self {
            Self::Message(_) => "message",
            Self::ModelChange { .. } => "model_change",
            Self::ThinkingLevelChange { .. } => "thinking_level_change",
            Self::Compaction { .. } => "compaction",
            Self::BranchSummary { .. } => "branch_summary",
            Self::Custom { .. } => "custom",
            Self::CustomMessage { .. } => "custom_message",
            Self::ContextEdit { .. } => "context_edit",
            Self::Usage { .. } => "usage",
            Self::Label { .. } => "label",
            Self::SessionInfo { .. } => "session_info",
            Self::Other(members) => members.get("type").and_then(Value::as_str).unwrap_or("other"),
        }
    }

    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::Message(message) => map.serialize_entry("message", message),
            Self::ModelChange { provider, model_id } => {
                map.serialize_entry("provider", provider)?;
                map.serialize_entry("modelId", model_id)
            }
            Self::ThinkingLevelChange { thinking_level } => {
                map.serialize_entry("thinkingLevel", thinking_level)
            }
            Self::Compaction { summary, first_kept_entry_id, tokens_before, details, usage } => {
                map.serialize_entry("summary", summary)?;
                map.serialize_entry("firstKeptEntryId", first_kept_entry_id)?;
                map.serialize_entry("tokensBefore", tokens_before)?;
                optional(map, "details", details.as_ref())?;
                optional(map, "usage", usage.as_ref())
            }
            Self::BranchSummary { from_id, summary, details, usage } => {
                map.serialize_entry("fromId", from_id)?;
                map.serialize_entry("summary", summary)?;
                optional(map, "details", details.as_ref())?;
                optional(map, "usage", usage.as_ref())
            }
            Self::Custom { custom_type, data } => {
                map.serialize_entry("customType", custom_type)?;
                optional(map, "data", data.as_ref())
            }
            Self::CustomMessage { custom_type, content, display, details } => {
                map.serialize_entry("customType", custom_type)?;
                map.serialize_entry("content", content)?;
                map.serialize_entry("display", display)?;
                optional(map, "details", details.as_ref())
            }
            Self::ContextEdit { target_id, replacement } => {
                map.serialize_entry("targetId", target_id)?;
                map.serialize_entry("replacement", replacement)
            }
            Self::Usage { usage } => map.serialize_entry("usage", usage),
            Self::Label { target_id, label } => {
                map.serialize_entry("targetId", target_id)?;
                optional(map, "label", label.as_ref())
            }
            Self::SessionInfo { name } => map.serialize_entry("name", name),
            Self::Other(members) => {
                // The caller writes these members.
                let is_own = |name: &str| ["type", "id", "parentId", "timestamp"].contains(&name);
                let members = members.as_object().into_iter().flatten();
                members
                    .filter(|(name, _)| !is_own(name))
                    .try_for_each(|(name, value)| map.serialize_entry(name, value))
            }
        }
    }
}

fn optional<M: SerializeMap, T: Serialize>(
    map: &mut M,
    name: &str,
    value: Option<&T>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, value))
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind.name())?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("parentId", &self.parent_id)?;
        map.serialize_entry("timestamp", &self.timestamp)?;
        self.kind.write(&mut map)?;
        map.end()
    }
}

impl Entry {
    /// Returns the line of the entry with its line feed: as it was read, including unknown members.
    #[must_use]
    pub fn to_line(&self) -> String {
        self.line.as_ref().map_or_else(|| to_line(self), |line| format!("{line}\n"))
    }

    /// Returns the line with another parent.
    pub(super) fn to_line_after(&self, parent_id: Option<&str>) -> String {
        if self.parent_id.as_deref() == parent_id {
            return self.to_line();
        }

        let line = self.line.as_deref().map(serde_json::from_str::<Map<String, Value>>);
        if let Some(Ok(mut members)) = line {
            members.insert("parentId".to_owned(), parent_id.into());
            return to_line(&members);
        }

        // The entry has no line that is kept.
        to_line(&Self { parent_id: parent_id.map(str::to_owned), ..self.clone() })
    }

    /// Keeps `line` if writing the entry would lose a part of it, or change it.
    pub(super) fn keep_if_different(&mut self, line: &str) {
        let mut rest = Unequal(line.as_bytes());
        let is_same = serde_json::to_writer(&mut rest, self).is_ok() && rest.0.is_empty();
        self.line = (!is_same).then(|| line.into());
    }
}

fn to_line(value: &impl Serialize) -> String {
    // Maps with texts as keys, and no other fallible types, are always written.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}

/// Writer that fails at the first byte that differs from the expected ones.
struct Unequal<'a>(&'a [u8]);

impl std::io::Write for Unequal<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

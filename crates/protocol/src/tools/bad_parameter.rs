//! Reason for the rejection of a call's arguments, in the words of the answer.

/// Reason for rejecting a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadParameter {
    /// A required parameter is absent.
    #[error("Missing required parameter '{0}'")]
    Missing(&'static str),
    /// The value of a parameter has another form.
    #[error("Parameter '{name}' must be {wanted}")]
    Wrong {
        /// The name or alias that the call uses.
        name: String,
        /// The form.
        wanted: String,
    },
    /// The tool has no such parameter.
    #[error("Unknown parameter '{name}'{}", .nearest.map(|near| format!(", did you mean '{near}'?")).unwrap_or_default())]
    Unknown {
        /// Name in the call, shortened.
        name: String,
        /// The most similar known name.
        nearest: Option<&'static str>,
    },
    /// Another reason, as a sentence.
    #[error("{0}")]
    Other(String),
}

//! Providers of models: requests as JSON, answers from bytes to deltas, failures with their remedy. Pure.
//!
//! Three APIs: OpenAI chat completions, which most servers speak, OpenAI responses, and Anthropic messages.
//!
//! - [`request`] makes the body of a request. [`history::prepare`] makes the conversation acceptable before.
//! - [`Stream`] reads the body of an answer.
//! - [`http_error`] and [`transport_error`] read the other failures.

mod errors;
pub mod history;
mod json;
mod models;
mod requests;
mod streams;

pub use errors::{
    ErrorKind, ProviderError, http_error, retry_delay, stated_window, transport_error,
};
pub use models::{clamp, has_schemas, levels};
pub use requests::{ProviderRequest, RequestOptions, ToolSpec, request};
pub use streams::{Delta, Finished, Stream, StreamEnd};

#[cfg(test)]
mod tests;

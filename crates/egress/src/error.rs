//! Errors of the configuration.

/// Error of the configuration. No text contains the key, or more of the endpoint than its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The endpoint is not a URL.
    #[error("the endpoint of web_search is not a URL: {0}")]
    NotAUrl(url::ParseError),
    /// The endpoint has another scheme than http and https.
    #[error("the endpoint of web_search must be an https URL, not {0}")]
    NotHttps(String),
    /// The connection would not be encrypted, so that the network could read the key.
    #[error(
        "the endpoint of web_search must be https: plain http would send the key to {host} unencrypted"
    )]
    InTheClear {
        /// Host of the endpoint.
        host: String,
    },
    /// An HTTP header cannot carry the key.
    #[error("the key of web_search holds characters that no HTTP header can carry")]
    UnusableKey,
}

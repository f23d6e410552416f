//! Ids as newtypes. All of them are opaque when read: files and clients may hold other forms than
//! the ones we mint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

id! {
    /// One tool call inside one worker. Minted by the supervisor, unique for its lifetime; a client's
    /// own `callId` is only echoed.
    CallId
}
id! {
    /// One session. Minted as 22 base64url characters from 128 random bits.
    SessionId
}
id! {
    /// One workspace. Minted as the first 16 hex digits of the SHA-256 of its path.
    WorkspaceId
}

//! Author of a change: the tool, and the call that used it.

use quackd_protocol::worker::CallOrigin;

/// Tool and caller of a change.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeAuthor {
    /// Name of the tool.
    pub(crate) tool: String,
    pub(crate) origin: CallOrigin,
}

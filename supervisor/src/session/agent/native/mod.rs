//! quackd's own agent.
//!
//! - [`launch`] prepares the start: the models, the session file and the settings.
//! - [`work`] does the agent's work outside of its process: requests to models, and tool calls.
//! - [`mcp_servers`] are the servers that its tool calls may reach. [`instructions`] reads the user's own files for it.

mod instructions;
pub(super) mod launch;
pub(crate) mod mcp_servers;
pub(crate) mod work;

//! The methods of the client wire: one file each. The rows are in `quackd_protocol`.

mod abort;
mod agent;
mod approvals;
mod attach;
mod call_deadline;
mod caller;
mod claim;
mod config;
mod copies;
mod daemon;
mod directories;
mod dispatch;
mod doctor;
mod doctor_far;
mod doctor_mcp;
mod doctor_obeyed;
mod doctor_results;
mod doctor_supervision;
mod extension_ui;
mod find;
mod follow;
mod forward;
mod gc;
mod hosts;
mod isolated;
mod keys;
mod kill;
mod metrics;
mod models;
mod permission;
mod pin;
mod ping;
mod presets;
mod ps;
mod remote;
mod run;
mod run_call;
mod sandbox;
mod say;
mod sent;
mod serve;
mod servers;
mod session_admin;
mod session_rows;
mod sessions;
mod state;
mod streaming;
mod terminals;
mod tool;
mod tool_parameters;
mod tree;
mod voice;

pub(crate) use agent::AgentTools;
pub(crate) use caller::Caller;
pub(crate) use copies::run as run_on_copy;
pub(crate) use dispatch::{answer, is_concurrent};
pub(crate) use metrics::metrics_text;

use serve::Serve;

#[cfg(test)]
mod tests;

//! Every bound of the wire, the tools and the processes, each with its reason. Other modules import them from here.

mod agents;
mod approvals;
mod clients;
mod events;
mod http;
mod jobs;
mod network;
mod storage;
mod terminals;
mod tools;
mod workers;

pub use agents::*;
pub use approvals::*;
pub use clients::*;
pub use events::*;
pub use http::*;
pub use jobs::*;
pub use network::*;
pub use storage::*;
pub use terminals::*;
pub use tools::*;
pub use workers::*;

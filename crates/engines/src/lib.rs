//! Engines that start a session's worker elsewhere, as data: the argument lists of their clients, and what they promise.
//! quackd has no scheduler: an engine places, queues and limits.

mod argv;

pub use argv::{Engine, EngineArgv, EngineError};

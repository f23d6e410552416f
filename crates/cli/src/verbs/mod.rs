//! One file per verb. Each has a `run` that `main` calls and that ends with an exit code. [`pages`] is what
//! verbs with long answers share.

pub(crate) mod abort;
pub(crate) mod activate;
pub(crate) mod attach;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod find;
pub(crate) mod follow;
pub(crate) mod grep;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod new;
pub(crate) mod pages;
pub(crate) mod ps;
pub(crate) mod remote;
pub(crate) mod replace;
pub(crate) mod sandbox;
pub(crate) mod schema;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod stop;
pub(crate) mod tool;
pub(crate) mod undo;
pub(crate) mod version;
pub(crate) mod workspaces;

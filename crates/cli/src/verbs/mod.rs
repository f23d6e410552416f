//! One file per verb. Each has a `run` that `main` calls and that ends with an exit code.

pub(crate) mod abort;
pub(crate) mod attach;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod ps;
pub(crate) mod sessions;
pub(crate) mod stop;
pub(crate) mod tool;
pub(crate) mod version;

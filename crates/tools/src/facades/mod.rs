//! Tools with the names, parameters and texts of other agents: grep_search and find_files of the Rubber Duck daemon,
//! ripgrep_search of Radbot and RA.Aid, and those of Nixcode. Each maps its parameters to a request of `crates/search`,
//! and the result to its texts.

pub(crate) mod find_files;
pub(crate) mod grep_search;
pub(crate) mod nixcode;
pub(crate) mod ripgrep_search;

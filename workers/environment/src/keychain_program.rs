//! The program of a system that reads its keychain. `platform` has that of this system, and `tools` asks it.

/// A program in the `PATH` of commands that prints a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeychainProgram {
    /// Name of the program, which is searched in PATH.
    pub(crate) name: &'static str,
    /// Arguments that print the key of a service and an account.
    pub(crate) reading: for<'a> fn(service: &'a str, account: &'a str) -> Vec<&'a str>,
    /// Command line with which a user stores that key.
    pub(crate) storing: fn(service: &str, account: &str) -> String,
}

//! From a row to argument lists.

/// An engine: a row of the table, or of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Name in `--on` and in paths of workspaces.
    pub name: String,
}

/// Argument lists for one session. `{digest}` and `{size}` in them stand for those of the program; the link process
/// replaces them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineArgv {
    /// As [`quackd_protocol::far::FarStart::start`].
    pub start: Vec<String>,
    /// As [`quackd_protocol::far::FarStart::resume`].
    pub resume: Vec<String>,
    /// As [`quackd_protocol::far::FarStart::stop`].
    pub stop: Vec<String>,
    /// As [`quackd_protocol::far::FarStart::poll`].
    pub poll: Vec<String>,
    /// File of the program that the far side may ask for.
    pub program: Option<String>,
}

/// The reason why an engine cannot be used with a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The target does not fit.
    #[error("{0}")]
    Target(String),
}

impl Engine {
    /// Returns the argument lists for a target. `program` is the file of quackd's program on this machine.
    ///
    /// # Errors
    /// The target does not fit.
    pub fn argv(
        &self,
        target: &str,
        session: &str,
        program: &str,
    ) -> Result<EngineArgv, EngineError> {
        let _ = (target, session, program);
        todo!()
    }
}

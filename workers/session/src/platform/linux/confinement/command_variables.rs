//! Variables of commands in namespaces. Called by `platform`.

use quackd_protocol::worker::Start;

/// Options that GNU tar adds to those of its command line.
const TAR_OPTIONS: &str = "TAR_OPTIONS";

/// Variables of commands in namespaces. `of_agents` are those of agents whose state is kept.
pub(crate) fn variables(
    start: &Start,
    home: String,
    of_agents: Vec<(&'static str, String)>,
) -> Vec<(&'static str, String)> {
    let mut variables = vec![("HOME", home), ("TMPDIR", "/tmp".to_owned())];
    variables.extend(of_agents);
    // For user 0, tar restores owners, which do not exist here, and fails after it has written every file.
    let is_set = start.env.iter().any(|(name, _)| name == TAR_OPTIONS);
    if rustix::process::geteuid().is_root() && !is_set {
        variables.push((TAR_OPTIONS, "--no-same-owner".to_owned()));
    }
    variables
}

//! Files of a session that its deletion would take from the user.

use quackd_home::Home;

/// Whether a session has files that its deletion would take from the user: states of the workspace, contents for
/// `quack undo`, recordings, or outputs of other commands than that of this terminal.
pub(super) fn has_kept_files_blocking(
    home: &Home,
    session: &str,
    terminal: &str,
) -> anyhow::Result<bool> {
    if home.session_checkpoints_dir(session, false)?.try_exists()? {
        return Ok(true);
    }
    let own = terminal.strip_prefix("term-").map(|number| format!("job-{number}.log"));
    let directory = home.session_run_dir(session)?;
    // A worker on another machine has its files there.
    if !directory.try_exists()? {
        return Ok(false);
    }
    for entry in directory.read_dir()? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_output = name.ends_with(".log") || name.ends_with(".cast");
        if name == "journal" || (is_output && Some(name) != own.as_deref()) {
            return Ok(true);
        }
    }
    Ok(false)
}

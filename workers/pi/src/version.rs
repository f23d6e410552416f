//! Selects the command line for the version of Pi, so that Pi does not load the files of a workspace. From
//! [`FIRST`] on `--no-approve` makes Pi ignore `.pi`, its settings, packages and extensions. Nothing does before.

use quackd_process::{Command, EndedBy, Finished, LaunchError, run};
use quackd_protocol::pi::PiStart;
use std::time::Duration;

/// The first version with `--no-approve`.
const FIRST: [u32; 3] = [0, 79, 0];

/// Time for `pi --version`: node takes 1 to 2 s on a busy machine.
const LIMIT: Duration = Duration::from_secs(6);

/// Directory in which Pi starts: commands write nothing there. Pi goes to the workspace by the header of its session file.
const START: &str = "/";

/// Error of a Pi that cannot be started safely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// The program cannot be executed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// It runs the code of a workspace, and no option prevents that.
    #[error(
        "version {0} of Pi runs code from `.pi` in a workspace and cannot ignore it; update Pi to 0.79 or newer, or \
         set `pi.allow_old = true`"
    )]
    TooOld(String),
    /// The same, and `pi.allow_old` is set, but there is code.
    #[error("version {version} of Pi would run code from {found}; update Pi to 0.79 or newer")]
    WouldLoad {
        /// Version that the program reports.
        version: String,
        /// The project settings.
        found: String,
    },
}

/// Completes the command line for Pi's version. Asks the program for it if its package has not told.
///
/// # Errors
/// See [`Unfit`].
pub(crate) async fn settle(start: &PiStart, command: &mut Command) -> Result<(), Unfit> {
    let said = match &start.version {
        Some(version) => version.clone(),
        None => ask(command).await?.unwrap_or_default(),
    };
    if parse(&said).is_some_and(|version| FIRST <= version) {
        command.args.push("--no-approve".into());
        command.cwd = START.into();
        return Ok(());
    }
    let version = if said.is_empty() { "(unknown)".to_owned() } else { said };
    match &start.project_settings {
        _ if !start.allow_old => Err(Unfit::TooOld(version)),
        Some(found) => Err(Unfit::WouldLoad { version, found: found.clone() }),
        None => Ok(()),
    }
}

/// Asks the program. Not cached: a wrapper script stays the same when the program behind it changes.
async fn ask(pi: &Command) -> Result<Option<String>, LaunchError> {
    let command = Command {
        args: vec!["--version".into()],
        cwd: START.into(),
        deadline: LIMIT,
        tag: format!("{}-version", pi.tag),
        ..pi.clone()
    };
    let Finished { ended_by: EndedBy::Itself, stdout, stderr, .. } = run(command).await? else {
        return Ok(None);
    };
    // Some versions answer on stderr.
    let said = [stdout, stderr].iter().find_map(|stream| {
        let text = String::from_utf8_lossy(&stream.head);
        let mut words = text.split_whitespace().map(|word| word.trim_start_matches('v'));
        words.find(|word| parse(word).is_some()).map(str::to_owned)
    });
    Ok(said)
}

/// The three numbers of a version. `None` for anything else, and for a version before a release.
fn parse(version: &str) -> Option<[u32; 3]> {
    let release = version.split_once('+').map_or(version, |(release, _)| release);
    let mut numbers = release.splitn(3, '.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_versions_are_read() {
        for (version, expected) in [
            ("0.79.0", Some([0, 79, 0])),
            ("1.5.2+build", Some([1, 5, 2])),
            ("0.79.0-beta", None),
            ("0.79", None),
            ("1.2.3.4", None),
            ("-1.2.3", None),
            ("", None),
        ] {
            assert_eq!(parse(version), expected, "{version}");
        }
        assert!([0, 9, 0] < FIRST && FIRST < [1, 0, 0]);
    }
}

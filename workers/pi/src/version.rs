//! Selects the command line for the version of Pi, so that Pi does not load the files of a workspace. From
//! [`FIRST`] on `--no-approve` makes Pi ignore `.pi`, its settings, packages and extensions. Before, the supervisor gives
//! Pi a package that names another directory, if it finds Pi's own one.

use quackd_process::{Command, EndedBy, Exit, Finished, LaunchError, run};
use quackd_protocol::agent::PiStart;
use quackd_protocol::foreign_text::stripped_line;
use std::time::Duration;

/// The first version with `--no-approve`.
const FIRST: [u32; 3] = [0, 79, 0];

/// Time for `pi --version`: `quack doctor` waits 7 s for the answer. Node takes 1 to 2 s on a busy machine.
const LIMIT: Duration = Duration::from_secs(6);

/// Maximum length of a version that is shown, in characters.
const MAX_SHOWN: usize = 120;

/// Directory in which Pi starts: commands write nothing there. Pi goes to the workspace by the header of its session file.
const START: &str = "/";

/// Error of a Pi that cannot be started safely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// The program fails to report its version.
    #[error("`{program} --version` {how}")]
    Broken {
        /// The program.
        program: String,
        /// Description of the failure.
        how: String,
    },
    /// The program cannot be executed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// This version runs the code of a workspace, and no option prevents that.
    #[error(
        "version {0} of Pi runs code from `.pi` in a workspace, and its package was not found, so that quackd cannot \
         prevent that; update Pi to 0.79 or newer, or set `pi.allow_old = true`"
    )]
    TooOld(String),
    /// The workspace contains code that this version would run.
    #[error(
        "version {version} of Pi would run code from {found}; remove it, or update Pi to 0.79 or newer"
    )]
    WouldLoad {
        /// Version that the program reports.
        version: String,
        /// The project settings.
        found: String,
    },
}

/// Completes the command line for Pi's version. Runs the program to get the version if the request does not contain
/// it.
///
/// # Errors
/// See [`Unfit`].
pub(crate) async fn settle(start: &PiStart, command: &mut Command) -> Result<(), Unfit> {
    let reported = match &start.version {
        Some(version) => version.clone(),
        None => ask(&start.program, command).await?,
    };

    if parse(&reported).is_some_and(|version| FIRST <= version) {
        command.args.push("--no-approve".into());
        command.cwd = START.into();
        return Ok(());
    }

    let version = if reported.is_empty() { "(unknown)".to_owned() } else { reported };
    match &start.project_settings {
        // A masked Pi has a package with another name for project settings, so it ignores `.pi`.
        _ if !start.allow_old && !start.is_masked => Err(Unfit::TooOld(version)),
        Some(settings) => Err(Unfit::WouldLoad { version, found: settings.clone() }),
        None => Ok(()),
    }
}

/// Runs the program to get its version, and checks that a Pi of this version may be started.
///
/// # Errors
/// See [`Unfit`].
pub(crate) async fn report(start: &PiStart, pi: &Command) -> Result<String, Unfit> {
    let program = &start.program;
    let broken = |how: String| Unfit::Broken { program: program.clone(), how };
    let finished = finished(program, pi).await?;

    let first = |stream: &[u8]| {
        let text = String::from_utf8_lossy(stream);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        line.map(|line| stripped_line(line, MAX_SHOWN))
    };

    let (out, err) = (first(&finished.stdout.head), first(&finished.stderr.head));
    if finished.exit != Exit::Code(0) {
        let detail = err.or(out).map_or_else(String::new, |line| format!(": {line}"));
        return Err(broken(format!("ended with {}{detail}", finished.exit)));
    }

    let line = out.or(err).ok_or_else(|| broken("says nothing".to_owned()))?;
    let version = version_in(&finished).unwrap_or_default();

    let fits = parse(&version).is_some_and(|version| FIRST <= version);
    if !fits && !start.allow_old && !start.is_masked {
        let version = if version.is_empty() { "(unknown)".to_owned() } else { version };
        return Err(Unfit::TooOld(version));
    }
    Ok(line)
}

/// Runs the program to get its version; empty if its output has none. Not cached: a wrapper script stays the same when
/// the program behind it changes.
async fn ask(program: &str, pi: &Command) -> Result<String, Unfit> {
    Ok(version_in(&finished(program, pi).await?).unwrap_or_default())
}

/// Runs `pi --version` to its end.
async fn finished(program: &str, pi: &Command) -> Result<Finished, Unfit> {
    let finished = run(question(pi)).await?;
    if finished.ended_by != EndedBy::Itself {
        let how = format!("did not end within {} s", LIMIT.as_secs());
        return Err(Unfit::Broken { program: program.to_owned(), how });
    }
    Ok(finished)
}

fn question(pi: &Command) -> Command {
    Command {
        args: vec!["--version".into()],
        cwd: START.into(),
        deadline: LIMIT,
        tag: format!("{}-version", pi.tag),
        ..pi.clone()
    }
}

/// Finds the version in Pi's output. Some versions print it on stderr.
fn version_in(finished: &Finished) -> Option<String> {
    [&finished.stdout, &finished.stderr].into_iter().find_map(|stream| {
        let text = String::from_utf8_lossy(&stream.head);
        let mut words = text.split_whitespace().map(|word| word.trim_start_matches('v'));
        words.find(|word| parse(word).is_some()).map(str::to_owned)
    })
}

/// Parses the three numbers of a version. `None` for any other text and for a prerelease.
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

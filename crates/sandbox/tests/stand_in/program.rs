//! A stand-in for `/usr/bin/sandbox-exec` of macOS, for tests on Linux: `-p PROFILE [-D NAME=VALUE]… -- PROGRAM
//! [ARGUMENT]…`. It enforces the meaning of the profile with mounts, Landlock and a filter of system calls, then becomes
//! the program. It exits with 71 and a text if it does not know a rule or cannot enforce it.

#[cfg_attr(not(target_os = "linux"), path = "enforce_nowhere.rs")]
mod enforce;

use std::collections::BTreeMap;
use std::process::ExitCode;

/// Exit code for a profile that cannot be applied.
const REFUSED: u8 = 71;

/// The parsed command line.
struct Request {
    profile: String,
    parameters: BTreeMap<String, String>,
    command: Vec<String>,
}

impl Request {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut request =
            Self { profile: String::new(), parameters: BTreeMap::new(), command: Vec::new() };
        while let Some(word) = words.next() {
            match word.as_str() {
                "-p" => request.profile = words.next().ok_or("no profile")?,
                "-D" => {
                    let definition = words.next().ok_or("no parameter")?;
                    let (name, value) = definition.split_once('=').ok_or("no value")?;
                    request.parameters.insert(name.to_owned(), value.to_owned());
                }
                "--" => break,
                other => return Err(format!("unknown argument: {other}")),
            }
        }
        request.command = words.collect();
        if request.profile.is_empty() || request.command.is_empty() {
            return Err("usage: -p PROFILE [-D NAME=VALUE]... -- PROGRAM [ARGUMENT]...".to_owned());
        }
        Ok(request)
    }
}

#[expect(clippy::print_stderr, reason = "the user of a test reads it")]
fn main() -> ExitCode {
    let request = Request::parse(std::env::args().skip(1));
    match request.and_then(|request| enforce::run(&request)) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("stand-in for sandbox-exec: {why}");
            ExitCode::from(REFUSED)
        }
    }
}

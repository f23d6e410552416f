//! Entry points for the programs in `fuzz/`: the parsers of untrusted texts. Exists only with the feature
//! `fuzzing`, which nothing else turns on.

use crate::arguments::Arguments;
use crate::safe_mode;
use quackd_protocol::white_space::trim;

/// Parses the arguments of a call and returns them as one JSON object.
///
/// # Errors
/// The answer text, without `Error: `.
pub fn arguments(tool: &str, json: &str) -> Result<String, String> {
    Arguments::parse(tool, json).map(|found| found.to_json()).map_err(|error| error.to_string())
}

/// Returns the value of the first of these names.
#[must_use]
pub fn parameter(tool: &str, json: &str, names: &[&str]) -> Option<String> {
    let arguments = Arguments::parse(tool, json).ok()?;
    let mut texts = names.iter().filter_map(|name| arguments.object().get(*name)?.as_str());
    texts.find(|text| !trim(text).is_empty()).map(str::to_owned)
}

/// Splits a command line in safe mode. `None` if it cannot be split.
#[must_use]
pub fn words(line: &str) -> Option<Vec<String>> {
    safe_mode::split(line)
}

/// Returns the program and arguments of a command line that safe mode allows.
///
/// # Errors
/// The answer text, without `Error: `.
pub fn allowed(line: &str) -> Result<(String, Vec<String>), String> {
    safe_mode::parse(line).map_err(|error| error.to_string())
}

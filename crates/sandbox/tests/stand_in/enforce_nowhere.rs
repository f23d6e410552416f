//! Other systems than Linux, as `enforce` there: macOS has the real program.

use super::Request;

/// Fails.
///
/// # Errors
/// Always.
pub(crate) fn run(request: &Request) -> Result<u8, String> {
    let Request { profile, parameters, command } = request;
    let (n, m) = (profile.len(), parameters.len());
    Err(format!("this is not Linux: {n} bytes with {m} parameters, {command:?}"))
}

//! Reads a key from the system's keychain with the system's program for it.

use super::asking::{Asking, Problem};
use crate::platform::{KEYCHAIN, reading, storing};
use quackd_protocol::environment::{FromEnvironmentWorker, KeychainKey, ToolsRequest};
use tokio_util::sync::CancellationToken;

/// Service of quackd's entries in the keychain.
const SERVICE: &str = "quackd";

/// Reads the key of an account. A failure tells the user how to store it.
pub(crate) async fn read_key(
    request: ToolsRequest,
    account: &str,
    abandon: &CancellationToken,
) -> FromEnvironmentWorker {
    let asking = Asking::new(request, abandon.clone());
    let text = match asking.stdout(KEYCHAIN, &reading(SERVICE, account)).await {
        // macOS prints a line end after the key.
        Ok(key) if !key.trim().is_empty() => {
            return FromEnvironmentWorker::Key(KeychainKey(key.trim().to_owned()));
        }
        Ok(_) | Err(Problem::Failed { .. }) => {
            let store = storing(SERVICE, account);
            format!("the keychain has no key for {account}, or is locked; `{store}` stores one")
        }
        Err(Problem::NoProgram(program)) => {
            format!("{program} is not in the PATH of commands; it reads the keychain")
        }
        Err(problem) => problem.to_string(),
    };
    FromEnvironmentWorker::Failed { text }
}

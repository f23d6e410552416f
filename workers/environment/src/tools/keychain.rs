//! Reads a key from the system's keychain with the system's program for it.

use super::asking::{Asking, Problem};
use crate::keychain_program::KeychainProgram;
use quackd_protocol::environment::{FromEnvironmentWorker, KeychainKey, ToolsRequest};
use tokio_util::sync::CancellationToken;

/// Service of quackd's entries in the keychain.
const SERVICE: &str = "quackd";

/// Reads the key of an account with `program`. A failure tells the user how to store it.
pub(crate) async fn read_key(
    program: KeychainProgram,
    request: ToolsRequest,
    account: &str,
    abandon: &CancellationToken,
) -> FromEnvironmentWorker {
    let asking = Asking::new(request, abandon.clone());

    let text = match asking.stdout(program.name, &(program.reading)(SERVICE, account)).await {
        // macOS prints a line end after the key.
        Ok(key) if !key.trim().is_empty() => {
            return FromEnvironmentWorker::Key(KeychainKey(key.trim().to_owned()));
        }
        Ok(_) | Err(Problem::Failed { .. }) => {
            let store = (program.storing)(SERVICE, account);
            format!("the keychain has no key for {account}, or is locked; `{store}` stores one")
        }
        Err(Problem::NoProgram(program)) => {
            format!("{program} is not in the PATH of commands; it reads the keychain")
        }
        Err(problem) => problem.to_string(),
    };

    FromEnvironmentWorker::Failed { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::KEYCHAINS;

    /// Directory with stand-ins for the programs of both systems, which have the key of the account `work`.
    const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keychain");

    async fn read(program: KeychainProgram, path: &str, account: &str) -> FromEnvironmentWorker {
        let request = ToolsRequest {
            run_dir: std::env::temp_dir().display().to_string(),
            env: vec![("PATH".to_owned(), path.to_owned())],
            tools: Vec::new(),
            untrusted: Vec::new(),
        };
        read_key(program, request, account, &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn the_program_of_each_system_gives_a_key_and_a_missing_one_is_explained() {
        let path = format!("{PROGRAMS}:/usr/bin:/bin");
        for &program in KEYCHAINS {
            let FromEnvironmentWorker::Key(key) = read(program, &path, "work").await else {
                panic!("{} gave no key", program.name)
            };
            assert_eq!(key.0, format!("sk-of-{}", program.name));
            let store = (program.storing)(SERVICE, "other");
            let missing =
                format!("the keychain has no key for other, or is locked; `{store}` stores one");
            let no_program =
                format!("{} is not in the PATH of commands; it reads the keychain", program.name);
            for (path, account, expected) in
                [(path.as_str(), "other", missing), ("/nowhere", "work", no_program)]
            {
                let FromEnvironmentWorker::Failed { text } = read(program, path, account).await
                else {
                    panic!("{} gave a key", program.name)
                };
                assert_eq!(text, expected);
            }
        }
    }
}

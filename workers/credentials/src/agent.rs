//! Asks the user's ssh agent (draft-ietf-sshm-ssh-agent).

use crate::ssh_reader::{SshReader, put_string};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::credentials::{CredentialRefusal, MAX_AGENT_MESSAGE, MAX_SSH_KEYS};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Time for the list of keys.
const KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a signature: the agent may wait for a touch of a security key.
const SIGN_TIMEOUT: Duration = Duration::from_secs(20);

/// Numbers of messages.
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGNED: u8 = 14;

/// Flags of [`SIGN_REQUEST`] that are passed on: the hash functions of RSA.
const RSA_HASHES: u32 = 2 | 4;

/// Returns the public keys of the agent, in base64. Keys beyond [`MAX_SSH_KEYS`] are left out.
pub(crate) async fn keys(socket: Option<&str>) -> Result<Vec<String>, CredentialRefusal> {
    let answer = ask(socket, &[REQUEST_IDENTITIES], KEYS_TIMEOUT).await?;
    read_keys(&answer).ok_or(CredentialRefusal::NoAgent)
}

fn read_keys(answer: &[u8]) -> Option<Vec<String>> {
    let mut reader = SshReader::new(answer);
    if reader.byte()? != IDENTITIES {
        return None;
    }
    let n_keys = usize::try_from(reader.number()?).ok()?.min(MAX_SSH_KEYS);
    let mut key = || {
        let key = reader.string()?;
        let _comment = reader.string()?;
        Some(STANDARD.encode(key))
    };
    (0..n_keys).map(|_| key()).collect()
}

/// Returns a signature of the agent, in base64.
pub(crate) async fn sign(
    socket: Option<&str>,
    key: &[u8],
    data: &[u8],
    flags: u32,
) -> Result<String, CredentialRefusal> {
    let mut request = vec![SIGN_REQUEST];
    put_string(&mut request, key);
    put_string(&mut request, data);
    request.extend((flags & RSA_HASHES).to_be_bytes());
    let answer = ask(socket, &request, SIGN_TIMEOUT).await?;
    let mut reader = SshReader::new(&answer);
    match (reader.byte(), reader.string()) {
        (Some(SIGNED), Some(signature)) => Ok(STANDARD.encode(signature)),
        _ => Err(CredentialRefusal::AgentRefused),
    }
}

/// Exchanges one message on a new connection.
async fn ask(
    socket: Option<&str>,
    request: &[u8],
    limit: Duration,
) -> Result<Vec<u8>, CredentialRefusal> {
    let path = socket.map(Path::new).filter(|path| path.is_absolute());
    let path = path.ok_or(CredentialRefusal::NoAgent)?;
    let exchange = async {
        let mut agent = UnixStream::connect(path).await?;
        let mut message = Vec::new();
        put_string(&mut message, request);
        agent.write_all(&message).await?;

        let length = usize::try_from(agent.read_u32().await?).map_err(io::Error::other)?;
        // Checked before the memory is reserved.
        if MAX_AGENT_MESSAGE < length {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let mut answer = vec![0; length];
        agent.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = timeout(limit, exchange).await.ok().and_then(Result::ok);
    answer.ok_or(CredentialRefusal::NoAgent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use tokio::net::UnixListener;

    /// Returns the socket of an agent that gives this answer to each request.
    fn agent(dir: &TestDir, answer: Vec<u8>) -> String {
        let path = dir.join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let length = client.read_u32().await.unwrap();
                client.read_exact(&mut vec![0; usize::try_from(length).unwrap()]).await.unwrap();
                client.write_all(&answer).await.unwrap();
            }
        });
        path.display().to_string()
    }

    fn message(kind: u8, strings: &[&[u8]]) -> Vec<u8> {
        let mut body = vec![kind];
        if kind == IDENTITIES {
            body.extend(u32::try_from(strings.len() / 2).unwrap().to_be_bytes());
        }
        strings.iter().for_each(|string| put_string(&mut body, string));
        let mut message = Vec::new();
        put_string(&mut message, &body);
        message
    }

    #[tokio::test]
    async fn keys_come_without_comments_and_a_signature_as_it_is() {
        let dir = TestDir::empty();
        let socket = agent(&dir, message(IDENTITIES, &[b"one", b"me@host", b"two", b""]));
        let keys = keys(Some(&socket)).await.unwrap();
        assert_eq!(keys, [STANDARD.encode("one"), STANDARD.encode("two")]);

        let dir = TestDir::empty();
        let socket = agent(&dir, message(SIGNED, &[b"signature"]));
        let signature = sign(Some(&socket), b"key", b"data", 0).await;
        assert_eq!(signature, Ok(STANDARD.encode("signature")));
    }

    #[tokio::test]
    async fn an_agent_that_refuses_is_absent_or_sends_garbage_is_a_refusal() {
        let dir = TestDir::empty();
        let socket = agent(&dir, message(5, &[]));
        assert_eq!(keys(Some(&socket)).await, Err(CredentialRefusal::NoAgent));
        let refused = sign(Some(&socket), b"key", b"data", 0).await;
        assert_eq!(refused, Err(CredentialRefusal::AgentRefused));

        let dir = TestDir::empty();
        let socket = agent(&dir, vec![255; 64]);
        for socket in [Some(socket.as_str()), Some("/nowhere"), Some("agent"), None] {
            assert_eq!(keys(socket).await, Err(CredentialRefusal::NoAgent), "{socket:?}");
        }
    }
}

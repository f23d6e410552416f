//! The ssh agent of the session, as its commands see it: lists the user's public keys and passes requests for signatures on
//! to the supervisor. It has no key. The protocol: draft-ietf-sshm-ssh-agent, and PROTOCOL.agent of OpenSSH.

use crate::credentials::Answer;
use crate::proxy::Proxy;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::credentials::{
    CredentialAnswer, CredentialRefusal, CredentialRequest, MAX_AGENT_MESSAGE, MAX_SSH_KEYS,
    SessionBind, SignRequest,
};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Maximum number of connections. More wait.
const MAX_CONNECTIONS: usize = 16;

/// Time for a message, and between two.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Pause after a failed `accept`, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const FAILURE: u8 = 5;
const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const EXTENSION: u8 = 27;
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";

/// Accepts connections until the process ends.
pub(crate) async fn serve(listener: UnixListener, proxy: Rc<Proxy>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let proxy = Rc::clone(&proxy);
        tokio::task::spawn_local(async move {
            // A client that is gone needs no answer.
            let _served = serve_connection(client, &proxy).await;
            drop(slot);
        });
    }
}

async fn serve_connection(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    proxy: &Proxy,
) -> io::Result<()> {
    let mut bind = None;
    loop {
        let message = timeout(IDLE, read_message(&mut client)).await??;
        let answer = answer(&message, &mut bind, proxy).await;
        let length = u32::try_from(answer.len()).map_err(io::Error::other)?;
        let sending = async {
            client.write_all(&length.to_be_bytes()).await?;
            client.write_all(&answer).await
        };
        timeout(IDLE, sending).await??;
    }
}

async fn read_message(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = usize::try_from(client.read_u32().await?).map_err(io::Error::other)?;
    if !(1..=MAX_AGENT_MESSAGE).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    client.read_exact(&mut message).await?;
    Ok(message)
}

/// A message of a client. All bytes are blobs of ssh.
#[derive(Debug, PartialEq, Eq)]
enum Message<'a> {
    Keys,
    Sign { key: &'a [u8], data: &'a [u8], flags: u32 },
    Bind { host_key: &'a [u8], session_id: &'a [u8], signature: &'a [u8], is_forwarding: bool },
}

/// Parses a message. `None` for a malformed one, and for one that this agent does not have.
fn parse(message: &[u8]) -> Option<Message<'_>> {
    let (kind, mut rest) = message.split_first()?;
    let rest = &mut rest;
    let parsed = match *kind {
        REQUEST_IDENTITIES => Message::Keys,
        SIGN_REQUEST => {
            Message::Sign { key: string(rest)?, data: string(rest)?, flags: number(rest)? }
        }
        EXTENSION if string(rest)? == SESSION_BIND => Message::Bind {
            host_key: string(rest)?,
            session_id: string(rest)?,
            signature: string(rest)?,
            is_forwarding: flag(rest)?,
        },
        _ => return None,
    };
    rest.is_empty().then_some(parsed)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_be_bytes(*number))
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (string, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(string)
}

fn flag(rest: &mut &[u8]) -> Option<bool> {
    let (flag, after) = rest.split_first()?;
    *rest = after;
    Some(*flag != 0)
}

/// Answers a message. `bind` is the binding of the connection.
async fn answer(message: &[u8], bind: &mut Option<SessionBind>, proxy: &Proxy) -> Vec<u8> {
    let request = match parse(message) {
        None => return vec![FAILURE],
        Some(Message::Bind { host_key, session_id, signature, is_forwarding }) => {
            // After a forwarding, any program on the other host may use the connection.
            let was_forwarding = bind.as_ref().is_some_and(|before| before.is_forwarding);
            *bind = Some(SessionBind {
                host_key: STANDARD.encode(host_key),
                session_id: STANDARD.encode(session_id),
                signature: STANDARD.encode(signature),
                is_forwarding: is_forwarding || was_forwarding,
            });
            return vec![SUCCESS];
        }
        Some(Message::Keys) => CredentialRequest::Keys {},
        Some(Message::Sign { key, data, flags }) => CredentialRequest::Sign(SignRequest {
            key: STANDARD.encode(key),
            data: STANDARD.encode(data),
            flags,
            bind: bind.clone(),
        }),
    };

    let is_sign = matches!(request, CredentialRequest::Sign(_));
    let Answer { result, used_as } = proxy.credentials.ask(request).await;
    let answer = match result {
        Ok(CredentialAnswer::Keys(keys)) if !is_sign => keys_answer(&keys),
        Ok(CredentialAnswer::Signature(signature)) if is_sign => signature_answer(&signature),
        Ok(_) => Err(CredentialRefusal::Failed),
        Err(why) => Err(why),
    };
    answer.unwrap_or_else(|why| {
        drop(proxy.refuse_credential(used_as.unwrap_or_default(), why));
        vec![FAILURE]
    })
}

fn keys_answer(keys: &[String]) -> Result<Vec<u8>, CredentialRefusal> {
    let keys = keys.iter().take(MAX_SSH_KEYS).map(|key| STANDARD.decode(key));
    let keys: Vec<Vec<u8>> =
        keys.collect::<Result<_, _>>().map_err(|_| CredentialRefusal::Failed)?;
    let mut answer = vec![IDENTITIES_ANSWER];
    push_length(&mut answer, keys.len())?;
    for key in keys {
        push_string(&mut answer, &key)?;
        // Without the comment.
        push_string(&mut answer, &[])?;
    }
    Ok(answer)
}

fn signature_answer(signature: &str) -> Result<Vec<u8>, CredentialRefusal> {
    let signature = STANDARD.decode(signature).map_err(|_| CredentialRefusal::Failed)?;
    let mut answer = vec![SIGN_RESPONSE];
    push_string(&mut answer, &signature)?;
    Ok(answer)
}

fn push_string(answer: &mut Vec<u8>, string: &[u8]) -> Result<(), CredentialRefusal> {
    push_length(answer, string.len())?;
    answer.extend_from_slice(string);
    Ok(())
}

fn push_length(answer: &mut Vec<u8>, length: usize) -> Result<(), CredentialRefusal> {
    let length = u32::try_from(length).map_err(|_too_long| CredentialRefusal::Failed)?;
    answer.extend_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Pair;
    use quackd_ipc::sockets::packet_pair;
    use quackd_protocol::network::{FromProxy, Rules};
    use tokio::task::LocalSet;

    fn strings(kind: u8, strings: &[&[u8]], end: &[u8]) -> Vec<u8> {
        let mut message = vec![kind];
        strings.iter().for_each(|string| push_string(&mut message, string).unwrap());
        message.extend_from_slice(end);
        message
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
    }

    #[test]
    fn messages_are_whole_or_refused() {
        let sign = strings(SIGN_REQUEST, &[b"key", b"data"], &[0, 0, 0, 2]);
        let bind = strings(EXTENSION, &[SESSION_BIND, b"host", b"id", b"sig"], &[1]);
        assert_eq!(parse(&[REQUEST_IDENTITIES]), Some(Message::Keys));
        assert_eq!(parse(&sign), Some(Message::Sign { key: b"key", data: b"data", flags: 2 }));
        assert_eq!(
            parse(&bind),
            Some(Message::Bind {
                host_key: b"host",
                session_id: b"id",
                signature: b"sig",
                is_forwarding: true
            })
        );
        for message in [&sign, &bind] {
            for end in 0..message.len() {
                assert_eq!(parse(&message[..end]), None, "{end}");
            }
            assert_eq!(parse(&[message.as_slice(), &[0]].concat()), None);
        }
        let query = strings(EXTENSION, &[b"query"], &[]);
        let long = [&[SIGN_REQUEST][..], &[0xff; 8]].concat();
        // Adding and removing keys, locking, the first version of the protocol.
        for other in
            [&[0_u8; 0][..], &query, &long, &[1], &[17, 0], &[18], &[19], &[22], &[23], &[255]]
        {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }

    #[tokio::test]
    async fn keys_and_signatures_of_the_supervisor_are_passed_on() {
        let test = async {
            let pair = packet_pair().unwrap();
            let proxy = Proxy::new(&Rules::default(), Pair::new(pair.0).unwrap());
            let mut unsent = proxy.credentials.take_unsent().unwrap();
            let (mut client, server) = tokio::io::duplex(1);
            let bind = |is_forwarding| {
                strings(EXTENSION, &[SESSION_BIND, b"host", b"id", b"sig"], &[is_forwarding])
            };
            let sign = strings(SIGN_REQUEST, &[b"key", b"data"], &[0; 4]);
            let commands = async {
                let mut answers = Vec::new();
                let keys = [REQUEST_IDENTITIES].to_vec();
                for message in [keys, bind(1), bind(0), sign.clone(), sign, vec![19]] {
                    client.write_all(&framed(&message)).await.unwrap();
                    answers.push(read_message(&mut client).await.unwrap());
                }
                let too_long = u32::try_from(MAX_AGENT_MESSAGE + 1).unwrap();
                client.write_all(&too_long.to_be_bytes()).await.unwrap();
                assert!(client.read_u8().await.is_err(), "the connection ends");
                answers
            };
            let supervisor = async {
                let mut binds = Vec::new();
                for result in [
                    Ok(CredentialAnswer::Keys(vec![STANDARD.encode("key")])),
                    Ok(CredentialAnswer::Signature(STANDARD.encode("signed"))),
                    Err(CredentialRefusal::Denied),
                ] {
                    let Some(FromProxy::Credential { id, request }) = unsent.recv().await else {
                        panic!("another frame")
                    };
                    if let CredentialRequest::Sign(SignRequest { bind, .. }) = request {
                        binds.push(bind.map(|bind| bind.is_forwarding));
                    }
                    proxy.credentials.answered(id, Answer { result, used_as: None });
                }
                binds
            };
            let (answers, binds, _ended) =
                tokio::join!(commands, supervisor, serve_connection(server, &proxy));
            let keys = [&[IDENTITIES_ANSWER, 0, 0, 0, 1, 0, 0, 0, 3][..], b"key", &[0; 4]].concat();
            let signed = strings(SIGN_RESPONSE, &[b"signed"], &[]);
            let failure = vec![FAILURE];
            assert_eq!(
                answers,
                [keys, vec![SUCCESS], vec![SUCCESS], signed, failure.clone(), failure]
            );
            assert_eq!(binds, [Some(true); 2], "a later binding does not undo a forwarding");
        };
        LocalSet::new().run_until(test).await;
    }
}

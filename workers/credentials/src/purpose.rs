//! Finds out what a command wants to sign: a login by ssh to a host that it proves, or a commit or tag of git. Everything
//! else is refused, because quackd could not tell the user what it means.

use crate::ssh_reader::SshReader;
use quackd_protocol::credentials::CredentialRefusal;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, EcdsaVerificationAlgorithm,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

/// Number of the request for a login (RFC 4252, section 5).
const USERAUTH_REQUEST: u8 = 50;

/// Service of logins.
const SERVICE: &[u8] = b"ssh-connection";

/// Beginning of the data of a signature that is not of a login (PROTOCOL.sshsig of OpenSSH).
const SIGNATURE_MAGIC: &[u8] = b"SSHSIG";

/// Purpose of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A commit or tag.
    Commit,
    /// A login.
    Login {
        /// Name of the user on the host.
        user: String,
        /// The key with which the host has proved that the login goes to it, as a blob.
        host_key: Vec<u8>,
    },
}

/// A `session-bind@openssh.com`, decoded.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) host_key: Vec<u8>,
    pub(crate) session_id: Vec<u8>,
    pub(crate) signature: Vec<u8>,
    pub(crate) is_forwarding: bool,
}

/// A request for a login with a public key (RFC 4252, section 7).
#[derive(Debug)]
struct Login<'a> {
    session_id: &'a [u8],
    user: &'a str,
    key: &'a [u8],
    /// Only in `publickey-hostbound-v00@openssh.com`.
    host_key: Option<&'a [u8]>,
}

/// Returns the purpose of a signature of `data` with `key`.
///
/// # Errors
/// `NotBound` if the data are neither of git nor a login to the host of `binding`.
pub(crate) fn of(
    key: &[u8],
    data: &[u8],
    binding: Option<&Binding>,
) -> Result<Purpose, CredentialRefusal> {
    if namespace(data) == Some(b"git".as_slice()) {
        return Ok(Purpose::Commit);
    }

    let binding = binding.ok_or(CredentialRefusal::NotBound)?;
    let login = login(data).ok_or(CredentialRefusal::NotBound)?;
    let is_bound = !binding.is_forwarding
        && login.key == key
        && login.session_id == binding.session_id
        && login.host_key.is_none_or(|host_key| host_key == binding.host_key)
        && is_signed(&binding.host_key, &binding.session_id, &binding.signature);
    if !is_bound {
        return Err(CredentialRefusal::NotBound);
    }
    Ok(Purpose::Login { user: login.user.to_owned(), host_key: binding.host_key.clone() })
}

/// Returns the namespace of a signature that is not of a login.
fn namespace(data: &[u8]) -> Option<&[u8]> {
    let mut reader = SshReader::new(data.strip_prefix(SIGNATURE_MAGIC)?);
    let namespace = reader.string()?;
    let (_reserved, _hash, _digest) = (reader.string()?, reader.string()?, reader.string()?);
    reader.end()?;
    Some(namespace)
}

fn login(data: &[u8]) -> Option<Login<'_>> {
    let mut reader = SshReader::new(data);
    let session_id = reader.string()?;
    let is_request = reader.byte()? == USERAUTH_REQUEST;
    let user = std::str::from_utf8(reader.string()?).ok()?;
    let is_service = reader.string()? == SERVICE;
    let method = reader.string()?;
    let has_signature = reader.byte()? == 1;
    let _algorithm = reader.string()?;
    let key = reader.string()?;
    let host_key = match method {
        b"publickey" => None,
        b"publickey-hostbound-v00@openssh.com" => Some(reader.string()?),
        _ => return None,
    };
    reader.end()?;
    (is_request && is_service && has_signature).then_some(Login { session_id, user, key, host_key })
}

/// Whether the owner of a host key has signed the message. A signature with SHA-1 or of a certificate does not count.
fn is_signed(host_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    verify(host_key, message, signature).is_some()
}

fn verify(host_key: &[u8], message: &[u8], signature: &[u8]) -> Option<()> {
    let mut reader = SshReader::new(signature);
    let (algorithm, signature) = (reader.string()?, reader.string()?);
    reader.end()?;

    let mut key = SshReader::new(host_key);
    match (key.string()?, algorithm) {
        (b"ssh-ed25519", b"ssh-ed25519") => {
            let public = key.string()?;
            key.end()?;
            UnparsedPublicKey::new(&ED25519, public).verify(message, signature).ok()
        }
        (b"ecdsa-sha2-nistp256", b"ecdsa-sha2-nistp256") => {
            verify_ecdsa(&ECDSA_P256_SHA256_FIXED, 32, key, message, signature)
        }
        (b"ecdsa-sha2-nistp384", b"ecdsa-sha2-nistp384") => {
            verify_ecdsa(&ECDSA_P384_SHA384_FIXED, 48, key, message, signature)
        }
        (b"ssh-rsa", b"rsa-sha2-256") => {
            verify_rsa(&RSA_PKCS1_2048_8192_SHA256, key, message, signature)
        }
        (b"ssh-rsa", b"rsa-sha2-512") => {
            verify_rsa(&RSA_PKCS1_2048_8192_SHA512, key, message, signature)
        }
        _ => None,
    }
}

/// `size` is the length of each of the two numbers of a signature, in bytes.
fn verify_ecdsa(
    algorithm: &'static EcdsaVerificationAlgorithm,
    size: usize,
    mut key: SshReader<'_>,
    message: &[u8],
    signature: &[u8],
) -> Option<()> {
    let (_curve, point) = (key.string()?, key.string()?);
    key.end()?;

    let mut numbers = SshReader::new(signature);
    let mut fixed = Vec::new();
    for _ in 0..2 {
        let number = numbers.positive()?;
        let padding = size.checked_sub(number.len())?;
        fixed.resize(fixed.len() + padding, 0);
        fixed.extend(number);
    }
    numbers.end()?;
    UnparsedPublicKey::new(algorithm, point).verify(message, &fixed).ok()
}

fn verify_rsa(
    parameters: &RsaParameters,
    mut key: SshReader<'_>,
    message: &[u8],
    signature: &[u8],
) -> Option<()> {
    let (e, n) = (key.positive()?, key.positive()?);
    key.end()?;
    RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh_reader::put_string;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    /// Key and signature of each kind, made with OpenSSH 9.2: `ssh-keygen`, and `ssh-agent` for the signatures of
    /// [`session_id`].
    const KINDS: &str = include_str!("../tests/host_keys.txt");

    fn session_id() -> Vec<u8> {
        (0..32).collect()
    }

    /// The binding of a line of [`KINDS`], by its first word.
    fn binding(kind: &str) -> Binding {
        let line = KINDS.lines().find(|line| line.split(' ').next() == Some(kind)).unwrap();
        let [_, key, signature] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        Binding {
            host_key: STANDARD.decode(key).unwrap(),
            session_id: session_id(),
            signature: STANDARD.decode(signature).unwrap(),
            is_forwarding: false,
        }
    }

    fn request(method: &str, session_id: &[u8], rest: &[&[u8]]) -> Vec<u8> {
        let mut data = Vec::new();
        put_string(&mut data, session_id);
        data.push(USERAUTH_REQUEST);
        for string in ["git", "ssh-connection", method] {
            put_string(&mut data, string.as_bytes());
        }
        data.push(1);
        rest.iter().for_each(|string| put_string(&mut data, string));
        data
    }

    fn plain(session_id: &[u8]) -> Vec<u8> {
        request("publickey", session_id, &[b"ssh-ed25519", b"key"])
    }

    fn bound(host_key: &[u8]) -> Vec<u8> {
        let method = "publickey-hostbound-v00@openssh.com";
        request(method, &session_id(), &[b"ssh-ed25519", b"key", host_key])
    }

    #[test]
    fn a_login_names_its_user_and_the_host_that_signed_for_every_kind_of_key() {
        for kind in ["ed25519", "ecdsa256", "ecdsa384", "rsa-sha2-256", "rsa-sha2-512"] {
            let binding = binding(kind);
            let expected =
                Purpose::Login { user: "git".to_owned(), host_key: binding.host_key.clone() };
            for data in [plain(&session_id()), bound(&binding.host_key)] {
                assert_eq!(of(b"key", &data, Some(&binding)), Ok(expected.clone()), "{kind}");
            }
        }
    }

    #[test]
    fn a_login_without_a_proof_of_its_host_is_refused() {
        let sound = binding("ed25519");
        let login = plain(&session_id());
        let refused = |data: &[u8], binding: Option<&Binding>| {
            assert_eq!(of(b"key", data, binding), Err(CredentialRefusal::NotBound));
        };
        refused(&login, None);
        refused(&plain(b"another session"), Some(&sound));
        refused(&bound(&binding("ecdsa256").host_key), Some(&sound));
        refused(&login, Some(&Binding { is_forwarding: true, ..sound.clone() }));
        refused(
            &login,
            Some(&Binding { host_key: binding("rsa-sha2-256").host_key, ..sound.clone() }),
        );
        refused(&login, Some(&binding("rsa-sha1")));
        assert_eq!(of(b"other key", &login, Some(&sound)), Err(CredentialRefusal::NotBound));

        // The host has signed another session.
        let other = Binding { session_id: b"another session".to_vec(), ..sound.clone() };
        refused(&plain(b"another session"), Some(&other));
        let mut forged = sound.clone();
        *forged.signature.last_mut().unwrap() ^= 1;
        refused(&login, Some(&forged));
    }

    #[test]
    fn data_that_are_no_login_are_refused() {
        let sound = binding("ed25519");
        let login = plain(&session_id());
        let mut longer = login.clone();
        longer.push(0);
        let short = login.get(..login.len() - 1).unwrap().to_vec();
        let of_password = request("password", &session_id(), &[b"ssh-ed25519", b"key"]);
        for data in [longer, short, of_password, Vec::new(), b"any challenge".to_vec()] {
            let refused = of(b"key", &data, Some(&sound));
            assert_eq!(refused, Err(CredentialRefusal::NotBound), "{data:?}");
        }
    }

    #[test]
    fn only_signatures_in_the_namespace_of_git_need_no_host() {
        let signature = |namespace: &str| {
            let mut data = SIGNATURE_MAGIC.to_vec();
            for string in [namespace, "", "sha512", "digest"] {
                put_string(&mut data, string.as_bytes());
            }
            data
        };
        assert_eq!(of(b"key", &signature("git"), None), Ok(Purpose::Commit));
        for namespace in ["", "file", "git@example.org"] {
            let refused = of(b"key", &signature(namespace), None);
            assert_eq!(refused, Err(CredentialRefusal::NotBound), "{namespace}");
        }
    }
}

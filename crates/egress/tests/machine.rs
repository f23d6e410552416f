//! Tests the settings that egress takes from the machine: trusted certificates and proxies. Environment variables
//! select both, so a separate run of this program makes each search.

#[cfg(test)]
mod tests {
    use quackd_egress::{Egress, EgressConfig, Key};
    use quackd_protocol::worker::{WebOutcome, WebSearch};
    use quackd_testkit::{Answer, FakeExa, Request, answer, this_test};
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd,
    };
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::fs;
    use std::io::Write;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use tempfile::TempDir;

    const KEY: &str = "hush-hush-key";

    fn search() -> WebSearch {
        WebSearch {
            query: "rust".into(),
            num_results: 3,
            include_text: false,
            include_domains: vec![],
            exclude_domains: vec![],
        }
    }

    /// The other half of [`outcome`]: one search, in a process with the given variables.
    #[tokio::test]
    #[ignore = "run by the other tests of this file"]
    #[expect(clippy::print_stdout, reason = "its answer to the test that runs it")]
    async fn one_search() {
        let endpoint = std::env::var("TEST_ENDPOINT").unwrap();
        let config = EgressConfig::new(endpoint, Key::parse(KEY).unwrap());
        let outcome = Egress::start(config).unwrap().web_search(search()).await;
        println!("outcome={}", serde_json::to_string(&outcome).unwrap());
    }

    /// Returns the result of a search in a process with these variables.
    fn outcome(endpoint: &str, variables: &[(&str, &str)]) -> WebOutcome {
        let mut command = this_test("tests::one_search");
        command
            .arg("--ignored")
            .env_clear()
            .env("TEST_ENDPOINT", endpoint)
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let outcome = text.lines().find_map(|line| Some(line.split_once("outcome=")?.1));
        serde_json::from_str(outcome.unwrap_or_else(|| panic!("no outcome: {text}"))).unwrap()
    }

    /// Returns a certificate authority.
    fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// Starts a provider with a certificate for `params`. Sends the head of each readable request to the channel.
    fn serve(
        issuer: &CertifiedIssuer<'static, KeyPair>,
        params: CertificateParams,
    ) -> (SocketAddr, Receiver<String>) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let (heads, seen) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                drop(converse(stream.unwrap(), &config).map(|head| heads.send(head)));
            }
        });
        (address, seen)
    }

    fn converse(stream: TcpStream, config: &Arc<ServerConfig>) -> std::io::Result<String> {
        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let request = Request::read(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")?;
        Ok(request.head)
    }

    fn params(name: &str) -> CertificateParams {
        CertificateParams::new(vec![name.to_owned()]).unwrap()
    }

    /// Writes a file.
    fn file(dir: &TempDir, name: &str, text: &str) -> String {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn failed(reason: &str) -> WebOutcome {
        WebOutcome::Failed { reason: reason.to_owned() }
    }

    #[test]
    fn a_provider_that_the_machine_trusts_gets_the_key_encrypted() {
        let (dir, issuer) = (tempfile::tempdir().unwrap(), authority("ours"));
        let trusted = file(&dir, "ca.pem", &issuer.pem());
        for name in ["localhost", "127.0.0.1"] {
            let (address, heads) = serve(&issuer, params(name));
            let endpoint = format!("https://{name}:{}/search", address.port());
            let outcome = outcome(&endpoint, &[("SSL_CERT_FILE", &trusted)]);
            let (status_text, body) = ("OK".to_owned(), "{}".to_owned());
            assert_eq!(outcome, WebOutcome::Reply { status: 200, status_text, body });
            let head = heads.recv().unwrap();
            assert!(head.starts_with("POST /search HTTP/1.1\r\n") && head.contains(KEY), "{head}");
        }
    }

    #[test]
    fn a_provider_that_cannot_show_who_it_is_gets_nothing() {
        let (dir, issuer) = (tempfile::tempdir().unwrap(), authority("ours"));
        let ours = file(&dir, "ca.pem", &issuer.pem());
        let other = file(&dir, "other.pem", &authority("other").pem());
        let none = file(&dir, "none.pem", "");
        let mut expired = params("127.0.0.1");
        expired.not_before = date_time_ymd(2001, 1, 1);
        expired.not_after = date_time_ymd(2002, 1, 1);
        let here = || params("127.0.0.1");
        let cases = [
            (here(), &other, "the provider's certificate is not trusted on this machine"),
            (params("example.com"), &ours, "the provider's certificate is for another name"),
            (expired, &ours, "the provider's certificate has expired"),
            (here(), &none, "this machine has no trusted certificates"),
        ];
        for (params, trusted, reason) in cases {
            let (address, heads) = serve(&issuer, params);
            let told = outcome(&format!("https://{address}/"), &[("SSL_CERT_FILE", trusted)]);
            assert_eq!(told, failed(reason));
            assert!(heads.try_recv().is_err(), "{reason}");
        }
    }

    #[test]
    fn a_proxy_is_asked_for_the_way_and_sees_no_key() {
        let (dir, issuer) = (tempfile::tempdir().unwrap(), authority("ours"));
        let trusted = file(&dir, "ca.pem", &issuer.pem());
        let proxy = FakeExa::start(&[Answer::Says(answer("403 Forbidden", "no"))]);
        let address = proxy.endpoint().replace("/search", "").replace("http://", "http://u:word@");
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
            let variables = [(name, address.as_str()), ("SSL_CERT_FILE", &trusted)];
            let outcome = outcome("https://provider.invalid/search", &variables);
            assert_eq!(outcome, failed("the proxy did not let it through"), "{name}");
            let request = proxy.request();
            assert!(request.head.starts_with("CONNECT provider.invalid:443 HTTP/1.1"), "{name}");
            assert!(!request.head.contains(KEY), "{name}");
            proxy.connection_ends();
        }
        let unproxied = [
            ("HTTPS_PROXY", address.as_str()),
            ("NO_PROXY", "provider.invalid"),
            ("SSL_CERT_FILE", &trusted),
        ];
        let unknown = failed("the provider's name was not found");
        assert_eq!(outcome("https://provider.invalid/search", &unproxied), unknown);
        assert!(proxy.is_untouched());
    }

    #[test]
    fn this_machine_itself_is_reached_without_a_proxy_and_without_certificates() {
        let proxy = FakeExa::start(&[Answer::Says(answer("403 Forbidden", "no"))]);
        let exa = FakeExa::start(&[Answer::Says(answer("200 OK", "{}"))]);
        let variables =
            [("HTTP_PROXY", proxy.endpoint()), ("SSL_CERT_FILE", "/nonexistent".to_owned())];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let (status_text, body) = ("OK".to_owned(), "{}".to_owned());
        let expected = WebOutcome::Reply { status: 200, status_text, body };
        assert_eq!(outcome(&exa.endpoint(), &variables), expected);
        assert!(proxy.is_untouched());
    }
}

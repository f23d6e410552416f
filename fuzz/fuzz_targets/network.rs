//! Parsers of the network proxy. No parser panics, lengths stay inside the input, a piece more changes no
//! complete message, and texts of rules and hosts are stable.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_network::http::{self, Chunks, Kind, Read};
use quackd_network::socks::{self, Message};
use quackd_network::{dns, hello};
use quackd_policy::hosts::{Host, Rule};

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 6 {
        0 => request(bytes),
        1 => socks_messages(bytes),
        2 => drop(dns::Query::read(bytes).map(|query| assert!(query.no_such_name().len() <= 12 + 259))),
        3 => {
            let whole = hello::read(bytes);
            if let Some((_, less)) = bytes.split_last()
                && let complete @ hello::Hello::Complete(_) = hello::read(less)
            {
                assert_eq!(whole, complete);
            }
        }
        4 => chunks(bytes),
        _ => names(bytes),
    }
});

fn request(bytes: &[u8]) {
    let host = Host::read("a.example").expect("a host");
    for read in [http::proxy_request(bytes), http::server_request(bytes, &host, 80)] {
        let Read::Complete(head) = read else { continue };
        assert!(head.length <= bytes.len() && head.length <= http::MAX_HEAD && head.port != 0);
        let Kind::Forward { head: forwarded, .. } = head.kind else { continue };
        // The server reads the same request, for the same host.
        match http::server_request(&forwarded, &head.host, head.port) {
            Read::Complete(again) => assert_eq!((again.host, again.port), (head.host, head.port)),
            other => panic!("{other:?}"),
        }
    }
}

fn socks_messages(bytes: &[u8]) {
    if let Message::Complete((), used) = socks::greeting(bytes) {
        assert!(used <= bytes.len());
    }
    if let Message::Complete(_, used) = socks::request(bytes) {
        assert!(used <= bytes.len());
    }
}

fn chunks(bytes: &[u8]) {
    let whole = Chunks::default().take(bytes);
    let mut pieces = Chunks::default();
    let mut taken = 0;
    for byte in bytes {
        match pieces.take(std::slice::from_ref(byte)) {
            Ok((n, ended)) => {
                taken += n;
                if ended {
                    assert_eq!(whole, Ok((taken, true)));
                    return;
                }
            }
            Err(error) => {
                assert_eq!(whole, Err(error));
                return;
            }
        }
    }
    assert_eq!(whole, Ok((taken, false)));
}

fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(host) = Host::read(text) {
        assert_eq!(Host::read(&host.to_string()), Ok(host));
    }
    if let Ok(rule) = text.parse::<Rule>() {
        assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
    }
}

//! Changing the settings while clients are connected.

use super::*;
use std::net::TcpListener;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const OTHER: &str = "another-token-that-is-long";

fn with_token(settings: &Settings, token: &str) -> Settings {
    let token = SecretString::from(token);
    Settings {
        token: TokenHash::new_blocking(&token).unwrap(),
        plain_token: Some(token),
        ..settings.clone()
    }
}

#[test]
fn nothing_that_changes_is_nothing_that_anybody_notices() {
    let mut world = World::new();
    let mut socket = world.socket(TOKEN);
    let port = world.port;
    world.apply(world.settings.clone()).unwrap();
    assert_eq!(world.port, port, "a free port stays the one that it was");
    socket.is_well();
}

#[test]
fn a_new_token_counts_at_once_and_sends_those_with_the_old_one_away() {
    let mut world = World::new();
    let mut socket = world.socket(TOKEN);
    // A kept-alive connection stays open, and its next request needs the new token.
    let mut kept = world.connect();
    let port = world.port;
    world.apply(with_token(&world.settings, OTHER)).unwrap();
    assert_eq!(world.port, port);
    assert_eq!(socket.closed(), Some(CloseCode::Policy));
    assert_eq!(world.authorized("GET", "/status", b"").status, 401);
    kept.write_all(head("GET", "/status", &[&bearer(OTHER)], 0).as_bytes()).unwrap();
    assert_eq!(HttpReply::read(&mut kept).status, 200);
    world.socket(OTHER).is_well();
}

#[test]
fn a_door_that_is_closed_is_closed_for_everybody_and_can_be_opened_again() {
    let mut world = World::new();
    let mut socket = world.socket(TOKEN);
    world.runtime.block_on(world.remote.close());
    assert_eq!(socket.closed(), Some(CloseCode::Away));
    assert!(TcpStream::connect(("127.0.0.1", world.port)).is_err());
    assert_eq!(world.runtime.block_on(world.remote.port()), None);
    assert_eq!(world.remote.connected(), 0);
    world.apply(world.settings.clone()).unwrap();
    world.socket(TOKEN).is_well();
}

#[test]
fn a_client_that_answers_nothing_does_not_hold_up_the_end() {
    let world = World::new();
    let sockets: Vec<_> = (0..10).map(|_| world.socket(TOKEN)).collect();
    let close = async { tokio::time::timeout(PATIENCE, world.remote.close()).await };
    world.runtime.block_on(close).unwrap();
    drop(sockets);
}

#[test]
fn what_cannot_be_leaves_everything_as_it_was() {
    let mut world = World::new();
    let mut socket = world.socket(TOKEN);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = Settings { port: taken.local_addr().unwrap().port(), ..world.settings.clone() };
    let nowhere = Settings { host: "192.0.2.1".into(), ..world.settings.clone() };
    let missing = TlsPaths { certificate: "/nowhere/c".into(), key: "/nowhere/k".into() };
    let no_file = Settings { tls: Some(missing), ..world.settings.clone() };
    let (paths, _trust) = world.tls();
    let swapped = TlsPaths { certificate: paths.key.clone(), key: paths.certificate.clone() };
    let no_pem = Settings { tls: Some(swapped), ..world.settings.clone() };
    std::fs::write(&paths.certificate, "").unwrap();
    let empty = Settings { tls: Some(paths), ..world.settings.clone() };
    for (settings, expected) in [
        (taken, "cannot listen on 127.0.0.1:"),
        (nowhere, "cannot listen on 192.0.2.1:0: "),
        (no_file, "cannot read /nowhere/c: "),
        (no_pem, "contains no certificate in PEM form"),
        (empty, "contains no certificate in PEM form"),
    ] {
        let error = world.apply(settings).unwrap_err();
        assert!(error.contains(expected), "{error}");
        socket.is_well();
        world.is_well();
    }
}

#[test]
fn the_same_port_on_another_address_moves_there_and_comes_back_if_it_cannot() {
    let mut world = World::new();
    // With a fixed port, moving requires closing the old listener first.
    world.apply(Settings { port: world.port, ..world.settings.clone() }).unwrap();
    let port = world.port;
    let all = Settings { host: "0.0.0.0".into(), port, ..world.settings.clone() };
    world.apply(all).unwrap();
    assert_eq!(world.port, port);
    let mut socket = world.socket(TOKEN);
    let named = world.authorized("GET", "/status", b"").json();
    assert_eq!(named["httpUrl"], "http://localhost", "the host that was dialled and not 0.0.0.0");
    let nowhere = Settings { host: "192.0.2.1".into(), port, ..world.settings.clone() };
    world.apply(nowhere).unwrap_err();
    world.is_well();
    socket.is_well();
}

#[test]
fn with_another_certificate_file_everybody_comes_anew() {
    let mut world = World::new();
    let mut socket = world.socket(TOKEN);
    let (paths, _trust) = world.tls();
    world.apply(Settings { tls: Some(paths), ..world.settings.clone() }).unwrap();
    assert_eq!(socket.closed(), Some(CloseCode::Away));
}

//! Events, ownership and limits of voice clients.

use super::*;
use crate::wire::client_outbox::outbox;
use futures_util::FutureExt;
use quackd_supervision::Budget;
use serde_json::json;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Receives everything immediately and keeps it for the test.
struct Ear(mpsc::Sender<Vec<u8>>);

impl AsyncWrite for Ear {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, b: &[u8]) -> Poll<io::Result<usize>> {
        self.0.send(b.to_vec()).ok();
        Poll::Ready(Ok(b.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A connected client.
struct Peer {
    client: Rc<Client>,
    writing: Pin<Box<dyn Future<Output = crate::wire::client_outbox::WriterExit>>>,
    heard: mpsc::Receiver<Vec<u8>>,
}

impl Peer {
    /// Events since the last call.
    fn heard(&mut self) -> Vec<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let _still_writing = self.writing.as_mut().now_or_never();
        let bytes: Vec<u8> = self.heard.try_iter().flatten().collect();
        let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    fn names(&mut self) -> Vec<String> {
        self.heard().iter().map(|told| told["event"].as_str().unwrap().to_owned()).collect()
    }
}

struct World {
    clients: Rc<Clients>,
    events: Rc<Events>,
    voice: Voice,
}

impl World {
    fn new() -> Self {
        let clients = Rc::<Clients>::default();
        let events = Rc::new(Events::new("e".into()));
        let voice = Voice::new(Rc::clone(&clients), Rc::clone(&events));
        Self { clients, events, voice }
    }

    fn peer(&self, transport: Transport) -> Peer {
        let (ear, heard) = mpsc::channel();
        let (outbox, writing) = outbox(Ear(ear), None, Arc::default(), Budget::new(usize::MAX));
        let client = Client::new(transport, Some(outbox)).unwrap();
        self.clients.add(&client);
        Peer { client, writing: Box::pin(writing), heard }
    }

    /// A voice client of the macOS app that is bound to a session.
    fn app(&self, session: &str) -> Peer {
        let peer = self.peer(Transport::Socket);
        self.voice.connect(&peer.client, "local-app", false).unwrap();
        self.voice.bind(&peer.client.id, Some(named(session)));
        peer
    }

    fn state(&self, peer: &Peer, state: VoiceState, session: &str) -> Result<(), String> {
        let active = (state == VoiceState::Idle).then(|| named("active"));
        let said = self.voice.set_state(&peer.client.id, state, &named(session), active);
        said.map_err(|error| error.to_string())
    }

    fn bound(&self, peer: &Peer) -> String {
        let bound = self.voice.bound(&peer.client.id).expect("a voice client");
        bound.map_or_else(String::new, |session| session.id.0)
    }

    /// Number of a session's events.
    fn told(&self, session: &str) -> u64 {
        self.events.follow(&SessionId::from(session), None, None).seq
    }
}

fn named(session: &str) -> VoiceSession {
    VoiceSession {
        id: SessionId::from(session),
        name: format!("name of {session}"),
        path: format!("/{session}"),
    }
}

#[test]
fn only_an_idle_client_is_asked_and_one_in_the_session_first() {
    let world = World::new();
    let nobody = world.voice.start(named("a"), Transport::Socket);
    assert_eq!(nobody.reason.as_deref(), Some("voice_not_connected"));
    let (mut first, mut second) = (world.app("x"), world.app("a"));
    assert!(world.voice.start(named("a"), Transport::Socket).started);
    assert_eq!((first.heard(), second.names()), (vec![], vec!["voice_start".to_owned()]));
    world.state(&second, VoiceState::Speaking, "a").unwrap();
    let active = world.voice.start(named("a"), Transport::Socket);
    assert_eq!(
        serde_json::to_string(&active).unwrap(),
        r#"{"started":false,"reason":"voice_already_active","state":"speaking"}"#
    );
    let started = world.voice.start(named("b"), Transport::Socket);
    assert_eq!(serde_json::to_string(&started).unwrap(), r#"{"started":true,"sessionId":"b"}"#);
    assert_eq!(
        first.heard(),
        [
            json!({"event": "voice_start", "sessionId": "b", "data": {"type": "voice_start", "sessionId": "b"}})
        ]
    );
    assert_eq!(world.bound(&first), "b");
}

#[test]
fn a_session_has_one_owner_who_alone_says_how_it_stands() {
    let world = World::new();
    let (owner, other) = (world.app("a"), world.app("a"));
    world.state(&owner, VoiceState::Listening, "a").unwrap();
    assert_eq!(
        world.state(&other, VoiceState::Connecting, "a"),
        Err("Voice session is already owned by another client".into())
    );
    assert_eq!(world.told("a"), 1);
    world.state(&other, VoiceState::Idle, "a").unwrap();
    assert_eq!(world.told("a"), 1, "an idle report without an owner is not an event");
    assert!(world.voice.is_owned_by_another(&SessionId::from("a"), &other.client.id));
    assert!(!world.voice.is_owned_by_another(&SessionId::from("a"), &owner.client.id));
    // A busy client keeps its session, regardless of the target.
    world.state(&owner, VoiceState::Thinking, "b").unwrap();
    assert_eq!((world.bound(&owner), world.told("b")), ("a".into(), 1));
    world.state(&owner, VoiceState::Idle, "b").unwrap();
    assert_eq!((world.told("a"), world.told("b")), (2, 2), "both had heard of it");
    assert_eq!(world.bound(&owner), "active");
    world.state(&other, VoiceState::Connecting, "a").unwrap();
}

#[test]
fn whoever_loses_a_session_leaves_idle_behind() {
    let world = World::new();
    let app = world.app("a");
    let again = |takeover| world.voice.connect(&app.client, "local-app", takeover);
    world.state(&app, VoiceState::Speaking, "a").unwrap();
    again(false).unwrap();
    assert_eq!((world.told("a"), world.bound(&app)), (2, String::new()));
    world.state(&app, VoiceState::Speaking, "a").unwrap();
    let newer = world.peer(Transport::Socket);
    world.voice.connect(&newer.client, "remote-ios", true).unwrap();
    assert_eq!(world.told("a"), 3, "takeover only affects the same kind");
    world.voice.connect(&newer.client, "local-app", true).unwrap();
    assert_eq!(world.told("a"), 4);
    assert_eq!(world.voice.bound(&app.client.id), None);
    assert!(world.state(&app, VoiceState::Idle, "a").is_err(), "no longer a voice client");
    world.state(&newer, VoiceState::Connecting, "a").unwrap();
    world.voice.forget(&newer.client.id);
    assert_eq!(world.told("a"), 6);
    world.voice.forget(&newer.client.id);
    assert_eq!(world.told("a"), 6);
}

#[test]
fn another_session_is_told_to_who_is_free_or_in_it() {
    let world = World::new();
    let (mut busy, mut idle, mut inside) = (world.app("a"), world.app("a"), world.app("b"));
    world.state(&busy, VoiceState::Speaking, "a").unwrap();
    world.state(&inside, VoiceState::Speaking, "b").unwrap();
    world.voice.session_changed(&named("b"));
    assert_eq!(busy.heard(), Vec::<Value>::new());
    assert_eq!(inside.names(), ["voice_session_changed"]);
    assert_eq!(
        idle.heard(),
        [json!({"event": "voice_session_changed", "sessionId": "b", "data": {
            "type": "voice_session_changed", "sessionId": "b", "sessionName": "name of b",
            "workspacePath": "/b"}})]
    );
    assert_eq!((world.bound(&busy), world.bound(&idle)), ("a".into(), "b".into()));
    assert!(world.voice.is_owned_by_another(&SessionId::from("b"), &idle.client.id));
}

#[test]
fn voice_ends_with_the_last_follower_only_if_one_of_its_door_had_it_begin() {
    let world = World::new();
    let session = SessionId::from("a");
    let cli = world.peer(Transport::Socket);
    let phone = world.peer(Transport::RemoteWs);
    let mut app = world.app("a");
    // As if the user pressed the app's hotkey.
    world.state(&app, VoiceState::Listening, "a").unwrap();
    world.voice.unfollowed(&session, &cli.client);
    assert_eq!(app.heard(), Vec::<Value>::new());
    world.state(&app, VoiceState::Idle, "a").unwrap();

    world.voice.start(named("a"), Transport::Socket);
    world.state(&app, VoiceState::Connecting, "a").unwrap();
    assert_eq!(app.names(), ["voice_start"]);
    world.voice.unfollowed(&session, &phone.client);
    assert_eq!(app.heard(), Vec::<Value>::new(), "another door");
    world.voice.unfollowed(&session, &app.client);
    assert_eq!(app.heard(), Vec::<Value>::new(), "the owner itself");
    let still = world.events.follow(&session, None, None);
    world.voice.unfollowed(&session, &cli.client);
    assert_eq!(app.heard(), Vec::<Value>::new(), "somebody follows still");
    drop(still);
    world.voice.unfollowed(&session, &cli.client);
    assert_eq!(
        app.heard(),
        [json!({"event": "voice_stop", "sessionId": "a",
            "data": {"type": "voice_stop", "reason": "cli_exit", "sessionId": "a"}})]
    );
    // The request was for another session than the one in which the client starts.
    world.state(&app, VoiceState::Idle, "a").unwrap();
    world.voice.start(named("a"), Transport::Socket);
    world.state(&app, VoiceState::Connecting, "b").unwrap();
    app.heard();
    world.voice.unfollowed(&SessionId::from("b"), &cli.client);
    assert_eq!(app.heard(), Vec::<Value>::new());
}

#[test]
fn what_is_said_goes_to_the_owner_and_its_followers() {
    let world = World::new();
    let session = SessionId::from("a");
    let mut app = world.app("a");
    assert!(world.voice.route_say(&session, &json!("hello")).is_none(), "nobody owns it");
    world.state(&app, VoiceState::Listening, "a").unwrap();
    assert!(world.voice.route_say(&session, &json!("hello")).unwrap().is_ok());
    assert_eq!(
        app.heard(),
        [json!({"event": "voice_say", "sessionId": "a", "data": {"text": "hello"}})]
    );
    assert_eq!(world.told("a"), 2);
}

#[test]
fn who_does_not_read_what_it_is_told_is_given_up_and_costs_bounded_memory() {
    let world = World::new();
    let session = SessionId::from("a");
    let app = world.app("a");
    world.state(&app, VoiceState::Listening, "a").unwrap();
    let text = json!("x".repeat(10_000));
    let taken = (0..1000).take_while(|_| world.voice.route_say(&session, &text).unwrap().is_ok());
    let taken = taken.count();
    assert!((20..27).contains(&taken), "{taken}");
    let refused = world.voice.route_say(&session, &json!("")).unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "Voice client disconnected");
    let mut app = app;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let end = runtime.block_on(app.writing.as_mut());
    assert_eq!(end, crate::wire::client_outbox::WriterExit::Slow);
}

#[test]
fn small_messages_are_counted_too() {
    let world = World::new();
    let app = world.app("a");
    for n in 0..2000 {
        world.voice.session_changed(&named("b"));
        let outbox = app.client.outbox.as_ref().unwrap();
        if outbox.push(bytes::Bytes::from_static(b"{}\n")).is_err() {
            assert!((100..=128).contains(&n), "{n}");
            return;
        }
    }
    panic!("never full");
}

#[test]
fn a_message_longer_than_all_room_is_taken_if_nothing_waits() {
    let world = World::new();
    let mut app = world.app("a");
    world.state(&app, VoiceState::Listening, "a").unwrap();
    let long = json!("x".repeat(3_000_000));
    assert!(world.voice.route_say(&SessionId::from("a"), &long).unwrap().is_ok());
    assert_eq!(app.heard()[0]["data"]["text"], long);
}

#[test]
fn a_deleted_session_stops_its_voice_and_binds_nobody() {
    let world = World::new();
    let (mut owner, mut idle) = (world.app("a"), world.app("a"));
    world.state(&owner, VoiceState::Speaking, "a").unwrap();
    world.voice.session_deleted(&SessionId::from("a"));
    assert_eq!(owner.heard()[0]["data"]["reason"], "session_deleted");
    assert_eq!(idle.heard(), Vec::<Value>::new());
    assert_eq!((world.bound(&owner), world.bound(&idle)), (String::new(), String::new()));
}

//! Requests that fail before their first byte: they are repeated, with a growing delay.

use super::answers::{ANSWER, BEGIN, END};
use super::{World, all, answer, assert_order, command, fast, only, say, state, text, turn};
use crate::harness::{FakeModel, wait_for};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const FAILED: &str = "message_start assistant, message_end assistant, turn_end";
const AGAIN: &str = "auto_retry_start, agent_start, turn_start";

#[test]
fn a_failed_request_is_repeated_and_the_turn_ends_once() {
    let world = World::with(
        &json!({"rules": [{"if": {}, "times": 2, "reply": {"status": 500, "error": "upstream exploded"}}],
            "replies": [{"text": "recovered"}]}),
        &fast(),
        "",
    );
    let wire = world.follower();
    let events = turn(&wire, "retry please");
    assert_order(&events, &[BEGIN, FAILED, AGAIN, FAILED, AGAIN, ANSWER, "auto_retry_end", END]);
    let starts = all(&events, "auto_retry_start");
    let first = json!({"type": "auto_retry_start", "attempt": 1, "maxAttempts": 2, "delayMs": 10,
        "errorMessage": "500 upstream exploded"});
    assert_eq!(starts[0], &first);
    assert_eq!((&starts[1]["attempt"], &starts[1]["delayMs"]), (&2.into(), &20.into()));
    let end = json!({"type": "auto_retry_end", "attempt": 2, "success": true});
    assert_eq!(only(&events, "auto_retry_end"), &end);
    assert_eq!(text(answer(&events)), "recovered");
    assert_eq!(world.model.count("requests"), 3);
    // Failed attempts are not sent to the model.
    let last = world.model.requests().pop().unwrap();
    assert_eq!(last["body"]["messages"].as_array().unwrap().len(), 2, "system and user");
}

#[test]
fn retry_after_is_honoured() {
    let cases = [("retry-after-ms", "333", 333), ("retry-after", "1", 1000)];
    for (name, value, expected) in cases {
        let reply = json!({"status": 429, "error": "Rate limit reached", "headers": {name: value}});
        let world = World::with(&json!({"replies": [reply, {"text": "recovered"}]}), &fast(), "");
        let wire = world.follower();
        let events = turn(&wire, "rate");
        let delay = only(&events, "auto_retry_start")["delayMs"].as_u64().unwrap();
        assert!(expected <= delay && delay <= expected + 1000, "{delay} for {name}");
        assert_eq!(text(answer(&events)), "recovered");
    }
    // Longer than the longest wait: told at once.
    let reply =
        json!({"status": 429, "error": "Rate limit reached", "headers": {"retry-after": "86400"}});
    let world = World::with(&json!({"replies": [reply]}), &fast(), "");
    let wire = world.follower();
    assert_order(
        &turn(&wire, "rate"),
        &[BEGIN, "message_start assistant, message_end assistant", END],
    );
    assert_eq!(world.model.count("requests"), 1);
}

#[test]
fn the_last_failed_attempt_is_told_with_its_reason() {
    let world = World::with(
        &json!({"replies": [{"status": 503, "error": "Service Unavailable"}]}),
        &fast(),
        "",
    );
    let wire = world.follower();
    let events = turn(&wire, "always failing");
    assert_order(
        &events,
        &[BEGIN, FAILED, AGAIN, FAILED, AGAIN, FAILED, "auto_retry_end, agent_end, agent_settled"],
    );
    let end = json!({"type": "auto_retry_end", "attempt": 2, "success": false,
        "finalError": "503 Service Unavailable"});
    assert_eq!(only(&events, "auto_retry_end"), &end);
    assert_eq!(world.model.count("requests"), 3);
    assert_eq!(state(&wire)["isStreaming"], false);
}

#[test]
fn a_session_that_waits_for_a_retry_is_busy_until_the_wait_is_given_up() {
    let settings = json!({"retry": {"baseDelayMs": 50_000}});
    for by in ["abort_retry", "abort"] {
        let world =
            World::with(&json!({"replies": [{"status": 500, "error": "nope"}]}), &settings, "");
        let wire = world.follower();
        say(&wire, "always failing");
        wire.events_until("auto_retry_start");
        // Pi says that it is idle.
        let waiting = state(&wire);
        assert_eq!((&waiting["isStreaming"], &waiting["isRetrying"]), (&true.into(), &true.into()));
        match by {
            "abort" => drop(wire.request("abort", json!({}))),
            _ => drop(command(&wire, json!({ "type": by }))),
        }
        let events = wire.events_until("agent_settled");
        assert_order(&events, &["auto_retry_end, agent_end, agent_settled"]);
        let end = only(&events, "auto_retry_end");
        assert_eq!(
            (&end["success"], &end["finalError"]),
            (&false.into(), &"Retry cancelled".into())
        );
        let after = state(&wire);
        assert_eq!((&after["isStreaming"], &after["isRetrying"]), (&false.into(), &false.into()));
        assert_eq!(world.model.count("requests"), 1);
    }
}

#[test]
fn auto_retry_can_be_turned_off() {
    let world = World::with(&json!({"replies": [{"status": 500, "error": "nope"}]}), &fast(), "");
    let wire = world.follower();
    command(&wire, json!({"type": "set_auto_retry", "enabled": false}));
    let events = turn(&wire, "fail");
    assert_order(&events, &[BEGIN, "message_start assistant, message_end assistant", END]);
    assert_eq!(world.model.count("requests"), 1);
}

#[test]
fn a_server_that_is_not_there_is_tried_again_and_then_told() {
    let mut world = World::absent(&json!({}));
    // A socket that does not listen keeps its port: connections are refused, and no other program gets it.
    let silent = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&silent, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = SocketAddrV4::try_from(getsockname(&silent).unwrap()).unwrap().port();
    world.write_models(&format!("http://127.0.0.1:{port}/v1"), "openai-completions");
    std::fs::write(world.agent.join("settings.json"), fast().to_string()).unwrap();
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "hello");
    assert_eq!(all(&events, "auto_retry_start").len(), 2);
    let end = only(&events, "auto_retry_end");
    assert_eq!(end["success"], false);
    let told = end["finalError"].as_str().unwrap();
    assert!(told.starts_with("127.0.0.1: no connection"), "names the server: {told}");
    // The session goes on once the server runs, although its agent knew another address.
    world.write_models(&world.model.v1(), "openai-completions");
    wait_for("the daemon to read models.json again", || {
        let events = turn(&wire, "again");
        (answer(&events)["stopReason"] == "stop").then_some(())
    });
    assert_eq!(world.model.count("requests"), 1);
}

#[test]
fn a_server_that_closes_at_once_is_tried_once_more_and_then_told() {
    let mut world = World::absent(&json!({}));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    // Ends with the test's process.
    std::thread::spawn(move || {
        while listener.accept().is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    world.write_models(&base, "openai-completions");
    std::fs::write(world.agent.join("settings.json"), fast().to_string()).unwrap();
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "hello");
    assert_eq!(all(&events, "auto_retry_start").len(), 1);
    assert_eq!(only(&events, "auto_retry_end")["success"], false);
    assert_eq!(seen.load(Ordering::Relaxed), 2, "the server may have counted each request");
}

#[test]
fn a_server_that_goes_silent_ends_the_turn_with_the_reason() {
    let reply = json!({"text": "some text", "chunk_chars": 4, "hang_after": 1, "hang_ms": 600_000});
    let config = "[model]\nidle_timeout_s = 5\n";
    let world = World::with(&json!({"replies": [reply, {"text": "next"}]}), &fast(), config);
    let wire = world.follower();
    let events = turn(&wire, "hang");
    let message = answer(&events);
    assert_eq!((text(message).as_str(), &message["stopReason"]), ("some", &"error".into()));
    let told = message["errorMessage"].as_str().unwrap();
    assert!(told.contains("5 s") || told.contains("silent") || told.contains("nothing"), "{told}");
    let gone = |model: &FakeModel| (model.count("client_gone") == 1).then_some(());
    wait_for("the server to lose its client", || gone(&world.model));
    assert_eq!(text(answer(&turn(&wire, "again"))), "next");
    assert_eq!(world.model.count("requests"), 2);
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_at_once_and_not_tried_again() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (config, seen) = (Arc::new(config), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    let counted = Arc::clone(&seen);
    // Ends with the test's process.
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            // The client ends the handshake.
            drop(connection.complete_io(&mut stream));
        }
    });
    let mut world = World::absent(&json!({}));
    world.write_models(&base, "openai-completions");
    std::fs::write(world.agent.join("settings.json"), fast().to_string()).unwrap();
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "hello");
    assert!(all(&events, "auto_retry_start").is_empty(), "{events:?}");
    let told = answer(&events)["errorMessage"].as_str().unwrap();
    assert!(told.contains("localhost: ") && told.contains("certificate"), "{told}");
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn a_full_quota_with_a_delay_in_the_head_or_body_is_waited_for() {
    let body = json!([{"error": {"code": 429, "message": "You exceeded your current quota",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.3s"}]}}]);
    let in_body = json!({"status": 429, "body": body.to_string()});
    let in_head = json!({"status": 429, "error": "You exceeded your current quota",
        "headers": {"retry-after-ms": "300"}});
    for reply in [in_body, in_head] {
        let world = World::with(&json!({"replies": [reply, {"text": "recovered"}]}), &fast(), "");
        let wire = world.follower();
        let events = turn(&wire, "quota");
        assert_eq!(only(&events, "auto_retry_start")["delayMs"], 300, "{reply}");
        assert_eq!(text(answer(&events)), "recovered", "{reply}");
    }
    // Without a delay, no attempt can help.
    let reply = json!({"status": 429, "error": "You exceeded your current quota"});
    let world = World::with(&json!({"replies": [reply, {"text": "next"}]}), &fast(), "");
    let wire = world.follower();
    assert_eq!(answer(&turn(&wire, "quota"))["stopReason"], "error");
    assert_eq!(world.model.count("requests"), 1);
}

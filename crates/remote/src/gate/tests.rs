//! The gate: upstream's hash, what is remembered, and who is not heard.

use super::*;
use std::time::Duration;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

fn gate(token: &str, is_plain_known: bool) -> Gate {
    let token = secret(token);
    let hash = TokenHash::new_blocking(&token).unwrap();
    let limiter = Rc::new(RefCell::new(Limiter::new(Instant::now())));
    Gate::new(hash, is_plain_known.then_some(&token), limiter).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn the_hash_is_the_one_of_upstreams_files() {
    // As crypto.scryptSync("duck token", "c2FsdHNhbHRzYWx0", 32) of Node, and hashlib of Python, have it.
    let kept = TokenHash {
        hash: "c235662cd6c3ff8841be0b8929a7e402fa8261c894793f3a3ad78f1a2f9dee74".into(),
        salt: "c2FsdHNhbHRzYWx0".into(),
    };
    assert!(kept.verifies_blocking(&secret("duck token")));
    assert!(!kept.verifies_blocking(&secret("duck tokem")));
    for broken in ["", "00", "zz", &"g".repeat(64), &"é".repeat(32)] {
        let broken = TokenHash { hash: broken.into(), salt: kept.salt.clone() };
        assert!(!broken.verifies_blocking(&secret("duck token")), "{broken:?}");
    }
}

#[test]
fn new_tokens_are_long_and_different_and_shown_to_nobody() {
    let (one, two) = (new_token().unwrap(), new_token().unwrap());
    assert_eq!(one.expose_secret().len(), 32);
    assert_ne!(one.expose_secret(), two.expose_secret());
    let hash = TokenHash::new_blocking(&one).unwrap();
    assert_eq!((hash.hash.len(), hash.salt.len()), (64, 22));
    let told = format!("{one:?} {hash:?} {:?}", gate(one.expose_secret(), true));
    assert!(!told.contains(&hash.hash) && !told.contains(one.expose_secret()), "{told}");
}

#[test]
fn a_right_token_is_slow_once_and_then_quick() {
    block_on(async {
        let gate = gate("a token that is long enough", false);
        assert_eq!(gate.is_known_right("x"), None);
        assert_eq!(gate.check(PEER, "a token that is long enougH").await, Verdict::Wrong);
        assert_eq!(gate.is_known_right("x"), None, "a wrong one teaches nothing");
        assert_eq!(gate.check(PEER, "a token that is long enough").await, Verdict::Right);
        assert_eq!(gate.is_known_right("x"), Some(false));
        let begun = Instant::now();
        for _ in 0..1000 {
            assert_eq!(gate.check(PEER, "a token that is long enough").await, Verdict::Right);
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "as slow as the first one");
    });
}

#[test]
fn knocking_does_not_shut_out_who_has_a_token_that_cannot_be_guessed() {
    block_on(async {
        let gate = gate("a token that is long enough", true);
        let mut verdicts = Vec::new();
        for _ in 0..1000 {
            verdicts.push(gate.check(PEER, "wrong").await);
        }
        assert_eq!(verdicts.first(), Some(&Verdict::Wrong));
        assert_eq!(verdicts.last(), Some(&Verdict::TooMany));
        assert_eq!(gate.check(PEER, "a token that is long enough").await, Verdict::Right);
    });
}

#[test]
fn a_short_token_is_not_found_by_trying() {
    block_on(async {
        let gate = gate("1234", true);
        assert_eq!(gate.check(OTHER, "1234").await, Verdict::Right);
        for _ in 0..1000 {
            gate.check(PEER, "wrong").await;
        }
        assert_eq!(gate.check(PEER, "1234").await, Verdict::TooMany, "found by trying");
        assert_eq!(gate.check(OTHER, "1234").await, Verdict::Right, "it has been right before");
    });
}

#[test]
fn slow_checks_wait_in_a_line_that_has_an_end() {
    block_on(async {
        let gate = gate("a token that is long enough", false);
        let checks = (0..MAX_WAITING + 3).map(|_| gate.check(PEER, "wrong"));
        let verdicts = futures_util::future::join_all(checks).await;
        let n_refused = verdicts.iter().filter(|verdict| **verdict == Verdict::TooMany).count();
        assert_eq!(n_refused, 3, "{verdicts:?}");
        assert_eq!(gate.waiting.get(), 0);
    });
}

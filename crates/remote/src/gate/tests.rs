//! Token checks: upstream's hash, remembered tokens, and blocked addresses.

use super::*;
use futures_util::FutureExt as _;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

fn verifier(token: &str, is_plain_known: bool) -> TokenVerifier {
    let token = secret(token);
    let hash = TokenHash::new_blocking(&token).unwrap();
    let limiter = Rc::new(RefCell::new(AttemptLimiter::new(Instant::now())));
    TokenVerifier::new(hash, is_plain_known.then_some(&token), limiter, Arc::default()).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn the_hash_is_the_one_of_upstreams_files() {
    // From Node's crypto.scryptSync("duck token", "c2FsdHNhbHRzYWx0", 32) and Python's hashlib.
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
    let told = format!("{one:?} {hash:?} {:?}", verifier(one.expose_secret(), true));
    assert!(!told.contains(&hash.hash) && !told.contains(one.expose_secret()), "{told}");
}

#[test]
fn a_right_token_is_slow_once_and_then_quick() {
    block_on(async {
        let verifier = verifier("a token that is long enough", false);
        assert_eq!(verifier.is_known_right("x"), None);
        assert_eq!(
            verifier.check(PEER, "a token that is long enougH", None).await,
            TokenCheck::Wrong
        );
        assert_eq!(verifier.is_known_right("x"), None, "a wrong one teaches nothing");
        assert_eq!(
            verifier.check(PEER, "a token that is long enough", None).await,
            TokenCheck::Right(TokenHolder::Main)
        );
        assert_eq!(verifier.is_known_right("x"), Some(false));
        // While another one is checked slowly, a slow check would wait.
        let _other = verifier.slow.acquire().await.unwrap();
        let quick = verifier.check(PEER, "a token that is long enough", None).now_or_never();
        assert_eq!(quick, Some(TokenCheck::Right(TokenHolder::Main)));
    });
}

#[test]
fn during_a_block_the_right_token_is_refused_like_every_other_and_other_addresses_are_heard() {
    block_on(async {
        for (token, is_short) in [("a token that is long enough", false), ("1234", true)] {
            let verifier = verifier(token, true);
            assert_eq!(verifier.is_short.load(Ordering::Relaxed), is_short);
            assert_eq!(
                verifier.check(PEER, token, None).await,
                TokenCheck::Right(TokenHolder::Main)
            );
            let mut verdicts = Vec::new();
            for _ in 0..1000 {
                verdicts.push(verifier.check(PEER, "wrong", None).await);
            }
            let n_heard = verdicts.iter().filter(|it| **it == TokenCheck::Wrong).count();
            assert!(n_heard <= 20, "{n_heard} guesses were looked at");
            assert!(matches!(verifier.check(PEER, token, None).await, TokenCheck::TooMany(_)));
            assert_eq!(
                verifier.check(OTHER, token, None).await,
                TokenCheck::Right(TokenHolder::Main)
            );
        }
    });
}

#[test]
fn slow_checks_wait_in_a_line_that_has_an_end() {
    block_on(async {
        let verifier = verifier("a token that is long enough", false);
        let checks = (0..MAX_WAITING + 3).map(|_| verifier.check(PEER, "wrong", None));
        let verdicts = futures_util::future::join_all(checks).await;
        let n_refused = verdicts.iter().filter(|it| matches!(it, TokenCheck::TooMany(_))).count();
        assert_eq!(n_refused, 3, "{verdicts:?}");
        assert_eq!(verifier.waiting.available_permits(), MAX_WAITING);
    });
}

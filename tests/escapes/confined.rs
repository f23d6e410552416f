//! Further runs of the corpus, with what the columns of docs/escapes.md leave out: the network by host, and sessions in
//! safe mode. Exactly the accepted cases escape.

use super::corpus::Case;
use super::modes::{ALONE, Mode, Reading, no_landlock};
use super::{Verdict, run_corpus, table};
use crate::harness::tier::needs;
use crate::harness::untested;
use crate::harness::users::{User, best_tier};

fn in_namespaces(user: User, reading: Reading, has_hosts: bool) {
    let tier = match best_tier(user) {
        Ok(tier) => tier,
        Err(why) => return untested(&why),
    };
    let mode = Mode { reading, has_hosts, ..Mode::confined(user, tier) };
    let is_wanted = |case: &Case| reading == Reading::Profile || case.is_read_only();
    table::assert_documented(tier, &run_corpus(&mode, is_wanted));
}

#[test]
fn nothing_gets_out_of_namespaces_with_the_network_by_host() {
    needs!(OwnTier);
    in_namespaces(User::Ordinary, Reading::Profile, true);
}

#[test]
fn a_session_in_safe_mode_only_reads_in_namespaces() {
    needs!(OwnTier);
    in_namespaces(User::Ordinary, Reading::SafeSession, false);
    in_namespaces(User::Root, Reading::SafeSession, false);
}

#[test]
fn a_session_in_safe_mode_only_reads_without_namespaces() {
    needs!(OwnTier);
    if let Some(why) = no_landlock() {
        return untested(&why);
    }
    let mode = Mode { reading: Reading::SafeSession, ..Mode::confined(User::Ordinary, ALONE) };
    // The allow-list of safe mode refuses every call that this tier could not confine.
    let rows = run_corpus(&mode, Case::is_read_only);
    assert!(rows.iter().all(|row| !matches!(row.verdict, Verdict::Violated(_))), "{rows:#?}");
}

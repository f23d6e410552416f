//! Confinement: runs the corpus in every tier of this machine. Exactly the cases on the list of
//! exceptions escape.

use super::corpus;
use super::modes::{ALONE, MACOS, Mode, Reading, User, best_tier, no_landlock};
use super::{Row, Verdict, run_corpus};
use crate::harness::tier::needs;
use crate::harness::untested;
use std::collections::BTreeMap;

/// The cases that escaped: ids with the predicates that became true.
fn escaped(rows: &[Row]) -> BTreeMap<&str, String> {
    let kinds = |row| match row {
        &Row { ref case, verdict: Verdict::Violated(ref kinds), .. } => {
            Some((&*case.id, kinds.join(",")))
        }
        _ => None,
    };
    rows.iter().filter_map(kinds).collect()
}

#[track_caller]
fn assert_escaped(rows: &[Row], allowed: &[(&str, &str, &str)]) {
    let has_run = |id| {
        let mut rows = rows.iter().filter(|row| !matches!(row.verdict, Verdict::LeftOut(_)));
        rows.any(|row| row.case.id == id)
    };
    let allowed = allowed.iter().filter(|(id, _, _)| has_run(*id));
    let allowed: BTreeMap<&str, String> =
        allowed.map(|(id, kinds, _)| (*id, (*kinds).to_owned())).collect();
    assert_eq!(escaped(rows), allowed, "left: escaped cases; right: accepted escapes");
}

fn in_namespaces(user: User, reading: Reading, has_hosts: bool) {
    let tier = match best_tier(user) {
        Ok(tier) => tier,
        Err(why) => return untested(&why),
    };
    let mode = Mode { reading, has_hosts, ..Mode::confined(user, tier) };
    let is_wanted = |case: &corpus::Case| reading == Reading::Profile || case.is_read_only();
    assert_escaped(&run_corpus(&mode, is_wanted), corpus::NOT_BY_THE_KERNEL);
}

fn alone(reading: Reading) {
    if let Some(why) = no_landlock() {
        return untested(&why);
    }
    let mode = Mode { reading, ..Mode::confined(User::Ordinary, ALONE) };
    let is_wanted = |case: &corpus::Case| reading == Reading::Profile || case.is_read_only();
    // The allow-list of safe mode refuses every call that this tier could not confine.
    let allowed = match reading {
        Reading::Profile => corpus::exceptions_alone(),
        _ => Vec::new(),
    };
    assert_escaped(&run_corpus(&mode, is_wanted), &allowed);
}

#[test]
fn nothing_gets_out_of_namespaces_as_an_ordinary_user() {
    needs!(OwnTier);
    in_namespaces(User::Ordinary, Reading::Profile, false);
}

#[test]
fn nothing_gets_out_of_namespaces_as_root() {
    needs!(OwnTier);
    in_namespaces(User::Root, Reading::Profile, false);
}

#[test]
fn nothing_gets_out_of_namespaces_with_the_network_by_host() {
    needs!(OwnTier);
    in_namespaces(User::Ordinary, Reading::Profile, true);
}

#[test]
fn what_gets_out_without_namespaces_is_written_down() {
    needs!(OwnTier);
    alone(Reading::Profile);
}

#[test]
fn what_gets_out_of_the_profile_of_macos_is_written_down() {
    needs!(OwnTier);
    let mode = Mode::confined(User::Ordinary, MACOS);
    assert_escaped(&run_corpus(&mode, |_| true), &corpus::exceptions_of_macos());
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
    alone(Reading::SafeSession);
}

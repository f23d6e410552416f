//! Addresses that programs ask to open in the user's browser.

use super::{Viewer, run_script};
use crate::harness::Daemon;
use serde_json::json;
use std::time::Instant;

#[test]
fn xdg_open_asks_the_clients_that_may_type_and_only_for_the_web() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "xdg-open 'https://a.example/?x=1;y=%2f'; echo first $?; read -r x
                  for it in file:///etc/passwd 'javascript:alert(1)' data:text/html,a mailto:a@b; do
                      xdg-open $it; echo other $?; done 2>/dev/null
                  \"$BROWSER\" http://b.example/; echo second $?; exec cat";
    let terminal = run_script(&session, script);
    // The address may have been printed before a client is attached.
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    let url = viewer.news("term_open")["url"].clone();
    assert_eq!(url, "https://a.example/?x=1;y=%2f");
    viewer.shows("first 0");

    let rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    let reader = Viewer::attach_with(&daemon, &session, &terminal, &json!({"readOnly": true}));
    rows.shows("first 0");
    reader.shows("first 0");
    viewer.types("\r");
    for viewer in [&viewer, &rows] {
        assert_eq!(viewer.news("term_open")["url"], "http://b.example/");
        viewer.shows("second 0");
        assert_eq!(viewer.text().matches("other 2").count(), 4, "{}", viewer.text());
    }
    viewer.echoes("end");
    reader.shows("end");
    for viewer in [&viewer, &rows, &reader] {
        assert!(viewer.news.borrow().iter().all(|news| news["type"] != "term_open"));
    }
}

#[test]
fn xdg_open_without_a_terminal_shows_the_address_and_fails() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "setsid --wait xdg-open http://a.example </dev/null >out 2>&1; echo code $? >>out; echo end; exec cat";
    let viewer = Viewer::attach(&daemon, &session, &run_script(&session, script));
    viewer.shows("end");
    assert_eq!(session.bash("cat out"), "http://a.example\ncode 1\n\n[Exit code: 0]");
}

#[test]
fn a_flood_of_addresses_becomes_a_few_and_the_last_one_counts() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "read -r x; for ((n = 0; n < 1000; n++)); do printf '\\033]8732;open;http://%d.example\\007' $n; done
                  printf '\\033]8732;open;http://last.example\\007\\033]8732;open;file:///etc/passwd\\007'; exec cat";
    let viewer = Viewer::attach(&daemon, &session, &run_script(&session, script));
    let begun = Instant::now();
    viewer.types("\r");
    let mut n_asked = 1;
    while viewer.news("term_open")["url"] != "http://last.example" {
        n_asked += 1;
    }
    // One per second at most.
    let most = begun.elapsed().as_secs() + 2;
    assert!(n_asked <= most, "{n_asked} addresses, at most {most}");
    viewer.echoes("alive");
}

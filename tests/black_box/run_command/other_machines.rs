//! `quack attach --remote`: the terminal of another daemon, over its remote control.

use crate::harness::{Daemon, Terminal};
use crate::terminals::run_script;
use serde_json::json;

/// A token of sufficient length.
const TOKEN: &str = "the-right-token-0123456789";

#[test]
fn a_terminal_of_another_daemon_is_to_read_only_unless_it_allows_more() {
    let own = Daemon::start();
    for is_allowed in [false, true] {
        let daemon = Daemon::start_with(format!("[remote]\nterminals = {is_allowed}\n"));
        let wire = daemon.wire();
        let enabled = json!({"enabled": true, "port": 0, "authToken": TOKEN});
        let data = wire.request("remote_configure", enabled);
        let url = data["status"]["httpUrl"].as_str().expect("a URL");
        let session = wire.attach(daemon.repo("far").path());
        run_script(&session, "stty -echo; echo ready; while read -r x; do echo \"got $x\"; done");
        let attach = |token: &str| {
            let mut command = own.command(&["attach", "--remote", url]);
            command.env("QUACKD_REMOTE_TOKEN", token);
            Terminal::sized(command, Some((90, 25)))
        };

        let window = attach(TOKEN);
        window.shows("ready");
        window.press("typed\r");
        if is_allowed {
            window.shows("got typed");
        }
        window.press("\u{1c}");
        window.see(&format!("; quack attach --remote {url} "));
        assert_eq!(window.picture().contains("got typed"), is_allowed);
        assert_eq!(window.end().1, Some(0));

        let mut command = own.command(&["attach", "--remote", url, "nosuch"]);
        command.env("QUACKD_REMOTE_TOKEN", TOKEN);
        let window = Terminal::sized(command, Some((90, 25)));
        window.see("that machine has no session nosuch");
        let (rest, code) = window.end();
        assert!(code == Some(1) && !rest.contains("quack sessions"), "{rest}");

        let window = attach("");
        window.see("Token of remote control");
        window.press("\r");
        assert_eq!(window.end().1, Some(2));

        let window = attach("another-token-0123456789");
        window.see("the token is wrong");
        assert_eq!(window.end().1, Some(1));
    }
}

//! Terminals in the sandbox: those of other sessions are not visible, and no program types into a terminal.

use super::{Viewer, run_script};
use crate::harness::tier::needs;
use crate::harness::{Daemon, program, untested};

#[test]
fn the_terminal_of_another_session_is_not_visible() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let a = wire.attach(daemon.repo("a").path());
    if !a.shows_namespaces() {
        return;
    }
    let b = wire.attach(daemon.repo("b").path());
    let first = Viewer::attach(&daemon, &a, &run_script(&a, "tty; exec cat"));
    first.shows("/dev/pts/");
    first.echoes("secret of a");

    // A command of another session has no terminal at all, and its terminal is alone.
    let list = "for it in /dev/pts/[0-9]*; do [ -e \"$it\" ] && echo \"$it\"; done; echo end";
    assert_eq!(b.bash(list), "end\n\n[Exit code: 0]");
    let script = "for it in /dev/pts/[0-9]*; do echo found \"$it\"; echo intruder >\"$it\"; done; echo end; exec cat";
    let second = Viewer::attach(&daemon, &b, &run_script(&b, script));
    second.shows("end");
    assert_eq!(second.text().matches("found ").count(), 1, "{}", second.text());
    assert_eq!(second.text().matches("intruder").count(), 1, "{}", second.text());
    first.echoes("later");
    assert!(!first.text().contains("intruder"), "{}", first.text());
    assert!(!second.text().contains("secret"), "{}", second.text());
}

#[test]
fn no_program_types_into_its_terminal() {
    needs!(Namespaces);
    if !program("perl").args(["-e", "1"]).status().is_ok_and(|status| status.success()) {
        return untested("no perl, which makes the system calls");
    }
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    if !session.shows_namespaces() {
        return;
    }
    // TIOCSTI, also with bits that the kernel ignores, and TIOCLINUX with its request to paste.
    let script = r#"perl -e 'for my $it ([0x5412, "x"], [0xffffffff00005412, "x"], [0x541C, "\003"]) {
        my ($request, $byte) = @$it;
        print ioctl(STDIN, $request, $byte) ? "TYPED\n" : "refused\n";
    }'; echo end; exec cat"#;
    let viewer = Viewer::attach(&daemon, &session, &run_script(&session, script));
    viewer.shows("end");
    assert_eq!(viewer.text().matches("refused").count(), 3, "{}", viewer.text());
    assert!(!viewer.text().contains("TYPED"), "{}", viewer.text());
    viewer.echoes("alive");
}

#[test]
fn a_program_has_the_sandbox_of_commands() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let outside = daemon.repo("b");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let script = format!(
        "echo in >inside; echo out >'{0}/made'; cat '{0}/README.md'; echo hook >.git/hooks/pre-commit; \
         (: </dev/tcp/192.0.2.1/443) && echo CONNECTED; echo key [$EXA_API_KEY]; echo end; exec cat",
        outside.path().display()
    );
    let viewer = Viewer::attach(&daemon, &session, &run_script(&session, &script));
    viewer.shows("end");
    viewer.shows("key []");
    assert_eq!(repo.read("inside"), "in\n");
    assert!(!outside.path().join("made").exists());
    assert!(!repo.path().join(".git/hooks/pre-commit").exists());
    assert!(!viewer.text().contains("CONNECTED"), "{}", viewer.text());
}

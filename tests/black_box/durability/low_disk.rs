//! The disk is almost full: the daemon stops writing optional data and still saves its state.

use super::full_disk::SmallDisk;
use super::{OnDisk, fresh_directory, skipped};
use crate::harness::{Session, Wire, wait_for};
use serde_json::{Value, json};
use std::fs::File;

const MIB: u64 = 1024 * 1024;

/// The disk check of `doctor`.
fn disk_check(wire: &Wire) -> (String, String) {
    let data = wire.request("doctor", json!({}));
    let disk = super::array(&data["checks"]).iter().find(|check| check["name"] == "disk");
    let disk = disk.expect("a check of the disk");
    let text = |key: &str| disk[key].as_str().expect("text").to_owned();
    (text("status"), text("message"))
}

fn disk(wire: &Wire) -> Value {
    wire.request("quack.ps", json!({}))["supervisor"]["disk"].clone()
}

/// The line that states how much of a long output is omitted.
fn omitted(session: &Session<'_>, mib: u64) -> String {
    let text = session.bash(&format!("head -c {} /dev/zero | tr '\\0' x", mib * MIB));
    let line = text.lines().find(|line| line.contains(" bytes omitted"));
    line.unwrap_or_else(|| panic!("nothing is omitted: {} bytes", text.len())).to_owned()
}

#[test]
fn on_a_disk_that_is_almost_full_outputs_are_not_kept_and_changes_are() {
    const NAME: &str = "on_a_disk_that_is_almost_full_outputs_are_not_kept_and_changes_are";
    // A tenth of the disk must stay free, which is less than the configured limit.
    let small = match SmallDisk::start(64) {
        Ok(disk) => disk,
        Err(why) => return skipped(NAME, &why),
    };
    let repo = small.world.repo("a");
    let wire = Wire::connect(&small.app().join("daemon.sock"));
    let session = wire.attach(repo.path());
    assert!(omitted(&session, 10).contains("; full output: "));
    assert_eq!((disk_check(&wire).0.as_str(), disk(&wire)["low"].as_bool()), ("ok", Some(false)));

    // A command with more output than free space leaves the reserve free.
    let line = omitted(&session, 60);
    assert!(
        line.contains(" bytes of the output: ") && line.ends_with("; the disk is almost full]"),
        "{line}"
    );
    let (status, message) = disk_check(&wire);
    assert!(status == "warn" && message.contains(" MiB free, fewer than 6: "), "{message}");
    let free = disk(&wire)["freeBytes"].as_u64().expect("a number");
    assert!(disk(&wire)["low"] == true && 4 * MIB < free && free < 7 * MIB, "{free}");
    let line = omitted(&session, 1);
    assert!(line.ends_with("; not kept in a file: the disk is almost full]"), "{line}");

    // Other data takes more of the disk. Sessions are still created, and both files are complete.
    let fill = small.app().join("fill");
    File::create(&fill).unwrap().set_len(0).unwrap();
    std::fs::write(&fill, vec![b'x'; usize::try_from(free - 2 * MIB).unwrap()]).unwrap();
    for n in 0..20 {
        small
            .attach(&fresh_directory(&small.world, &format!("d{n}")), n % 2 == 0)
            .expect("a change");
    }
    assert_eq!(OnDisk::read(&small.app()).sessions.len(), 21);
    let n_told = || {
        let log = std::fs::read_to_string(small.app().join("duck-daemon.log")).unwrap();
        log.matches("disk almost full").count()
    };
    wait_for("the log to say so", || (n_told() != 0).then_some(()));
    assert_eq!(n_told(), 1);

    // The shortage ends when 1.5 times the required space is free, and not before.
    let outputs = small.app().join("run").join(&session.id);
    let n_removed = std::fs::read_dir(&outputs).unwrap().flatten().filter(|entry| {
        entry.file_name().to_string_lossy().ends_with(".log")
            && std::fs::remove_file(entry.path()).is_ok()
    });
    assert_eq!(n_removed.count(), 2);
    std::fs::write(&fill, "").unwrap();
    let other = small.app().join("other");
    let free = |wire: &Wire| {
        disk_check(wire);
        disk(wire)["freeBytes"].as_u64().expect("a number")
    };
    std::fs::write(&other, vec![b'x'; usize::try_from(free(&wire) - 8 * MIB).unwrap()]).unwrap();
    assert_eq!(disk_check(&wire).0, "ok", "there was room in between");
    std::fs::write(&fill, vec![b'x'; 6 * usize::try_from(MIB).unwrap()]).unwrap();
    assert_eq!(disk_check(&wire).0, "warn");
    std::fs::write(&fill, "").unwrap();
    assert_eq!((disk_check(&wire).0.as_str(), 7 * MIB < free(&wire)), ("warn", true));
    std::fs::remove_file(&other).unwrap();
    assert_eq!(disk_check(&wire).0, "ok");
    assert!(omitted(&session, 1).contains("; full output: "));
    wait_for("the log to say so", || {
        let log = std::fs::read_to_string(small.app().join("duck-daemon.log")).unwrap();
        log.contains("disk space recovered").then_some(())
    });
}

//! Tests of a disk that fills up while files are replaced.

use super::world::World;
use crate::replace::journal::EarlyStop;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A small separate file system, if this user may mount one.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path, options: &str) -> Option<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "only a mounted file system can be filled up"
        )]
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "as above")]
        let _ended = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn on_a_full_disk_files_are_old_or_new_and_can_be_undone() {
    let mut world = World::new(&[]);
    let ws = world.ws("");
    let Some(_small) = Small::mount(&ws, "size=400k") else {
        #[expect(clippy::print_stderr, reason = "the developer must see the message")]
        {
            eprintln!("skipped: this user may not mount");
        }
        return;
    };
    world.root = quackd_sandbox::Root::open(&ws).unwrap();
    for n in 0..20 {
        fs::write(world.ws(&format!("{n}")), "a".repeat(10_000)).unwrap();
    }
    let before = world.contents();
    // Each file grows to three times its size: the disk has space for some of them only.
    let applied = world.replace("^a{5000}", &"b".repeat(25_000));
    assert_eq!(applied.stopped, Some(EarlyStop::Failed("the disk is full".into())));
    let n_new = world.contents().values().filter(|content| content.len() == 30_000).count();
    assert_eq!(n_new, applied.n_written());
    assert!(world.contents().values().all(|content| [10_000, 30_000].contains(&content.len())));
    assert!(world.left_over().is_empty());
    if n_new != 0 {
        world.undo_last().unwrap();
    }
    assert_eq!(world.contents(), before);
    // If the originals do not fit, nothing is written.
    let run = world.base.join("run");
    let Some(_tiny) = Small::mount(&run, "size=64k") else { return };
    let applied = world.replace("^a{5000}", "b");
    let Some(EarlyStop::Failed(why)) = &applied.stopped else { panic!("{applied:?}") };
    assert!(why.starts_with("the originals cannot be kept: No space left"), "{why}");
    assert_eq!((applied.n_written(), applied.undo_id), (0, None));
    assert_eq!(world.contents(), before);
}

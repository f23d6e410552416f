//! A power cut right after the answer of a write: the file has its old or its new content, and is never empty.
//!
//! The file system is told to stop at once without writing what it holds (`EXT4_IOC_SHUTDOWN`), as after a power cut,
//! just after its journal was committed. That commit is the dangerous moment: it has the names, so it needs the data.

use crate::harness::{Daemon, skipped, wait_for};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const N_FILES: usize = 12;
const N_CUTS: usize = 4;

/// A small disk of its own, mounted for this test.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn create(directory: &Path) -> Result<Self, String> {
        let (image, at) = (directory.join("image"), directory.join("disk"));
        fs::create_dir_all(&at).expect("a place for the disk");
        File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("an image");
        run("mkfs.ext4", &["-q", "-F"], &[&image])?;
        let disk = Self { image, at };
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop"], &[&self.image, &self.at])
    }

    /// Unmounts and waits until no process sees the disk any more.
    fn unmount(&self) {
        wait_for("the disk to be free", || run("umount", &[], &[&self.at]).ok());
        wait_for("the disk to be released", || {
            let image = fs::canonicalize(&self.image).expect("the image");
            let used = |entry: fs::DirEntry| {
                let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
                backing.is_ok_and(|backing| Path::new(backing.trim_end()) == image)
            };
            let mut devices = fs::read_dir("/sys/block").expect("block devices");
            (!devices.any(|entry| entry.is_ok_and(used))).then_some(())
        });
    }

    /// Commits the journal with all names in it, then cuts the power.
    fn cut(&self) {
        let other = self.at.join("other");
        let file = File::create(&other).expect("create a file");
        fs::write(&other, "x").expect("write a file");
        file.sync_all().expect("commit the journal");
        shut_down(&file);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(run("umount", &["-l"], &[&self.at]));
    }
}

fn run(program: &str, options: &[&str], paths: &[&Path]) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "a test starts programs as a shell would")]
    let mut command = Command::new(program);
    command.args(options).args(paths).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("cannot start {program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
}

/// Stops the file system without a flush of its journal.
#[expect(unsafe_code, reason = "EXT4_IOC_SHUTDOWN has no safe form")]
fn shut_down(file: &File) {
    use rustix::ioctl::{Setter, ioctl, opcode};

    const NO_LOG_FLUSH: u32 = 2;
    const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
    // SAFETY: the kernel reads one number from the pointer that is passed.
    let done = unsafe { ioctl(file, Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)) };
    done.expect("cut the power");
}

fn content(version: &str, n: usize) -> String {
    format!("{version} {n} ").repeat(500)
}

#[test]
fn after_a_power_cut_a_written_file_has_its_old_or_its_new_content() {
    for _ in 0..N_CUTS {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = match Disk::create(directory.path()) {
            Ok(disk) => disk,
            // Also with QUACKD_REQUIRE=all: loop devices need a real root, which no container has.
            Err(why) => return skipped(&why),
        };
        let workspace = disk.at.join("ws");
        fs::create_dir(&workspace).expect("a workspace");
        for n in 0..N_FILES {
            fs::write(workspace.join(format!("old{n}")), content("old", n)).expect("write a file");
        }
        nix::unistd::sync();
        let daemon = Daemon::start();
        let wire = daemon.wire();
        let session = wire.attach(&workspace);
        for n in 0..N_FILES {
            for name in ["old", "new"] {
                let call = json!({"path": format!("{name}{n}"), "content": content("new", n)});
                let answer = session.call("write_file", call);
                assert!(answer.starts_with("Successfully wrote"), "{answer}");
            }
        }
        disk.cut();
        drop(wire);
        drop(daemon);
        disk.unmount();
        disk.mount().expect("mount again");
        let mut n_new = 0;
        for n in 0..N_FILES {
            let old = fs::read_to_string(workspace.join(format!("old{n}"))).expect("the old file");
            assert!(old == content("old", n) || old == content("new", n), "old{n}: {old:.40}");
            // Not there, or complete.
            if let Ok(new) = fs::read_to_string(workspace.join(format!("new{n}"))) {
                assert_eq!(new, content("new", n), "new{n}");
                n_new += 1;
            }
        }
        assert!(0 < n_new, "the commit had no name of a written file, so this showed nothing");
    }
}

//! A power cut right after a write: the file has its old or its new content, and is never empty.
//!
//! The test stops the file system without a flush (`EXT4_IOC_SHUTDOWN`), as a power cut would, just after a commit of
//! its journal. That moment is the dangerous one: the journal has the new names, and the data may be missing.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_sandbox::{Purpose, Root};
    use quackd_testkit::{skipped, wait_until};
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::process::Stdio;

    const N_FILES: usize = 12;
    const N_CUTS: usize = 4;

    /// A small file system in a file, mounted for this test.
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

        fn unmount(&self) {
            run("umount", &[], &[&self.at]).expect("unmount");
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
        let mut command = quackd_testkit::program(program);
        command.args(options).args(paths).stdin(Stdio::null());
        let output =
            command.output().map_err(|error| format!("cannot start {program}: {error}"))?;
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

    /// Waits until the thread that flushes behind the answers has closed its files, which keep the disk busy.
    fn wait_until_flushed(disk: &Path) {
        let is_open = |entry: fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(disk))
        };
        wait_until("the files to be closed", || {
            !fs::read_dir("/proc/self/fd").unwrap().any(|entry| entry.is_ok_and(is_open))
        });
    }

    fn content(version: &str, n: usize) -> String {
        format!("{version} {n} ").repeat(500)
    }

    fn write(root: &Root, name: &str, content: &str) {
        let target = root.open_target(name, Purpose::Write, &|| false);
        target.unwrap().replace(content.as_bytes(), &|| false).unwrap();
    }

    #[test]
    fn after_a_power_cut_a_written_file_has_its_old_or_its_new_content() {
        for _ in 0..N_CUTS {
            let directory = tempfile::tempdir().unwrap();
            let disk = match Disk::create(directory.path()) {
                Ok(disk) => disk,
                // Also in CI: loop devices need a real root, which no container has.
                Err(why) => return skipped(&format!("no disk to cut the power of: {why}")),
            };
            for n in 0..N_FILES {
                fs::write(disk.at.join(format!("old{n}")), content("old", n)).unwrap();
            }
            rustix::fs::sync();
            let root = Root::open(&disk.at).unwrap();
            for n in 0..N_FILES {
                write(&root, &format!("old{n}"), &content("new", n));
                write(&root, &format!("new{n}"), &content("new", n));
            }
            disk.cut();
            drop(root);
            wait_until_flushed(&disk.at);
            disk.unmount();
            disk.mount().expect("mount again");
            let mut n_new = 0;
            for n in 0..N_FILES {
                let old = fs::read_to_string(disk.at.join(format!("old{n}"))).unwrap();
                assert!(old == content("old", n) || old == content("new", n), "old{n}: {old:.40}");
                // Not there, or complete.
                if let Ok(new) = fs::read_to_string(disk.at.join(format!("new{n}"))) {
                    assert!(new == content("new", n), "new{n}: {new:.40}");
                    n_new += 1;
                }
            }
            assert!(0 < n_new, "the commit had no name of a written file, so this showed nothing");
        }
    }
}

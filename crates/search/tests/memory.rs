//! A line of 1 GiB is not loaded into memory. Runs in a separate process, because the test checks the peak
//! memory of that process.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_search::{Binary, Ignore, Pattern, Search, Stop, Tree, search};
    use std::fs::{self, File};
    use std::io;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    struct Plain(PathBuf);

    impl Tree for Plain {
        fn path(&self) -> &Path {
            &self.0
        }

        fn open_file(&self, relative: &Path) -> io::Result<File> {
            File::open(self.0.join(relative))
        }

        fn open_directory(&self, relative: &Path) -> io::Result<File> {
            File::open(self.0.join(relative))
        }
    }

    /// Returns the peak memory of this process in KiB.
    fn peak() -> usize {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_line_of_a_gigabyte_takes_less_than_20_megabytes() {
        let dir = tempfile::tempdir().unwrap();
        // A sparse file without a newline.
        File::create(dir.path().join("line")).unwrap().set_len(1 << 30).unwrap();
        fs::write(dir.path().join("other"), "needle\n").unwrap();
        let tree = Plain(dir.path().canonicalize().unwrap());
        for pattern in ["needle", r"needle\n"] {
            let before = peak();
            let mut request = Search::new(
                Pattern::new(pattern),
                Stop::at(Instant::now() + Duration::from_secs(60)),
            );
            request.binary = Binary::Text;
            request.scope.ignore = Ignore::None;
            let outcome = search(&request, &tree).unwrap();
            assert_eq!(outcome.shown, 1);
            assert_eq!(outcome.skipped.too_long + outcome.skipped.too_large, 1);
            let after = peak();
            // Matches across lines need the whole file, up to 16 MiB, and the buffer doubles to get there.
            let most = if pattern == "needle" { 20 } else { 40 };
            assert!(after - before < most * 1024, "{} KiB", after - before);
        }
    }
}

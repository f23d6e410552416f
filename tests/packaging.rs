//! The scripts of `packaging/`: `packaging/test.sh` packs an executable twice like a release, and
//! inspects, installs and removes the result.
//!
//! Skipped with a note if a required tool is missing. If only Debian's tools are missing, only
//! their part is skipped.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    /// Exit code of a script that cannot run here.
    const SKIPPED: i32 = 77;

    fn packaging(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "who runs the tests is told what was skipped")]
    #[cfg_attr(not(target_os = "linux"), ignore = "archives have been made on Linux only")]
    fn packing_twice_gives_the_same_bytes_and_a_package_that_installs_and_removes() {
        let output = quackd_testkit::program("bash")
            .arg(packaging("test.sh"))
            .arg(env!("CARGO_BIN_EXE_quack"))
            .env("CARGO", env!("CARGO"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        if text.contains("SKIPPED") {
            eprintln!("{text}");
        }
        let code = output.status.code();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(code == Some(0) || code == Some(SKIPPED), "{code:?}\n{text}\n{errors}");
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "a person starts it on a Mac")]
    fn the_checks_for_a_mac_hold_here() {
        let output = quackd_testkit::program("bash")
            .arg(packaging("macos-check.sh"))
            .arg(env!("CARGO_BIN_EXE_quack"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && 15 < text.matches("| holds |").count(),
            "{text}\n{errors}"
        );
    }

    #[test]
    fn the_release_script_takes_the_options_that_its_head_lists() {
        let script = std::fs::read_to_string(packaging("release.sh")).unwrap();
        let (head, body) = script.split_once("set -euo pipefail").unwrap();
        let (_, cases) = body.split_once("case \"$1\" in").unwrap();
        let (cases, _) = cases.split_once("esac").unwrap();
        let listed: BTreeSet<&str> = head
            .lines()
            .filter_map(|line| line.strip_prefix("#   ")?.split(' ').next())
            .filter(|word| word.starts_with("--"))
            .collect();
        let patterns = cases.lines().filter_map(|line| line.split_once(')')).map(|(left, _)| left);
        let taken: BTreeSet<&str> = patterns
            .flat_map(|pattern| pattern.split(['|', ' ']))
            .filter(|word| word.starts_with("--"))
            .collect();
        assert!(3 < listed.len());
        assert_eq!(listed, taken);
    }
}

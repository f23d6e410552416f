//! Gives memory back that only the start of the program needed.
//!
//! The kernel maps the program's file in steps of 64 KiB around each address that is used, and never removes what is
//! not used again. For a process that mostly waits, that is most of its resident memory.

use nix::libc::{MADV_DONTNEED, madvise};

/// Removes the pages of the program and its libraries from this process. The kernel maps those that are used again from
/// its cache. An error, for example a missing `/proc`, only leaves the pages where they are.
#[expect(unsafe_code, reason = "madvise(2) has no safe form")]
pub fn release_program_pages_blocking() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, len) in maps.lines().filter_map(unchanged) {
        // SAFETY: the mapping is private, of a file, and read-only from its creation on, so its pages equal the file's.
        // The kernel maps them again at the next access. Libraries are never unloaded, so the range still is that
        // mapping.
        unsafe { madvise(std::ptr::with_exposed_provenance_mut(start), len, MADV_DONTNEED) };
    }
}

/// Returns address and length of a mapping that has the content of its file: code, and the
/// constants at the start of the file. Other read-only mappings may have been written by the
/// dynamic linker.
fn unchanged(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (access, offset, _device, inode) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);

    let hex = |text| usize::from_str_radix(text, 16).ok();
    let is_unchanged = access == "r-xp" || access == "r--p" && hex(offset)? == 0;
    let start = hex(start)?;
    (is_unchanged && inode != "0").then_some((start, hex(end)?.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_and_constants_of_files_are_given_back() {
        let code = "55d0-75d0 r-xp 0081d000 fe:00 1234   /usr/bin/quack";
        assert_eq!(unchanged(code), Some((0x55d0, 0x2000)));
        assert!(unchanged("55d0-75d0 r--p 00000000 fe:00 1234   /usr/bin/quack").is_some());
        for line in [
            "55d0-75d0 r--p 01a45000 fe:00 1234   /usr/bin/quack",
            "55d0-75d0 rw-p 00000000 fe:00 1234   /usr/bin/quack",
            "55d0-75d0 r-xs 00000000 fe:00 1234   /usr/bin/quack",
            "7ffc-8ffc r-xp 00000000 00:00 0      [vdso]",
            "7ffc",
            "",
        ] {
            assert_eq!(unchanged(line), None, "{line}");
        }
    }

    #[test]
    fn the_program_goes_on_with_the_same_content() {
        let before = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(1 < before.lines().filter_map(unchanged).count(), "{before}");
        release_program_pages_blocking();
        assert_eq!(
            std::fs::read_to_string("/proc/self/maps").unwrap().lines().next(),
            before.lines().next()
        );
    }
}

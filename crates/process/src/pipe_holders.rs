//! Finds the processes that hold the output pipes of a command whose shell has exited. Called by [`crate::shell`]
//! before these processes are killed, so that the result can name them.

use crate::command::{HOLDER_BYTES, Holder, MAX_HOLDERS};
use quackd_protocol::foreign_text::one_line;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum number of descriptors checked in total. They take a few milliseconds.
const MAX_LOOKS: usize = 4096;

/// Returns the processes of `suspects` that have one of these pipes open, at most the first [`MAX_HOLDERS`].
pub(crate) fn holders(suspects: impl IntoIterator<Item = u32>, pipes: &[u64]) -> Vec<Holder> {
    let links: Vec<String> = pipes.iter().map(|inode| format!("pipe:[{inode}]")).collect();
    let mut looks = MAX_LOOKS;
    let mut holds = |pid: u32| {
        let Ok(descriptors) = Path::new(&format!("/proc/{pid}/fd")).read_dir() else {
            return false;
        };
        descriptors.flatten().any(|descriptor| {
            looks = looks.saturating_sub(1);
            let is_allowed = looks != 0;
            let link = std::fs::read_link(descriptor.path()).unwrap_or_default();
            is_allowed && links.iter().any(|expected| link.as_os_str() == expected.as_str())
        })
    };

    let holders = suspects.into_iter().filter(|pid| holds(*pid));
    holders.map(|pid| Holder { pid, command: command_of(pid) }).take(MAX_HOLDERS).collect()
}

/// Returns the command line of a process, or its name if it has no command line.
fn command_of(pid: u32) -> String {
    let mut line = first_bytes(&format!("/proc/{pid}/cmdline"));
    if line.iter().all(|byte| matches!(byte, 0 | b' ')) {
        line = first_bytes(&format!("/proc/{pid}/comm"));
    }
    shown(&line)
}

/// Reads twice the shown length, so that [`shown`] does the cutting.
fn first_bytes(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(HOLDER_BYTES).unwrap_or(u64::MAX).saturating_mul(2);
    // The process may have exited. Its text then is empty.
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).ok();
    bytes
}

/// Converts to one line of text. Zero bytes separate the words in `/proc/PID/cmdline`.
fn shown(bytes: &[u8]) -> String {
    let text = one_line(&String::from_utf8_lossy(bytes).replace(['\0', '\n'], " "));
    let text = text.trim();
    let mut end = HOLDER_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::HAS_PROC;

    #[test]
    fn a_name_is_one_short_line_whatever_the_process_says() {
        assert_eq!(shown(b"sleep\x0060\0"), "sleep 60");
        assert_eq!(shown(b"a\x1b[31m\x07b\nc\xff"), "a\u{fffd}[31m\u{fffd}b c\u{fffd}");
        assert_eq!(shown(b"\0\0 \n"), "");
        let long = shown("é".repeat(HOLDER_BYTES).as_bytes());
        assert_eq!(long, "é".repeat(HOLDER_BYTES / 2));
        assert_eq!(shown(format!("x{long}").as_bytes()).len(), HOLDER_BYTES - 1);
    }

    #[test]
    fn only_who_has_the_pipe_open_holds_it() {
        if !HAS_PROC {
            return;
        }
        let this = std::process::id();
        let (_reader, writer) = std::io::pipe().unwrap();
        let inode = rustix::fs::fstat(&writer).unwrap().st_ino;
        let found = holders([this, u32::MAX], &[1, inode]);
        assert_eq!(found.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [this]);
        assert!(!found[0].command.is_empty());
        assert_eq!(holders([this], &[1]), []);
        assert_eq!(holders([u32::MAX], &[inode]), []);
    }
}

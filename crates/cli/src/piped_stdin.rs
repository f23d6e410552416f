//! Stdin of a subcommand that is the input of something else: whether it is meant as such, and reading it.

use rustix::fs::FileType;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use tokio::sync::mpsc;

/// Whether stdin is a pipe, a socket or a file, and not a terminal or `/dev/null`.
pub(crate) fn is_input(stdin: &impl AsFd) -> bool {
    let kind = rustix::fs::fstat(stdin).map(|status| FileType::from_raw_mode(status.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket | FileType::RegularFile))
}

/// Reads stdin in pieces of at most `max` bytes, one ahead of the receiver. The channel ends after the end of stdin or an
/// error.
pub(crate) fn pieces(max: usize) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(1);

    // A read of stdin cannot be interrupted: the thread ends with the process.
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut bytes = vec![0; max];
        loop {
            let piece = match stdin.read(&mut bytes) {
                Ok(0) => return,
                Ok(n) => Ok(bytes.get(..n).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };

            let is_error = piece.is_err();
            if sender.blocking_send(piece).is_err() || is_error {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_files_are_input_and_devices_are_not() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_input(&null) && is_input(&file) && is_input(&reader));
    }
}

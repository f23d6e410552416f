//! Helpers of the targets: text from bytes, and a scratch directory.

use std::path::PathBuf;
use std::sync::OnceLock;

/// Environment variable with the parent directory of [`scratch`].
const DIRECTORY: &str = "QUACKD_FUZZ_DIR";

/// Splits the input into the first byte and the rest as text.
#[must_use]
pub fn flags_and_text(data: &[u8]) -> Option<(u8, &str)> {
    let (flags, rest) = data.split_first()?;
    Some((*flags, str::from_utf8(rest).ok()?))
}

/// Splits the input into the first byte and two texts, which a newline separates.
#[must_use]
pub fn flags_and_texts(data: &[u8]) -> Option<(u8, &str, &str)> {
    let (flags, text) = flags_and_text(data)?;
    let (first, second) = text.split_once('\n')?;
    Some((flags, first, second))
}

/// Returns a directory for this process only.
#[must_use]
pub fn scratch() -> &'static PathBuf {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let above = std::env::var_os(DIRECTORY).map_or_else(std::env::temp_dir, PathBuf::from);
        let directory = above.join(format!("quackd-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for files");
        directory
    })
}

//! What the targets share: text out of bytes, and a place for files.

use std::path::PathBuf;
use std::sync::OnceLock;

/// Names the directory for [`scratch`].
const DIRECTORY: &str = "QUACKD_FUZZ_DIR";

/// The first byte, and the rest as text.
#[must_use]
pub fn flags_and_text(data: &[u8]) -> Option<(u8, &str)> {
    let (flags, rest) = data.split_first()?;
    Some((*flags, str::from_utf8(rest).ok()?))
}

/// The first byte, and the rest as two texts with a newline between them.
#[must_use]
pub fn flags_and_texts(data: &[u8]) -> Option<(u8, &str, &str)> {
    let (flags, text) = flags_and_text(data)?;
    let (first, second) = text.split_once('\n')?;
    Some((flags, first, second))
}

/// A directory of this process only.
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

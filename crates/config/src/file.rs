//! Finds and reads the configuration file. Used by [`crate::load_blocking`] and by callers that show its path.

use crate::ConfigError;
use crate::document::position;
use crate::error::{MAX_CONFIG_BYTES, excerpt};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Returns the path of the configuration file: the value of `QUACKD_CONFIG`, or else `default`. The second value is
/// true if the variable named the file; then it must exist. A blank variable counts as unset.
///
/// # Errors
/// [`ConfigError::Environment`] if the path is relative: the daemon's working directory differs from the client's, so
/// each would find another file.
pub fn locate(
    default: PathBuf,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(PathBuf, bool), ConfigError> {
    const VARIABLE: &str = "QUACKD_CONFIG";
    let Some(value) = env(VARIABLE) else { return Ok((default, false)) };
    let value = value.trim();
    if value.is_empty() {
        return Ok((default, false));
    }

    if !Path::new(value).is_absolute() {
        let message = format!("must be an absolute path, not `{}`", excerpt(value));
        return Err(ConfigError::Environment { variable: VARIABLE, message });
    }
    Ok((value.into(), true))
}

/// Returns the text of the file. `None` if the file does not exist and `explicit` is false.
pub(crate) fn read_blocking(path: &Path, explicit: bool) -> Result<Option<String>, ConfigError> {
    let refused = |reason| ConfigError::Read { path: path.to_owned(), reason };
    let file = match open_blocking(path) {
        Ok(file) => file,
        // A broken link is an error: the user meant it to lead to a file.
        Err(error) if !explicit && is_missing(&error) && path.symlink_metadata().is_err() => {
            return Ok(None);
        }
        Err(error) => return Err(refused(error)),
    };

    let mut bytes = Vec::new();
    // One byte more than the limit shows that the file is larger.
    file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes).map_err(refused)?;
    if MAX_CONFIG_BYTES < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(ConfigError::TooBig { path: path.to_owned() });
    }

    let not_text = |text: &str, at, message: &str| {
        let (line, column) = position(text, at);
        ConfigError::Syntax { path: path.to_owned(), line, column, message: message.to_owned() }
    };

    let text = String::from_utf8(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes());
        not_text(&text, error.utf8_error().valid_up_to(), "this is not UTF-8 text")
    })?;
    // The parser would treat a NUL as the start of a key and report a misleading error.
    match text.find('\0') {
        Some(at) => Err(not_text(&text, at, "this is a NUL character and not text")),
        None => Ok(Some(text)),
    }
}

/// Opens without blocking: a FIFO may have no writer, and a device may never answer.
fn open_blocking(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    match kind {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(io::Error::other("it is a directory")),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// Includes paths inside a file, which cannot exist. Another check reports the unusable directory.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_is_named_wins_and_must_be_there() {
        let of = |named: Option<&str>| {
            let named = named.map(str::to_owned);
            locate("/state/quackd.toml".into(), &|name| {
                if name == "QUACKD_CONFIG" { named.clone() } else { None }
            })
        };
        let default = || ("/state/quackd.toml".into(), false);
        assert_eq!(of(None).unwrap(), default());
        assert_eq!(of(Some(" ")).unwrap(), default());
        assert_eq!(of(Some("/etc/duck.toml\n")).unwrap(), ("/etc/duck.toml".into(), true));
        let refused = of(Some("./duck.toml")).unwrap_err().to_string();
        assert_eq!(refused, "QUACKD_CONFIG must be an absolute path, not `./duck.toml`");
    }
}

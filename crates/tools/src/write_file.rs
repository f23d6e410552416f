//! write_file: new content for one file beneath the workspace, whole or not at all.

use crate::arguments::Arguments;
use crate::bounds::{Bounds, CancelOnDrop};
use crate::read_file::PATH;
use crate::seen::SeenFiles;
use crate::write_failure::WriteFailure;
use crate::{Call, Output, Toolbox};
use quackd_sandbox::{Purpose, Root, WriteError};
use std::sync::Arc;

/// How often a file that others write at the same moment is tried again.
pub(crate) const MAX_ATTEMPTS: usize = 2;

pub(crate) async fn write_file(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    if toolbox.safe_mode || call.safe_mode {
        return Output::error("write_file is disabled in safe mode");
    }
    let Some(path) = arguments.text(PATH) else {
        return Output::error("Missing required parameter 'path'");
    };
    let Some(content) = arguments.any_text("content") else {
        return Output::error("Missing required parameter 'content'");
    };
    let (path, content) = (path.to_owned(), content.to_owned());
    let seen = Arc::clone(&toolbox.seen);
    // What is given up must not be written a moment later.
    let cancel = CancelOnDrop::default();
    let give_up = bounds.give_up(&cancel);
    let written =
        bounds.run_blocking(move || write_blocking(&root, &seen, &path, &content, &give_up)).await;
    match written {
        Ok(Ok(text)) => Output::success(text),
        Ok(Err(failure)) => failure.output("write_file", bounds),
        Err(cutoff) => Output::cut_off("write_file", bounds, cutoff),
    }
}

fn write_blocking(
    root: &Root,
    seen: &SeenFiles,
    path: &str,
    content: &str,
    give_up: &dyn Fn() -> bool,
) -> Result<String, WriteFailure> {
    let mut attempt = 1;
    loop {
        match write_once(root, seen, path, content, give_up) {
            // It changed in the last moment, which matters only if this session knows what it changed
            // from: the next attempt finds that out.
            Err(WriteError::Changed) if attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(WriteFailure::of(error, "write", root, path)),
            Ok(()) => {
                return Ok(format!("Successfully wrote {} bytes to {path}", content.len()));
            }
        }
    }
}

fn write_once(
    root: &Root,
    seen: &SeenFiles,
    path: &str,
    content: &str,
    give_up: &dyn Fn() -> bool,
) -> Result<(), WriteError> {
    let mut target = root.open_target(path, Purpose::Write, give_up)?;
    // Both under the target's lock, so that two calls of this session do not refuse each other.
    let known = seen.version_blocking(target.relative());
    if target.version().is_some() && known.is_some() && known != target.version() {
        return Err(WriteError::Changed);
    }
    let version = target.replace(content.as_bytes(), give_up)?;
    seen.remember_blocking(target.relative().to_path_buf(), version);
    Ok(())
}

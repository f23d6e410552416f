//! write_file: writes the content of one file in the workspace atomically.

use crate::arguments::Arguments;
use crate::call_limits::{CallLimits, CancelOnDrop};
use crate::read_tracker::ReadTracker;
use crate::recorded_write::ChangeRecorder;
use crate::write_error::WriteFailure;
use crate::{Call, Confinement, Output, Toolbox};
use quackd_protocol::tools::{MayBeEmpty, WriteFileArguments};
use quackd_sandbox::{Purpose, Root, Target, WriteError};
use std::sync::Arc;

/// Maximum number of attempts for a file that other programs write at the same time.
pub(crate) const MAX_ATTEMPTS: usize = 2;

pub(crate) async fn write_file(
    toolbox: &Toolbox,
    call: &Call,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    if let Some(refused) = toolbox.refuse_change(call, "write_file") {
        return refused;
    }
    let WriteFileArguments { path, content: MayBeEmpty(content) } =
        WriteFileArguments::of(arguments.object());
    let Some(path) = arguments.directory().path_of(path) else {
        return Output::error("Missing required parameter 'path'");
    };
    let Some(content) = content else {
        return Output::error("Missing required parameter 'content'");
    };
    if let Some(refused) = toolbox.confinement.refuse_read_only(&path) {
        return refused;
    }

    let named = path.clone();
    let (seen, confinement) = (Arc::clone(&toolbox.state.seen), Arc::clone(&toolbox.confinement));
    let recorder = ChangeRecorder::new(toolbox, call);

    // An abandoned write must not happen after the answer.
    let cancel = CancelOnDrop::default();
    let give_up = bounds.give_up(&cancel);
    let write = move |root: Arc<Root>| {
        let writer = Writer { root: &root, seen: &seen, confinement: &confinement, recorder };
        writer.write_blocking(&path, &content, &give_up)
    };

    match toolbox.in_root("write_file", bounds, write).await {
        Ok(Ok((text, advice))) => {
            let advice = tilde_advice(&named).or(advice);
            Output::success(text).with_advice(advice).wrote([named])
        }
        Ok(Err(failure)) => failure.output("write_file", bounds, &toolbox.confinement),
        Err(answer) => answer,
    }
}

/// Returns advice about a path that a shell reads as one in the home: its user could later delete the wrong directory with
/// `rm -r ~`.
fn tilde_advice(path: &str) -> Option<String> {
    path.starts_with("~/").then(|| {
        "note: this is a directory named ~ in the workspace, not your home; ./~ means it in a shell"
            .to_owned()
    })
}

/// Session state for a write.
struct Writer<'a> {
    root: &'a Root,
    seen: &'a ReadTracker,
    confinement: &'a Confinement,
    recorder: ChangeRecorder,
}

impl Writer<'_> {
    /// Returns the text of the answer, and advice.
    fn write_blocking(
        &self,
        path: &str,
        content: &str,
        give_up: &dyn Fn() -> bool,
    ) -> Result<(String, Option<String>), WriteFailure> {
        let named = |error| WriteFailure::of(error, "write", self.root, path, self.confinement);
        let open = || open_unprotected(self.root, self.confinement, path, Purpose::Write, give_up);
        let mut attempt = 1;
        loop {
            match self.write_once(&mut open()?, content, give_up) {
                // The file changed just before the write. This matters only if the session had read it: the next
                // attempt checks that.
                Err(WriteError::Changed) if attempt < MAX_ATTEMPTS => attempt += 1,
                Err(error) => return Err(named(error)),
                Ok(advice) => {
                    let text = format!("Successfully wrote {} bytes to {path}", content.len());
                    return Ok((text, advice));
                }
            }
        }
    }

    fn write_once(
        &self,
        target: &mut Target,
        content: &str,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Option<String>, WriteError> {
        // Both steps hold the target's lock, so that two calls of this session do not refuse each other.
        let known = self.seen.version_blocking(target.relative());
        if target.version().is_some() && known.is_some() && known != target.version() {
            return Err(WriteError::Changed);
        }

        let content = content.as_bytes();
        let written = self.recorder.replace_blocking(target, None, content, give_up)?;
        self.seen.remember_blocking(target.relative().to_path_buf(), written.version);
        Ok(written.advice)
    }
}

/// Opens the target of a write, unless it is protected.
pub(crate) fn open_unprotected(
    root: &Root,
    confinement: &Confinement,
    path: &str,
    purpose: Purpose,
    give_up: &dyn Fn() -> bool,
) -> Result<Target, WriteFailure> {
    let verb = if purpose == Purpose::Write { "write" } else { "edit" };
    // Check the name first, because opening creates missing directories.
    if let Ok(name) = root.real_name(path) {
        WriteFailure::check(&name, confinement)?;
    }

    let target = root
        .open_target(path, purpose, give_up)
        .map_err(|error| WriteFailure::of(error, verb, root, path, confinement))?;

    // Also check the opened path: a link may have been exchanged since.
    WriteFailure::check(target.relative(), confinement)?;
    Ok(target)
}

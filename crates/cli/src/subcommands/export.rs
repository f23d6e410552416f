//! `quack export`: writes a session's conversation as Markdown or HTML. Also finds conversations for `quack history`.

use crate::args::AnySessionArgs;
use crate::args::sessions::ExportArgs;
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::session_file;
use crate::session_ref;
use crate::user_file;
use anyhow::Context as _;
use quackd_agent::export::{html, markdown};
use quackd_agent::transcript::{Problems, Transcript};
use quackd_home::Home;
use quackd_protocol::client::FoundInfo;
use serde_json::json;
use std::path::PathBuf;

/// Writes the conversation to a file, or prints it.
pub(crate) async fn run(args: ExportArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let ExportArgs { which, html: is_html, output: target } = args;
    let (_, transcript) = conversation(which, output).await?;
    let (format, text) =
        if is_html { ("html", html(&transcript)) } else { ("markdown", markdown(&transcript)) };

    let Some(path) = target else {
        if output.is_json() {
            output.document(&json!({ "format": format, "text": text }))?;
        } else {
            let _reader = output.raw(text).await?;
        }
        return Ok(ExitCode::Ok);
    };

    let bytes = text.len();
    let name = path.display().to_string();
    // The terminal's event loop must not wait for a slow disk.
    let written = tokio::task::spawn_blocking(move || {
        user_file::write_blocking(&path, text.as_bytes(), user_file::PRIVATE)
    })
    .await?;
    written.with_context(|| format!("cannot write {name}"))?;

    if output.is_json() {
        output.document(&json!({ "format": format, "path": name, "bytes": bytes }))?;
    } else {
        output.note(&format!("wrote {name}"));
    }
    Ok(ExitCode::Ok)
}

/// Returns a session and its conversation. Warns about damaged lines.
///
/// # Errors
/// Those of the request, and an error if the session has no conversation or its file cannot be read.
pub(super) async fn conversation(
    which: AnySessionArgs,
    output: CliOutput,
) -> anyhow::Result<(FoundInfo, Transcript)> {
    let (_, session) = session_ref::existing(&which.into_which(), output).await?;
    let id = session.session_id.0.clone();
    let transcript = tokio::task::spawn_blocking(move || read_transcript_blocking(&id)).await??;
    let Some((_, transcript)) = transcript else {
        let label = display::name(&session.label);
        let text = format!("session {label} has no conversation yet; `quack say` starts one");
        return Err(CliError::failed(text).into());
    };

    if let Some(damage) = damage(transcript.problems()) {
        output.warning(&format!("the session file is damaged: {damage}"));
    }
    Ok((session, transcript))
}

/// Describes the defects of a file. `None` without any.
fn damage(problems: Problems) -> Option<String> {
    let Problems { bad_lines, long_lines, bridged_links, broken_links } = problems;
    let counted = [
        (bad_lines + long_lines, "line", " skipped"),
        (bridged_links, "gap", " (messages are missing)"),
        (broken_links, "broken link", " (earlier messages are missing)"),
    ];
    let defects = counted.into_iter().filter(|(number, ..)| *number != 0);
    let defects = defects.map(|(number, noun, after)| display::count(number, noun) + after);
    Some(defects.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// Reads the session file that the daemon's state names, and returns its path. `None` if there is none, or it is empty.
pub(super) fn read_transcript_blocking(
    session: &str,
) -> anyhow::Result<Option<(PathBuf, Transcript)>> {
    let home = Home::from_process_env_blocking()?;
    let state = super::gc::own_metadata_blocking(&home.state_file())?;

    let session = state.sessions.iter().find(|known| known.id.as_str() == session);
    let Some(path) = session.map(|known| PathBuf::from(&known.pi_session_file)) else {
        return Ok(None);
    };
    // A session without a conversation has no file.
    if path.as_os_str().is_empty() {
        return Ok(None);
    }

    let transcript = session_file::read_blocking(&path)?;
    Ok(transcript.map(|transcript| (path, transcript)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_damage_has_a_text() {
        assert_eq!(damage(Problems::default()), None);
        let one = Problems { bridged_links: 1, ..Problems::default() };
        assert_eq!(damage(one).unwrap(), "1 gap (messages are missing)");
        let all = Problems { bad_lines: 1, long_lines: 1, bridged_links: 2, broken_links: 1 };
        let expected = "2 lines skipped, 2 gaps (messages are missing), 1 broken link (earlier messages are missing)";
        assert_eq!(damage(all).unwrap(), expected);
    }
}

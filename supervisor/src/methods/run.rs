//! `quack.run`: starts a program on a terminal of a session.

use super::attach::named;
use super::find::label;
use super::terminals::{call_worker, cell_size, check_access};
use super::tool_parameters::is_beneath;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::Purpose;
use quackd_protocol::client::{RunData, RunParams};
use quackd_protocol::limits::{
    MAX_JOB_ID_BYTES, MAX_PATH_BYTES, MAX_TERMINAL_COMMAND_BYTES, MAX_TERMINAL_VARIABLES,
    MAX_TERMINAL_WORDS,
};
use quackd_protocol::terminal::{OpenTerminal, OpenedTerminal};
use quackd_protocol::tools::OPEN_TERMINAL;
use quackd_protocol::worker::CallSpec;
use std::collections::BTreeMap;

/// Beginning of the names of variables that quackd sets.
const OWN_VARIABLES: &str = "QUACKD_";

impl Serve<RunParams> for Caller {
    async fn serve(&self, params: RunParams) -> Result<RunData, MethodError> {
        check_access(self)?;
        check(&params).map_err(MethodError::RunParams)?;
        let reference = named(params.session_id.as_deref(), None, self).await?;
        let session = self.session(reference, Purpose::Use).await?;
        if session.safe_mode {
            return Err(MethodError::RunInSafeMode(label(self, &session.session_id).await?));
        }

        let size = cell_size(params.cols, params.rows);
        let scrollback_kb = self.services.daemon.config.run.scrollback_kb.value;
        let open = OpenTerminal {
            argv: params.argv,
            cols: size.cols,
            rows: size.rows,
            env: params.env.into_iter().collect(),
            scrollback_bytes: scrollback_kb.saturating_mul(1024),
            record: params.record,
            colors: params.colors,
        };
        let spec = CallSpec {
            tool: OPEN_TERMINAL.to_owned(),
            // Texts and numbers always have a JSON form.
            arguments: serde_json::to_string(&open).unwrap_or_default(),
            cwd: params.cwd.unwrap_or_default(),
            ..CallSpec::default()
        };

        self.services.interrupted.resumed(&session.session_id);
        let data = call_worker(spec, &session, self).await?;
        let opened: Option<OpenedTerminal> =
            data.and_then(|data| serde_json::from_str(data.get()).ok());
        let opened = opened.filter(is_plausible).ok_or_else(|| {
            MethodError::TerminalCall("Worker did not name the terminal".to_owned())
        })?;
        Ok(RunData {
            session_id: session.session_id,
            session_name: session.session_name,
            terminal_id: opened.terminal_id,
            recording: opened.recording,
        })
    }
}

/// Whether the texts of a worker are not too long.
fn is_plausible(opened: &OpenedTerminal) -> bool {
    let recording = opened.recording.as_deref().unwrap_or_default();
    opened.terminal_id.len() <= MAX_JOB_ID_BYTES && recording.len() <= MAX_PATH_BYTES
}

/// # Errors
/// The reason why the parameters are refused.
fn check(params: &RunParams) -> Result<(), &'static str> {
    let RunParams { argv, cwd, env, .. } = params;
    let has_nul = |text: &String| text.contains('\0');

    if MAX_TERMINAL_WORDS < argv.len() {
        return Err("argv must have at most 1024 words");
    }
    if MAX_TERMINAL_COMMAND_BYTES < argv.iter().map(String::len).sum::<usize>() {
        return Err("argv must have at most 128 KiB");
    }
    if argv.first().is_some_and(String::is_empty) || argv.iter().any(has_nul) {
        return Err("argv must begin with the name of a program, and have no NUL");
    }
    if cwd.as_deref().is_some_and(|cwd| !is_beneath(cwd)) {
        return Err("cwd must be a path in the workspace, relative to it");
    }
    check_variables(env)
}

fn check_variables(env: &BTreeMap<String, String>) -> Result<(), &'static str> {
    if MAX_TERMINAL_VARIABLES < env.len() {
        return Err("env must have at most 64 variables");
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if MAX_TERMINAL_COMMAND_BYTES < bytes {
        return Err("env must have at most 128 KiB");
    }

    if !env.keys().all(|name| is_name(name)) {
        return Err("env must have names of letters, digits and `_` that begin with no digit");
    }
    if env.keys().any(|name| name.starts_with(OWN_VARIABLES)) {
        return Err("env must have no variable that begins with QUACKD_: quackd sets these");
    }
    if env.values().any(|value| value.contains('\0')) {
        return Err("env must have no NUL");
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_program_are_bounded() {
        let check_for = |change: &dyn Fn(&mut RunParams)| {
            let argv = vec!["vi".to_owned(), String::new()];
            let mut params = RunParams { argv, ..RunParams::default() };
            change(&mut params);
            check(&params).err().unwrap_or_default()
        };
        let env = |params: &mut RunParams, name: &str, value: &str| {
            params.env.insert(name.to_owned(), value.to_owned());
        };
        assert_eq!(check_for(&|_| {}), "");
        assert_eq!(check_for(&|it| it.argv.clear()), "", "the user's shell");
        assert_eq!(check_for(&|it| it.cwd = Some("src/a".to_owned())), "");
        assert_eq!(check_for(&|it| env(it, "_A1", "x")), "");
        assert_eq!(check_for(&|it| env(it, "LD_PRELOAD", "x")), "");

        let refused: [&dyn Fn(&mut RunParams); 11] = [
            &|it| it.argv = vec!["x".to_owned(); MAX_TERMINAL_WORDS + 1],
            &|it| it.argv = vec!["x".repeat(MAX_TERMINAL_COMMAND_BYTES + 1)],
            &|it| it.argv = vec![String::new()],
            &|it| it.argv.push("a\0".to_owned()),
            &|it| it.cwd = Some("../x".to_owned()),
            &|it| it.cwd = Some("/x".to_owned()),
            &|it| env(it, "1A", "x"),
            &|it| env(it, "", "x"),
            &|it| env(it, "QUACKD_SESSION", "x"),
            &|it| env(it, "A", "a\0"),
            &|it| (0..=MAX_TERMINAL_VARIABLES).for_each(|n| env(it, &format!("A{n}"), "")),
        ];
        for (n, change) in refused.into_iter().enumerate() {
            assert_ne!(check_for(change), "", "{n}");
        }
    }
}

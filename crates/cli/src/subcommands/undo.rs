//! `quack undo`: takes back changes of files.

use super::replace::again;
use crate::args::undo::{GroupSelection, UndoArgs};
use crate::display::{count, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, DIM, RED, StdoutProperties};
use crate::render::search::undo_data::{File, Undone};
use crate::render::search::{PATH, fit, push};
use crate::session_ref::{self, Missing};
use crate::workspace_scope::{self, ScopedClient, read};
use quackd_protocol::tools::{ArgumentsBuilder, UndoArguments};

/// Takes changes back, or lists them.
pub(crate) async fn run(args: &UndoArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let scope = ScopedClient::begin(&args.call, Missing::Create, output).await?;
    session_ref::tell(&scope.session, output);
    let result = scope.call(arguments(args), false).await?;
    let data = workspace_scope::data(&result, CliError::failed)?;

    if output.is_json() {
        output.document(data)?;
    } else if args.list {
        output.answer(&format!("{}\n", result.text.trim_end()))?;
    }
    if args.list {
        return Ok(ExitCode::Ok);
    }

    let undone: Undone = read(data)?;
    if !output.is_json() {
        let text = text(&undone, args, output.audience());
        let _reader = output.raw(text).await?;
        if let Some(reason) = &undone.stopped {
            let reason = plain(reason);
            output.warning(&format!(
                "stopped before the end: {reason}; the restored files are complete"
            ));
        }
        undone.notes.iter().for_each(|note| output.warning(&plain(note)));
        if !undone.older_undo_ids.is_empty() {
            let ids = plain(&undone.older_undo_ids.join(", "));
            output.note(&format!("older ones can be undone by id: {ids}; see quack undo --list"));
        }
    }
    Ok(if undone.is_whole() { ExitCode::Ok } else { ExitCode::Failed })
}

fn arguments(args: &UndoArgs) -> ArgumentsBuilder<UndoArguments> {
    selected(&args.selection.group)
        .list(args.list.then_some(true))
        .undo_id(args.selection.id.clone())
}

/// Returns the arguments of the tool that select the changes of a call or of a turn.
pub(super) fn selected(group: &GroupSelection) -> ArgumentsBuilder<UndoArguments> {
    UndoArguments::builder().call_id(group.call.clone()).turn(group.turn)
}

fn text(undone: &Undone, args: &UndoArgs, audience: StdoutProperties) -> String {
    let mut text = String::new();
    for File { path, restored, reason, deleted, partly } in &undone.files {
        push(&mut text, &fit(path, audience), PATH, audience);
        if *restored {
            text.push_str(match (deleted, partly) {
                (true, _) => ": deleted, because the change had created it\n",
                (_, true) => ": restored to what another program had written between the changes\n",
                _ => ": restored\n",
            });
        } else {
            let reason = fit(reason.as_deref().unwrap_or("not restored"), audience);
            text.push_str(": ");
            push(&mut text, &format!("not changed: {reason}"), RED, audience);
            text.push('\n');
        }
    }

    let id = fit(&undone.undone, audience);
    text.push_str(&format!("Undid {id}: {} restored.\n", count(undone.restored, "file")));

    if let Some(id) = &undone.undo_id {
        let id = fit(id, audience);
        let again = format!("Redo with: quack undo {id}{}", again(&args.call.which));
        push(&mut text, &again, DIM, audience);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use serde_json::{Value, json};

    fn parse(line: &[&str]) -> UndoArgs {
        match Cli::read(["quack", "undo"].iter().chain(line)).unwrap().verb {
            Some(Verb::Undo(args)) => args,
            other => panic!("not an undo: {other:?}"),
        }
    }

    #[test]
    fn the_last_one_is_meant_unless_one_is_named() {
        let sent = |line: &[&str]| Value::from(arguments(&parse(line)).build());
        assert_eq!(sent(&[]), json!({}));
        assert_eq!(sent(&["u1"]), json!({"undo_id": "u1"}));
        assert_eq!(sent(&["--list"]), json!({"list": true}));
        assert_eq!(sent(&["--turn"]), json!({"turn": 0}));
        assert_eq!(sent(&["--turn", "7"]), json!({"turn": 7}));
        assert_eq!(sent(&["--call", "c"]), json!({"call_id": "c"}));
        for wrong in [&["u1", "--turn=1"][..], &["--call", "c", "--turn"], &["--call", ""], &[""]] {
            assert!(Cli::read(["quack", "undo"].iter().chain(wrong)).is_err(), "{wrong:?}");
        }
        let tool = quackd_protocol::tools::find("undo").unwrap();
        assert!(
            ["undo_id", "list", "call_id", "turn", "diff"]
                .iter()
                .all(|name| tool.parameter(name).is_some())
        );
    }

    #[test]
    fn what_was_restored_is_told_and_what_was_not() {
        let data = json!({"undone": "u1", "undoId": "u2", "restored": 1, "files": [
            {"path": "x", "restored": true},
            {"path": "../y", "restored": false, "reason": "changed since"},
            {"path": "z", "restored": true, "deleted": true},
        ]});
        let undone: Undone = read(&data).unwrap();
        let audience = StdoutProperties { is_terminal: false, is_colored: false };
        assert_eq!(
            text(&undone, &parse(&["--session", "s"]), audience),
            "x: restored\n../y: not changed: changed since\nz: deleted, because the change had created it\nUndid u1: 1 file restored.\n\
             Redo with: quack undo u2 --session s\n"
        );
        assert!(!undone.is_whole());
    }
}

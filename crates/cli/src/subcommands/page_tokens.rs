//! `quack remote tokens`: lists and revokes the tokens of pages.

use crate::args::remote::{RemoteTokensArgs, RemoteTokensVerb};
use crate::connect::call;
use crate::display::{self, plain};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::time_format::ago;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_protocol::client::{PageRights, PageTokenInfo, PageTokensParams};
use serde::Serialize;

/// `--json` document of `quack remote tokens revoke`.
#[derive(Debug, Serialize)]
struct Revoked<'a> {
    revoked: &'a [PageTokenInfo],
}

/// Runs the subcommand.
pub(super) async fn run(args: RemoteTokensArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let Some(RemoteTokensVerb::Revoke(args)) = args.verb else {
        let tokens = call(PageTokensParams::default(), output).await?.tokens;
        output.show(&tokens, || render(&tokens, Timestamp::now(), &TimeZone::system()))?;
        return Ok(ExitCode::Ok);
    };

    let params = PageTokensParams { revoke: args.id, all: Some(args.all) };
    let revoked = call(params, output).await?.tokens;
    output.show(&Revoked { revoked: &revoked }, || match revoked.len() {
        1 => "Revoked 1 token\n".to_owned(),
        n => format!("Revoked {n} tokens\n"),
    })?;
    Ok(ExitCode::Ok)
}

fn render(tokens: &[PageTokenInfo], now: Timestamp, zone: &TimeZone) -> String {
    if tokens.is_empty() {
        return "No pages are signed in. Run `quack open` to open one.\n".to_owned();
    }
    let row = |token: &PageTokenInfo| {
        let PageRights { approvals, apply, terminals } = token.rights;
        let named = [(approvals, "approvals"), (apply, "apply"), (terminals, "terminals")];
        let rights: Vec<_> = named.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
        let rights = if rights.is_empty() { "-".to_owned() } else { rights.join(",") };
        [
            plain(&token.id),
            rights,
            ago(&token.created, now, zone),
            ago(&token.last_used, now, zone),
            plain(&token.agent),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    display::table(["ID", "RIGHTS", "CREATED", "LAST USED", "BROWSER"], [8, 6, 12, 12, 0], &rows)
}

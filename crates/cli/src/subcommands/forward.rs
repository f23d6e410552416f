//! `quack forward`: makes a server of a session reachable on this machine.

use crate::args::forward::ForwardArgs;
use crate::connect::start_and_connect;
use crate::display::{name, table};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::session_ref::{Missing, Wanted};
use crate::time_format::local;
use jiff::tz::TimeZone;
use quackd_protocol::client::{ForwardParams, SessionForward};

/// Runs the subcommand.
pub(crate) async fn run(mut args: ForwardArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (choice, ports) = args.take()?;
    let is_all = args.list && choice.session.is_none() && choice.dir.is_none();
    let reference = Wanted::of(&choice)?;
    let daemon = start_and_connect(output).await?;

    let session = if is_all {
        None
    } else {
        Some(reference.one(&daemon.client, Missing::Refuse).await?.session_id.0)
    };

    let (port, on) = ports.map_or((None, None), |(port, local)| (Some(port), local));
    let params = ForwardParams {
        session_id: session,
        port,
        local: on,
        link: args.link.then_some(true),
        close: args.close.then_some(true),
        list: args.list.then_some(true),
    };

    let data = daemon.client.call(params).await?;
    if output.is_json() {
        output.document(&data)?;
    } else if let Some(address) = data.listen.as_ref().or(data.link.as_ref()) {
        output.text(&format!("{address}\n"))?;
    } else if args.close {
        output.note("closed");
    } else if data.forwards.is_empty() {
        output.note("no port is forwarded");
    } else {
        output.text(&rows(&data.forwards))?;
    }
    Ok(ExitCode::Ok)
}

fn rows(forwards: &[SessionForward]) -> String {
    let zone = TimeZone::system();
    let row = |session_forward: &SessionForward| {
        [
            name(&session_forward.label),
            session_forward.forward.port.to_string(),
            format!("127.0.0.1:{}", session_forward.forward.local),
            local(&session_forward.forward.since, &zone),
        ]
    };

    let rows: Vec<_> = forwards.iter().map(row).collect();
    table(["SESSION", "PORT", "ADDRESS", "SINCE"], [0; 4], &rows)
}

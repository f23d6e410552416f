//! `quack rpc`: Pi's RPC protocol on stdin and stdout, as a client of the daemon. Programs that start `pi --mode rpc` can
//! start this instead.
//!
//! Commands run at the same time, and each gets exactly one response with its id, also after the end of stdin. A prompt's
//! response precedes its events.

mod calls;
mod finding;
mod lines;
mod output;
mod reading;
mod session;
mod start;

use self::calls::{COMMAND_TIMEOUT, abort, refused, send};
use self::lines::{Dialect, parse, raw, response};
use self::output::{Done, Order, Output, note};
use self::session::{Session, is_setting, setting};
use crate::args::rpc::RpcArgs;
use crate::connect::start_and_connect;
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::interrupts::Interrupts;
use crate::output::CliOutput;
use crate::shell_keys;
use quackd_client::{Client, ClientError};
use quackd_ipc::lines::{Line, LineReader};
use quackd_protocol::client::{AbortParams, UiResponseParams};
use quackd_protocol::limits::MAX_LINE_BYTES;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::io::Stdout;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Commands at the same time. Further lines wait.
const MAX_COMMANDS: usize = 64;

/// Time for commands to end after the abort at the end of stdin.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Commands that select another session. They wait for the responses of all others.
const SWITCHES: [&str; 4] = ["new_session", "switch_session", "fork", "clone"];

/// Commands that an abort ends. Other ones end by themselves.
const WORK: [&str; 4] = ["prompt", "compact", "bash", "abort"];

/// Commands that begin work, or add to it.
const BEGINNINGS: [&str; 5] = ["prompt", "steer", "follow_up", "compact", "bash"];

/// Runs the subcommand.
pub(crate) async fn run(args: RpcArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if args.version {
        output.text(&format!("{}\n", quackd_protocol::VERSION))?;
        return Ok(ExitCode::Ok);
    }

    if !args.ignored.is_empty() {
        note(&format!("no effect here: {}", display::plain(&args.ignored.join(", "))));
    }

    // Mistakes in the command line are reported before a daemon is started.
    start::check(&args)?;
    let options = start::options(&args).await?;
    let dialect = start::dialect(&args)?;

    let mut interrupts = Interrupts::catch_with_hangup()?;
    let client = Arc::new(start_and_connect(output).await?.client);
    if let Err((names, error)) = shell_keys::try_pass_on(&client).await {
        note(&format!("this shell has {names}, but the daemon did not take the value: {error}"));
    }

    start::give_key(&args, &client).await;
    let mut session = start::begin(&args, options, client).await?;

    let served = async {
        start::choose(&args, &session).await?;
        serve(&mut session, dialect, &mut interrupts).await
    };
    let ended = served.await;

    // Also after an error: a temporary session must not stay.
    session.end().await;
    ended
}

/// Serves until the end of stdin, or until a signal.
async fn serve(
    session: &mut Session,
    dialect: Dialect,
    interrupts: &mut Interrupts,
) -> anyhow::Result<ExitCode> {
    let mut lines = LineReader::new(tokio::io::stdin(), MAX_LINE_BYTES);
    let mut serving = Serving::new(session, dialect);
    loop {
        tokio::select! {
            // Responses and events before the next command: a client that sends many must not delay them.
            biased;
            _ = interrupts.next() => {
                serving.finish(Some(Instant::now())).await?;
                return Ok(ExitCode::Interrupted);
            }
            stepped = serving.step() => stepped?,
            line = lines.next(), if serving.running.len() < MAX_COMMANDS => match line? {
                Some(line) => serving.line(&line).await?,
                None => {
                    serving.finish(None).await?;
                    return Ok(ExitCode::Ok);
                }
            },
        }
    }
}

/// The commands of one client.
struct Serving<'a> {
    session: &'a mut Session,
    output: Output<Stdout>,
    running: JoinSet<()>,
    done: mpsc::Sender<Done>,
    finished: mpsc::Receiver<Done>,
    /// Commands of [`WORK`] without a response, and other ones.
    work: usize,
    queries: usize,
    /// Cancelled to answer the running commands with an error.
    give_up: CancellationToken,
}

impl<'a> Serving<'a> {
    fn new(session: &'a mut Session, dialect: Dialect) -> Self {
        let (done, finished) = mpsc::channel(MAX_COMMANDS);
        Self {
            session,
            output: Output::new(std::io::stdout(), dialect),
            running: JoinSet::new(),
            done,
            finished,
            work: 0,
            queries: 0,
            give_up: CancellationToken::new(),
        }
    }

    /// Writes the next response or event. Cancel-safe.
    async fn step(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            // Responses first: the events of a prompt are held until its response.
            Some(done) = self.finished.recv() => self.write(done)?,
            Some(_) = self.running.join_next() => {}
            event = self.session.follow.recv() => {
                let event = event.ok_or_else(|| CliError::daemon_gone("Daemon disconnected."))?;
                self.output.event(event)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, mut done: Done) -> std::io::Result<()> {
        let count = self.count(done.is_work);
        *count = count.saturating_sub(1);
        self.session.settings.extend(done.setting.take());
        self.output.done(done)
    }

    fn count(&mut self, is_work: bool) -> &mut usize {
        if is_work { &mut self.work } else { &mut self.queries }
    }

    /// Handles a line. Starts its command in a task.
    async fn line(&mut self, line: &Line) -> anyhow::Result<()> {
        match parse(line) {
            Err(response) => self.output.write(&[response])?,
            Ok((id, name, fields)) if SWITCHES.contains(&&*name) => {
                // Like Pi: the turn of the old session ends. Its events are no longer followed.
                self.finish(None).await?;
                self.session.abort().await;
                let result = self.session.switch(&name, &fields).await;
                let result = result.map(|data| Some(raw(&data)));
                self.output.write(&[response(id.as_ref(), &name, result)])?;
            }
            Ok((_, name, fields)) if name == "extension_ui_response" => {
                answer_dialog(self.session, fields).await;
            }
            Ok((id, name, fields)) => self.start(id, name, fields),
        }
        Ok(())
    }

    fn start(&mut self, id: Option<Value>, name: String, fields: Map<String, Value>) {
        let order = match name.as_str() {
            "prompt" => Order::First,
            "abort" => Order::AfterTurn,
            "abort_retry" => Order::AfterRetry,
            "compact" => Order::AfterSummary,
            _ => Order::Any,
        };

        self.output.begun(order);

        let is_work = WORK.contains(&name.as_str());
        self.session.has_worked |= BEGINNINGS.contains(&name.as_str());
        *self.count(is_work) += 1;

        let (client, session) = (Arc::clone(&self.session.client), self.session.id());
        let (done, give_up) = (self.done.clone(), self.give_up.clone());
        // The command takes its fields, which for other commands may be large.
        let setting_fields = is_setting(&name).then(|| fields.clone());

        self.running.spawn(async move {
            let result = tokio::select! {
                result = run_command(&client, &session, &name, fields) => result,
                () = give_up.cancelled() => Err(refused("the command has not ended after the abort")),
            };

            // A setting that was refused does not hold.
            let setting = match (&result, setting_fields) {
                (Ok(data), Some(fields)) => {
                    let data =
                        data.as_ref().and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
                    setting(&name, &fields, data.as_ref())
                }
                _ => None,
            };

            let line = response(id.as_ref(), &name, result);
            // Without a receiver, nothing writes the response.
            done.send(Done { line, order, is_work, setting }).await.ok();
        });
    }

    /// Ends the turn, and writes the responses of all commands. After a signal, no command is waited for longer than
    /// [`ABORT_TIMEOUT`].
    async fn finish(&mut self, signal: Option<Instant>) -> anyhow::Result<()> {
        let mut aborted: Option<Instant> = None;
        while !self.running.is_empty() {
            let in_turn = self.output.in_turn();
            // While the agent starts, an abort would also refuse the queries.
            let may_abort =
                self.session.has_worked && (in_turn || self.work != 0 && self.queries == 0);

            if aborted.is_none() && may_abort {
                let (client, id) = (Arc::clone(&self.session.client), self.session.id());
                let give_up = self.give_up.clone();
                self.running.spawn(async move {
                    give_up.run_until_cancelled(abort(&client, &id)).await;
                });
                aborted = Some(Instant::now());
            }

            // Without an abort, the commands may take as long as they need.
            let since = signal.or(aborted);
            let due = since.unwrap_or_else(Instant::now) + ABORT_TIMEOUT;
            let may_give_up = since.is_some() && !self.give_up.is_cancelled();

            tokio::select! {
                stepped = self.step() => stepped?,
                () = sleep_until(due), if may_give_up => self.give_up.cancel(),
            }
        }

        // A task that has ended may have left its response in the queue.
        while let Ok(done) = self.finished.try_recv() {
            self.write(done)?;
        }
        // The events of the end of a turn precede the response to its abort.
        while let Some(event) = self.session.follow.try_recv() {
            self.output.event(event)?;
        }

        // The commands of the next session may run until their own abort.
        self.give_up = CancellationToken::new();
        Ok(self.output.turn_left()?)
    }
}

async fn run_command(
    client: &Client,
    session: &str,
    name: &str,
    fields: Map<String, Value>,
) -> Result<Option<Box<RawValue>>, ClientError> {
    match name {
        "get_tree" => reading::tree(client, session).await.map(Some),
        "export_html" => {
            let path = fields.get("outputPath").and_then(Value::as_str);
            let written = reading::export_html(session.to_owned(), path).await?;
            Ok(Some(raw(&written)))
        }
        // An idle session has nothing to abort, which is not an error in Pi's protocol.
        "abort" => match client.call_within(AbortParams::of(session), COMMAND_TIMEOUT).await {
            Ok(_) | Err(ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        },
        "prompt" => {
            let data = send(client, session, Value::Object(fields)).await?.data;
            let data = data.and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
            let disposition = data.as_ref().and_then(|data| data["disposition"].as_str());
            Ok(Some(raw(&json!({ "disposition": disposition.unwrap_or("started") }))))
        }
        _ => Ok(send(client, session, Value::Object(fields)).await?.data),
    }
}

/// Passes an answer to a question on. It has no response.
async fn answer_dialog(session: &Session, mut fields: Map<String, Value>) {
    let params = UiResponseParams {
        id: fields.remove("id").unwrap_or_default(),
        session_id: session.id().into(),
        value: fields.remove("value"),
        confirmed: fields.remove("confirmed"),
        cancelled: fields.remove("cancelled"),
        dismissed: None,
    };
    // Another client may have answered.
    session.client.call(params).await.ok();
}

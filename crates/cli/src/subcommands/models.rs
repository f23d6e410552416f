//! `quack models`: shows the models of quackd's own agent and the choice, and tests it.

use crate::args::SessionArgs;
use crate::args::models::{ModelsAction, ModelsArgs};
use crate::connect::{start_and_connect, warn_if_config_changed};
use crate::display::{count, name, plain, table};
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM, GREEN, RED, YELLOW};
use crate::session_ref::{Missing, Wanted};
use crate::shell_keys;
use anyhow::Context as _;
use quackd_client::Client;
use quackd_egress::models::{KnownFamily, known_families};
use quackd_protocol::client::{
    AgentParams, FindBy, ModelTest, ModelsData, ModelsParams, SessionSetParams, StateParams,
};
use quackd_protocol::limits::REPLY_TIMEOUT;
use quackd_protocol::model::{ModelInfo, Price};
use serde_json::{Value, json};
use std::time::Duration;

/// Timeout of a test. The daemon ends the request after 60 s.
const TEST_TIMEOUT: Duration = Duration::from_secs(80);

/// Timeout of the switch. The agent may have to start.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(40);

/// Days after which a fact about a model may be out of date.
const STALE_DAYS: i32 = 90;

/// Maximum number of models that are shown as text.
const MAX_SHOWN: usize = 40;

/// Runs the subcommand. Starts the daemon, because it has the keys.
pub(crate) async fn run(args: ModelsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if let Some(ModelsAction::Use { model, which }) = args.action {
        return switch(model, &which, output).await;
    }

    if args.stale {
        return stale(output);
    }

    let daemon = start_and_connect(output).await?;
    warn_if_config_changed(&daemon.daemon, output);
    // The daemon may not have the keys of this shell.
    shell_keys::pass_on(&daemon.client, output).await;

    let params = ModelsParams { test: args.test.then_some(true), find: None };
    let limit = if args.test { TEST_TIMEOUT } else { REPLY_TIMEOUT };
    let data = daemon.client.call_within(params, limit).await?;

    if output.is_json() {
        output.document(&data)?;
    } else {
        let session = running_agent(&daemon.client).await.unwrap_or_default();
        output.text(&format!("{}{session}", text(&data)))?;
    }

    let has_failed = data.test.is_some_and(|test| !test.ok);
    Ok(if has_failed { ExitCode::Failed } else { ExitCode::Ok })
}

/// Shows the facts about models that nobody has checked for [`STALE_DAYS`].
fn stale(output: CliOutput) -> anyhow::Result<ExitCode> {
    let today = jiff::Zoned::now().date();
    let old = known_families().iter().filter_map(|family| {
        let checked = family.checked.parse::<jiff::civil::Date>().ok();
        let age = checked.and_then(|checked| checked.until(today).ok()).map(|age| age.get_days());
        // A row without a day counts as old.
        (age.is_none_or(|age| STALE_DAYS < age)).then_some((family, age))
    });
    let old: Vec<_> = old.collect();

    let row = |(family, age): &(&KnownFamily, Option<i32>)| json!({"prefix": family.prefix, "maker": family.maker, "checked": family.checked, "days": age});
    let document = json!({ "stale": old.iter().map(row).collect::<Vec<_>>() });
    output.show(&document, || stale_table(&old))?;
    Ok(ExitCode::Ok)
}

fn stale_table(old: &[(&KnownFamily, Option<i32>)]) -> String {
    if old.is_empty() {
        return format!("No fact about a model is older than {STALE_DAYS} days.\n");
    }
    let row = |(family, age): &(&KnownFamily, Option<i32>)| {
        let days = age.map_or_else(|| "?".to_owned(), |age| age.to_string());
        [format!("{}*", family.prefix), family.maker.clone(), family.checked.clone(), days]
    };
    let rows: Vec<_> = old.iter().map(row).collect();
    table(["MODELS", "OF", "CHECKED", "DAYS"], [0; 4], &rows)
}

/// Switches a running or future agent of a session to another model, and notes the choice for later
/// processes.
async fn switch(
    model: String,
    choice: &SessionArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let reference = Wanted::of(choice)?;
    let daemon = start_and_connect(output).await?;
    warn_if_config_changed(&daemon.daemon, output);
    let client = &daemon.client;
    shell_keys::pass_on(client, output).await;
    let session = reference.one(client, Missing::Refuse).await?;

    let reference = Value::from(session.session_id.0.clone());
    let params = ModelsParams { test: None, find: Some(model) };
    let data = client.call(params).await?;
    let model = data.found.context("the daemon is older than this program: `quack restart`")?;
    let is_known = data.models.iter().any(|known| full(known) == full(&model));

    let no_change =
        SessionSetParams { session_id: reference.clone(), ..SessionSetParams::default() };
    let set = client.call(no_change.clone()).await?;
    // The choice of `quack new --model` would come back with the next process of the agent, which also gets a model that
    // is in no list.
    if set.model.is_some() || !is_known {
        let choice = Some(format!("{}/{}", model.provider, model.id));
        client.call(SessionSetParams { model: choice, ..no_change }).await?;
    }

    let command = json!({"type": "set_model", "provider": model.provider, "modelId": model.id});
    let params = AgentParams { session_id: reference, command };
    client.call_within(params, SWITCH_TIMEOUT).await?;

    output.show(&json!({ "sessionId": session.session_id, "model": model }), || {
        let label = name(&session.label);
        format!("{BOLD}{label}{BOLD:#} uses {} from now on.\n", full(&model))
    })?;
    Ok(ExitCode::Ok)
}

/// Describes the running agent of the directory's session. `None` without one: the agent is chosen when it starts.
async fn running_agent(client: &Client) -> Option<String> {
    let session = Wanted::reference(None).one(client, Missing::Refuse).await.ok()?;

    if session.by != FindBy::Directory {
        return None;
    }

    let state = client.call(StateParams::of(session.session_id.0)).await.ok()?;
    let model =
        |part: &str| Some(plain(state.pi_state.as_ref()?.get("model")?.get(part)?.as_str()?));
    let model: Option<[String; 2]> = model("provider").zip(model("id")).map(Into::into);
    let model = model.map_or_else(String::new, |names| format!(" with {}", names.join("/")));
    let agent = if state.engine? == "native" { "quackd's own agent" } else { "Pi" };
    Some(format!("\nThe session {} uses {agent}{model}.\n", name(&session.label)))
}

/// Formats the reply as text: the chosen model, the test, the problems and the other models.
fn text(data: &ModelsData) -> String {
    let mut text = String::new();
    if let Some(chosen) = &data.chosen {
        let model = &chosen.model;
        for (label, value) in [
            ("model", format!("{BOLD}{}{BOLD:#}  {DIM}{}{DIM:#}", full(model), plain(&chosen.why))),
            ("key", plain(&chosen.key_source)),
            ("server", format!("{}  {DIM}{}{DIM:#}", plain(&model.base_url), model.api.name())),
            ("thinking", chosen.thinking.name().to_owned()),
            ("price", price(model.price)),
        ] {
            text.push_str(&format!("{label:<9} {value}\n"));
        }

        let (window, limit) = (model.context_window, model.max_tokens);
        let source = match data.listed.get(&model.provider) {
            Some(day) => format!("the provider was asked on {}", plain(day)),
            None => "as configured or assumed".to_owned(),
        };
        text.push_str(&format!(
            "tokens    {window} in all, {limit} of an answer  {DIM}{source}{DIM:#}\n"
        ));
    }

    if let Some(ModelTest { ok, ms, text: answer }) = &data.test {
        let (color, verdict) = if *ok { (GREEN, "ok") } else { (RED, "failed") };
        let answer = plain(answer);
        text.push_str(&format!("test      {color}{verdict}{color:#} after {ms} ms: {answer}\n"));
    }

    if let Some(missing) = &data.missing {
        text.extend(missing.lines().map(|line| format!("{}\n", plain(line))));
    }
    for problem in &data.problems {
        text.push_str(&format!("{YELLOW}problem{YELLOW:#}   {}\n", plain(problem)));
    }

    let chosen = data.chosen.as_ref().map(|choice| full(&choice.model));
    let others: Vec<_> =
        data.models.iter().filter(|model| chosen.as_ref() != Some(&full(model))).collect();
    if !others.is_empty() {
        text.push_str(&format!("\n{}:\n", count(others.len(), "other model")));
        for model in others.iter().take(MAX_SHOWN) {
            let window = model.context_window / 1000;
            let thinks = if model.reasoning { ", thinks" } else { "" };
            text.push_str(&format!("  {}  {DIM}{window}k{thinks}{DIM:#}\n", full(model)));
        }
        if MAX_SHOWN < others.len() {
            text.push_str("  … and more; `--json` lists all\n");
        }
    }
    text
}

fn price(price: Price) -> String {
    match price {
        Price::Known(cost) => {
            format!("${} in and ${} out for a million tokens", cost.input, cost.output)
        }
        Price::Free => "free: a server of this computer, or the price 0 in models.json".to_owned(),
        Price::Reported => "the provider sends the cost of each answer".to_owned(),
        Price::Unknown => "unknown: a price in models.json of Pi would make it known".to_owned(),
    }
}

fn full(model: &ModelInfo) -> String {
    format!("{}/{}", plain(&model.provider), plain(&model.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::client::ChosenModel;
    use quackd_protocol::model::{ModelApi, ModelCompat, ThinkingLevel};

    fn model(id: &str) -> ModelInfo {
        ModelInfo {
            id: id.to_owned(),
            name: id.to_owned(),
            api: ModelApi::OpenAiCompletions,
            provider: "openai".to_owned(),
            base_url: "https://a/v1".to_owned(),
            reasoning: id == "r",
            input: Vec::new(),
            price: Price::Unknown,
            context_window: 128_000,
            max_tokens: 1,
            compat: ModelCompat::default(),
        }
    }

    fn shown(data: &ModelsData) -> String {
        anstream::adapter::strip_str(&text(data)).to_string()
    }

    #[test]
    fn the_choice_comes_first_and_control_characters_are_not_shown() {
        let chosen = ChosenModel {
            model: model("a\u{1b}"),
            why: "OPENAI_API_KEY is set".to_owned(),
            thinking: ThinkingLevel::Off,
            key_source: "OPENAI_API_KEY".to_owned(),
        };
        let data = ModelsData {
            chosen: Some(chosen),
            models: vec![model("a\u{1b}"), model("r")],
            problems: vec!["p".to_owned()],
            missing: None,
            test: Some(ModelTest { ok: true, ms: 7, text: "ok".to_owned() }),
            found: None,
            listed: std::collections::BTreeMap::new(),
        };
        let expected = "model     openai/a\u{fffd}  OPENAI_API_KEY is set\nkey       OPENAI_API_KEY\n\
            server    https://a/v1  openai-completions\nthinking  off\nprice     unknown: a price in models.json of Pi would make it known\n\
            tokens    128000 in all, 1 of an answer  as configured or assumed\ntest      ok after 7 ms: ok\n\
            problem   p\n\n1 other model:\n  openai/r  128k, thinks\n";
        assert_eq!(shown(&data), expected);
        let nothing = ModelsData { missing: Some("a\n- b".to_owned()), ..ModelsData::default() };
        assert_eq!(shown(&nothing), "a\n- b\n");
    }
}

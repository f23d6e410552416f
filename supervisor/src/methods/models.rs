//! `quack.models`: lists the models of quackd's own agent, explains the choice, and tests it with a short request.

use super::{Caller, Serve};
use crate::clock::ms;
use crate::errors::MethodError;
use crate::session::models::Models;
use futures_util::future::join_all;
use quackd_egress::models::{ModelCatalog, ProbeAnswer, probe_body};
use quackd_protocol::client::{ChosenModel, ModelTest, ModelsData, ModelsParams};
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::model::{MAX_MODELS, ModelHead, ModelInfo, ModelPart, ModelRequest};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Timeout of the request. A local server may have to load the model first.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// Timeout of asking servers for their models.
const LIST_LIMIT: Duration = Duration::from_secs(3);

/// Most servers that are asked for their models.
const MAX_SERVERS: usize = 8;

impl Serve<ModelsParams> for Caller {
    async fn serve(&self, params: ModelsParams) -> Result<ModelsData, MethodError> {
        let ModelsParams { test, find } = params;
        let models = &self.services.sessions.models;
        let catalog = models.catalog().await;
        let mut data = ModelsData {
            chosen: catalog.chosen().map(|chosen| ChosenModel {
                model: chosen.model.clone(),
                why: chosen.why.clone(),
                thinking: chosen.thinking,
                key_source: chosen.key_source.clone(),
            }),
            models: catalog.models().to_vec(),
            problems: catalog.problems().to_vec(),
            missing: catalog.chosen().is_none().then(|| catalog.missing()),
            test: None,
            found: None,
            listed: models.days(),
        };

        if let Some(name) = find {
            data.found = Some(found(models, &catalog, &name).await?);
        }
        add_local(models, &catalog, &mut data).await;
        if test == Some(true) {
            data.test = Some(match &data.chosen {
                Some(chosen) => ask(models, &chosen.model).await,
                None => ModelTest { ok: false, ms: 0, text: "no model is configured".to_owned() },
            });
        }
        Ok(data)
    }
}

/// Finds a model. A model that no list of the user has must be in the list of its provider, if the provider has one.
async fn found(
    models: &Models,
    catalog: &ModelCatalog,
    name: &str,
) -> Result<ModelInfo, MethodError> {
    let unknown = |text: String| MethodError::Refused { text, code: None };
    let line = stripped_line(name, MAX_SHOWN);
    let model = catalog.find(None, name).ok_or_else(|| {
        unknown(format!(
            "The model {line} is not known, or its provider has no key: `quack models` lists the models"
        ))
    })?;
    if catalog.models().iter().any(|it| it.provider == model.provider && it.id == model.id) {
        return Ok(model);
    }

    // A provider that has no list, or does not respond, leaves the check to the first request.
    let Ok(Ok(ids)) = timeout(LIST_LIMIT, models.list(&model.provider, Some(&model.id))).await
    else {
        return Ok(model);
    };
    if ids.is_empty() || ids.iter().any(|it| it.id == model.id) {
        return Ok(models.catalog().await.find(None, name).unwrap_or(model));
    }

    let ids = ids.iter().map(|it| it.id.as_str());
    let mut near: Vec<_> = ids.map(|id| (common(id, &model.id), id)).collect();
    near.sort_by_key(|(common, _)| std::cmp::Reverse(*common));
    let near: Vec<_> = near.into_iter().take(MAX_NEAR).map(|(_, id)| id).collect();
    let provider = &model.provider;
    Err(unknown(format!("{provider} has no model {}; it has {}", model.id, near.join(", "))))
}

/// Most characters of an unknown name, and most names that are proposed.
const MAX_SHOWN: usize = 100;
const MAX_NEAR: usize = 5;

/// Number of equal characters at the beginning.
fn common(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

/// Adds the models that servers without a key list, because their users rarely know the names.
async fn add_local(models: &Models, catalog: &ModelCatalog, data: &mut ModelsData) {
    let servers: Vec<&str> = catalog.keyless().take(MAX_SERVERS).collect();
    let listing = servers
        .iter()
        .map(|&name| async move { (name, timeout(LIST_LIMIT, models.list(name, None)).await) });
    let listed = join_all(listing).await;

    // Read again: listing a server's models adds them to the catalog.
    let catalog = models.catalog().await;
    for (name, listed) in listed {
        let ids = match listed {
            Ok(Ok(ids)) => ids,
            Ok(Err(failure)) => {
                data.problems.push(format!("{name}: {}", failure.text));
                continue;
            }
            Err(_late) => {
                data.problems.push(format!("{name} does not answer"));
                continue;
            }
        };

        for model in ids.iter().filter_map(|it| catalog.find(Some(name), &it.id)) {
            let is_listed = |it: &ModelInfo| it.provider == model.provider && it.id == model.id;
            if data.models.len() < MAX_MODELS && !data.models.iter().any(is_listed) {
                data.models.push(model);
            }
        }
    }
}

/// Sends a short request to a model.
async fn ask(models: &Models, model: &ModelInfo) -> ModelTest {
    let started = Instant::now();
    let late = |_| Err(format!("no complete answer within {} s", TEST_LIMIT.as_secs()));
    let answered = timeout(TEST_LIMIT, answer(models, model)).await.unwrap_or_else(late);

    let (ok, ms) = (answered.is_ok(), ms(started.elapsed()));
    ModelTest { ok, ms, text: answered.unwrap_or_else(|error| error) }
}

/// Returns the text of the answer, or the error.
async fn answer(models: &Models, model: &ModelInfo) -> Result<String, String> {
    let body = probe_body(model).ok_or("the request cannot be written")?;
    let mut parts = models.request(ModelRequest {
        number: 1,
        provider: model.provider.clone(),
        api: model.api,
        model: model.id.clone(),
        betas: Vec::new(),
        body,
    });

    let mut answer = ProbeAnswer::default();
    let mut answered = ModelHead::default();
    loop {
        match parts.recv().await {
            Some(ModelPart::Head(head)) => answered = head,
            Some(ModelPart::Piece(piece)) => answer.push(&piece),
            Some(ModelPart::Failed(failure)) => return Err(failure.text),
            Some(ModelPart::Done {}) if (200..300).contains(&answered.status) => {
                return answer.judge(model.api, answered.content_type.as_deref());
            }
            Some(ModelPart::Done {}) => {
                return Err(format!("status {}: {}", answered.status, answer.error()));
            }
            None => return Err("the daemon is shutting down".to_owned()),
        }
    }
}

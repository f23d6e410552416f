//! The model of a session, and the models among which a client changes.

use super::{Agent, is_same};
use crate::providers::clamp;
use quackd_protocol::agent_options;
use quackd_protocol::model::{ModelInfo, ThinkingLevel};
use serde_json::{Value, json};

impl Agent {
    pub(super) fn set_model(&mut self, number: u64, provider: &str, id: &str) {
        let is_it = |model: &&ModelInfo| {
            model.id == id && (provider.is_empty() || model.provider == provider)
        };
        let name = |provider: &str, id: &str| match provider {
            "" => id.to_owned(),
            provider => format!("{provider}/{id}"),
        };
        let found: Vec<_> = self.setup.models.models.iter().filter(is_it).cloned().collect();
        let error = match &*found {
            [model] => {
                self.use_model(model.clone());
                return self.answer(number, Some(model));
            }
            [] => {
                let cut = |text: &str| text.chars().take(100).collect::<String>();
                format!("Model not found: {}", name(&cut(provider), &cut(id)))
            }
            several => {
                let names: Vec<_> = several.iter().map(|it| name(&it.provider, &it.id)).collect();
                let names = names.join(", ");
                format!("Several providers have this model; name one of them: {names}")
            }
        };
        self.refuse(number, error);
    }

    fn use_model(&mut self, model: ModelInfo) {
        self.model = model;
        self.thinking = clamp(self.thinking, &self.model);
        self.is_model_recorded = false;
        if self.transcript.leaf().is_some() {
            self.record_model();
        }
    }

    /// Changes to the next model: of those that the client has listed, or of all.
    pub(super) fn cycle_model(&mut self, number: u64) {
        let scope = &self.setup.options.models;
        let all = &self.setup.models.models;
        let models = if scope.is_empty() {
            all.iter().map(|model| (model.clone(), None)).collect()
        } else {
            scoped(scope, all)
        };
        let current = models.iter().position(|(model, _)| is_same(model, &self.model));
        let next = current.map_or(0, |at| at + 1);
        let next = models.get(next).or_else(|| models.first()).cloned();
        let Some((model, level)) = next.filter(|_| 1 < models.len()) else {
            return self.answer(number, Some(&Value::Null));
        };
        let is_scoped = !scope.is_empty();
        self.use_model(model);
        if let Some(level) = level {
            self.set_thinking(level);
        }
        let data = json!({
            "model": self.model, "thinkingLevel": self.thinking.name(), "isScoped": is_scoped,
        });
        self.answer(number, Some(&data));
    }
}

/// Returns the models that the patterns name, in the order of the patterns, each with the thinking level of its pattern.
pub(super) fn scoped(
    patterns: &[String],
    models: &[ModelInfo],
) -> Vec<(ModelInfo, Option<ThinkingLevel>)> {
    let mut found: Vec<(ModelInfo, Option<ThinkingLevel>)> = Vec::new();
    for pattern in patterns {
        let split = pattern.rsplit_once(':');
        let level = split.and_then(|(_, level)| ThinkingLevel::named(level));
        let name = split.filter(|_| level.is_some()).map_or(pattern.as_str(), |(name, _)| name);
        let name = name.to_ascii_lowercase();
        let is_glob = name.contains('*');
        let names = |model: &ModelInfo| {
            [format!("{}/{}", model.provider, model.id), model.id.clone()]
                .map(|name| name.to_ascii_lowercase())
        };
        let equal = |model: &&ModelInfo| names(model).contains(&name);
        let like = |model: &&ModelInfo| {
            names(model).iter().any(|it| {
                if is_glob { agent_options::matches(&name, it) } else { it.contains(&name) }
            })
        };
        let exact = models.iter().find(equal);
        let matching: Vec<_> = match exact {
            Some(model) => vec![model],
            None if is_glob => models.iter().filter(like).collect(),
            // A part of a name means one model.
            None => models.iter().find(like).into_iter().collect(),
        };
        for model in matching {
            if !found.iter().any(|(known, _)| is_same(known, model)) {
                found.push((model.clone(), level));
            }
        }
    }
    found
}

//! The model of a session, and the models among which a client changes.

use super::Agent;
use super::model_names::{is_same, missing_text, scoped};
use crate::providers::clamp;
use quackd_protocol::agent::AgentModels;
use quackd_protocol::model::ModelInfo;
use serde_json::{Value, json};

impl Agent {
    pub(super) fn set_model(&mut self, number: u64, provider: &str, id: &str) {
        let has_name = |model: &&ModelInfo| {
            model.id == id && (provider.is_empty() || model.provider == provider)
        };
        let name = |provider: &str, id: &str| match provider {
            "" => id.to_owned(),
            provider => format!("{provider}/{id}"),
        };

        let matching: Vec<_> = self.setup.models.models.iter().filter(has_name).cloned().collect();
        let error = match &*matching {
            [model] => {
                self.use_model(model.clone());
                return self.answer(number, Some(model));
            }
            [] => {
                let cut = |text: &str| text.chars().take(100).collect::<String>();
                format!("Model not found: {}", name(&cut(provider), &cut(id)))
            }
            several => {
                let names: Vec<_> =
                    several.iter().map(|model| name(&model.provider, &model.id)).collect();
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
        // The level of the pattern is applied after the model, which can limit it.
        self.use_model(model);
        if let Some(level) = level {
            self.set_thinking(level);
        }

        // The answer has the level in use, not the one of the pattern.
        let data = json!({
            "model": self.model, "thinkingLevel": self.thinking.name(), "isScoped": is_scoped,
        });
        self.answer(number, Some(&data));
    }

    pub(super) fn set_models(&mut self, models: AgentModels) {
        self.setup.models = models;
        let models = &self.setup.models.models;
        if let Some(listed) = models.iter().find(|model| is_same(model, &self.model)) {
            self.model = listed.clone();
        } else if self.run.is_none() {
            self.replace_missing_model();
        }
    }

    /// Uses the default model if the current one was removed.
    pub(super) fn replace_missing_model(&mut self) {
        let AgentModels { models, default, .. } = &self.setup.models;
        if models.iter().chain([default]).any(|model| is_same(model, &self.model)) {
            return;
        }

        let missing = std::mem::replace(&mut self.model, default.clone());
        self.thinking = clamp(self.thinking, &self.model);
        self.is_model_recorded = false;
        self.tell_user("models", &missing_text(&missing.provider, &missing.id, &self.model));
    }
}

//! Finds models by names and patterns. Used by [`super::agent`] and [`super::models`].

use quackd_protocol::agent_options;
use quackd_protocol::model::{ModelInfo, ThinkingLevel};

/// Returns the models that the patterns name, in the order of the patterns, each with the thinking level of its pattern.
pub(super) fn scoped(
    patterns: &[String],
    models: &[ModelInfo],
) -> Vec<(ModelInfo, Option<ThinkingLevel>)> {
    let mut listed: Vec<(ModelInfo, Option<ThinkingLevel>)> = Vec::new();
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
            if !listed.iter().any(|(known, _)| is_same(known, model)) {
                listed.push((model.clone(), level));
            }
        }
    }
    listed
}

/// Whether both are the same model, even if other facts about it have changed.
pub(super) fn is_same(model: &ModelInfo, other: &ModelInfo) -> bool {
    (&model.provider, &model.id) == (&other.provider, &other.id)
}

/// Returns the text for the user if a model of the session is gone.
pub(super) fn missing_text(provider: &str, id: &str, now: &ModelInfo) -> String {
    format!(
        "the model {provider}/{id} is not configured any more; the session uses {}/{}",
        now.provider, now.id
    )
}

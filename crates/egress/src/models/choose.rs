//! Chooses the model that sessions use by default, and finds models by name.

use super::builtin::{self, BUILTINS, canonical};
use super::known::{knows_reasoning, maker};
use super::provider::{Provider, variable};
use super::settings::{Chosen, Given, ModelSettings};
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::model::{ModelInfo, ThinkingLevel};
use secrecy::ExposeSecret;

/// Inputs of [`choose`].
pub(super) struct Context<'a> {
    pub(super) settings: &'a ModelSettings,
    /// Result of [`configured_provider`].
    pub(super) configured: Option<String>,
    /// Provider and id of the first usable model of `models.json`.
    pub(super) first_of_file: Option<(String, String)>,
    pub(super) env: &'a [(String, String)],
}

/// Returns the provider to which the address and the key in `[model]` belong, or which it names.
pub(super) fn configured_provider(settings: &ModelSettings) -> Option<String> {
    let name = settings.name.as_ref().map(|given| given.value.as_str());
    if let Some(given) = &settings.provider {
        return Some(canonical(&given.value).to_owned());
    }
    if let Some(base) = &settings.base_url {
        return Some(builtin::at(&base.value).to_owned());
    }
    let key = settings.key.as_ref().and_then(|key| key.as_ref().ok());
    key.map(|key| builtin::of_key(name, key.expose_secret()).to_owned())
}

/// Finds a model of a usable provider.
pub(super) fn find(providers: &[Provider], provider: Option<&str>, id: &str) -> Option<ModelInfo> {
    let named = |name: &str| {
        providers.iter().find(|provider| provider.name == canonical(name) && provider.is_usable())
    };
    let id = id.trim();

    if let Some(name) = provider {
        let provider = named(name)?;
        // Upstream's users write the provider twice.
        let rest = id.split_once('/').filter(|(prefix, _)| *prefix == provider.name);
        let is_listed = provider.models.iter().any(|model| model.info.id == id);
        return provider.model(rest.filter(|_| !is_listed).map_or(id, |(_, rest)| rest));
    }

    let mut usable = providers.iter().filter(|provider| provider.is_usable());
    let listed =
        usable.find_map(|provider| provider.models.iter().find(|model| model.info.id == id));
    if let Some(listed) = listed {
        return Some(listed.info.clone());
    }

    if let Some((prefix, rest)) = id.split_once('/')
        && let Some(provider) = named(prefix)
    {
        return provider.model(rest);
    }

    // An id with another prefix may name a provider that is gone: only a provider of other providers' models gets it.
    if id.contains('/') {
        return named("openrouter")?.model(id);
    }

    let by_maker = maker(id).and_then(named);
    // Upstream's rule: an id without a provider is one of OpenAI, if there is a key.
    let openai = || named("openai").filter(|provider| provider.has_key());
    let mut usable = providers.iter().filter(|provider| provider.is_usable());
    let only = || usable.next().filter(|_| usable.next().is_none());
    by_maker.or_else(openai).or_else(only)?.model(id)
}

/// Chooses the model. Adds a problem if the user named one that cannot be used.
pub(super) fn choose(
    context: &Context<'_>,
    providers: &[Provider],
    problems: &mut Vec<String>,
) -> Option<Chosen> {
    let settings = context.settings;
    let (mut model, why) = match &settings.name {
        Some(name) => (named(context, providers, name, problems)?, name.source.clone()),
        None => unnamed(context, providers, problems)?,
    };

    let thinking = thinking(settings, problems);
    model.context_window = settings.context_window.unwrap_or(model.context_window);
    // Without a statement, an answer gets at most half of the window that the user has set.
    let half = settings.context_window.map_or(u64::MAX, |window| (window / 2).max(1));
    model.max_tokens = settings.max_tokens.unwrap_or_else(|| model.max_tokens.min(half));

    let provider = providers.iter().find(|provider| provider.name == model.provider)?;
    let is_thinking = thinking != ThinkingLevel::Off;
    // Unless it is known whether the model reasons, the user's thinking level decides.
    let is_known =
        provider.says_reasoning(&model.id) || knows_reasoning(&model.provider, &model.id);
    model.reasoning |= is_thinking && !is_known;
    if is_thinking && !model.reasoning {
        problems.push(format!(
            "the thinking level {} is not in force: {} does not reason",
            thinking.name(),
            model.id
        ));
    }

    let thinking = if model.reasoning { thinking } else { ThinkingLevel::Off };
    // The notice about a retired model concerns only a user who has named none.
    let retired = provider.retired.as_ref().filter(|_| settings.name.is_none());
    let retired = retired.filter(|(next, _)| *next == model.id).map(|(_, text)| text.clone());

    let is_stated = settings.context_window.is_some() || provider.says_window(&model.id);
    let small = small_window(&model).filter(|_| !is_stated);
    problems.extend(small.clone());
    let notices: Vec<String> = retired.into_iter().chain(small).collect();
    let notice = (!notices.is_empty()).then(|| notices.join("; "));
    Some(Chosen { model, why, thinking, key_source: provider.key_source.to_string(), notice })
}

/// Returns the text for the user about a model with a small window, with the way to a larger one.
fn small_window(model: &ModelInfo) -> Option<String> {
    if !model.has_small_window() {
        return None;
    }

    let way = match model.provider.as_str() {
        "ollama" => {
            "start the server with OLLAMA_CONTEXT_LENGTH=65536, or set `PARAMETER num_ctx 65536` in the model's Modelfile"
        }
        "llama.cpp" => "start llama-server with `--ctx-size 65536`",
        "lmstudio" => "load the model with a larger context length",
        _ => {
            "start the server with a larger one (vLLM: `--max-model-len`), or choose another model"
        }
    };

    Some(format!(
        "{}/{} has a window of {} tokens, in which the agent has few tools and forgets early: {way}; or set \
         model.context_window if the window is larger",
        model.provider, model.id, model.context_window
    ))
}

fn named(
    context: &Context<'_>,
    providers: &[Provider],
    name: &Given,
    problems: &mut Vec<String>,
) -> Option<ModelInfo> {
    let provider = context.configured.as_deref();
    let is_full = || {
        name.value.split_once('/').is_some_and(|(prefix, _)| {
            provider != Some(prefix)
                && providers.iter().any(|known| known.name == prefix && known.is_usable())
        })
    };

    // A key or an address in the configuration names the provider only indirectly.
    let is_indirect = context.settings.provider.is_none();
    let provider = provider.filter(|_| !(is_indirect && is_full()));

    let model = find(providers, provider, &name.value);
    if model.is_none() {
        let of = provider.map(|it| format!(" of {it}")).unwrap_or_default();
        let usable: Vec<&str> = providers
            .iter()
            .filter(|known| known.is_usable())
            .map(|known| known.name.as_str())
            .collect();
        let usable = match usable.as_slice() {
            [] => "no provider has one".to_owned(),
            usable => format!("providers with a key or an address: {}", usable.join(", ")),
        };
        problems.push(format!(
            "{} is the model {}{of}, but its provider has no key or is not known; {usable}",
            name.source,
            shown(&name.value)
        ));
    }
    model
}

/// Chooses a model without a name: the first one of the named provider, upstream's default with a key of OpenAI, the
/// first one of `models.json`, or the first one of the first provider with a key.
fn unnamed(
    context: &Context<'_>,
    providers: &[Provider],
    problems: &mut Vec<String>,
) -> Option<(ModelInfo, String)> {
    if let Some(name) = &context.configured {
        let source = |given: &Option<Given>| given.as_ref().map(|it| it.source.clone());
        let settings = context.settings;
        let source = source(&settings.provider).or_else(|| source(&settings.base_url));
        let source = source.unwrap_or_else(|| "`model.key` of the configuration".to_owned());
        let provider = providers.iter().find(|known| known.name == *name && known.is_usable());
        let Some(provider) = provider else {
            let name = shown(name);
            problems
                .push(format!("{source} is the provider {name}, which has no key or is not known"));
            return None;
        };

        let first = provider.models.first();
        if first.is_none() {
            problems.push(format!(
                "{source} names a provider, but not the model: `quack config set model.name NAME`"
            ));
        }
        return Some((first?.info.clone(), source));
    }

    let first = |name: &str| {
        let provider = providers.iter().find(|known| known.name == name && known.is_usable())?;
        let usual = builtin::builtin(name)?.models;
        // The provider may list none of them.
        let is_there = |id: &&&str| provider.models.iter().any(|model| model.info.id == **id);
        let other = provider.models.first().filter(|_| !usual.is_empty());
        let other = other.map(|model| model.info.id.as_str());
        let preferred = usual.iter().find(is_there).copied().or(other)?;
        Some((provider.model(preferred)?, provider))
    };

    let has_key = variable(context.env, "OPENAI_API_KEY").is_some();
    if let Some((model, _)) = first("openai").filter(|_| has_key) {
        return Some((model, "OPENAI_API_KEY is set".to_owned()));
    }
    if let Some((provider, id)) = &context.first_of_file {
        let model = find(providers, Some(provider), id)?;
        return Some((model, "first model in models.json of Pi".to_owned()));
    }

    let (model, provider) = BUILTINS.iter().find_map(|it| first(it.name))?;
    let why = match (provider.has_key(), builtin::builtin(&provider.name)?.base_variable) {
        (true, _) => provider.key_source.reason(),
        (false, Some(variable)) => {
            problems.push(format!(
                "{variable} names another server, which may not have {}: `quack config set model.name NAME`",
                model.id
            ));
            format!("{variable} is set")
        }
        (false, None) => "a server without a key".to_owned(),
    };
    Some((model, why))
}

fn thinking(settings: &ModelSettings, problems: &mut Vec<String>) -> ThinkingLevel {
    let Some(given) = &settings.thinking else { return ThinkingLevel::default() };
    ThinkingLevel::named(given.value.trim()).unwrap_or_else(|| {
        let known = ThinkingLevel::ALL.map(ThinkingLevel::name).join(", ");
        problems.push(format!("{} is no thinking level: {known}", given.source));
        ThinkingLevel::default()
    })
}

/// Returns a name for display.
fn shown(name: &str) -> String {
    stripped_line(name, 100)
}

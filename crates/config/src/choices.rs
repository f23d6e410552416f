//! Values of keys with `auto`, and their words.

use quackd_protocol::model::ModelApi;
use quackd_protocol::tiers::Tier;

/// Values of `sandbox.tier`.
pub(crate) const TIERS: [Option<Tier>; 6] =
    [None, Some(Tier::A), Some(Tier::B), Some(Tier::D), Some(Tier::M), Some(Tier::Unconfined)];

pub(crate) fn tier_word(tier: Option<Tier>) -> &'static str {
    tier.map_or("auto", Tier::name)
}

/// Values of `model.api`, in the order of their words.
pub(crate) const APIS: [Option<ModelApi>; 4] = [
    None,
    Some(ModelApi::OpenAiCompletions),
    Some(ModelApi::OpenAiResponses),
    Some(ModelApi::AnthropicMessages),
];

pub(crate) fn api_word(api: Option<ModelApi>) -> &'static str {
    api.map_or("auto", ModelApi::name)
}

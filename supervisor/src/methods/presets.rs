//! The parts of `quack.sandbox` for presets: lists them, and asks the user's tools for the hosts of derived ones.

use super::Caller;
use crate::errors::MethodError;
use crate::registry::{Problems, ask_tools};
use quackd_policy::PolicyError;
use quackd_policy::hosts::presets::{self, PRESETS, Preset, PresetHosts, derived_in};
use quackd_protocol::client::{PresetInfo, PresetsData};
use quackd_protocol::state::FoundPreset;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for the answers of the tools, the wait for an earlier request included.
const ASK_LIMIT: Duration = Duration::from_secs(35);

/// Returns the presets with these names, or all. A local client that names derived presets gets the current answers of
/// the tools.
pub(super) async fn list(names: &[String], caller: &Caller) -> Result<PresetsData, MethodError> {
    let names: Vec<&str> = names.iter().map(|name| name.trim_start_matches('@')).collect();
    if let Some(unknown) = names.iter().find(|name| presets::find(name).is_none()) {
        return Err(MethodError::Policy(PolicyError::UnknownPreset((*unknown).to_owned())));
    }

    let parts: Vec<_> = names.iter().flat_map(|name| presets::parts(name)).collect();
    // Only local clients may change the hosts that a rule allows.
    let problems = if caller.is_local() { ask(&parts, caller).await? } else { Problems::default() };

    let snapshot = caller.snapshot().await?;
    let listed = PRESETS.iter().filter(|preset| names.is_empty() || names.contains(&preset.name));
    let presets = listed.map(|preset| describe(preset, snapshot.presets(), &problems));
    Ok(PresetsData { presets: presets.collect() })
}

fn describe(
    preset: &Preset,
    known: &BTreeMap<String, FoundPreset>,
    problems: &Problems,
) -> PresetInfo {
    let parts = presets::parts(preset.name);
    let derived = parts.iter().any(|part| matches!(part.hosts, PresetHosts::Derived(_)));
    let found: Vec<_> = parts.iter().filter_map(|part| known.get(part.name)).collect();
    let texts = parts.iter().filter_map(|part| problems.texts.get(part.name)).flatten();

    PresetInfo {
        name: preset.name.to_owned(),
        about: preset.about.to_owned(),
        hosts: presets::expand(preset.name, known).into_iter().map(str::to_owned).collect(),
        derived,
        found: found.iter().flat_map(|found| found.hosts.clone()).collect(),
        found_at: found.iter().map(|found| found.at.clone()).min(),
        problems: texts.cloned().collect(),
        tested: preset.tested.map(str::to_owned),
        warning: preset.warning.map(str::to_owned),
    }
}

/// Asks the tools for the hosts of the derived presets that these rules name. Returns notes for the user.
///
/// # Errors
/// A preset of a rule has no host, not even from an earlier answer.
pub(super) async fn resolve(rules: &[String], caller: &Caller) -> Result<Vec<String>, MethodError> {
    let named = derived_in(rules);
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<_> = named.iter().map(|(_, part)| *part).collect();
    let problems = ask(&parts, caller).await?;

    let snapshot = caller.snapshot().await?;
    let known = snapshot.presets();
    for (preset, _) in &named {
        if presets::expand(preset.name, known).is_empty() {
            let parts = named.iter().filter(|(by, _)| by.name == preset.name);
            let texts = parts.filter_map(|(_, part)| problems.texts.get(part.name)).flatten();
            let why: Vec<&str> = texts.map(String::as_str).collect();
            return Err(MethodError::NoPresetHosts(preset.name, why.join("; ")));
        }
    }

    let mut notes = Vec::new();
    for (name, texts) in &problems.texts {
        let outcome = match known.get(*name) {
            _ if !problems.without_hosts.contains(name) => String::new(),
            Some(found) => format!("; the hosts of {} stay", found.at),
            None => "; it has no hosts".to_owned(),
        };
        if !outcome.is_empty() || !texts.is_empty() {
            notes.push(format!("@{name}: {}{outcome}", texts.join("; ")));
        }
    }
    Ok(notes)
}

async fn ask(presets: &[&'static Preset], caller: &Caller) -> Result<Problems, MethodError> {
    let asking = ask_tools(presets, &caller.registry, &caller.services.sessions);
    timeout(ASK_LIMIT, asking).await.unwrap_or(Err(MethodError::Overloaded))
}

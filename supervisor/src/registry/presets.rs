//! Derived presets: asks the user's tools for their hosts, and keeps the answers in the state.

use super::Registry;
use super::snapshot::{RegistrySnapshot, TakeSnapshot};
use crate::children::tool_registries::AskError;
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::registry::agent_updates::KeepHosts;
use crate::session::agent::pi::outside::clean_blocking;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_policy::hosts::presets::{Preset, PresetHosts, derived_in};
use quackd_process::Writable;
use quackd_protocol::environment::{CAPTURE_LIMIT, ToolAnswer, ToolKind};
use quackd_protocol::state::FoundPreset;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for reading the links of paths in the environment.
const CLEAN_LIMIT: Duration = Duration::from_secs(5);

/// Answers of the tools that are missing, by preset.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// One line each.
    pub(crate) texts: BTreeMap<&'static str, Vec<String>>,
    /// Presets for which no host was found now.
    pub(crate) without_hosts: Vec<&'static str>,
}

/// Asks the user's tools for the hosts of the derived presets among `presets`, and keeps the hosts. If a preset has none
/// now, its earlier hosts stay. The tools are asked to the end even if the future is dropped.
pub(crate) async fn ask_tools(
    presets: &[&'static Preset],
    registry: &Addr<Registry>,
    services: &Rc<SessionServices>,
) -> Result<Problems, MethodError> {
    let tool = |preset: &&'static Preset| match preset.hosts {
        PresetHosts::Derived(tool) => Some((tool, preset.name)),
        PresetHosts::Fixed(_) | PresetHosts::All(_) => None,
    };

    let names: BTreeMap<ToolKind, &'static str> = presets.iter().filter_map(tool).collect();
    if names.is_empty() {
        return Ok(Problems::default());
    }

    let writable = registry.send(TakeSnapshot).await?.writable(&services.daemon.config.sandbox);
    let untrusted = writable.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let registries = Rc::clone(&services.children.tool_registries);
    let (mut env, home) = (registries.environment().await, services.daemon.user_home.clone());
    let clean = move || {
        clean_blocking(&Writable::of_blocking(writable, &home), &mut env);
        env
    };

    let env = services.look(CLEAN_LIMIT, clean).await?;
    let tools = names.keys().copied().collect();
    // A dropped future would not reap the process.
    let asking = actix::spawn(async move { registries.ask(tools, env, untrusted).await });
    let answers = asking.await.map_err(|_ended| MethodError::ShuttingDown)?;

    let (problems, found) = sorted(&names, answers);
    if !found.is_empty() {
        registry.send(KeepHosts(found)).await?;
    }
    Ok(problems)
}

/// Splits the answers into problems and hosts, by preset.
fn sorted(
    names: &BTreeMap<ToolKind, &'static str>,
    answers: Result<Vec<ToolAnswer>, AskError>,
) -> (Problems, BTreeMap<String, FoundPreset>) {
    let (mut problems, mut found) = (Problems::default(), BTreeMap::new());
    let answers = answers.unwrap_or_else(|error| {
        let text = error.to_string();
        problems.texts = names.values().map(|name| (*name, vec![text.clone()])).collect();
        Vec::new()
    });

    // Every tool is without hosts until its answer has some.
    problems.without_hosts = names.values().copied().collect();
    for ToolAnswer { tool, hosts, problems: texts } in answers {
        let Some(name) = names.get(&tool) else { continue };
        problems.texts.insert(name, texts);
        if !hosts.is_empty() {
            problems.without_hosts.retain(|other| other != name);
            found.insert((*name).to_owned(), FoundPreset { at: now_text(), hosts });
        }
    }
    (problems, found)
}

impl Handler<KeepHosts> for Registry {
    type Result = ();

    /// Keeps hosts of derived presets. In force before the save, like a policy. The log reports a failed save, which
    /// takes the hosts back.
    fn handle(&mut self, KeepHosts(found): KeepHosts, ctx: &mut Self::Context) {
        if self.draining {
            return;
        }
        Arc::make_mut(&mut self.state).presets.extend(found);
        self.tell_policies(None);
        drop(self.save(ctx));
    }
}

impl Registry {
    /// Asks the tools for the derived presets that the configuration names.
    pub(super) fn ask_for_configuration(&self, ctx: &Context<Self>) {
        let hosts = self.services.daemon.config.sandbox.patch().hosts.unwrap_or_default();
        let presets: Vec<_> = derived_in(&hosts).into_iter().map(|(_, part)| part).collect();
        if presets.is_empty() {
            return;
        }

        let (registry, services) = (ctx.address(), Rc::clone(&self.services));
        actix::spawn(async move {
            // A service manager's PATH does not have the user's tools.
            services.children.tool_registries.environment_captured(CAPTURE_LIMIT).await;
            match ask_tools(&presets, &registry, &services).await {
                Ok(Problems { texts, without_hosts }) if !without_hosts.is_empty() => {
                    tracing::warn!(?without_hosts, problems = ?texts, "presets of the configuration have no new hosts");
                }
                Ok(_) => tracing::info!("hosts of configured presets found"),
                Err(error) => tracing::warn!(%error, "cannot ask for the hosts of presets"),
            }
        });
    }
}

impl RegistrySnapshot {
    /// Returns the hosts of derived presets.
    pub(crate) fn presets(&self) -> &BTreeMap<String, FoundPreset> {
        &self.state.presets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::state::FoundHost;

    #[test]
    fn presets_without_hosts_are_told_from_the_others() {
        let names = [(ToolKind::Npm, "npm"), (ToolKind::Go, "go"), (ToolKind::Rust, "rust")].into();
        let host = FoundHost { rule: "a.test.example".into(), source: String::new() };
        let answer = |tool, hosts| ToolAnswer { tool, hosts, problems: vec!["why".into()] };
        let answers = vec![
            answer(ToolKind::Npm, vec![host]),
            answer(ToolKind::Go, Vec::new()),
            answer(ToolKind::System, Vec::new()),
        ];
        let (problems, found) = sorted(&names, Ok(answers));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["npm"]);
        assert_eq!(problems.without_hosts, ["go", "rust"]);
        assert_eq!(problems.texts.keys().copied().collect::<Vec<_>>(), ["go", "npm"]);
        let (problems, found) = sorted(&names, Err(AskError::Busy));
        assert_eq!((problems.texts.len(), found.len()), (3, 0));
    }
}

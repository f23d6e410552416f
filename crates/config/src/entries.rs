//! All keys of a configuration with their values, for display.

use crate::{Config, Entry, Key, engines, guest_agents, keys, mcp_servers};

impl Config {
    /// Returns every key with its value and origin, in the order of [`keys`], then the MCP servers, the agents
    /// inside of sessions and the engines of the user. The origin of a key of an untrusted file also names the place that is not obeyed.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let entry = |key: &Key| {
            let (value, origin) = key.kind.show(self);
            let ignored = self.ignored.iter().find(|(name, _)| name == key.name());
            let origin = match ignored {
                Some((_, place)) => format!("{origin}, {place} is not obeyed"),
                None => origin.to_string(),
            };
            Entry { key: key.name().into(), value, origin }
        };

        let servers = self.mcp_servers.iter().flat_map(mcp_servers::entries);
        let agents = self.agents.iter().flat_map(guest_agents::entries);
        let engines = self.engine_rows.iter().flat_map(engines::entries);
        keys().iter().map(entry).chain(servers).chain(agents).chain(engines).collect()
    }
}

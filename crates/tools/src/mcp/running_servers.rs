//! The table of running servers. The toolbox owns it; the calls of [`super`] take servers from it.

use super::server::Server;
use quackd_protocol::mcp::McpServer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The running servers by name.
#[derive(Debug, Default)]
pub(crate) struct McpServers(RefCell<BTreeMap<String, Arc<Server>>>);

impl McpServers {
    /// Returns the server, which may not run yet. Replaces a server with another definition, which ends.
    pub(super) fn get(&self, definition: &McpServer) -> Arc<Server> {
        let mut servers = self.0.borrow_mut();
        let known = servers.get(&definition.name).filter(|it| it.definition() == definition);
        if let Some(server) = known {
            return Arc::clone(server);
        }
        let server = Arc::new(Server::new(definition.clone()));
        servers.insert(definition.name.clone(), Arc::clone(&server));
        server
    }

    /// Ends the servers that are not in this list.
    pub(super) fn keep_only(&self, definitions: &[McpServer]) {
        self.0.borrow_mut().retain(|name, _| definitions.iter().any(|it| it.name == *name));
    }
}

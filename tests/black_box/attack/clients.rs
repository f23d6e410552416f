//! Hostile values from clients, the network and workers: tokens, policies, output text, workspaces, sockets.

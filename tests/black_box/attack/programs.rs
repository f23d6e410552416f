//! Files of a workspace that make the daemon or the user's programs run code.

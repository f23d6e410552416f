//! Attacks by a command on the process that launches it: file modes, memory scores, links.

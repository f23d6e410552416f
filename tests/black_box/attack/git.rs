//! Attacks through a workspace's git repositories, before and after the confinement exists.

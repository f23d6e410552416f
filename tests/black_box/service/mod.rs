//! The daemon as a service: under a fake service manager, under a real `systemd --user` where
//! possible, and the installed files.

mod files;
mod launchd;
mod restart;
mod stand_in;
mod systemd;

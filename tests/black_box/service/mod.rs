//! The daemon as a service: below a stand-in for a service manager, below a real `systemd --user` where that
//! can be run, and what is put on disk and removed again.

mod files;
mod restart;
mod stand_in;
mod systemd;

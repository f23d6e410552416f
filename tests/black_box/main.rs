//! Black-box tests with the real binary, the real socket and real tools. They do not use internals
//! of the program.
//!
//! Each test has its own daemon, state directory, home and repositories. The harness fails a test
//! that leaves a process behind.

// The harness follows processes in `/proc`, and tests set limits of a running process with `prlimit`. macOS has neither.
#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

mod harness;

mod acp;
mod agent;
mod agents;
mod approvals;
mod attack;
#[cfg(target_os = "linux")]
mod caches;
mod caller_directory;
mod checkpoints;
mod claims;
mod cli;
mod clients;
mod clock;
mod config;
mod config_change;
mod credentials;
mod daemon_life;
mod demo;
mod doctor_verb;
mod durability;
mod events;
mod examples;
mod far;
mod far_rows;
mod far_send;
mod file_tools;
mod first_hour_cli;
mod first_hour_daemon;
mod first_hour_docs;
mod first_hour_git;
mod first_hour_names;
mod first_hour_network;
mod first_hour_tool;
mod first_hour_workers;
mod floods;
mod follow_verb;
mod git_differential;
mod golden;
mod hostile_workers;
mod house;
mod isolated;
mod isolated_limits;
mod jobs;
mod jobs_verb;
mod journal;
mod kill_matrix;
mod leaks;
mod limits;
mod links;
mod login_environment;
mod logs_verb;
mod lost_files;
mod mcp;
mod mcp_install;
mod methods;
mod metrics_endpoint;
mod metrics_verb;
mod models;
mod names;
mod nemesis;
mod network_attacks;
mod network_hosts;
mod ordinary_work;
mod pi;
mod pins;
mod pressure;
mod question_forgery;
mod remote;
mod remote_page;
mod replace_kills;
mod run_command;
mod sandbox;
mod schema;
mod search_verbs;
mod second_writer;
mod service;
mod session_methods;
mod session_verbs;
mod soak;
mod streamed_searches;
mod supervision;
mod switching;
mod system_files;
mod terminal_tools;
mod terminals;
mod tier_m;
mod tool_registries;
mod tool_stdin;
mod tool_tables;
mod tools;
mod top_verb;
mod transcripts;
mod undo;
mod upstream_proxy;
mod voice;
mod web_search;
mod worker_faults;
#[cfg(target_os = "linux")]
mod worker_template;
mod workspace_mounts;

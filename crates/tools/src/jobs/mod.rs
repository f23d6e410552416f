//! Background jobs: commands that continue after the call that started them.
//!
//! Owns the table of a session's jobs, with its limits and retention. A job ends by itself, at its time limit,
//! by `job_kill`, or with its worker: it never outlives the process. [`crate::bash`] starts jobs,
//! [`crate::execute`] runs the three tools, and the worker reports the running jobs to its supervisor
//! ([`JobReports`]).
//!
//! In reading order: [`job`] is one job, [`log`] its output, [`table`] all jobs, [`tools`] and [`text`] the answers.

mod job;
mod log;
mod table;
mod text;
mod tools;

pub(crate) use job::{BackgroundJob, JobEnd};
pub use table::{JobReport, JobReports, Jobs, NewTerminal};
pub(crate) use text::{push_closing, started};
pub(crate) use tools::{JobRequest, job_kill, job_output, jobs, start};

//! The worker of a session: the part of the session's actor that runs tools.
//!
//! Invariants: every call is answered exactly once, even if the worker crashes. A call that was sent to a worker is
//! never sent again, unless that worker reports that the call was not run. Then it is sent once more.
//!
//! `quackd-supervision` makes the decisions and does no I/O. [`crate::children`] executes them for every kind of
//! process. This folder contains the parts that are specific to workers: its state in [`part`], [`calls`],
//! [`lifecycle`], [`frames`] and the background [`jobs`].

mod calls;
mod child_impl;
mod denials;
mod frames;
mod input;
mod jobs;
mod lifecycle;
mod network;
mod part;
mod place;
mod place_check;
mod policy;
mod tool_call;

pub(crate) use calls::call;
pub(super) use part::WorkerPart;
pub(crate) use tool_call::{CallDone, CallResult, CallTool, Printed};

/// Selects the worker of a session's actor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfWorker;

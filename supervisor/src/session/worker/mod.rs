//! The worker of a session, which runs tools, and the actor that owns it.
//!
//! Invariants: every call is answered exactly once, even if the worker crashes. A call that was sent to a worker is
//! never sent again, unless that worker reports that the call was not run. Then it is sent once more.
//!
//! `quackd-supervision` makes the decisions and does no I/O. [`crate::children`] executes them for every kind of
//! process. This folder contains the parts that are specific to workers: its [`actor`], [`calls`],
//! [`lifecycle`], [`frames`], the link to a [`far`] worker, the background [`jobs`], the [`terminals`] and the
//! [`recording`] of the files' states.

mod actor;
mod calls;
mod child_impl;
mod denials;
mod far;
mod far_link;
mod frames;
mod input;
mod jobs;
mod kept;
mod lifecycle;
mod network;
mod place;
mod place_check;
mod policy;
mod recording;
mod terminals;
mod tool_call;
mod unrecorded;

pub(crate) use actor::WorkerActor;
pub(super) use actor::WorkerStart;
pub(super) use calls::AbortCalls;
pub(crate) use calls::{AbortedCalls, OutputTaken, call};
pub(crate) use lifecycle::StartWorker;
pub(crate) use network::OpenNetwork;
pub(super) use policy::SetPolicy;
pub(crate) use policy::{ClientLeft, EndJobs, SetIsolated};
pub(crate) use terminals::{
    AttachTerminal, DetachTerminal, NewViewer, ResizeTerminal, SignalTerminal, TypeIntoTerminal,
};
pub(crate) use tool_call::{CallDone, CallResult, CallTool, Printed};

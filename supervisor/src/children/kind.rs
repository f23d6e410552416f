//! Kinds of supervised processes: their frames, their programs and the limits of their channels.

use bytes::BytesMut;
use quackd_ipc::frames::{Decoded, FrameError};
use serde::Serialize;
use std::fmt::Debug;

/// Frames and settings of the process that an actor owns.
pub(crate) trait ChildKind {
    /// Frames from the process.
    type FromChild: Debug + Send + 'static;
    /// Frames to the process.
    type ToChild: Serialize;
    /// Settings for reading the channel.
    const WIRE: ChannelLimits;
    /// Name of the process in the log.
    const NAME: &'static str;

    fn ping(seq: u64) -> Self::ToChild;
    fn shutdown() -> Self::ToChild;
    /// The program of a process with this first frame.
    fn program(start: &Self::ToChild) -> Program<Self::FromChild>;
}

/// A program that runs as a child, with its own frames.
#[derive(Debug)]
pub(crate) struct Program<F> {
    /// The subcommand of quackd's executable.
    pub(crate) verb: &'static str,
    /// Reads a frame of this program.
    pub(crate) decode: fn(&BytesMut) -> Result<Decoded<F>, FrameError>,
}

/// Settings for reading a child's channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelLimits {
    /// Number of unknown frames that are skipped. One more kills the child.
    pub(crate) max_unknown: u32,
    /// Burst size and frames per second. `None` if the frames are limited otherwise.
    pub(crate) pace: Option<(u32, u32)>,
}

//! A server that speaks JSON-RPC, one message per line, on its standard input and output.

use crate::wire::{Line, Wire};
use anyhow::Context;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// A running server. Dropping it kills the server's process group.
#[derive(Debug)]
pub(crate) struct StdioServer {
    child: Child,
    wire: Wire,
}

impl StdioServer {
    /// Starts a server. Its input and output are a socket, because reads from a socket have a timeout.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        command.stdin(OwnedFd::from(theirs.try_clone()?)).stdout(OwnedFd::from(theirs));
        let child = command.process_group(0).spawn()?;
        Ok(Self { child, wire: Wire::over(ours)? })
    }

    /// Sends a request, which must succeed.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.wire.send(&Line::rpc(Some(0), method, params))?;
        let result = self.wire.rpc_result(|result| Ok(serde_json::from_str(result)?));
        result.with_context(|| format!("{method} failed"))
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        self.wire.send(&Line::rpc(None, method, params))
    }

    /// Sends a serialized request. Passes the result to `check`.
    pub(crate) fn call(
        &mut self,
        line: &Line,
        check: impl Fn(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.wire.send(line)?;
        self.wire.rpc_result(check)
    }
}

impl Drop for StdioServer {
    fn drop(&mut self) {
        // Errors mean that the processes have already exited.
        if let Ok(pid) = i32::try_from(self.child.id()) {
            killpg(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
        drop(self.child.wait());
    }
}

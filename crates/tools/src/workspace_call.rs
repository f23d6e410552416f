//! A call of a tool in the open workspace.
//!
//! Owns the interface of `crates/facades`: the arguments of a call, and the searches and replacements that other tools
//! make with the parts of this crate. Created by [`crate::execute_with`], once per call.

use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::caller_dir::CallerDir;
use crate::replace::journal::Backup;
use crate::replace::{
    PlanSource, ReplaceOutput, ReplaceParams, ReplaceToolError, bounded, expect, planning, run,
};
use crate::search_common::{self, Budget, SearchToolError};
use crate::{Call, Output, Toolbox};
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::tools::Counts;
use quackd_sandbox::Root;
use quackd_search::replace::{DiffMode, Replace, ReplaceError};
use quackd_search::{SearchError, Stop};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// A call with parsed arguments and the open workspace.
#[derive(Debug)]
pub struct WorkspaceCall<'a> {
    pub(crate) toolbox: &'a Toolbox,
    pub(crate) call: &'a Call,
    pub(crate) root: Arc<Root>,
    pub(crate) arguments: &'a Arguments,
    pub(crate) bounds: &'a CallLimits,
}

/// Reason for rejecting a replacement.
#[derive(Debug)]
pub enum ReplaceFailure {
    /// The engine rejected the pattern or the selection of files.
    Search(SearchError),
    /// Text for the answer, without `Error: `.
    Other(String),
}

impl<'a> WorkspaceCall<'a> {
    /// Returns the name of the tool.
    #[must_use]
    pub fn tool(&self) -> &'a str {
        &self.call.spec.tool
    }

    /// Returns the arguments, for the struct that reads them.
    #[must_use]
    pub fn arguments(&self) -> &'a Map<String, Value> {
        self.arguments.object()
    }

    /// Returns the directory of the caller.
    #[must_use]
    pub fn directory(&self) -> &'a CallerDir {
        self.arguments.directory()
    }

    /// Returns the time limit of the call, for answer texts.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.bounds.limit
    }

    /// Returns a condition that stops at the deadline of the call.
    #[must_use]
    pub fn stop(&self) -> Stop {
        Stop::at(self.bounds.deadline)
    }

    /// Whether the configuration makes `grep_search` respect ignore files.
    #[must_use]
    pub fn respects_ignore_files(&self) -> bool {
        self.toolbox.respect_ignore_files
    }

    /// Returns the refusal of a call that may not change files, regardless of its arguments.
    #[must_use]
    pub fn refuse_change(&self) -> Option<Output> {
        self.toolbox.refuse_change(self.call, self.tool())
    }

    /// Returns the refusal of a change of `path` in a session whose files cannot be written.
    #[must_use]
    pub fn refuse_read_only(&self, path: &str) -> Option<Output> {
        self.toolbox.confinement.refuse_read_only(path)
    }

    /// Runs a search on a blocking thread. `work` gets the workspace and the stop condition.
    ///
    /// # Errors
    /// The error of `work`, or the early end of the call.
    pub async fn search<T, E>(
        &self,
        work: impl FnOnce(&Root, Stop) -> Result<T, E> + Send + 'static,
    ) -> Result<T, SearchToolError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let root = Arc::clone(&self.root);
        search_common::run(root, self.bounds, Budget::of(self.bounds), work).await
    }

    /// Returns the answer of a tool without its own form of failures.
    pub fn failed<E: Display>(&self, error: &SearchToolError<E>) -> Output {
        error.output(self.tool(), self.bounds)
    }

    /// Replaces matches in the selected files of the workspace, and stores the originals for undo. A dry run writes
    /// nothing, and neither does a plan that differs from `counts`.
    ///
    /// # Errors
    /// The reason for changing nothing.
    pub async fn replace(
        &self,
        request: Replace,
        is_dry_run: bool,
        counts: Counts,
    ) -> Result<ReplaceOutput, SearchToolError<ReplaceFailure>> {
        let params = ReplaceParams {
            job: PlanSource::New(Box::new(request)),
            paths: vec![".".to_owned()],
            is_dry_run,
            expect: expect(counts),
            backup: Backup::Journal,
            budget: planning(self.bounds, None),
            show: DiffMode::None,
            max_bytes: MAX_OUTPUT_BYTES,
            directory: self.directory().clone(),
        };

        let root = Arc::clone(&self.root);
        let done = run(self.toolbox, self.call, root, self.bounds, params).await;
        done.map_err(|error| match error {
            ReplaceToolError::CutOff(cause) => SearchToolError::CutOff(cause),
            ReplaceToolError::Request(ReplaceError::Search(error)) => {
                ReplaceFailure::Search(error).into()
            }
            other => ReplaceFailure::Other(other.to_string()).into(),
        })
    }

    /// Returns the answer about a replacement: `text`, the first denial, the data and the written files. `text` gets
    /// the result with paths relative to the caller's directory.
    pub fn replaced(
        &self,
        done: &ReplaceOutput,
        text: impl FnOnce(&ReplaceOutput) -> String,
    ) -> Output {
        let seen = done.seen_from_directory();
        bounded(done.answer(&seen, text(&seen), &self.toolbox.confinement))
    }
}

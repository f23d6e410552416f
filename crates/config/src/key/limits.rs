//! Keys of limits and retention: `limits`, `keep` and `isolated`.

use crate::CheckpointChoice;
use crate::accessor::{choice, field};
use crate::definition::Key;
use crate::value_kind::ValueKind;

/// Seconds of a day, and the longest retention in days.
const DAY_S: u64 = 24 * 60 * 60;
const MAX_DAYS: u64 = 3650;

/// The tables `limits`, `keep` and `isolated`.
pub(super) static KEYS: &[Key] = &[
    Key {
        name: "limits.commands",
        description: "Maximum number of concurrent commands in all sessions. More commands wait for a slot.",
        kind: ValueKind::Count { field: field!(limits.commands), min: 16, max: 1024 },
    },
    Key {
        name: "limits.jobs",
        description: "Maximum number of concurrent background jobs in all sessions.",
        kind: ValueKind::Count { field: field!(limits.jobs), min: 1, max: 1024 },
    },
    Key {
        name: "limits.processes",
        description: "Maximum number of processes in one session's commands.",
        kind: ValueKind::Count { field: field!(limits.processes), min: 16, max: 100_000 },
    },
    Key {
        name: "limits.total_processes",
        description: "Maximum number of processes in the commands of all sessions, where the kernel counts them.",
        kind: ValueKind::Count { field: field!(limits.total_processes), min: 64, max: 1_000_000 },
    },
    Key {
        name: "limits.session_memory_mb",
        description: "MiB of memory for the commands, the worker and the agent of one session together; 0 for no limit. `auto`: half of the machine, and for commands at most what is available when the worker starts. Above the limit, the command with most memory is killed, or else the worker or the agent.",
        kind: ValueKind::AutoCount {
            field: field!(limits.session_memory_mb),
            min: 32,
            max: 1_048_576,
        },
    },
    Key {
        name: "limits.cpu_minutes",
        description: "Minutes of processor time for each process of a command; 0 for no limit.",
        kind: ValueKind::Time { field: field!(limits.cpu), unit_s: 60, min: 0, max: 24 * 60 },
    },
    Key {
        name: "limits.file_mb",
        description: "Largest file that a command may write, in MiB; 0 for no limit.",
        kind: ValueKind::Count { field: field!(limits.file_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "limits.spill_mb",
        description: "Total size of the files with long outputs of all sessions, in MiB. The oldest files are deleted first.",
        kind: ValueKind::Count { field: field!(limits.spill_mb), min: 64, max: 1_048_576 },
    },
    Key {
        name: "keep.outputs_days",
        description: "Days to keep files with long outputs.",
        kind: ValueKind::Time { field: field!(keep.outputs), unit_s: DAY_S, min: 1, max: MAX_DAYS },
    },
    Key {
        name: "keep.undo_days",
        description: "Days to keep the originals of replaced files. Later, `quack undo` cannot restore them.",
        kind: ValueKind::Time { field: field!(keep.undo), unit_s: DAY_S, min: 1, max: MAX_DAYS },
    },
    Key {
        name: "keep.undo_mb",
        description: "Total size of the originals of all sessions, in MiB. The oldest are deleted first.",
        kind: ValueKind::Count { field: field!(keep.undo_mb), min: 256, max: 1_048_576 },
    },
    Key {
        name: "keep.checkpoints",
        description: "Sessions whose files' states are recorded after each call that may change them: those that are `isolated`, `all` (of a workspace with at most 20000 files), or `off`.",
        kind: ValueKind::Choice {
            field: choice!(keep.checkpoints, CheckpointChoice::ALL, CheckpointChoice::word),
            variable: None,
        },
    },
    Key {
        name: "keep.caches_mb",
        description: "Total size of the package caches of all workspaces, in MiB. The least recently used are deleted first; 0 for none, so that downloads end with the worker.",
        kind: ValueKind::Count { field: field!(keep.caches_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "keep.journal_days",
        description: "Days to keep the journal of calls, which `quack log` shows; 0 for no journal.",
        kind: ValueKind::Time { field: field!(keep.journal), unit_s: DAY_S, min: 0, max: MAX_DAYS },
    },
    Key {
        name: "keep.journal_mb",
        description: "Total size of the journal of calls, in MiB. The oldest calls are deleted first.",
        kind: ValueKind::Count { field: field!(keep.journal_mb), min: 1, max: 1_048_576 },
    },
    Key {
        name: "keep.min_free_mb",
        description: "MiB of free disk space, or a tenth of a smaller disk. With less, long outputs are not written to files, and the log contains only warnings and errors; 0 for never.",
        kind: ValueKind::Count { field: field!(keep.min_free_mb), min: 0, max: 1_048_576 },
    },
    Key {
        name: "isolated.copy_files",
        description: "Most files that are copied for an isolated session. A workspace with more of them, outside of ignored directories, is refused.",
        kind: ValueKind::Count { field: field!(isolated.copy_files), min: 1, max: 1_000_000 },
    },
    Key {
        name: "isolated.copy_mb",
        description: "Largest total size of these files, in MiB.",
        kind: ValueKind::Count { field: field!(isolated.copy_mb), min: 1, max: 1_048_576 },
    },
    Key {
        name: "isolated.max_mb",
        description: "Disk space of the copy of one isolated session, in MiB, with its layers and without its checkpoints. Above it, file tools, MCP tools and background jobs are refused; commands run, so that they can delete files, but those of agents only until it is exceeded by a quarter (at least 1 MiB).",
        kind: ValueKind::Count { field: field!(isolated.max_mb), min: 1, max: 1_048_576 },
    },
    Key {
        name: "isolated.total_mb",
        description: "Disk space of all copies together, in MiB, with their checkpoints. Above it, commands of agents are refused too, and no isolated session is created.",
        kind: ValueKind::Count { field: field!(isolated.total_mb), min: 1, max: 1_048_576 },
    },
];

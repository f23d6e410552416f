//! Tests of [`super`]. Only Linux shows the ancestors of a process.

#![cfg(target_os = "linux")]

use super::*;
use serde_json::json;

fn worker(pid: u32, monitor_pid: Option<u32>) -> WorkerInfo {
    serde_json::from_value(json!({
        "sessionId": "s", "sessionName": "s", "workspacePath": "/s", "state": "busy",
        "restarts": 0, "calls": [], "pid": pid, "monitorPid": monitor_pid
    }))
    .unwrap()
}

#[test]
fn only_a_process_of_the_supervisor_is_ever_signalled() {
    let us = std::process::id();
    let parent = std::os::unix::process::parent_id();
    assert_eq!(target(&worker(us, None), parent).unwrap().0, us);
    // The worker's id belongs to another PID namespace, its monitor's does not.
    let (shown, signalled) = target(&worker(1, Some(us)), parent).unwrap();
    assert_eq!((shown, signalled), (1, rustix::process::getpid()));
    assert!(target(&worker(us, None), u32::MAX).is_err());
    assert!(target(&worker(1, Some(1)), us).is_err());
}

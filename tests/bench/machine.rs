//! General description of the machine and the build. Sufficient for comparisons; contains no host name.

use serde::Serialize;
use std::num::NonZero;

/// Date, machine and build. Unknown values are absent.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) quackd: &'static str,
    pub(crate) cores: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_gib: Option<f64>,
    pub(crate) system: String,
    pub(crate) profile: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<String>,
}

/// Describes this machine and this build.
pub(crate) fn describe() -> Machine {
    Machine {
        date: jiff::Zoned::now().date().to_string(),
        quackd: env!("CARGO_PKG_VERSION"),
        processor: processor(),
        cores: std::thread::available_parallelism().map_or(1, NonZero::get),
        memory_gib: memory_gib(),
        system: system(),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" },
        load: load_average(),
    }
}

/// Returns the load averages of the last 1, 5 and 15 minutes.
pub(crate) fn load_average() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    Some(words.join(" "))
}

/// Returns the model of the first processor.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn memory_gib() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0 / 1024.0)
}

/// Returns the operating system and the first two numbers of the kernel version.
fn system() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version: Vec<&str> = release.trim().split('.').take(2).collect();
    format!("{} {} {}", std::env::consts::OS, version.join("."), std::env::consts::ARCH)
}

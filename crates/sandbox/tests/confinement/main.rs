//! Confines real programs and shows what they can and cannot do. Run by `cargo test`, as root (then every case
//! also runs as an ordinary user) or as an ordinary user.
//!
//! This program starts itself for each case: the copy becomes the monitor, splits off process 1 and the
//! worker, and the worker runs a bash script.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[cfg(target_os = "linux")]
mod alone;
#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod confined;
#[cfg(target_os = "linux")]
mod deaths;
#[cfg(target_os = "linux")]
mod replaced;
#[cfg(target_os = "linux")]
mod repositories;
#[cfg(target_os = "linux")]
mod speed;
#[cfg(target_os = "linux")]
mod world;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("confinement: skipped, this is not Linux");
}

#[cfg(target_os = "linux")]
fn main() {
    if let Some(request) = confined::Request::from_environment() {
        request.run();
    }
    let filter = std::env::args().skip(1).find(|one| !one.starts_with('-'));
    let probe = quackd_sandbox::confine::probe_blocking().expect("probe");
    println!("probe: {probe:?}");
    if let Some(why) = &probe.namespaces_fail {
        println!("confinement: skipped, this system has no namespaces for us ({why})");
        return;
    }
    let users = world::users();
    let mut failed = 0;
    for user in users {
        let all = [cases::ALL, repositories::ALL, replaced::ALL, deaths::ALL, alone::ALL].concat();
        for (name, case) in all {
            if filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str())) {
                continue;
            }
            let name = format!("{name} ({user})");
            let result = std::panic::catch_unwind(|| case(&world::World::new(user)));
            println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
            failed += usize::from(result.is_err());
        }
        if filter.as_ref().is_none_or(|filter| "speed".contains(filter.as_str())) {
            speed::measure(&world::World::new(user));
        }
    }
    if failed != 0 {
        println!("{failed} failed");
        std::process::exit(1);
    }
}

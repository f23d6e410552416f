//! Giving up rights for good: capabilities, set-id programs, memory that others may read, limits.
//! Called by `enter` after the file system stands.

use super::error::{ConfineError, Step};
use super::limits::Limits;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

/// Drops every capability of this process and of all that it will run, for good, inside a user
/// namespace: bounding set, ambient set and all three others; and user 0 means nothing any more when a
/// program starts.
pub(crate) fn drop_capabilities() -> Result<(), ConfineError> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Past the last one that this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error).step("drop a capability from the bounding set"),
        }
    }
    clear_ambient_capability_set().step("clear ambient capabilities")?;
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(bits).step("lock the secure bits")?;
    drop_held()
}

/// Drops the capabilities that this process holds; without a user namespace the rest cannot be touched
/// and needs not be: no program can gain any.
pub(crate) fn drop_held() -> Result<(), ConfineError> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).step("drop capabilities")?;
    let left = capabilities(None).step("read capabilities")?;
    if left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty() {
        return Ok(());
    }
    Err(ConfineError::new("drop capabilities", "some are left"))
}

/// No program that this process runs gains rights, and no other process of the user reads its memory or
/// looks through its descriptors. A program that is executed is readable again.
pub(crate) fn forbid_new_rights() -> Result<(), ConfineError> {
    set_no_new_privs(true).step("forbid new privileges")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide the memory")
}

/// Runs `open` while the files of this process in `/proc` belong to its user; afterwards they are hidden again.
/// Only before the process has started another.
pub(crate) fn as_own_process<T>(open: impl FnOnce() -> T) -> Result<T, ConfineError> {
    set_dumpable_behavior(DumpableBehavior::Dumpable).step("show the process's files")?;
    let opened = open();
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide the memory")?;
    Ok(opened)
}

/// Part of the user's queued signals and message queues that one worker may have. The kernel counts both for the user
/// as a whole.
const SHARE: u64 = 4;

/// Sets the limits that the policy names, as far as the hard limits allow; no core files in any case.
pub(crate) fn apply_limits(limits: &Limits) -> Result<(), ConfineError> {
    set(Resource::Core, 0)?;
    for counted in [Resource::Sigpending, Resource::Msgqueue] {
        if let Some(most) = getrlimit(counted).maximum {
            set(counted, most / SHARE)?;
        }
    }
    for (resource, wanted) in [
        (Resource::Nproc, limits.processes),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_size),
    ] {
        if let Some(wanted) = wanted {
            set(resource, wanted)?;
        }
    }
    Ok(())
}

fn set(resource: Resource, wanted: u64) -> Result<(), ConfineError> {
    let hard = getrlimit(resource).maximum;
    let value = Some(hard.map_or(wanted, |hard| hard.min(wanted)));
    let limit = Rlimit { current: value, maximum: value };
    rustix::process::setrlimit(resource, limit).step("set a limit")
}

//! Drops privileges permanently: capabilities, set-id programs, readable memory, resource limits. Called by `enter`
//! after the file system is built.

use super::error::{ConfineError, StepContext};
use super::limits::ConfinementLimits;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

/// Drops every capability of this process and of all programs that it executes, permanently, inside a user namespace:
/// the bounding set, the ambient set and the three other sets. User 0 has no special rights when a program starts.
pub(crate) fn drop_capabilities() -> Result<(), ConfineError> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Past the last capability of this kernel.
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

/// Drops the capabilities that this process has. Without a user namespace the other sets cannot be changed. They need
/// no change, because no program can gain capabilities.
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

/// Prevents programs of this process from gaining rights, and other processes of the user from reading its memory or
/// descriptors. An executed program is readable again.
pub(crate) fn forbid_new_rights() -> Result<(), ConfineError> {
    set_no_new_privs(true).step("forbid new privileges")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide the memory")
}

/// Runs `open` while the user owns this process's files in `/proc`, and then hides them again. Call it only before
/// the process starts another one.
pub(crate) fn as_own_process<T>(open: impl FnOnce() -> T) -> Result<T, ConfineError> {
    set_dumpable_behavior(DumpableBehavior::Dumpable).step("show the process's files")?;
    let opened = open();
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide the memory")?;
    Ok(opened)
}

/// Divisor for the user's limits of queued signals and message queues. One worker gets this share, because the kernel
/// counts both for the user as a whole.
const SHARE: u64 = 4;

/// Sets the limits of the policy, as far as the hard limits allow. Always disables core files.
pub(crate) fn apply_limits(limits: &ConfinementLimits) -> Result<(), ConfineError> {
    set(Resource::Core, 0)?;
    for counted in [Resource::Sigpending, Resource::Msgqueue] {
        if let Some(most) = getrlimit(counted).maximum {
            set(counted, most / SHARE)?;
        }
    }

    for (resource, limit) in [
        (Resource::Nproc, limits.processes),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_size),
    ] {
        if let Some(limit) = limit {
            set(resource, limit)?;
        }
    }
    Ok(())
}

fn set(resource: Resource, limit: u64) -> Result<(), ConfineError> {
    let hard = getrlimit(resource).maximum;
    let value = Some(hard.map_or(limit, |hard| hard.min(limit)));
    // The hard limit is lowered as well, so that no command can raise the limit again.
    let limit = Rlimit { current: value, maximum: value };
    rustix::process::setrlimit(resource, limit).step("set a limit")
}

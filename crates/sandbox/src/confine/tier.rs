//! The choice of a worker's tier. Pure: [`Probe`] contains the abilities of the system.

use quackd_protocol::tiers::Probe;
use quackd_protocol::tiers::Tier;

/// Minimum Landlock version for a second layer inside namespaces: all file rights up to truncate.
pub const LANDLOCK_WITH_NAMESPACES: i32 = 3;

/// Minimum Landlock version without namespaces: also restricts TCP.
pub const LANDLOCK_ALONE: i32 = 6;

/// Strength of a tier. A smaller number is stricter.
fn rank(tier: Tier) -> u8 {
    match tier {
        Tier::A => 0,
        Tier::B => 1,
        Tier::D | Tier::M => 2,
        Tier::Unconfined => 3,
    }
}

/// Error of choosing a tier. The text is for display to the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// This system does not support the requested tier.
    #[error("tier {requested} was asked for, but {why}")]
    Unavailable {
        /// The requested tier.
        requested: Tier,
        /// The missing feature.
        why: String,
    },
    /// No tier with confinement works on this system.
    #[error("commands cannot be confined here: {why}; the user can allow full-access instead")]
    Nothing {
        /// The missing feature.
        why: String,
    },
}

/// Chooses the tier of a confined worker. `has_cgroup` is true if the worker has a control group. `requested` is the
/// user's tier, which may only be a lower one than the system supports. [`Tier::Unconfined`] is only chosen on request.
///
/// # Errors
/// No tier works on this system, or not the requested one.
pub fn choose(probe: &Probe, has_cgroup: bool, requested: Option<Tier>) -> Result<Tier, TierError> {
    let best = best(probe, has_cgroup);
    let Some(requested) = requested else {
        return best.map_err(|why| TierError::Nothing { why });
    };

    let unavailable = |why: String| Err(TierError::Unavailable { requested, why });
    match (requested, &best) {
        (Tier::Unconfined, _) => Ok(requested),
        (Tier::A | Tier::B, Ok(best)) if best.has_namespaces() => {
            // Tier A differs from B by a control group only.
            if rank(requested) < rank(*best) {
                return unavailable("there is no control group".into());
            }
            Ok(requested)
        }
        (Tier::A | Tier::B, _) => unavailable(namespaces_problem(probe).unwrap_or_default()),
        (Tier::D, _) => match landlock_alone_problem(probe) {
            None => Ok(requested),
            Some(why) => unavailable(why),
        },
        (Tier::M, _) if probe.seatbelt => Ok(requested),
        (Tier::M, _) => unavailable("this is not macOS".into()),
    }
}

fn best(probe: &Probe, has_cgroup: bool) -> Result<Tier, String> {
    if probe.seatbelt {
        return Ok(Tier::M);
    }
    let Some(no_namespaces) = namespaces_problem(probe) else {
        return Ok(if has_cgroup { Tier::A } else { Tier::B });
    };
    match landlock_alone_problem(probe) {
        None => Ok(Tier::D),
        Some(why) => Err(format!("{no_namespaces}; without namespaces, {why}")),
    }
}

fn namespaces_problem(probe: &Probe) -> Option<String> {
    if let Some(why) = &probe.namespaces_fail {
        return Some(format!("namespaces do not work ({why})"));
    }
    if !probe.seccomp {
        return Some("system calls cannot be filtered".into());
    }
    landlock_problem(probe, LANDLOCK_WITH_NAMESPACES)
}

fn landlock_alone_problem(probe: &Probe) -> Option<String> {
    if probe.is_root {
        return Some("Landlock alone does not hold user 0".into());
    }
    if !probe.seccomp {
        return Some("system calls cannot be filtered".into());
    }
    landlock_problem(probe, LANDLOCK_ALONE)
}

fn landlock_problem(probe: &Probe, least: i32) -> Option<String> {
    match probe.landlock_abi {
        abi if least <= abi => None,
        0 => Some("the kernel has no Landlock".into()),
        abi => Some(format!("the kernel's Landlock is version {abi}, {least} is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Probe {
        Probe { landlock_abi: 7, seccomp: true, overlay: true, ..Probe::default() }
    }

    fn without_namespaces() -> Probe {
        Probe { namespaces_fail: Some("clone: EPERM".into()), ..all() }
    }

    #[test]
    fn the_best_that_works_is_chosen() {
        assert_eq!(choose(&all(), true, None), Ok(Tier::A));
        assert_eq!(choose(&all(), false, None), Ok(Tier::B));
        assert_eq!(choose(&without_namespaces(), true, None), Ok(Tier::D));
        let mac = Probe { seatbelt: true, ..Probe::default() };
        assert_eq!(choose(&mac, false, None), Ok(Tier::M));
    }

    #[test]
    fn nothing_is_never_chosen_unless_it_was_asked_for() {
        let refusal = choose(&Probe::default(), true, None).unwrap_err();
        let text = "commands cannot be confined here: system calls cannot be filtered; without \
                    namespaces, system calls cannot be filtered; the user can allow full-access instead";
        assert_eq!(refusal.to_string(), text);
        assert_eq!(choose(&Probe::default(), true, Some(Tier::Unconfined)), Ok(Tier::Unconfined));
    }

    #[test]
    fn landlock_alone_is_refused_for_root() {
        let root = Probe { is_root: true, ..without_namespaces() };
        assert!(choose(&root, true, None).is_err());
        let asked = choose(&Probe { is_root: true, ..all() }, true, Some(Tier::D));
        assert!(asked.unwrap_err().to_string().contains("user 0"));
        assert_eq!(choose(&Probe { is_root: true, ..all() }, true, None), Ok(Tier::A));
    }

    #[test]
    fn a_lower_tier_may_be_asked_for_and_a_higher_one_is_refused() {
        assert_eq!(choose(&all(), true, Some(Tier::B)), Ok(Tier::B));
        assert_eq!(choose(&all(), true, Some(Tier::D)), Ok(Tier::D));
        assert!(choose(&all(), false, Some(Tier::A)).is_err());
        assert!(choose(&without_namespaces(), true, Some(Tier::B)).is_err());
        assert!(choose(&all(), true, Some(Tier::M)).is_err());
        let old = Probe { landlock_abi: 3, ..all() };
        assert_eq!(choose(&old, false, None), Ok(Tier::B));
        assert!(choose(&old, false, Some(Tier::D)).is_err());
    }
}

//! Attacks on counters and limits: process counts, probes, watches, directory depth, variables.

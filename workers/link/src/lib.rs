//! The link to a far worker: `quack link` on this side, `quack worker --stdio` there.

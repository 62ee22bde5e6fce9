//! Bounds that several calls share.

/// Maximum number of jobs, follow-ups included, that one script call handles.
pub(super) const BATCH: usize = 500;

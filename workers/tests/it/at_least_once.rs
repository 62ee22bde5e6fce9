//! Jobs run at least once: doubled, early, stale or interrupted, they change nothing that has happened already.

mod crashes;
mod repeats;
mod superseded;

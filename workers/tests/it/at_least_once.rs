//! Jobs run at least once. Repeated, early, stale or interrupted jobs change nothing that has already happened.

mod crashes;
mod repeats;
mod superseded;

//! Answered changes are never lost, and a short outage of Postgres needs no manual action.

mod batches;
mod commits;
mod creations;
mod hang_ups;
mod outages;
mod side_rows;

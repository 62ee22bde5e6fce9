//! What a client was answered is kept, and a short outage of Postgres needs no person.

mod batches;
mod commits;
mod creations;
mod hang_ups;
mod outages;

//! What a client was answered is kept, and a short outage of Postgres needs no person.

mod hang_ups;

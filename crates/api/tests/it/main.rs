//! The tests of the HTTP API: what producers, drivers, staff and monitoring are answered.
//!
//! * `access`: who may ask what. `first_use`: a newcomer's first requests. `answers`, `errors`, `openapi`: bodies, codes, the document.
//! * `idempotency`: a request that is sent again. `inputs`, `texts`, `plain_text`: every field, with values that are wrong.
//! * `staff`: the work of staff. `bindings`: bindings, plans and OTPs. `command_line`: what the command line asks for.
//! * `stream`: the feed of events. `audit`: what is recorded of each change. `seen`: each request has an id and is counted.
//! * `outages`: servers that are away. `waits`: every wait on a server ends. `connections`: sockets that say nothing.
//! * `metrics`: gauges that are read at each scrape, also while a server is away.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod access;
mod answers;
mod audit;
mod bindings;
mod command_line;
mod connections;
mod errors;
mod first_use;
mod idempotency;
mod inputs;
mod metrics;
mod openapi;
mod outages;
mod plain_text;
mod seen;
mod staff;
mod stream;
mod texts;
mod waits;

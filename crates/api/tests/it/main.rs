//! Tests of the HTTP API: answers to producers, drivers, staff and monitoring.
//!
//! * `access`: permissions. `first_use`: the first requests of a new user. `answers`, `errors`, `openapi`: bodies,
//!   codes, the document.
//! * `idempotency`: repeated requests. `inputs`, `texts`, `plain_text`: every field with wrong values.
//! * `staff`: staff actions. `bindings`: bindings, plans and OTPs. `command_line`: requests of the command line.
//! * `stream`: the event feed. `audit`: the record of each change. `seen`: each request has an id and is counted.
//! * `outages`: servers that are down. `waits`: every wait on a server ends. `connections`: sockets that send nothing.
//! * `scheduled`: orders with a pickup time. `scope`: keys that read only some orders.
//! * `test_clock`: the test clock of `dispatchq dev`.
//! * `driver_links`: one-time links of drivers. `tracking`: links for customers. `webhook_endpoints`: endpoints that
//!   producers create.
//! * `late_work`: creations while jobs are late.
//! * `metrics`: gauges read at each scrape, also while a server is down.

// Request futures are nested deeper than the default allows.
#![recursion_limit = "256"]

mod access;
mod answers;
mod audit;
mod bindings;
mod command_line;
mod connections;
mod contents;
mod driver_links;
mod errors;
mod first_use;
mod idempotency;
mod inputs;
mod late_work;
mod metrics;
mod openapi;
mod outages;
mod plain_text;
mod scheduled;
mod scope;
mod seen;
mod staff;
mod stream;
mod test_clock;
mod texts;
mod tracking;
mod waits;
mod webhook_endpoints;

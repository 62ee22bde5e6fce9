//! Webhook endpoints of producers: declared in the configuration, or created by API. Design:
//! docs/design/outbox-and-channels.md.
//!
//! * `row`: an endpoint as callers see it, and its errors. `secret`: signing secrets.
//! * [`address`]: URLs that an endpoint may have.
//! * [`changes`]: creation, pause, rotation and deletion, each with its audit record.
//! * [`list`]: lists. [`deliveries`]: tries to deliver to an endpoint.
//! * [`subscribed`]: subscriptions in memory, which every process keeps up to date. `owners`: producers of the endpoints.
//! * [`sending`]: the channel of an endpoint, read before each try. [`testing`]: the event `endpoint.test`.

pub mod address;
pub mod changes;
pub mod deliveries;
pub mod list;
pub(crate) mod owners;
mod row;
mod secret;
pub mod sending;
pub mod subscribed;
pub mod testing;

pub use row::{Endpoint, EndpointError, EndpointId, EndpointOwner, EndpointState};
pub use secret::EndpointSecret;

/// Maximum number of endpoints of one producer that were created by API.
pub const MOST_ENDPOINTS: i64 = 10;

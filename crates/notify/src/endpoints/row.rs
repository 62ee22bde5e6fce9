//! A webhook endpoint, without its secrets.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::MOST_ENDPOINTS;

/// Start of the channel of an endpoint that was created by API. No name in `[channels]` can start with it.
const CHANNEL: &str = "endpoint:";

/// Id of an endpoint that was created by API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::Type)]
#[serde(transparent)]
#[sqlx(transparent)]
pub struct EndpointId(pub Uuid);

impl EndpointId {
    /// Returns the channel of the endpoint, as outbox rows name it.
    pub fn to_channel(self) -> String {
        format!("{CHANNEL}{}", self.0)
    }

    /// Returns the endpoint of a channel; `None` if it is another channel.
    pub fn of_channel(channel: &str) -> Option<Self> {
        channel.strip_prefix(CHANNEL)?.parse().ok().map(Self)
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum EndpointState {
    Active,
    /// Events are not sent. A replay sends them later.
    Paused,
}

/// An endpoint as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Endpoint {
    /// Id of a created endpoint, or the channel of a declared one.
    pub id: String,
    pub producer: String,
    pub url: String,
    /// Types of events; empty: all.
    pub events: Vec<String>,
    pub state: EndpointState,
    /// Whether the endpoint is declared in the configuration.
    #[sqlx(default)]
    pub declared: bool,
    /// Cursor of the stream at the latest pause; `None` if the endpoint was never paused.
    pub paused_after: Option<String>,
    /// `None` for a declared endpoint.
    pub created_at: Option<DateTime<Utc>>,
}

/// Endpoints that a caller may see and change.
#[derive(Debug, Clone, Copy)]
pub enum EndpointOwner<'a> {
    All,
    /// The endpoints of the producer with this name.
    Producer(&'a str),
}

impl<'a> EndpointOwner<'a> {
    /// Returns the producer; `None` for all.
    pub fn producer(self) -> Option<&'a str> {
        match self {
            Self::All => None,
            Self::Producer(name) => Some(name),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The endpoint does not exist, or belongs to another producer.
    #[error("no webhook endpoint with this id")]
    NotFound,
    #[error("the producer has {max} endpoints; delete one first", max = MOST_ENDPOINTS)]
    TooMany,
    #[error("after is ahead of this database; use a cursor from an answer of GET /api/v1/events")]
    AheadOfFeed,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

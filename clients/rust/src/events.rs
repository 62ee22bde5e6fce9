//! The event stream.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use reqwest::Method;
use serde::Deserialize;

use crate::{Client, Error, Place, Request};

/// Longest wait of one request for an event, in seconds.
const WAIT: u32 = 50;

#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct StepEvent {
    pub r#type: String,
    pub timestamp: DateTime<Utc>,
    pub version: u32,
    pub data: StepData,
}

/// Step of an order. Webhooks about steps have it too.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct StepData {
    pub seq: i64,
    pub order_id: String,
    pub status: String,
    pub previous_status: Option<String>,
    pub reason: String,
    pub attempt_no: Option<i32>,
    pub driver_id: Option<String>,
    /// Names of the changed members of the order; only in `order.updated`.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Pickup of an order with contents.
    pub pickup: Option<StepPickup>,
    pub dropoff: Option<Place>,
    /// The producer's own values.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// Pickup of an order in events.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct StepPickup {
    pub address: Option<String>,
}

/// Page of the stream. Store `next` in the transaction that stores the events.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct EventPage {
    pub events: Vec<StepEvent>,
    pub next: String,
}

/// Stream that is read page after page.
#[derive(Debug)]
pub struct EventPages {
    client: Client,
    after: Option<String>,
    limit: u32,
    follow: bool,
    last: bool,
}

impl EventPages {
    /// Returns the next page. Without [`Client::follow_events`] it returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// If the page cannot be read. The next call requests the same page again.
    pub async fn next(&mut self) -> Result<Option<EventPage>, Error> {
        if self.last {
            return Ok(None);
        }
        let wait = if self.follow { WAIT } else { 0 };
        let mut request = Request::new(Method::GET, "/api/v1/events").query("limit", self.limit).query("wait", wait);
        if let Some(after) = &self.after {
            request = request.query("after", after);
        }
        let page: EventPage = self.client.request(request).await?;
        self.last = !self.follow && page.events.len() < self.limit as usize;
        self.after = Some(page.next.clone());
        Ok(Some(page))
    }
}

impl Client {
    /// Returns the pages of the stream after a cursor, up to now. Each has at most `limit` events.
    pub fn events(&self, after: Option<&str>, limit: u32) -> EventPages {
        let after = after.map(str::to_owned);
        EventPages { client: self.clone(), after, limit, follow: false, last: false }
    }

    /// Returns the pages of the stream after a cursor without an end. Each request waits up to 50 s for an event. After an
    /// error, [`EventPages::next`] requests the same page again.
    pub fn follow_events(&self, after: Option<&str>) -> EventPages {
        EventPages { follow: true, ..self.events(after, 100) }
    }
}

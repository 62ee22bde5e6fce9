//! The operations of a producer on orders.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, SecondsFormat, Utc};
use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::{Client, Error, Request};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub latitude: f64,
    pub longitude: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl Place {
    pub const fn new(latitude: f64, longitude: f64) -> Self {
        Self { latitude, longitude, address: None }
    }
}

/// Person to call about an order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// E.164.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// Order to be created. Absent members are omitted.
#[derive(Debug, Clone, Serialize)]
pub struct NewOrder {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_id: Option<String>,
    pub service_type: String,
    pub pickup: Place,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_status: Option<String>,
    /// In the smallest unit of the currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub area_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
    /// BCP 47: language of the messages to the customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loyalty_level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropoff: Option<Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<Contact>,
    /// The producer's own values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Labels that the driver must have.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub requires: BTreeSet<String>,
    /// Time of the pickup. `None`: as soon as possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pickup_at: Option<DateTime<Utc>>,
}

impl NewOrder {
    /// Creates an order with the required members.
    pub fn new(service_type: impl Into<String>, pickup: Place) -> Self {
        Self {
            order_id: None,
            service_type: service_type.into(),
            pickup,
            payment_status: None,
            amount_minor: None,
            currency: None,
            area_id: None,
            customer_id: None,
            language: None,
            channel: None,
            loyalty_level: None,
            dropoff: None,
            notes: None,
            contact: None,
            metadata: BTreeMap::new(),
            requires: BTreeSet::new(),
            pickup_at: None,
        }
    }

    /// Sets the producer's id for the order.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.order_id = Some(id.into());
        self
    }
}

#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Order {
    pub order_id: String,
    pub status: String,
    pub service_type: String,
    pub area_id: Option<String>,
    pub customer_id: Option<String>,
    pub language: Option<String>,
    pub channel: Option<String>,
    pub loyalty_level: Option<String>,
    pub admission: Option<String>,
    pub pickup: Option<Place>,
    pub dropoff: Option<Place>,
    pub notes: Option<String>,
    /// Only in answers to the driver who has the order.
    pub contact: Option<Contact>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub requires: BTreeSet<String>,
    pub payment_status: String,
    pub paid_at: Option<DateTime<Utc>>,
    pub refund: Option<OrderRefund>,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
    pub partner: Option<String>,
    pub booking_id: Option<String>,
    pub job_id: Option<String>,
    pub driver_id: Option<String>,
    pub attempt_no: i32,
    pub held_for_review: bool,
    pub next: Option<NextStep>,
    pub created_at: DateTime<Utc>,
    pub lifetime_deadline: DateTime<Utc>,
    pub lifetime_left_sec: Option<u64>,
    pub closed_at: Option<DateTime<Utc>>,
    pub pickup_at: Option<DateTime<Utc>>,
    /// Address of the page for the customer. Only in the answer to the creation.
    pub tracking_url: Option<String>,
}

/// Refund owed to the customer of an order.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct OrderRefund {
    pub state: String,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
}

/// Next automatic step of an order.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct NextStep {
    pub action: String,
    pub at: DateTime<Utc>,
    pub in_sec: u64,
}

/// Answer to a cancellation.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct CancelledOrder {
    #[serde(flatten)]
    pub order: Order,
    #[serde(default)]
    pub trip_continues: bool,
    pub note: Option<String>,
}

/// Payment event of an order.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentEventRequest {
    pub event_id: String,
    pub payment_status: String,
}

/// Entry in the history of an order.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct TimelineEvent {
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub from_status: Option<String>,
    pub to_status: String,
    pub reason: String,
    pub actor: String,
    pub attempt_no: Option<i32>,
    pub detail: Option<String>,
}

/// Selects orders. Absent members select all.
#[derive(Debug, Clone, Default)]
pub struct OrderFilter {
    pub status: Option<String>,
    pub area: Option<String>,
    pub service_type: Option<String>,
    pub driver: Option<String>,
    pub customer: Option<String>,
    pub closed: Option<bool>,
    pub held: Option<bool>,
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    pub q: Option<String>,
    /// Values that the metadata of the order must have.
    pub metadata: BTreeMap<String, String>,
    /// Orders per request.
    pub limit: Option<u32>,
}

impl OrderFilter {
    fn request(&self) -> Request {
        let time = |at: Option<DateTime<Utc>>| at.map(|at| at.to_rfc3339_opts(SecondsFormat::Nanos, true));
        let flag = |flag: Option<bool>| flag.map(|flag| flag.to_string());
        let filters = [
            ("status", self.status.clone()),
            ("area", self.area.clone()),
            ("service_type", self.service_type.clone()),
            ("driver", self.driver.clone()),
            ("customer", self.customer.clone()),
            ("closed", flag(self.closed)),
            ("held", flag(self.held)),
            ("from", time(self.from)),
            ("to", time(self.to)),
            ("q", self.q.clone()),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ];
        let given = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let request = given
            .fold(Request::new(Method::GET, "/api/v1/orders"), |request, (name, value)| request.query(name, value));
        self.metadata.iter().fold(request, |request, (key, value)| request.query(format!("metadata[{key}]"), value))
    }
}

/// List of orders that is read page after page.
#[derive(Debug)]
pub struct Orders {
    client: Client,
    filter: OrderFilter,
    cursor: Option<String>,
    page: std::vec::IntoIter<Order>,
    last: bool,
}

#[derive(Deserialize)]
struct Page {
    orders: Vec<Order>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Timeline {
    events: Vec<TimelineEvent>,
}

impl Orders {
    /// Returns the next order, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// If the next page cannot be read.
    pub async fn next(&mut self) -> Result<Option<Order>, Error> {
        loop {
            if let Some(order) = self.page.next() {
                return Ok(Some(order));
            }
            if self.last {
                return Ok(None);
            }
            let mut request = self.filter.request();
            if let Some(cursor) = &self.cursor {
                request = request.query("cursor", cursor);
            }
            let page: Page = self.client.request(request).await?;
            self.page = page.orders.into_iter();
            self.last = page.next_cursor.is_none();
            self.cursor = page.next_cursor;
        }
    }
}

/// An error is the error of the last try. If the idempotency key is absent, it is a new UUID.
impl Client {
    /// Creates an order.
    pub async fn create_order(&self, order: &NewOrder, idempotency_key: Option<&str>) -> Result<Order, Error> {
        self.change("/api/v1/orders".to_owned(), order, idempotency_key).await
    }

    /// Returns an order.
    pub async fn get_order(&self, id: &str) -> Result<Order, Error> {
        self.request(Request::new(Method::GET, order_path(id, ""))).await
    }

    /// Returns the history of an order.
    pub async fn get_timeline(&self, id: &str) -> Result<Vec<TimelineEvent>, Error> {
        let timeline: Timeline = self.request(Request::new(Method::GET, order_path(id, "/timeline"))).await?;
        Ok(timeline.events)
    }

    /// Changes the contents of an order before the pickup. `patch` is a JSON Merge Patch (RFC 7396), such as
    /// `json!({ "notes": null })`. It is not sent again after a network error.
    pub async fn update_order(&self, id: &str, patch: &impl Serialize) -> Result<Order, Error> {
        self.request(Request::new(Method::PATCH, order_path(id, "")).body(patch)?).await
    }

    /// Cancels an order on behalf of the customer.
    pub async fn cancel_order(
        &self,
        id: &str,
        reason: Option<&str>,
        idempotency_key: Option<&str>,
    ) -> Result<CancelledOrder, Error> {
        self.change(order_path(id, "/cancel"), &serde_json::json!({ "reason": reason }), idempotency_key).await
    }

    /// Reports a payment event of an order.
    pub async fn record_payment(
        &self,
        id: &str,
        payment: &PaymentEventRequest,
        idempotency_key: Option<&str>,
    ) -> Result<Order, Error> {
        self.change(order_path(id, "/payment"), payment, idempotency_key).await
    }

    /// Returns the orders that match, newest first.
    pub fn orders(&self, filter: OrderFilter) -> Orders {
        Orders { client: self.clone(), filter, cursor: None, page: Vec::new().into_iter(), last: false }
    }

    async fn change<T: serde::de::DeserializeOwned>(
        &self,
        path: String,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, Error> {
        self.request(Request::new(Method::POST, path).body(body)?.with_key(key)).await
    }
}

/// Returns the path of an order. Percent-encodes all bytes of the id but letters, digits, `-` and `_`.
fn order_path(id: &str, rest: &str) -> String {
    let encoded: String = id
        .bytes()
        .map(|b| match b {
            b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect();
    format!("/api/v1/orders/{encoded}{rest}")
}

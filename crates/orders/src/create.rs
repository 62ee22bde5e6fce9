//! Creation of orders: in batches with one INSERT, or through the SQL function that other programs also call if area
//! limits apply ([`order_store::create`](crate::order_store::create)).
//!
//! The row is committed before its timers are enqueued. If the process dies in between, or Redis is unavailable, the
//! reconciler finds the order overdue and enqueues them. An accepted order is never lost.

use std::{collections::BTreeMap, time::SystemTime};

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    actor::Actor,
    admission::{
        answer::{AdmissionAnswer, ReplyLanguage},
        decide::AdmissionCaller,
    },
    details::{Contact, OrderDetails, OrderPlace},
    field_error::FieldError,
    id_prefix::IdPrefix,
    ids::{AreaId, ServiceType},
    input::{self, GivenTime},
    messages::{ENDPOINT_ORDER, NO_ORDER},
    order::{Order, PaymentStatus, Snapshot},
    schedule::{self, PickupTimes},
    skills::{SkillSchema, SkillSet},
    texts::LanguageTag,
};
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    capability::Orders,
    order_store::{
        create::{CreateVerdict, CreationKey, OrderCreation},
        load::load_order,
        reports::reports_of,
    },
    timer_sending::enqueue_jobs,
};
use areas::admission::place::{self, PlaceSeeker};
use foundation::{
    core::Core,
    crash,
    db::{DatabaseFailure, classify_error},
    traces,
};

/// Order to be created, as sent by a producer.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct NewOrder {
    /// The producer's id for the order. If omitted, an id is generated.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub order_id: Option<OrderId>,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    /// Also accepted as `pickup_location`, the name in the availability check.
    #[serde(alias = "pickup_location")]
    pub pickup: OrderPlace,
    #[serde(default = "default_payment")]
    #[schema(default = "UNPAID")]
    pub payment_status: PaymentStatus,
    /// In the smallest unit of the currency.
    #[schema(minimum = 0, maximum = 9007199254740991_i64)]
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    #[schema(pattern = "^[A-Z]{3}$")]
    pub currency: Option<String>,
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub area_id: Option<AreaId>,
    /// Also accepted as `user_id`, the older name.
    #[serde(alias = "user_id")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]([ -~]{0,62}[!-~])?$")]
    pub customer_id: Option<String>,
    /// BCP 47: language of the messages to the customer. If omitted, or without texts in this language, the language of
    /// the installation.
    #[schema(value_type = Option<String>, max_length = 35, pattern = "^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$", example = "id")]
    pub language: Option<LanguageTag>,
    /// Channel through which the customer orders, such as MYBB or WEB.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]([ -~]{0,62}[!-~])?$")]
    pub channel: Option<String>,
    /// EXPLORER, TRAVELER, VOYAGER or ELITE. Any other value counts as no level.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]([ -~]{0,62}[!-~])?$")]
    pub loyalty_level: Option<String>,
    /// Destination.
    pub dropoff: Option<OrderPlace>,
    /// Notes for the driver and for staff.
    #[schema(min_length = 1, max_length = 1000, pattern = "^[^\\u0000]*$")]
    pub notes: Option<String>,
    /// Person to call. Only the driver who accepted the order, dispatchers, support and admins can read it.
    pub contact: Option<Contact>,
    /// The producer's own values: at most 50 keys of 40 characters, values of 500 characters, and 4,096 bytes in all.
    #[schema(example = json!({ "crm_id": "7" }))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Labels that the driver must have, such as `wheelchair` or `van`; at most 16 different ones.
    #[schema(value_type = Option<Vec<SkillSchema>>, example = json!(["wheelchair"]))]
    pub requires: Option<SkillSet>,
    /// Time at which the customer wants to be picked up: RFC 3339, with its offset from UTC. The order is SCHEDULED until
    /// its dispatch starts. If omitted, or within the lead of the service type, dispatch starts now.
    #[schema(value_type = Option<DateTime<Utc>>, example = "2026-01-09T16:30:00+07:00")]
    pub pickup_at: Option<GivenTime>,
}

fn default_payment() -> PaymentStatus {
    PaymentStatus::Unpaid
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Invalid(#[from] FieldError),
    #[error("an order with the id {0} exists already")]
    Exists(OrderId),
    /// Its area accepts no more orders, or there is no area.
    #[error("{}", .0.message_in(ReplyLanguage::English))]
    Refused(Box<AdmissionAnswer>),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl NewOrder {
    /// Returns the id derived from `work`, so that repeated work cannot create a second order.
    pub fn id_of(prefix: &IdPrefix, work: Uuid) -> OrderId {
        prefix.prepend(&format!("ORD-{}", work.simple())).parse().expect("a prefix and a UUID fit into an order id")
    }

    /// Returns the contents of the order, without its coordinates.
    pub fn details(&self) -> OrderDetails {
        OrderDetails {
            pickup_address: self.pickup.address.clone(),
            dropoff: self.dropoff.clone(),
            notes: self.notes.clone(),
            contact: self.contact.clone().filter(|contact| !contact.is_empty()),
            metadata: self.metadata.clone().unwrap_or_default(),
            requires: self.requires.clone().unwrap_or_default(),
        }
    }

    /// Returns whether this request created that order.
    pub fn matches_order(&self, order: &Order) -> bool {
        self.service_type == order.service_type
            // A later change may have moved it.
            && (order.version > 0 || self.pickup.as_lat_lng() == order.pickup())
            && (self.amount_minor, &self.currency) == (order.amount_minor, &order.currency)
            && (&self.customer_id, &self.language) == (&order.customer_id, &order.language)
            && self.pickup_at.is_some() == order.pickup_at.is_some()
            // If the area is missing or unknown, it was derived from the pickup.
            && self.area_id.as_ref().is_none_or(|area| order.area_id.as_ref() == Some(area) || order.area_id.is_some())
    }

    /// Returns the caller's properties that area limits use.
    fn place_asker(&self) -> AdmissionCaller<'_> {
        AdmissionCaller {
            channel: self.channel.as_deref(),
            user: self.customer_id.as_deref(),
            loyalty: self.loyalty_level.as_ref().and_then(|level| level.parse().ok()),
        }
    }

    fn validate_request(&self, orders: &Orders) -> Result<(), CreateError> {
        let invalid = |field, text: String| Err(CreateError::Invalid(FieldError::new(field, text)));
        if let Some(id) = self.order_id.as_ref().filter(|id| [NO_ORDER, ENDPOINT_ORDER].contains(&id.as_str())) {
            return invalid("order_id", format!("order_id {id} is reserved"));
        }
        if let Some(problem) = orders.config.find_unknown_type(&self.service_type) {
            return invalid("service_type", problem);
        }
        if let Some(problem) = self.pickup.find_problem("pickup").or_else(|| self.details().find_problem()) {
            return Err(problem.into());
        }
        if let Some(problem) = self.currency.as_deref().and_then(input::find_currency_problem) {
            return invalid("currency", format!("currency {problem}"));
        }
        if let Some(problem) = self.amount_minor.and_then(input::find_amount_problem) {
            return invalid("amount_minor", format!("amount_minor {problem}"));
        }
        for (name, rule, value) in [
            ("area_id", input::ID, self.area_id.as_deref()),
            ("customer_id", input::CUSTOMER_ID, self.customer_id.as_deref()),
            ("channel", input::CHANNEL, self.channel.as_deref()),
            ("loyalty_level", input::LOYALTY_LEVEL, self.loyalty_level.as_deref()),
        ] {
            if let Some(problem) = value.and_then(|value| rule.find_problem(value)) {
                return invalid(name, format!("{name} {problem}"));
            }
        }
        let now = orders.core.database_clock.now();
        let pickup_at = self.pickup_time();
        match pickup_at.and_then(|at| orders.config.schedule_policy(&self.service_type).find_problem(at, now)) {
            Some(problem) => Err(problem.into()),
            None => Ok(()),
        }
    }

    /// Returns the pickup time as the row stores it.
    fn pickup_time(&self) -> Option<DateTime<Utc>> {
        self.pickup_at.map(|at| schedule::as_stored(at.time()))
    }

    /// Returns when dispatch starts and when dispatchers are warned. Neither is set without a pickup time.
    fn pickup_times(&self, orders: &Orders) -> PickupTimes {
        let none = PickupTimes { starts_at: None, warn_at: None };
        let policy = orders.config.schedule_policy(&self.service_type);
        self.pickup_time().map_or(none, |at| PickupTimes::new(at, &policy, orders.core.database_clock.now()))
    }
}

async fn order_exists(core: &Core, id: &OrderId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- order exists
         SELECT EXISTS (SELECT 1 FROM orders WHERE id = $1)",
    )
    .bind(id.as_str())
    .fetch_one(&core.db)
    .await
}

/// Creates the order under `id`, enqueues its timers and starts its trace.
pub async fn create_order(
    orders: &Orders,
    id: OrderId,
    new: &NewOrder,
    actor: &Actor,
) -> Result<Snapshot, CreateError> {
    create_with_key(orders, id, new, actor, None).await
}

/// Returns whether the statement that creates the order can also store the idempotency key. It can if no area applies.
pub fn keeps_keys(orders: &Orders, new: &NewOrder) -> bool {
    new.area_id.is_none() && orders.areas.rules.get().geofence.is_empty()
}

/// Creates an order like [`create_order`], for a request with a key that [can be stored with it](keeps_keys). The key,
/// its response and the order are committed together. Returns [`CreateError::Exists`] if the id or the key is already
/// in use.
pub async fn create_order_once(
    orders: &Orders,
    id: OrderId,
    new: &NewOrder,
    actor: &Actor,
    key: CreationKey,
) -> Result<Snapshot, CreateError> {
    match create_with_key(orders, id.clone(), new, actor, Some(key)).await {
        Err(CreateError::Database(error)) if is_key_taken(&error) => Err(CreateError::Exists(id)),
        created => created,
    }
}

fn is_key_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|e| e.constraint()) == Some("idempotency_keys_pkey")
}

async fn create_with_key(
    orders: &Orders,
    id: OrderId,
    new: &NewOrder,
    actor: &Actor,
    key: Option<CreationKey>,
) -> Result<Snapshot, CreateError> {
    new.validate_request(orders)?;
    let (begun, span) = (SystemTime::now(), traces::creation_span(&id));
    let created = admit_and_create(orders, id, new, actor, key).instrument(span).await;
    if let Ok(snapshot) = &created {
        traces::record_creation(&snapshot.order.id, begun);
    }
    created
}

/// Counts a creation that failed with "service unavailable" because Postgres did not respond. The order may exist if
/// only the response was lost.
pub fn record_undecided(orders: &Orders, new: &NewOrder) {
    let pickup = new.pickup.as_lat_lng();
    // An invalid request does not ask for a place.
    if orders.config.knows_service_type(&new.service_type) && pickup.is_on_earth() {
        place::record_undecided(&orders.areas, &new.service_type, pickup, new.place_asker());
    }
}

async fn admit_and_create(
    orders: &Orders,
    id: OrderId,
    new: &NewOrder,
    actor: &Actor,
    key: Option<CreationKey>,
) -> Result<Snapshot, CreateError> {
    let seeker = PlaceSeeker {
        order: &id,
        service_type: &new.service_type,
        pickup: new.pickup.as_lat_lng(),
        area: new.area_id.as_ref(),
        asker: new.place_asker(),
    };
    // An existing order needs no place, and a repeated request must find it even if its area has changed.
    if !orders.areas.rules.get().geofence.is_empty() && order_exists(&orders.core, &id).await? {
        return Err(CreateError::Exists(id));
    }
    let times = new.pickup_times(orders);
    // Admission decides about a scheduled order when its dispatch starts.
    let pickup_at = new.pickup_time();
    let place = match pickup_at.filter(|_| times.starts_at.is_some()) {
        Some(pickup_at) => place::schedule(&orders.areas, seeker, pickup_at).await,
        None => place::take_place(&orders.areas, seeker).await,
    };
    let place = place.map_err(|answer| CreateError::Refused(Box::new(answer)))?;
    // The place is returned if creation ends before the row may have been written.
    let held = place.hold_for(&orders.areas, seeker);
    crash::reach_point("create", "place taken");
    let creation = OrderCreation {
        id: id.clone(),
        write_id: Uuid::now_v7(),
        service_type: new.service_type.clone(),
        pickup_lat: new.pickup.latitude,
        pickup_lng: new.pickup.longitude,
        payment_status: new.payment_status.as_str().to_owned(),
        amount_minor: new.amount_minor,
        currency: new.currency.clone(),
        max_waiting: place.area.as_ref().and(place.limit),
        max_scheduled: place.hour.map(|hour| hour.limit),
        hour_from: place.hour.map(|hour| hour.from),
        pickup_at,
        starts_at: times.starts_at,
        warn_at: times.warn_at,
        area_id: place.area.clone(),
        customer_id: new.customer_id.clone(),
        actor: actor.to_string(),
        lifetime_ms: place.lifetime.map(|lifetime| lifetime.as_secs_f64() * 1000.0),
        owner: actor.producer_name().map(str::to_owned),
        key_id: actor.key,
        language: new.language.as_ref().map(ToString::to_string),
        channel: new.channel.clone(),
        loyalty_level: new.loyalty_level.clone(),
        admission: place.verdict.map(|verdict| verdict.as_str().to_owned()),
        met_waiting: place.met.waiting,
        met_threshold: place.met.threshold,
        details: Some(new.details()).filter(|details| !details.is_empty()).map(|details| details.to_json()),
        key,
        reports: Vec::new(),
    };
    orders.notify.endpoints.ensure_fresh(&orders.core).await?;
    let reports = reports_of(&creation, &orders.config.notifications);
    let creation = OrderCreation { reports, ..creation };
    let write_id = creation.write_id;
    // From here on, an aborted request keeps its place: the creation may be in a batch that is being committed.
    let held = held.begin_write();
    let snapshot = match orders.rows.create_order(creation).await {
        Ok(CreateVerdict::Created(Some(snapshot))) => *snapshot,
        Ok(CreateVerdict::Created(None)) => load_order(&orders.core.db, &id).await?.ok_or(sqlx::Error::RowNotFound)?,
        Ok(CreateVerdict::Exists) => return Err(CreateError::Exists(id)),
        Ok(CreateVerdict::NoRoom) => {
            let area = place.area.as_ref().ok_or(sqlx::Error::RowNotFound)?;
            let refused = match place.hour {
                Some(hour) => place::refuse_hour(&orders.areas, seeker, area, hour).await,
                None => place::refused_by_postgres(&orders.areas, seeker, area).await,
            };
            return Err(CreateError::Refused(Box::new(refused)));
        }
        // The response to the commit was lost; the row shows whether it happened.
        Err(error) if classify_error(&error) == DatabaseFailure::OutcomeUnknown => {
            match orders.rows.find_created(&id, write_id).await {
                Ok(Some(snapshot)) => snapshot,
                Ok(None) | Err(_) => return Err(error.into()),
            }
        }
        Err(error) => {
            held.give_back().await;
            return Err(error.into());
        }
    };
    place::record_taken(&orders.areas, seeker, &place);
    orders.kept.keep(&snapshot, write_id, orders.core.clock.now());
    enqueue_jobs(orders, &snapshot).await;
    Ok(snapshot)
}

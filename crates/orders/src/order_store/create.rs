//! Creates orders, many in one statement and one commit.
//!
//! Creations are independent: a refused or existing order does not affect the others. If an area has a limit, a
//! function is called for each order, which sees the orders before it. Every batch takes the area locks in the same
//! order and holds them until its commit. Otherwise the orders are rows of one INSERT, which can also store the
//! idempotency keys and responses of their requests. Both also write the messages to subscribed producers.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    ids::{AreaId, ServiceType},
    order::{Order, PendingMessage, Snapshot},
};
use serde::{Serialize, Serializer};
use serde_json::Value;
use sqlx::{FromRow, Row, postgres::PgRow};
use uuid::Uuid;

use super::load;
use foundation::{
    crash,
    db::{Pool, write_or_halve},
};

/// Order to create, after admission.
#[derive(Debug, Clone, Serialize)]
pub struct OrderCreation {
    pub id: OrderId,
    /// Stored with the order. It identifies the order if the response to its commit is lost.
    pub write_id: Uuid,
    pub service_type: ServiceType,
    pub pickup_lat: f64,
    pub pickup_lng: f64,
    pub payment_status: String,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
    pub area_id: Option<AreaId>,
    pub customer_id: Option<String>,
    pub actor: String,
    /// Lifetime from the area; it overrides that of the service type.
    pub lifetime_ms: Option<f64>,
    pub owner: Option<String>,
    pub key_id: Option<Uuid>,
    /// BCP 47.
    pub language: Option<String>,
    /// Admission data: the customer's channel, the loyalty level as given, the verdict, and the counts at that time.
    pub channel: Option<String>,
    pub loyalty_level: Option<String>,
    pub admission: Option<String>,
    pub met_waiting: Option<i64>,
    pub met_threshold: i64,
    /// Limit of waiting orders in the area for this service type. The order is created only below it.
    pub max_waiting: Option<i64>,
    /// Limit of scheduled orders in the area with a pickup in the hour from `hour_from`.
    pub max_scheduled: Option<i64>,
    pub hour_from: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pickup_at: Option<DateTime<Utc>>,
    /// Start of dispatch of a scheduled order; `None`: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<DateTime<Utc>>,
    /// [`model::details::OrderDetails::to_json`]; `None` if the order has no details.
    pub details: Option<Value>,
    /// Idempotency key of the request, stored with the order and the response. Only for orders without an area.
    #[serde(flatten)]
    pub key: Option<CreationKey>,
    /// Messages to the producer about the creation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<CreationReport>,
}

impl OrderCreation {
    /// Returns whether the area must have room, so that the creation may wait for the lock of the area.
    pub(super) fn is_counted(&self) -> bool {
        self.max_waiting.is_some() || self.max_scheduled.is_some()
    }
}

/// Row of `outbox` for a step of a creation.
#[derive(Debug, Clone, Serialize)]
pub struct CreationReport {
    pub(super) message_id: Uuid,
    pub(super) kind: String,
    pub(super) channel: String,
    /// Body of the message, without `seq`, `status` and `timestamp`.
    pub(super) payload: Value,
    /// Time after the creation at which the message is given up, in seconds.
    pub(super) lifetime_s: i64,
}

/// Idempotency key of a request that creates an order.
#[derive(Debug, Clone, Serialize)]
pub struct CreationKey {
    /// Holder of the key: `api_keys.holder_id`.
    pub holder: Uuid,
    pub key: String,
    #[serde(serialize_with = "serialize_hex")]
    pub request_hash: Vec<u8>,
    pub work_id: Uuid,
}

fn serialize_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex::encode(bytes))
}

#[derive(Debug, Clone)]
pub enum CreateVerdict {
    /// The committed order, or `None` if the caller must load it.
    Created(Option<Box<Snapshot>>),
    /// The order id or the idempotency key is already in use.
    Exists,
    NoRoom,
}

pub(super) type CreateResult = Result<CreateVerdict, sqlx::Error>;

/// Creates the orders. Returns one result per creation, in their order.
pub(super) async fn create_all(db: &Pool, items: Vec<OrderCreation>) -> Vec<CreateResult> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    let results = write_or_halve(&items, |items| {
        let db = db.clone();
        async move {
            crash::reach_point("create", "commits");
            let created = create_rows(&db, &items).await?;
            crash::reach_point("create", "committed");
            Ok(created)
        }
    });
    let mut results = results.await;
    let is_unread = |result: &CreateResult| matches!(result, Ok(CreateVerdict::Created(None)));
    let unread = items.iter().zip(&results).filter(|(_, result)| is_unread(result));
    let queries: Vec<_> = unread.map(|(item, _)| (item.id.clone(), None)).collect();
    let mut loaded = load::load_all(db, &queries).await.into_iter();
    for result in results.iter_mut().filter(|result| is_unread(result)) {
        // If this read fails, the caller reads the order.
        let snapshot = loaded.next().and_then(Result::ok).flatten();
        *result = Ok(CreateVerdict::Created(snapshot.map(Box::new)));
    }
    results
}

/// Returns whether this creation of the order was committed, whatever changes followed. Does not see a creation that is
/// still running.
pub(super) async fn was_created(db: &Pool, order: &OrderId, creation: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- find creation
         SELECT EXISTS (SELECT 1 FROM orders WHERE id = $1 AND creation_id = $2)",
    )
    .bind(order.as_str())
    .bind(creation)
    .fetch_one(db)
    .await
}

/// Creates the rows. Returns one verdict per creation, in their order. An area that admission has chosen is kept:
/// `dispatchq.located` disables the trigger that would locate the order again.
async fn create_rows(db: &Pool, items: &[Arc<OrderCreation>]) -> Result<Vec<CreateVerdict>, sqlx::Error> {
    let values: Vec<&OrderCreation> = items.iter().map(|item| &**item).collect();
    let is_located = values.iter().all(|item| item.area_id.is_some());
    let is_alike = is_located || values.iter().all(|item| item.area_id.is_none());
    let is_counted = values.iter().any(|item| item.is_counted());
    let insert = insert_statement(&values);
    let values = serde_json::to_string(&values).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let mut verdicts: HashMap<String, CreateVerdict> = if is_alike && !is_counted {
        let rows = sqlx::query(insert).bind(values).bind(if is_located { "on" } else { "" }).fetch_all(db).await?;
        rows.iter().map(verdict_of_row).collect::<Result<_, _>>()?
    } else {
        let rows: Vec<(String, Option<bool>)> = sqlx::query_as(CALL_FUNCTIONS).bind(values).fetch_all(db).await?;
        let verdict_of = |is_created| match is_created {
            Some(true) => CreateVerdict::Created(None),
            Some(false) => CreateVerdict::Exists,
            None => CreateVerdict::NoRoom,
        };
        rows.into_iter().map(|(id, is_created)| (id, verdict_of(is_created))).collect()
    };
    Ok(items.iter().map(|item| verdicts.remove(item.id.as_str()).unwrap_or(CreateVerdict::NoRoom)).collect())
}

/// Returns the id and its verdict. A new row has no dependent rows yet, apart from the messages about it. An order created
/// by the function is loaded after the commit.
fn verdict_of_row(row: &PgRow) -> Result<(String, CreateVerdict), sqlx::Error> {
    let verdict = if !row.try_get::<bool, _>("is_created")? {
        CreateVerdict::Exists
    } else if row.try_get::<Option<&str>, _>("id")?.is_some() {
        let mut created = Snapshot::from_order(Order::from_row(row)?, row.try_get("now")?);
        let next_attempt_at = created.order.created_at;
        let messages: Vec<i64> = row.try_get("messages")?;
        created.messages = messages.into_iter().map(|id| PendingMessage { id, next_attempt_at }).collect();
        CreateVerdict::Created(Some(Box::new(created)))
    } else {
        CreateVerdict::Created(None)
    };
    Ok((row.try_get("given_id")?, verdict))
}

/// Returns the INSERT with the parts that these creations need. A statement costs time for each part, also if no row
/// needs it.
fn insert_statement(values: &[&OrderCreation]) -> &'static str {
    static INSERTS: LazyLock<[String; 8]> = LazyLock::new(|| std::array::from_fn(build_insert));
    let has_keys = values.iter().any(|item| item.key.is_some());
    let has_details = values.iter().any(|item| item.details.is_some());
    let has_reports = values.iter().any(|item| !item.reports.is_empty());
    &INSERTS[KEYS * usize::from(has_keys) + DETAILS * usize::from(has_details) + REPORTS * usize::from(has_reports)]
}

const KEYS: usize = 1;
const DETAILS: usize = 2;
const REPORTS: usize = 4;

/// Builds the INSERT with the parts in `wanted`, a sum of the constants above.
fn build_insert(wanted: usize) -> String {
    let part = |of, text| if wanted & of == 0 { "" } else { text };
    let parts = [part(KEYS, KEPT_ANSWERS), part(DETAILS, DETAIL_ROWS), part(REPORTS, REPORT_ROWS)];
    INSERT
        .replace("{checks}", part(KEYS, UNKNOWN_KEY))
        .replace("{parts}", &parts.concat())
        .replace("{messages}", if wanted & REPORTS == 0 { "'{}'::bigint[]" } else { REPORT_IDS })
}

/// Same as `dispatchq_create_order` and `dispatchq_keep_admission`, for many orders of which all or none have an area.
/// Calls of those functions took a third of a creation's time in Postgres: each call prepares its INSERT and reads all
/// constraints of the table again.
///
/// Orders with a service type that Postgres does not know are left to the functions. The functions return the remedy,
/// or create the order if the type was added after this statement started. Such an order with a key is left to a
/// request that claims the key first.
const INSERT: &str = include_str!("insert.sql");

/// If another session is storing the key, the statement fails on the primary key.
const UNKNOWN_KEY: &str = "
             WHERE NOT EXISTS (SELECT 1 FROM idempotency_keys i WHERE i.holder_id = c.holder AND i.key = c.key)";

/// The key with the values that [`created_answer`](crate::created_answer) needs besides the order.
const KEPT_ANSWERS: &str = include_str!("kept_answers.sql");

const DETAIL_ROWS: &str = ",
d AS (
    INSERT INTO order_details
    SELECT r.* FROM o JOIN c ON c.id = o.id
    CROSS JOIN LATERAL dispatchq_details_row(o.id, c.details, o.created_at) r WHERE c.details IS NOT NULL)";

const REPORT_ROWS: &str = include_str!("reports.sql");

const REPORT_IDS: &str = "array(SELECT m.id FROM m WHERE m.order_id = c.id ORDER BY m.id)";

const CALL_FUNCTIONS: &str = include_str!("call_functions.sql");

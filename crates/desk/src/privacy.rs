//! Erasure of a person's data. Design: docs/design/contents-and-privacy.md.
//!
//! 1. Find the orders with data of the person. If any of them is in use, nothing is erased.
//! 2. Record the erasure, so that it can be repeated on a restored backup.
//! 3. Erase order by order, or a driver in the small steps of [`driver`]. Repeating this is harmless.
//!
//! If the process dies after 2, the next cleanup ([`resume_erasures`]) or `privacy replay` finishes the erasure. SQL
//! functions (`migrations/0012`) define which columns of orders are erased; docs/PRIVACY.md describes them.

pub mod driver;

use std::time::Duration;

use chrono::{DateTime, Utc};
use model::{actor::Actor, ids::DriverId, input};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use driver::ErasureProgress;
use foundation::{core::Core, db, work_slice::WorkSlice};

/// Minimum age of an unfinished erasure before it is resumed. A younger one is probably still running.
const RESUMED_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum ErasureSubject {
    /// All orders with this customer id.
    Customer,
    /// A driver of our own fleet, or `PARTNER:ID`.
    Driver,
    Order,
}

impl ErasureSubject {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An erasure as stored, and as exported by `privacy list --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct ErasureRecord {
    pub subject: ErasureSubject,
    pub subject_id: String,
    /// Name that replaces the driver in the history. It is the same in every copy of the database.
    pub pseudonym: Option<String>,
    pub reason: String,
    pub actor: String,
    pub erased_at: DateTime<Utc>,
    /// Number of orders that had data; `None`: not finished.
    #[serde(default)]
    pub orders: Option<i64>,
}

impl ErasureRecord {
    /// Returns a new erasure that is not carried out yet.
    pub fn new(subject: ErasureSubject, subject_id: &str, reason: &str, actor: &Actor, now: DateTime<Utc>) -> Self {
        let pseudonym = (subject == ErasureSubject::Driver).then(|| pseudonym_of(&subject_id.into()));
        Self {
            subject,
            subject_id: subject_id.to_owned(),
            pseudonym,
            reason: reason.to_owned(),
            actor: actor.to_string(),
            erased_at: now,
            orders: None,
        }
    }
}

impl ErasureRecord {
    /// Returns the member with a value that this system cannot have written, and the problem. `now` is Postgres' time.
    pub fn find_problem(&self, now: DateTime<Utc>) -> Option<(&'static str, String)> {
        if self.subject_id.is_empty() {
            return Some(("subject_id", "is empty".to_owned()));
        }
        if let Some(problem) = input::REASON.find_problem(&self.reason) {
            return Some(("reason", problem.clone()));
        }
        if self.erased_at > now {
            return Some(("erased_at", "is in the future".to_owned()));
        }
        let is_expected = match (self.subject, &self.pseudonym) {
            (ErasureSubject::Driver, Some(pseudonym)) => is_pseudonym(&self.subject_id, pseudonym),
            (ErasureSubject::Driver, None) => false,
            (_, pseudonym) => pseudonym.is_none(),
        };
        let rule =
            "must have the form of the list of erasures: erased- and 16 hexadecimal digits for a driver, else null";
        (!is_expected).then(|| ("pseudonym", rule.to_owned()))
    }
}

/// Returns whether [`pseudonym_of`] can have produced this pseudonym for the driver.
fn is_pseudonym(driver: &str, pseudonym: &str) -> bool {
    let own = match driver.split_once(':') {
        Some((partner, _)) => pseudonym.strip_prefix(partner).and_then(|rest| rest.strip_prefix(':')),
        None => Some(pseudonym),
    };
    let digits = own.and_then(|own| own.strip_prefix("erased-")).unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns a random name that cannot be traced back. The prefix of a partner's driver is kept.
fn pseudonym_of(driver: &DriverId) -> String {
    let random = &Uuid::new_v4().simple().to_string()[..16];
    match driver.split_once(':') {
        Some((partner, _)) => format!("{partner}:erased-{random}"),
        None => format!("erased-{random}"),
    }
}

/// Data stored about a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KnownData {
    /// Orders with data of the person.
    pub orders: Vec<String>,
    /// Orders that are in use: open, with a pending message or alert, or with the driver on the trip.
    pub in_use: Vec<String>,
    /// Whether a driver with this id, or a key for one, exists.
    pub driver: bool,
}

impl KnownData {
    pub fn is_nothing(&self) -> bool {
        self.orders.is_empty() && !self.driver
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureOutcome {
    /// Number of orders that had data.
    Done { orders: i64 },
    /// The slice ended first. `orders` is the number so far. A repetition of a finished erasure continues at `progress`.
    Unfinished { orders: i64, progress: ErasureProgress },
    /// Nothing was erased because these orders are in use.
    InUse(Vec<String>),
}

/// Returns the data stored about a person.
pub async fn find_personal_data(core: &Core, subject: ErasureSubject, id: &str) -> Result<KnownData, sqlx::Error> {
    find_data_until(core, subject, id, None).await
}

/// Returns the data that an erasure covers. For a customer, these are the orders created before the erasure was
/// requested, however late it is finished or repeated.
pub async fn find_data_to_erase(core: &Core, erasure: &ErasureRecord) -> Result<KnownData, sqlx::Error> {
    find_data_until(core, erasure.subject, &erasure.subject_id, Some(erasure.erased_at)).await
}

async fn find_data_until(
    core: &Core,
    subject: ErasureSubject,
    id: &str,
    until: Option<DateTime<Utc>>,
) -> Result<KnownData, sqlx::Error> {
    let mut tx = core.db.begin().await?;
    // A statement over all orders may take a long time.
    tx.lift_limit().await?;
    let statement = match subject {
        ErasureSubject::Driver => {
            "-- orders of erased driver
             SELECT o.id, (o.driver_id = $1 AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP'))
                          OR EXISTS (SELECT 1 FROM offers f WHERE f.order_id = o.id AND f.driver_id = $1
                                     AND f.state = 'offered') AS in_use
             FROM orders o JOIN dispatchq_orders_of_driver($1) AS m (id) ON m.id = o.id
             ORDER BY o.id"
        }
        ErasureSubject::Customer => {
            "-- orders of erased customer
             SELECT o.id, dispatchq_order_in_use(o.id) AS in_use FROM orders o
             WHERE o.customer_id = $1 AND ($2::timestamptz IS NULL OR o.created_at <= $2) ORDER BY o.id"
        }
        ErasureSubject::Order => {
            "-- erased order
             SELECT o.id, dispatchq_order_in_use(o.id) AS in_use FROM orders o WHERE o.id = $1"
        }
    };
    let orders = sqlx::query_as(statement).bind(id);
    let orders = if subject == ErasureSubject::Customer { orders.bind(until) } else { orders };
    let orders: Vec<(String, Option<bool>)> = orders.fetch_all(&mut *tx).await?;
    let driver: bool = sqlx::query_scalar(
        "-- driver or key exists
         SELECT EXISTS (SELECT 1 FROM drivers WHERE id = $1) OR EXISTS (SELECT 1 FROM api_keys WHERE driver_id = $1)",
    )
    .bind(id)
    .fetch_one(&mut *tx)
    .await?;
    let in_use = orders.iter().filter(|(_, in_use)| *in_use == Some(true)).map(|(id, _)| id.clone()).collect();
    let orders = orders.into_iter().map(|(id, _)| id).collect();
    Ok(KnownData { orders, in_use, driver: driver && subject == ErasureSubject::Driver })
}

/// Records the erasure and carries it out completely, unless an order is in use.
pub async fn erase_subject(core: &Core, erasure: &ErasureRecord) -> Result<ErasureOutcome, sqlx::Error> {
    erase_slice(core, erasure, None, WorkSlice::WHOLE).await
}

/// Same as [`erase_subject`], but stops when the slice is over. An unfinished erasure continues at the position in its row.
/// A finished erasure has no position in its row, so a repetition continues at `repeated`.
pub async fn erase_slice(
    core: &Core,
    erasure: &ErasureRecord,
    repeated: Option<ErasureProgress>,
    slice: WorkSlice,
) -> Result<ErasureOutcome, sqlx::Error> {
    let known = find_data_to_erase(core, erasure).await?;
    if !known.in_use.is_empty() {
        return Ok(ErasureOutcome::InUse(known.in_use));
    }
    record_erasure(core, erasure).await?;
    erase_filters(core, erasure).await?;
    let mut progress = match driver::load_progress(core, erasure).await? {
        Some(kept) => kept,
        None => repeated.unwrap_or_default(),
    };
    let is_done = match &erasure.pseudonym {
        Some(pseudonym) => driver::erase_driver(core, erasure, pseudonym, &mut progress, slice).await?,
        None => erase_orders(core, &known.orders, &mut progress, slice).await?,
    };
    let orders = progress.orders;
    if !is_done {
        driver::save_progress(&core.db, erasure, &progress).await?;
        return Ok(ErasureOutcome::Unfinished { orders, progress });
    }
    sqlx::query(
        "-- finish erasure
         SELECT dispatchq_note_erasure($1, $2, $3, NULL, $4)",
    )
    .bind(erasure.subject)
    .bind(&erasure.subject_id)
    .bind(erasure.erased_at)
    .bind(orders)
    .execute(&core.db)
    .await?;
    Ok(ErasureOutcome::Done { orders })
}

async fn record_erasure(core: &Core, erasure: &ErasureRecord) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- write erasure
         INSERT INTO erasures (subject, subject_id, pseudonym, reason, actor, erased_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (subject, subject_id, erased_at) DO NOTHING",
    )
    .bind(erasure.subject)
    .bind(&erasure.subject_id)
    .bind(&erasure.pseudonym)
    .bind(&erasure.reason)
    .bind(&erasure.actor)
    .bind(erasure.erased_at)
    .execute(&core.db)
    .await?;
    Ok(())
}

/// Removes the filters of staff that contain the person's id. The id of an order stays in the history, so it stays in
/// filters too.
async fn erase_filters(core: &Core, erasure: &ErasureRecord) -> Result<(), sqlx::Error> {
    if erasure.subject == ErasureSubject::Order {
        return Ok(());
    }
    sqlx::query(
        "-- erase saved filters
         SELECT dispatchq_erase_filters($1)",
    )
    .bind(&erasure.subject_id)
    .execute(&core.db)
    .await
    .map(drop)
}

/// Erases one order per transaction, so that each order is locked only briefly. Returns whether all are erased.
async fn erase_orders(
    core: &Core,
    orders: &[String],
    progress: &mut ErasureProgress,
    slice: WorkSlice,
) -> Result<bool, sqlx::Error> {
    for (n, order) in orders.iter().enumerate() {
        if n > 0 && slice.is_over() {
            return Ok(false);
        }
        let mut tx = core.db.begin().await?;
        tx.lift_limit().await?;
        let was_erased: bool = sqlx::query_scalar(
            "-- erase order
             SELECT dispatchq_erase_order($1)",
        )
        .bind(order)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        progress.orders += i64::from(was_erased);
    }
    Ok(true)
}

/// Returns the recorded erasure of a subject by its time.
pub async fn find_erasure(
    core: &Core,
    subject: ErasureSubject,
    id: &str,
    erased_at: DateTime<Utc>,
) -> Result<Option<ErasureRecord>, sqlx::Error> {
    sqlx::query_as(
        "-- find erasure
         SELECT subject, subject_id, pseudonym, reason, actor, erased_at, orders FROM erasures
         WHERE subject = $1 AND subject_id = $2 AND erased_at = $3",
    )
    .bind(subject)
    .bind(id)
    .bind(erased_at)
    .fetch_optional(&core.db)
    .await
}

/// Result of [`resume_erasures`].
#[derive(Debug, Default)]
pub struct ResumedErasures {
    /// Erasures that could not be finished, with the orders in use or the error.
    pub failed: Vec<String>,
    /// Whether the slice ended before the last erasure was finished.
    pub is_left: bool,
}

/// Finishes interrupted erasures. Skips an erasure if a later one of the same subject is finished: that one left no
/// data, and a driver may have returned since.
pub async fn resume_erasures(core: &Core, slice: WorkSlice) -> Result<ResumedErasures, sqlx::Error> {
    let unfinished: Vec<ErasureRecord> = sqlx::query_as(
        "-- unfinished erasures
         SELECT subject, subject_id, pseudonym, reason, actor, erased_at, orders FROM erasures e
         WHERE orders IS NULL AND erased_at < $1
           AND (SELECT count(*) FROM erasures l
                WHERE l.subject = e.subject AND l.subject_id = e.subject_id AND l.erased_at > e.erased_at
                  AND l.orders IS NOT NULL) = 0
         ORDER BY erased_at",
    )
    .bind(db::database_now(&core.db).await? - RESUMED_AFTER)
    .fetch_all(&core.db)
    .await?;
    let mut resumed = ResumedErasures::default();
    for erasure in &unfinished {
        if slice.is_over() {
            resumed.is_left = true;
            break;
        }
        // The person's id must not be in the log.
        let what = format!("the erasure of a {} of {}", erasure.subject.as_str(), erasure.erased_at);
        match erase_slice(core, erasure, None, slice).await {
            Ok(ErasureOutcome::Done { orders }) => {
                tracing::info!(subject = erasure.subject.as_str(), orders, "An interrupted erasure was finished.");
            }
            Ok(ErasureOutcome::Unfinished { .. }) => resumed.is_left = true,
            Ok(ErasureOutcome::InUse(orders)) => resumed.failed.push(format!("{what}: in use: {}", orders.join(", "))),
            Err(error) if db::ends_the_pass(&error) => return Err(error),
            Err(error) => resumed.failed.push(format!("{what}: {error}")),
        }
    }
    Ok(resumed)
}

/// Returns all recorded erasures, oldest first.
pub async fn list_erasures(core: &Core) -> Result<Vec<ErasureRecord>, sqlx::Error> {
    sqlx::query_as(
        "-- list erasures
         SELECT subject, subject_id, pseudonym, reason, actor, erased_at, orders FROM erasures ORDER BY erased_at, id",
    )
    .fetch_all(&core.db)
    .await
}

//! Erasing what is known about a person.
//!
//! 1. Look: which orders hold something, and is any of them still in use? If so, nothing is erased.
//! 2. Write down that it is erased, so that it can be erased again on a restored backup.
//! 3. Erase, order by order, or a driver in one transaction and the driver's steps after it, page by page. Repeating it is harmless.
//!
//! If the process dies after 2, `privacy replay` does the rest. What is erased is said by two functions in SQL
//! (`migrations/0024` and `0049`); docs/PRIVACY.md has it in words.

use chrono::{DateTime, Utc};
use model::{actor::Actor, ids::DriverId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    app::App,
    fleet::driver_index::{self, DriverPlace},
    order_feed,
};

/// Whose data is erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum ErasureSubject {
    /// All orders with this customer id.
    Customer,
    /// An own driver, or `PARTNER:ID`.
    Driver,
    /// One order.
    Order,
}

impl ErasureSubject {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Driver => "driver",
            Self::Order => "order",
        }
    }
}

/// An erasure as it is written down, and as `privacy list --json` exports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct ErasureRecord {
    pub subject: ErasureSubject,
    pub subject_id: String,
    /// What stands for a driver in the history: the same on every copy of the database.
    pub pseudonym: Option<String>,
    pub reason: String,
    pub actor: String,
    pub erased_at: DateTime<Utc>,
    /// Orders that held something; `None`: not finished.
    #[serde(default)]
    pub orders: Option<i64>,
}

impl ErasureRecord {
    /// An erasure that is yet to be done.
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

/// A random name that nothing leads back from. A partner's driver stays a partner's.
fn pseudonym_of(driver: &DriverId) -> String {
    let random = &Uuid::new_v4().simple().to_string()[..16];
    match driver.split_once(':') {
        Some((partner, _)) => format!("{partner}:erased-{random}"),
        None => format!("erased-{random}"),
    }
}

/// What is known about a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KnownData {
    /// Orders that hold something.
    pub orders: Vec<String>,
    /// Those of them that are not done with: open, a message or an alert waits, the driver has them.
    pub in_use: Vec<String>,
    /// There is a driver of this id, or a key for one.
    pub driver: bool,
}

impl KnownData {
    pub fn is_nothing(&self) -> bool {
        self.orders.is_empty() && !self.driver
    }
}

/// What became of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureOutcome {
    /// So many orders held something.
    Done { orders: i64 },
    /// Nothing was erased: these orders are in use.
    InUse(Vec<String>),
}

/// Finds what is known about a person.
pub async fn find_personal_data(app: &App, subject: ErasureSubject, id: &str) -> Result<KnownData, sqlx::Error> {
    let mut tx = app.db.begin().await?;
    // A statement over all orders may take long.
    tx.lift_limit().await?;
    let statement = match subject {
        ErasureSubject::Driver => {
            "-- orders of erased driver
             SELECT o.id, (o.driver_id = $1 AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP'))
                          OR EXISTS (SELECT 1 FROM offers f WHERE f.order_id = o.id AND f.driver_id = $1
                                     AND f.state = 'offered') AS in_use
             FROM orders o
             WHERE o.driver_id = $1 OR $1 = ANY (o.former_drivers)
                OR o.id IN (SELECT order_id FROM offers WHERE driver_id = $1)
             ORDER BY o.id"
        }
        ErasureSubject::Customer => {
            "-- orders of erased customer
             SELECT o.id, dispatchq_order_in_use(o.id) AS in_use FROM orders o WHERE o.customer_id = $1 ORDER BY o.id"
        }
        ErasureSubject::Order => {
            "-- erased order
             SELECT o.id, dispatchq_order_in_use(o.id) AS in_use FROM orders o WHERE o.id = $1"
        }
    };
    let orders: Vec<(String, Option<bool>)> = sqlx::query_as(statement).bind(id).fetch_all(&mut *tx).await?;
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

/// Writes the erasure down and carries it out, unless an order is in use.
pub async fn erase_subject(app: &App, erasure: &ErasureRecord) -> Result<ErasureOutcome, sqlx::Error> {
    let known = find_personal_data(app, erasure.subject, &erasure.subject_id).await?;
    if !known.in_use.is_empty() {
        return Ok(ErasureOutcome::InUse(known.in_use));
    }
    record_erasure(app, erasure).await?;
    let orders = match &erasure.pseudonym {
        Some(pseudonym) => erase_driver(app, &erasure.subject_id.as_str().into(), pseudonym).await?,
        None => erase_orders(app, &known.orders).await?,
    };
    sqlx::query(
        "-- finish erasure
         UPDATE erasures SET orders = coalesce(orders, $4) WHERE subject = $1 AND subject_id = $2 AND erased_at = $3",
    )
    .bind(erasure.subject)
    .bind(&erasure.subject_id)
    .bind(erasure.erased_at)
    .bind(orders)
    .execute(&app.db)
    .await?;
    Ok(ErasureOutcome::Done { orders })
}

async fn record_erasure(app: &App, erasure: &ErasureRecord) -> Result<(), sqlx::Error> {
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
    .execute(&app.db)
    .await?;
    Ok(())
}

/// Order by order: each is locked for a moment only.
async fn erase_orders(app: &App, orders: &[String]) -> Result<i64, sqlx::Error> {
    let mut erased = 0;
    for order in orders {
        let mut tx = app.db.begin().await?;
        tx.lift_limit().await?;
        let was_erased: bool = sqlx::query_scalar(
            "-- erase order
             SELECT dispatchq_erase_order($1)",
        )
        .bind(order)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        erased += i64::from(was_erased);
    }
    Ok(erased)
}

async fn erase_driver(app: &App, driver: &DriverId, pseudonym: &str) -> Result<i64, sqlx::Error> {
    let place: Option<DriverPlace> = sqlx::query_as(
        "-- place of erased driver
         SELECT id, service_types, lat, lng, false AS available FROM drivers WHERE id = $1",
    )
    .bind(driver)
    .fetch_optional(&app.db)
    .await?;
    let mut tx = app.db.begin().await?;
    tx.lift_limit().await?;
    let orders: i64 = sqlx::query_scalar(
        "-- erase driver
         SELECT dispatchq_erase_driver($1, $2)",
    )
    .bind(driver)
    .bind(pseudonym)
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query(
        "-- erase driver among actions of staff
         UPDATE staff_actions
         SET subject = CASE WHEN subject = $1::text OR right(subject, length($1::text) + 1) = ' ' || $1::text
                            THEN left(subject, length(subject) - length($1::text)) || $2::text ELSE subject END,
             reason = NULL
         WHERE subject = $1::text OR right(subject, length($1::text) + 1) = ' ' || $1::text
            OR strpos(reason, $1::text) > 0",
    )
    .bind(driver)
    .bind(pseudonym)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    if let Some(place) = place {
        // Not available: leaves the index in Redis.
        driver_index::upsert_driver(app, &place).await;
    }
    // If the process dies before it has come through, `privacy replay` begins with the first step again.
    order_feed::erase_driver(&app.db, driver, pseudonym).await?;
    Ok(orders)
}

/// Everything that was erased and is still known of, oldest first.
pub async fn list_erasures(app: &App) -> Result<Vec<ErasureRecord>, sqlx::Error> {
    sqlx::query_as(
        "-- list erasures
         SELECT subject, subject_id, pseudonym, reason, actor, erased_at, orders FROM erasures ORDER BY erased_at, id",
    )
    .fetch_all(&app.db)
    .await
}

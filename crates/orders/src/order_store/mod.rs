//! Rows of orders, read and written in batches with those of other jobs and requests of this process. Design:
//! docs/design/order-writes.md.
//!
//! * [`load`]: loads orders with everything that decisions need.
//! * [`write`]: writes changes of many orders, each under its own condition. `statement`: the SQL statement, `values` and
//!   `side_values`: its parameters, `planned`: the offers that changes create, `outgoing`: their messages and alerts.
//! * [`create`]: new orders, [`reports`]: messages about them. [`inbox`]: callbacks of partners. `offers`: whether offers are live.
//!
//! Items that arrive while a batch runs form the next batch: see [`batch`](foundation::batch). A batch never contains
//! two changes of one order, driver, booking or callback.

pub mod create;
pub mod inbox;
pub mod load;
pub(crate) mod offers;
pub(crate) mod outgoing;
pub(crate) mod planned;
pub mod reports;
mod side_values;
mod statement;
pub(crate) mod values;
pub mod write;

use jobs::OrderId;
use model::{
    ids::{DriverId, OfferId, PartnerName},
    order::Snapshot,
};
use uuid::Uuid;

use self::{
    create::{CreateResult, CreateVerdict, OrderCreation},
    inbox::{IgnoredCallback, InboxRow, NewCallback, StoreResult},
    load::{LoadResult, OrderQuery},
    offers::OfferQuery,
    write::{OrderWrite, WriteKey, WriteResult, WriteVerdict},
};
use foundation::{
    batch::{BatchLost, BatchQueue, BatchSize},
    db::{DatabaseFailure, LONG_WAIT, Pool, classify_error},
};

const LOADS: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };
const WRITES: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };
/// Batches of creations that may wait for the lock of their area. Each starts immediately.
const COUNTED: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 1 };

/// Maximum reads of a row to find a write whose response was lost.
const FIND_TRIES: usize = 4;

/// Mark in the row of a committed write.
#[derive(Debug, Clone, Copy)]
enum WriteMark {
    Latest(Uuid),
    First(Uuid),
}

/// Reads and writes orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OrderStore {
    db: Pool,
    loads: BatchQueue<(), OrderQuery, LoadResult>,
    live_offers: BatchQueue<(), OfferQuery, Result<bool, sqlx::Error>>,
    writes: BatchQueue<WriteKey, OrderWrite, WriteResult>,
    creations: BatchQueue<OrderId, OrderCreation, CreateResult>,
    /// Creations with the idempotency keys of their requests.
    keyed_creations: BatchQueue<OrderId, OrderCreation, CreateResult>,
    /// Creations in areas with a limit, for which Postgres may have to wait.
    counted_creations: BatchQueue<OrderId, OrderCreation, CreateResult>,
    callbacks: BatchQueue<(PartnerName, String), NewCallback, StoreResult>,
    ignored_callbacks: BatchQueue<i64, IgnoredCallback, Result<bool, sqlx::Error>>,
    polling_shares: BatchQueue<(), PartnerName, Result<Option<i16>, sqlx::Error>>,
}

impl OrderStore {
    pub fn new(db: &Pool) -> Self {
        Self {
            loads: BatchQueue::new("load orders", LOADS, {
                let db = db.clone();
                move |queries: Vec<OrderQuery>| {
                    let db = db.clone();
                    async move { load::load_all(&db, &queries).await }
                }
            }),
            live_offers: BatchQueue::new("find live offers", LOADS, {
                let db = db.clone();
                move |queries: Vec<OfferQuery>| {
                    let db = db.clone();
                    async move { offers::find_live(&db, &queries).await }
                }
            }),
            writes: BatchQueue::new("write orders", WRITES, {
                let db = db.clone();
                move |items: Vec<OrderWrite>| {
                    let db = db.clone();
                    async move { write::write_all(&db, items).await }
                }
            }),
            creations: creation_queue(db, "create orders", WRITES),
            keyed_creations: creation_queue(db, "create orders of requests", WRITES),
            counted_creations: creation_queue(db, "create counted orders", COUNTED),
            callbacks: BatchQueue::new("store callbacks", WRITES, {
                let db = db.clone();
                move |items: Vec<NewCallback>| {
                    let db = db.clone();
                    async move { inbox::store_all(&db, items).await }
                }
            }),
            ignored_callbacks: BatchQueue::new("ignore callbacks", WRITES, {
                let db = db.clone();
                move |items: Vec<IgnoredCallback>| {
                    let db = db.clone();
                    async move { inbox::ignore_all(&db, items).await }
                }
            }),
            polling_shares: BatchQueue::new("load polling shares", LOADS, {
                let db = db.clone();
                move |partners: Vec<PartnerName>| {
                    let db = db.clone();
                    async move { load::load_polling_shares(&db, &partners).await }
                }
            }),
            db: db.clone(),
        }
    }

    /// Returns whether a new request should be refused, because items wait too long for their batch.
    pub(crate) fn is_overloaded(&self) -> bool {
        let creations = [&self.creations, &self.keyed_creations, &self.counted_creations];
        let creations = creations.map(BatchQueue::longest_wait).into_iter().max().unwrap_or_default();
        let reads = [self.loads.longest_wait(), self.live_offers.longest_wait()];
        let writes = [self.writes.longest_wait(), creations, self.callbacks.longest_wait()];
        reads.into_iter().chain(writes).any(|wait| wait > LONG_WAIT)
    }

    /// Loads the order with everything that decisions need, and the time. Returns `None` if it does not exist.
    pub async fn load_order(&self, id: &OrderId) -> Result<Option<Snapshot>, sqlx::Error> {
        self.load_order_with(id, None).await
    }

    /// Loads the order like [`load_order`](Self::load_order), with this offer, however old it is.
    pub async fn load_order_with(&self, id: &OrderId, offer: Option<OfferId>) -> Result<Option<Snapshot>, sqlx::Error> {
        self.loads.submit_item([], (id.clone(), offer)).await.map_err(lost)?
    }

    /// Loads the order like [`load_order_with`](Self::load_order_with). The query is queued before this function
    /// returns; the returned future only waits for the result.
    pub(crate) fn begin_load(
        &self,
        id: &OrderId,
        offer: OfferId,
    ) -> impl Future<Output = Result<Option<Snapshot>, sqlx::Error>> + Send + use<> {
        let loading = self.loads.submit_item([], (id.clone(), Some(offer)));
        async move { loading.await.map_err(lost)? }
    }

    /// Returns whether the driver can still accept this offer of this order. A driver with an active order cannot.
    pub(crate) async fn is_offer_live(
        &self,
        offer: OfferId,
        order: &OrderId,
        driver: &DriverId,
    ) -> Result<bool, sqlx::Error> {
        let query = OfferQuery { offer, order: order.clone(), driver: driver.clone() };
        self.live_offers.submit_item([], query).await.map_err(lost)?
    }

    /// Writes a change, completely or not at all. It is written even if the caller goes away.
    pub async fn write_change(&self, item: OrderWrite) -> Result<WriteVerdict, sqlx::Error> {
        self.writes.submit_item(item.keys(), item).await.map_err(lost)?
    }

    /// Returns the current order if this write was committed and is the latest. Retries a few times, because other
    /// connections may be as dead as the one that lost the response.
    pub async fn find_written(&self, order: &OrderId, write: Uuid) -> Result<Option<Snapshot>, sqlx::Error> {
        self.find_by(order, WriteMark::Latest(write)).await
    }

    /// Returns the current order if this write created it, whatever changes followed.
    pub async fn find_created(&self, order: &OrderId, creation: Uuid) -> Result<Option<Snapshot>, sqlx::Error> {
        self.find_by(order, WriteMark::First(creation)).await
    }

    async fn find_by(&self, order: &OrderId, mark: WriteMark) -> Result<Option<Snapshot>, sqlx::Error> {
        let mut tries = 1;
        loop {
            let is_committed = match mark {
                WriteMark::Latest(write) => write::was_written(&self.db, order, write).await,
                WriteMark::First(creation) => create::was_created(&self.db, order, creation).await,
            };
            let found = match is_committed {
                Ok(true) => self.load_order(order).await,
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            match found {
                Err(error) if tries < FIND_TRIES && classify_error(&error) == DatabaseFailure::OutcomeUnknown => {
                    tries += 1;
                }
                found => return found,
            }
        }
    }

    /// Creates an order, completely or not at all.
    pub async fn create_order(&self, item: OrderCreation) -> Result<CreateVerdict, sqlx::Error> {
        let queue = match (&item.key, item.is_counted()) {
            (Some(_), _) => &self.keyed_creations,
            (None, true) => &self.counted_creations,
            (None, false) => &self.creations,
        };
        queue.submit_item([item.id.clone()], item).await.map_err(lost)?
    }

    /// Returns the percentage of a partner's orders that are polled for a job id, if an operator has set it.
    pub async fn load_polling_share(&self, partner: &PartnerName) -> Result<Option<i16>, sqlx::Error> {
        self.polling_shares.submit_item([], partner.clone()).await.map_err(lost)?
    }

    /// Stores a callback, or returns the row that was stored before.
    pub async fn store_callback(&self, item: NewCallback) -> Result<InboxRow, sqlx::Error> {
        let key = (item.partner.clone(), item.event_id.clone());
        self.callbacks.submit_item([key], item).await.map_err(lost)?
    }

    /// Marks a pending callback as ignored. Returns `false` if another session is processing it, so that its final
    /// state is not known.
    pub async fn ignore_callback(&self, id: i64, why: &'static str) -> Result<bool, sqlx::Error> {
        self.ignored_callbacks.submit_item([id], IgnoredCallback { id, why }).await.map_err(lost)?
    }
}

fn creation_queue(db: &Pool, name: &'static str, size: BatchSize) -> BatchQueue<OrderId, OrderCreation, CreateResult> {
    let db = db.clone();
    BatchQueue::new(name, size, move |items: Vec<OrderCreation>| {
        let db = db.clone();
        async move { create::create_all(&db, items).await }
    })
}

/// Returns the error for an item whose batch panicked. Its outcome is unknown, as after a lost connection.
fn lost(_: BatchLost) -> sqlx::Error {
    sqlx::Error::WorkerCrashed
}

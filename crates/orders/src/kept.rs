//! Orders as this process last wrote them. Design: docs/design/order-writes.md.
//!
//! A decision on a kept order saves a load. It is safe for three reasons:
//!
//! * The write requires that the row still has the version of the kept order, and the id of its write.
//! * The statement requires that the time of Postgres is within a second of the time that the decision assumed.
//! * A refusal, or a decision to change nothing, is repeated on a fresh row.
//!
//! Only orders of the own fleet that search for a driver or have one are kept, because callbacks, alerts and refunds
//! change without a new version of the order.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use jobs::OrderId;
use model::{
    ids::OfferId,
    order::{Offer, OfferState, Snapshot},
};
use quick_cache::{Weighter, sync::Cache};
use uuid::Uuid;

use crate::seen::{AssumedTime, SeenOrder};

/// Time for which an order is kept.
const KEPT_FOR: TimeDelta = TimeDelta::seconds(60);
/// Maximum number of kept orders, and of bytes that they use.
const MOST_ORDERS: usize = 50_000;
const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// Estimated bytes of an order's texts, and of an offer.
const TEXT_BYTES: usize = 512;
const OFFER_BYTES: usize = size_of::<Offer>() + 32;
/// Maximum payment events of a kept order.
const MOST_PAYMENTS: usize = 4;

/// Orders as this process last wrote them. Clones share the orders.
#[derive(Clone)]
pub struct KeptOrders(Arc<Kept>);

struct Kept {
    orders: Cache<OrderId, Arc<KeptOrder>, OrderWeight>,
    is_checked: AtomicBool,
}

struct KeptOrder {
    snapshot: Snapshot,
    /// Id of the write that made this version. After a failover that lost the write, another write may have its number.
    write_id: Uuid,
    /// Time of this machine when the order had the time of its snapshot.
    at: DateTime<Utc>,
}

impl KeptOrder {
    /// Returns the time since the order was kept. Returns `None` if it was kept too long, or if the clock was set back.
    fn age(&self, now: DateTime<Utc>) -> Option<TimeDelta> {
        let age = now - self.at;
        (TimeDelta::zero() <= age && age < KEPT_FOR).then_some(age)
    }
}

#[derive(Debug, Clone)]
struct OrderWeight;

impl Weighter<OrderId, Arc<KeptOrder>> for OrderWeight {
    fn weight(&self, _: &OrderId, kept: &Arc<KeptOrder>) -> u64 {
        let bytes = size_of::<KeptOrder>() + TEXT_BYTES + kept.snapshot.offers.len() * OFFER_BYTES;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Default for KeptOrders {
    fn default() -> Self {
        let orders = Cache::with_weighter(MOST_ORDERS, MOST_BYTES, OrderWeight);
        Self(Arc::new(Kept { orders, is_checked: AtomicBool::new(false) }))
    }
}

impl fmt::Debug for KeptOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptOrders").field("orders", &self.0.orders.len()).finish_non_exhaustive()
    }
}

impl KeptOrders {
    /// Keeps the order after this committed write, or forgets it if it must be read before each decision. `now` is the
    /// time of this machine.
    pub(crate) fn keep(&self, after: &Snapshot, write_id: Uuid, now: DateTime<Utc>) {
        if !is_keepable(after) {
            return self.forget(&after.order.id);
        }
        // The jobs of stored messages are enqueued already, and a delivery does not change the order's version.
        let mut snapshot = Snapshot { messages: Vec::new(), ..after.clone() };
        // A load reads the same offers.
        let attempt = after.order.attempt_no;
        snapshot.offers.retain(|offer| offer.attempt_no == attempt || is_current(offer.state));
        let kept = KeptOrder { snapshot, write_id, at: now };
        self.0.orders.insert(after.order.id.clone(), Arc::new(kept));
    }

    pub(crate) fn forget(&self, id: &OrderId) {
        self.0.orders.remove(id);
    }

    /// Forgets all orders, after their rows were changed without new versions.
    pub fn forget_all(&self) {
        self.0.orders.clear();
    }

    /// Returns the order with the present time of Postgres, as far as this process knows it. With `offer`, returns the
    /// order only if it has this offer. `now` is the time of this machine.
    pub(crate) fn find(&self, id: &OrderId, offer: Option<OfferId>, now: DateTime<Utc>) -> Option<SeenOrder> {
        let (kept, age) = self.look_up(id, offer, now)?;
        // Whole milliseconds, as in the rows that are written from it.
        let time = (kept.snapshot.now + age).trunc_subsecs(3);
        let snapshot = Snapshot { now: time, ..kept.snapshot.clone() };
        let assumed = AssumedTime::new(time, kept.write_id);
        Some(SeenOrder::new(snapshot).with_offer(offer).assuming(Some(assumed)))
    }

    /// Returns whether [`find`](Self::find) returns an order.
    pub(crate) fn has(&self, id: &OrderId, offer: OfferId, now: DateTime<Utc>) -> bool {
        self.look_up(id, Some(offer), now).is_some()
    }

    fn look_up(&self, id: &OrderId, offer: Option<OfferId>, now: DateTime<Utc>) -> Option<(Arc<KeptOrder>, TimeDelta)> {
        let kept = self.0.orders.get(id)?;
        let age = kept.age(now)?;
        let is_wanted = offer.is_none_or(|offer| kept.snapshot.offers.iter().any(|o| o.id == offer));
        is_wanted.then_some((kept, age))
    }

    /// Makes each decision on a kept order compare it with its row. For tests.
    pub fn check_each(&self) {
        self.0.is_checked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_checked(&self) -> bool {
        self.0.is_checked.load(Ordering::Relaxed)
    }
}

fn is_current(state: OfferState) -> bool {
    matches!(state, OfferState::Offered | OfferState::Accepted)
}

fn is_keepable(s: &Snapshot) -> bool {
    let status = s.order.status;
    s.order.partner.is_none()
        && (status.is_searching() || status.occupies_driver())
        && !s.order.held_for_review
        && s.alerts.is_empty()
        && s.callbacks.is_empty()
        && s.refund.is_none()
        && s.payments.len() <= MOST_PAYMENTS
}

/// Panics if a kept order differs from the row of the same version.
pub(crate) fn assert_equals_row(kept: &Snapshot, row: &Snapshot) {
    let of_row = Snapshot { messages: Vec::new(), now: kept.now, ..row.clone() };
    assert!(kept.order.version != row.order.version || *kept == of_row, "kept {kept:#?}\nrow {of_row:#?}");
}

#[cfg(test)]
mod tests {
    use model::order::order::fixture;

    use super::*;

    #[test]
    fn kept_order_has_present_time_and_no_messages() {
        let kept = KeptOrders::default();
        let mut s = fixture::offered_snapshot();
        s.messages = vec![model::order::PendingMessage { id: 7, next_attempt_at: s.now }];
        let noon: DateTime<Utc> = "2030-01-01T12:00:00Z".parse().unwrap();
        kept.keep(&s, Uuid::nil(), noon);
        let second = TimeDelta::seconds(1);
        let found = kept.find(&s.order.id, None, noon + second).unwrap().into_snapshot();
        assert!(found.now == s.now + second && found.messages.is_empty());
        for wrong in [noon + KEPT_FOR, noon - second] {
            assert!(kept.find(&s.order.id, None, wrong).is_none(), "{wrong}");
        }
        assert_eq!(found.order, s.order);
        let (known, unknown) = (s.offers[0].id, OfferId::from_uuid(Uuid::from_u128(9)));
        assert!(kept.find(&s.order.id, Some(known), noon).is_some());
        assert!(kept.find(&s.order.id, Some(unknown), noon).is_none(), "the row must be read for an older offer");
    }

    #[test]
    fn orders_that_change_without_a_version_are_not_kept() {
        let kept = KeptOrders::default();
        let own = fixture::created_snapshot();
        for change in [
            (|s: &mut Snapshot| s.order.partner = Some("bbd".into())) as fn(&mut Snapshot),
            |s| s.order.held_for_review = true,
            |s| s.order.status = model::order::OrderStatus::RefundPending,
            |s| s.alerts = vec![model::order::PendingAlert { id: 1, kind: "X".to_owned(), next_escalation_at: s.now }],
        ] {
            kept.keep(&own, Uuid::nil(), own.now);
            let mut changed = own.clone();
            change(&mut changed);
            kept.keep(&changed, Uuid::nil(), own.now);
            assert!(kept.find(&own.order.id, None, own.now).is_none());
        }
    }
}

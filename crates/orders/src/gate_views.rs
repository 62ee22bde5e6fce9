//! What Redis said at the gate of an order a moment ago, as this process remembers it; see `orders::accept_gate`.
//!
//! Of the drivers who press accept at one process in the same millisecond the first asks Redis, and what it hears answers the
//! others: they lose without a call of their own. Nothing else is decided by it. If Redis does not answer, the first goes to the
//! row and the others go after it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use jobs::OrderId;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{OnceCell, watch},
    time::timeout,
};

/// A lock is believed for so long: its holder may fail at the row in another process, and give it back.
const LOCK_BELIEVED: Duration = Duration::from_millis(100);
/// That an order was taken is believed for so long: its driver may give it back in another process.
const TAKEN_BELIEVED: Duration = Duration::from_secs(1);
/// A driver who is longer at the row holds the others up no more.
const LONGEST_TURN: Duration = Duration::from_millis(500);
/// Orders remembered; then those that are believed no longer are forgotten, or all.
const MOST_ORDERS: usize = 256;

/// What Redis knew of an order. Empty: it did not know the offer it was asked about.
#[derive(Debug)]
pub(crate) struct GateView {
    pub(crate) seen_at: Instant,
    /// Redis did not answer.
    pub(crate) is_silent: bool,
    /// The driver who holds the lock.
    pub(crate) holder: Option<String>,
    /// The drivers by their offers.
    pub(crate) offers: HashMap<String, String>,
    /// The offer by which the order was taken.
    pub(crate) taken_by: Option<String>,
}

impl GateView {
    /// An offer that was made alone has no other driver to be answered by what its own was told.
    fn is_believed(&self) -> bool {
        if self.offers.len() < 2 {
            return false;
        }
        let age = self.seen_at.elapsed();
        if self.taken_by.is_some() { age < TAKEN_BELIEVED } else { self.holder.is_some() && age < LOCK_BELIEVED }
    }
}

/// A view, once Redis has answered. If the request that asks is dropped, the next one that waits asks.
type AwaitedView = Arc<OnceCell<GateView>>;

/// Cheap to clone; clones share the views.
#[derive(Debug, Clone, Default)]
pub struct GateViews {
    views: Arc<Mutex<HashMap<OrderId, AwaitedView>>>,
    /// Orders that a driver takes at this process without Redis.
    turns: Arc<Mutex<HashMap<OrderId, watch::Sender<()>>>>,
}

/// A driver is at the row of an order. Those who wait for it go on when the row is written, or when this is dropped.
#[derive(Debug)]
pub(crate) struct AcceptTurn {
    turns: GateViews,
    order: OrderId,
    /// Which turn at this order it is.
    turn: watch::Sender<()>,
}

impl Drop for AcceptTurn {
    fn drop(&mut self) {
        let mut turns = self.turns.lock_turns();
        if turns.get(&self.order).is_some_and(|turn| turn.same_channel(&self.turn)) {
            turns.remove(&self.order);
        }
    }
}

fn is_usable(view: &AwaitedView) -> bool {
    view.get().is_none_or(GateView::is_believed)
}

/// Forgets others where there are too many.
fn insert_view(views: &mut HashMap<OrderId, AwaitedView>, order: &OrderId, view: AwaitedView) {
    if views.len() >= MOST_ORDERS {
        views.retain(|_, view| is_usable(view));
    }
    if views.len() >= MOST_ORDERS {
        views.clear();
    }
    views.insert(order.clone(), view);
}

impl GateViews {
    /// Returns the view that is being asked for or is believed; otherwise a new one, to be filled by the caller. Also returns whether
    /// nothing was seen of this order before, or all that was is forgotten.
    pub(crate) fn get(&self, order: &OrderId) -> (AwaitedView, bool) {
        let mut views = self.lock_views();
        let earlier = views.get(order);
        if let Some(view) = earlier.filter(|view| is_usable(view)) {
            return (view.clone(), false);
        }
        let is_first = earlier.is_none();
        let view = AwaitedView::default();
        insert_view(&mut views, order, view.clone());
        (view, is_first)
    }

    /// Remembers what this process itself has brought about, in the place of what was seen.
    pub(crate) fn remember(&self, order: &OrderId, view: GateView) {
        insert_view(&mut self.lock_views(), order, Arc::new(OnceCell::new_with(Some(view))));
    }

    /// Forgets what was seen: this process has changed it.
    pub(crate) fn forget(&self, order: &OrderId) {
        self.lock_views().remove(order);
    }

    /// Returns the turn of the first that asks for this order, or `None` once that one is through or takes too long: the others
    /// are at it together then.
    pub(crate) async fn await_turn(&self, order: &OrderId) -> Option<AcceptTurn> {
        let mut first = match self.lock_turns().entry(order.clone()) {
            Entry::Occupied(turn) => turn.get().subscribe(),
            Entry::Vacant(place) => {
                let turn = place.insert(watch::Sender::new(())).clone();
                return Some(AcceptTurn { turns: self.clone(), order: order.clone(), turn });
            }
        };
        // It says that the row is written, or is closed.
        let _ = timeout(LONGEST_TURN, first.changed()).await;
        None
    }

    /// Lets those go on who wait for the driver at the row: it is written. They need not wait until Redis is told of it.
    pub(crate) fn end_turn(&self, order: &OrderId) {
        if let Some(turn) = self.lock_turns().remove(order) {
            turn.send_replace(());
        }
    }

    fn lock_turns(&self) -> MutexGuard<'_, HashMap<OrderId, watch::Sender<()>>> {
        self.turns.lock()
    }

    fn lock_views(&self) -> MutexGuard<'_, HashMap<OrderId, AwaitedView>> {
        self.views.lock()
    }
}

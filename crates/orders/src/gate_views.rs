//! Cache of the gate's answers in this process; see `orders::accept_gate`.
//!
//! If several drivers accept at one process in the same millisecond, the first asks Redis, and its answer refuses the
//! others without a call. The cache decides nothing else. If Redis does not respond, the first driver proceeds to the
//! row and the others follow after it.

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

/// Time for which a lock is cached. Its holder may fail at the row in another process and release it.
const LOCK_BELIEVED: Duration = Duration::from_millis(100);
/// Time for which "taken" is cached. The order may lose its driver in another process.
const TAKEN_BELIEVED: Duration = Duration::from_secs(1);
/// Maximum time that other accepts wait for the driver that is writing the row.
const LONGEST_TURN: Duration = Duration::from_millis(500);
/// Maximum cached orders. Above it, expired views are removed, and all views if none has expired.
const MOST_ORDERS: usize = 256;

/// State of an order's gate in Redis. Empty if Redis did not know the presented offer.
#[derive(Debug)]
pub(crate) struct GateView {
    pub(crate) seen_at: Instant,
    pub(crate) is_silent: bool,
    pub(crate) holder: Option<String>,
    /// Drivers by offer.
    pub(crate) offers: HashMap<String, String>,
    /// Offer by which the order was taken.
    pub(crate) taken_by: Option<String>,
}

impl GateView {
    /// Returns whether the view is still valid. With a single offer there is no other driver to refuse.
    fn is_believed(&self) -> bool {
        if self.offers.len() < 2 {
            return false;
        }
        let age = self.seen_at.elapsed();
        if self.taken_by.is_some() { age < TAKEN_BELIEVED } else { self.holder.is_some() && age < LOCK_BELIEVED }
    }
}

/// View that is filled when Redis responds. If the request that asks is dropped, the next waiting request asks.
type AwaitedView = Arc<OnceCell<GateView>>;

/// Cached views of gates. Cheap to clone; clones share the views.
#[derive(Debug, Clone, Default)]
pub struct GateViews {
    views: Arc<Mutex<HashMap<OrderId, AwaitedView>>>,
    /// Orders that a driver is taking at this process without Redis.
    turns: Arc<Mutex<HashMap<OrderId, watch::Sender<()>>>>,
}

/// A driver's turn to write the row of an order. Other drivers at this process wait until the row is written or the
/// turn is dropped.
#[derive(Debug)]
pub(crate) struct AcceptTurn {
    turns: GateViews,
    order: OrderId,
    /// Identifies the turn.
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

/// Inserts a view. Removes others if there are too many.
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
    /// Returns the pending or valid view, or a new one for the caller to fill. Also returns whether there was no
    /// earlier view of this order.
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

    /// Replaces the view with the result of this process' own change.
    pub(crate) fn remember(&self, order: &OrderId, view: GateView) {
        insert_view(&mut self.lock_views(), order, Arc::new(OnceCell::new_with(Some(view))));
    }

    /// Removes the view after this process has changed the gate.
    pub(crate) fn forget(&self, order: &OrderId) {
        self.lock_views().remove(order);
    }

    /// Returns a turn to the first caller for this order. The other callers get `None` after that turn ends or takes
    /// too long, and then proceed concurrently.
    pub(crate) async fn await_turn(&self, order: &OrderId) -> Option<AcceptTurn> {
        let mut first = match self.lock_turns().entry(order.clone()) {
            Entry::Occupied(turn) => turn.get().subscribe(),
            Entry::Vacant(place) => {
                let turn = place.insert(watch::Sender::new(())).clone();
                return Some(AcceptTurn { turns: self.clone(), order: order.clone(), turn });
            }
        };
        // A message, or the end of the channel, ends the wait.
        let _ = timeout(LONGEST_TURN, first.changed()).await;
        None
    }

    /// Ends the turn after the row is written. The waiting drivers continue before Redis is updated.
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

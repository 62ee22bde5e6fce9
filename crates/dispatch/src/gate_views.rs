//! What Redis said at the gate of an order a moment ago, as this process remembers it; see `orders::accept_gate`.
//!
//! Of the drivers who press accept at one process in the same millisecond the first asks Redis, and what it hears answers the
//! others: they lose without a call of their own. Nothing else is decided by it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jobs::OrderId;
use tokio::sync::OnceCell;

/// A lock is believed for so long: its holder may fail at the row in another process, and give it back.
const LOCK_BELIEVED: Duration = Duration::from_millis(100);
/// That an order was taken is believed for so long: its driver may give it back in another process.
const TAKEN_BELIEVED: Duration = Duration::from_secs(1);
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
pub struct GateViews(Arc<Mutex<HashMap<OrderId, AwaitedView>>>);

impl GateViews {
    /// Returns the view that is being asked for or is believed; otherwise a new one, to be filled by the caller.
    pub(crate) fn get(&self, order: &OrderId) -> AwaitedView {
        let is_usable = |view: &AwaitedView| view.get().is_none_or(GateView::is_believed);
        let mut views = self.lock_views();
        if let Some(view) = views.get(order).filter(|view| is_usable(view)) {
            return view.clone();
        }
        if views.len() >= MOST_ORDERS {
            views.retain(|_, view| is_usable(view));
        }
        if views.len() >= MOST_ORDERS {
            views.clear();
        }
        let view = AwaitedView::default();
        views.insert(order.clone(), view.clone());
        view
    }

    /// Forgets what was seen: this process has changed it.
    pub(crate) fn forget(&self, order: &OrderId) {
        self.lock_views().remove(order);
    }

    fn lock_views(&self) -> MutexGuard<'_, HashMap<OrderId, AwaitedView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

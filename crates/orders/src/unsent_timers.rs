//! Set of the orders whose timers Redis did not accept; see `orders::unsent`.

use std::{collections::BTreeSet, mem, sync::Arc};

use jobs::OrderId;
use parking_lot::{Mutex, MutexGuard};

/// Maximum remembered orders. Further orders are left to the reconciler.
const MOST: usize = 50_000;
/// Orders with unsent timers. Cheap to clone; clones share the orders.
#[derive(Debug, Clone, Default)]
pub struct UnsentTimers(Arc<Mutex<UnsentOrders>>);

#[derive(Debug, Default)]
struct UnsentOrders {
    orders: BTreeSet<OrderId>,
    /// Whether a retry task is running.
    is_retrying: bool,
}

impl UnsentTimers {
    fn lock_orders(&self) -> MutexGuard<'_, UnsentOrders> {
        self.0.lock()
    }

    /// Takes the next order. Returns `None` if none is left, which ends the task.
    pub(crate) fn take_next(&self) -> Option<OrderId> {
        let mut unsent = self.lock_orders();
        let next = unsent.orders.pop_first();
        unsent.is_retrying = next.is_some();
        next
    }

    /// Adds an order. Returns whether the caller must start the retry task, because none is running.
    pub(crate) fn put_back(&self, order: OrderId) -> bool {
        let mut unsent = self.lock_orders();
        if unsent.orders.len() < MOST {
            unsent.orders.insert(order);
        }
        !mem::replace(&mut unsent.is_retrying, true)
    }
}

//! Orders whose timers Redis did not take, as this process remembers them; see `orders::unsent`.

use std::{collections::BTreeSet, mem, sync::Arc};

use jobs::OrderId;
use parking_lot::{Mutex, MutexGuard};

/// Orders remembered. Those above it are left to the reconciler.
const MOST: usize = 50_000;
/// Cheap to clone; clones share the orders.
#[derive(Debug, Clone, Default)]
pub struct UnsentTimers(Arc<Mutex<UnsentOrders>>);

#[derive(Debug, Default)]
struct UnsentOrders {
    orders: BTreeSet<OrderId>,
    /// A task is at it.
    is_retrying: bool,
}

impl UnsentTimers {
    fn lock_orders(&self) -> MutexGuard<'_, UnsentOrders> {
        self.0.lock()
    }

    /// Takes the next order out. `None`: none is left, and the task ends.
    pub(crate) fn take_next(&self) -> Option<OrderId> {
        let mut unsent = self.lock_orders();
        let next = unsent.orders.pop_first();
        unsent.is_retrying = next.is_some();
        next
    }

    pub(crate) fn put_back(&self, order: OrderId) {
        let mut unsent = self.lock_orders();
        if unsent.orders.len() < MOST {
            unsent.orders.insert(order);
        }
    }

    /// Returns whether a task must be started: none is at it.
    pub(crate) fn begin_retrying(&self) -> bool {
        !mem::replace(&mut self.lock_orders().is_retrying, true)
    }
}

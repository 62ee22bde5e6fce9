//! Roles that pages admit. Admins pass every role check and are in no list.

use accounts::api_keys::AccountRole;

/// Roles that read the pages about orders.
pub(super) const STAFF: [AccountRole; 4] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];
/// Roles that decide on orders that wait for a person.
pub(super) const DISPATCHERS: [AccountRole; 2] = [AccountRole::Dispatcher, AccountRole::Operator];
/// Roles that create orders for callers, change their contents, and cancel them.
pub(super) const BOOKERS: [AccountRole; 2] = [AccountRole::Dispatcher, AccountRole::Support];
/// Roles that see drivers' phone numbers.
pub(super) const CALLERS: [AccountRole; 3] = [AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];
/// Roles that make refunds.
pub(super) const REFUNDERS: [AccountRole; 1] = [AccountRole::Support];
/// Roles for operators' work: queues, messages, areas, drivers, partners, bindings, plans and the audit.
pub(super) const OPERATORS: [AccountRole; 1] = [AccountRole::Operator];
/// Admins only.
pub(super) const ADMINS: [AccountRole; 0] = [];

//! Slots that a call to a provider needs.

use std::time::Duration;

use crate::capability::Bindings;
use model::binding::{Binding, ServerId};
use queue::{InvalidSlotNeed, SlotNeed};

/// Maximum expected time between receiving the slots and the response to the claim. A slower claim leaves less time for
/// its call.
const CLAIM_ALLOWANCE: Duration = Duration::from_secs(2);
/// Maximum age of the slots at which a call is sent without checking them again.
pub(super) const QUICK_CLAIM: Duration = Duration::from_millis(200);

/// Returns the slots that a call of this binding needs at a server. They are held for the maximum duration of the claim
/// and the call.
pub fn slots_for_call(bindings: &Bindings, server: &ServerId, binding: &Binding) -> Result<SlotNeed, InvalidSlotNeed> {
    let timeout = Duration::from_millis(u64::from(binding.config.call_timeout_ms));
    let hold = timeout + bindings.config.bindings.call_margin + CLAIM_ALLOWANCE;
    SlotNeed::new(server.as_str(), binding.id.as_str(), hold)
}

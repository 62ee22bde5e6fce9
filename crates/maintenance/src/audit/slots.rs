//! Checks the slots in Redis: their records agree with each other, because every script changes them together, and no
//! slot under a shared limit ends later than any slot may.

use std::time::Duration;

use super::InvariantViolation;
use foundation::core::Core;
use queue::StoreError;

pub(crate) const NAME: &str = "slots_equal_holders";
/// Maximum number of jobs with slots that are compared; with more, nothing is compared.
const MOST: usize = 5_000;
/// Tolerance for a change of Redis' clock, as after a failover.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

pub(crate) async fn check_slots(core: &Core) -> Result<Vec<InvariantViolation>, StoreError> {
    let differences = core.store.compare_slots(MOST).await?;
    let overlong = core.store.list_overlong_slots(CLOCK_TOLERANCE).await?.into_iter();
    let overlong =
        overlong.map(|(limit, holder, ends_ms)| (limit, format!("the slot of {holder} ends in {ends_ms} ms")));
    let found = differences.into_iter().chain(overlong);
    Ok(found.map(|(subject, detail)| InvariantViolation { invariant: NAME, subject, detail }).collect())
}

//! Checks that the records of slots in Redis agree with each other. Every script changes them together.

use super::InvariantViolation;
use foundation::core::Core;
use queue::StoreError;

pub(crate) const NAME: &str = "slots_equal_holders";
/// Maximum number of jobs with slots that are compared; with more, nothing is compared.
const MOST: usize = 5_000;

pub(crate) async fn check_slots(core: &Core) -> Result<Vec<InvariantViolation>, StoreError> {
    let differences = core.store.compare_slots(MOST).await?.into_iter();
    Ok(differences.map(|(subject, detail)| InvariantViolation { invariant: NAME, subject, detail }).collect())
}

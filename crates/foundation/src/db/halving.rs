//! Batches of changes in one statement, split in halves when one item fails.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::error::DatabaseError;

use super::{copy_error, failure::is_rolled_back_for_another};

/// Time after which a failing batch is no longer split. By then the delay has another cause than one of its items, and
/// other batches are waiting.
const PATIENCE: Duration = Duration::from_secs(8);

/// Writes the items with `write`, which returns one result per item in their order, or an error if it wrote nothing. If
/// Postgres refuses a batch because of one item, the batch is halved until that item is alone and gets its own error.
/// Halving stops after [`PATIENCE`]. Any other error is returned for every item, because it does not show which items
/// caused it.
pub async fn write_or_halve<I, O, F, Fut>(items: &[Arc<I>], write: F) -> Vec<Result<O, sqlx::Error>>
where
    F: Fn(Vec<Arc<I>>) -> Fut,
    Fut: Future<Output = Result<Vec<O>, sqlx::Error>>,
{
    let mut results = Vec::with_capacity(items.len());
    // The last element is written next.
    let mut parts = vec![items];
    let begun = Instant::now();
    while let Some(part) = parts.pop() {
        match write(part.to_vec()).await {
            Ok(written) => results.extend(written.into_iter().map(Ok)),
            Err(error) if part.len() > 1 && is_about_one(&error) && begun.elapsed() < PATIENCE => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) => {
                results.extend(part.iter().skip(1).map(|_| Err(copy_error(&error))));
                results.push(Err(error));
            }
        }
    }
    results
}

/// Returns whether a single item may have caused the error: a value, a constraint, a lock timeout or a deadlock.
/// Postgres has rolled the statement back in each of these cases. A statement timeout is not in this list, because it
/// says nothing about single items.
fn is_about_one(error: &sqlx::Error) -> bool {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let code = error.as_database_error().and_then(DatabaseError::code);
    is_rolled_back_for_another(error)
        || code.is_some_and(|code| code.starts_with("22") || code.starts_with("23") || code == LOCK_NOT_AVAILABLE)
}

//! Many changes in one statement, each told its own fate.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::error::DatabaseError;

use super::{copy_error, failure::is_rolled_back_for_another};

/// A batch is not halved any more once it has taken so long: what keeps it waiting is not one item of it, and others wait for it.
const PATIENCE: Duration = Duration::from_secs(8);

/// Writes the items by `write`, which answers one result per item, in their order, or has written none. A batch that Postgres
/// refuses for what one item holds is halved, until the guilty one stands alone with its own error, but not for longer than
/// [`PATIENCE`]. Any other error is that of all: nothing says which items it is about.
pub async fn write_or_halve<I, O, F, Fut>(items: &[Arc<I>], write: F) -> Vec<Result<O, sqlx::Error>>
where
    F: Fn(Vec<Arc<I>>) -> Fut,
    Fut: Future<Output = Result<Vec<O>, sqlx::Error>>,
{
    let mut results = Vec::with_capacity(items.len());
    // The next part is the last of these.
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

/// Returns whether one item may be at fault: a value, a constraint, a lock that another session has and does not give, or a wait
/// for each other. In each case the statement was rolled back. A statement that took too long says nothing of one item.
fn is_about_one(error: &sqlx::Error) -> bool {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let code = error.as_database_error().and_then(DatabaseError::code);
    is_rolled_back_for_another(error)
        || code.is_some_and(|code| code.starts_with("22") || code.starts_with("23") || code == LOCK_NOT_AVAILABLE)
}

//! Filters of the list of orders that staff saved under a name. They belong to the name of the person's key, so they
//! outlive sessions and the rotation of the key.

use std::collections::BTreeMap;

use sqlx::types::Json;

use foundation::db::Pool;

/// Maximum filters of a person. The table has as many slots.
pub const MOST: usize = 20;
/// Maximum characters of a name.
pub const LONGEST_NAME: usize = 60;

/// A saved filter.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct SavedFilter {
    pub name: String,
    /// Values by the names of their fields.
    pub filter: Json<BTreeMap<String, String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum SaveFilterError {
    #[error("a person can save {MOST} filters")]
    Full,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Returns the filters of a person, sorted by name.
pub async fn list_filters(db: &Pool, person: &str) -> Result<Vec<SavedFilter>, sqlx::Error> {
    sqlx::query_as(
        "-- list saved filters
         SELECT name, filter FROM saved_filters WHERE person = $1 ORDER BY lower(name), name",
    )
    .bind(person)
    .fetch_all(db)
    .await
}

/// Saves a filter of a person. A filter with the same name is replaced.
pub async fn save_filter(
    db: &Pool,
    person: &str,
    name: &str,
    filter: &BTreeMap<String, String>,
) -> Result<(), SaveFilterError> {
    let saved = match write_filter(db, person, name, filter).await {
        // Another request of the person took the slot or the name at the same time.
        Err(error) if is_taken(&error) => write_filter(db, person, name, filter).await,
        saved => saved,
    };
    if saved? { Ok(()) } else { Err(SaveFilterError::Full) }
}

fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// Returns whether the filter was written. It is not written if the person has no free slot.
async fn write_filter(
    db: &Pool,
    person: &str,
    name: &str,
    filter: &BTreeMap<String, String>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(include_str!("save_filter.sql")).bind(person).bind(name).bind(Json(filter)).fetch_one(db).await
}

/// Deletes a filter of a person, if it exists.
pub async fn delete_filter(db: &Pool, person: &str, name: &str) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- delete saved filter
         DELETE FROM saved_filters WHERE person = $1 AND name = $2",
    )
    .bind(person)
    .bind(name)
    .execute(db)
    .await
    .map(drop)
}

//! From where staff ask for changes. A change keeps the key that asked for it; the latest request of that key before it says from
//! which address. The row is written before the request is carried out: a process that dies in between leaves a request without a
//! change, never a change without its request.

use std::net::IpAddr;

use uuid::Uuid;

use foundation::db::Pool;

/// Characters of a route that are kept; none is longer.
const MAX_REQUEST: usize = 256;

/// Records that a key of staff asks for a change. `request` is the method and the route.
pub async fn record_request(db: &Pool, key: Uuid, address: IpAddr, request: &str) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- record staff request
         INSERT INTO staff_requests (key_id, address, request) VALUES ($1, $2::text::inet, $3)",
    )
    .bind(key)
    .bind(address.to_string())
    .bind(request.chars().take(MAX_REQUEST).collect::<String>())
    .execute(db)
    .await
    .map(drop)
}

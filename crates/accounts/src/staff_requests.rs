//! Client addresses of staff requests. A change stores the key that asked for it; the latest earlier request of that
//! key gives the address. The row is written before the request is processed. If the process dies in between, a request
//! without a change remains, but never a change without its request.

use std::net::IpAddr;

use uuid::Uuid;

use foundation::db::Pool;

/// Maximum number of characters stored of a method and route. All current routes are shorter.
const MAX_REQUEST: usize = 256;

/// Records that a staff key requests a change. `request` is the method and the route.
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

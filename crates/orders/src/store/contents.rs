//! Changes to the contents of an order.

use model::{
    decide::Change,
    order::{OrderStep, Snapshot},
};

use serde_json::Value;

use foundation::db::Connection;

/// Writes the contents of an order whose row the transaction has already updated. Live offers get the new distance to
/// the pickup, and a new version if their drivers see the change. `steps` are the numbers of the change's steps.
pub(super) async fn write_contents(
    tx: &mut Connection,
    before: &Snapshot,
    change: &Change,
    steps: &[i64],
) -> Result<(), sqlx::Error> {
    let Some(contents) = &change.contents else { return Ok(()) };
    let order = change.order.id.as_str();
    sqlx::query(include_str!("write_contents.sql"))
        .bind(order)
        .bind(change.order.pickup_lat)
        .bind(change.order.pickup_lng)
        .bind(contents.details.to_json())
        .execute(&mut *tx)
        .await?;
    let places: Vec<(i32, &Value)> =
        change.bookings.iter().filter_map(|b| Some((b.attempt_no, b.places.as_ref()?))).collect();
    if !places.is_empty() {
        let (attempts, places): (Vec<i32>, Vec<&Value>) = places.into_iter().unzip();
        sqlx::query(
            "-- keep booked places
             UPDATE bookings b SET places = n.places FROM unnest($2::integer[], $3::jsonb[]) AS n (attempt_no, places)
             WHERE b.order_id = $1 AND b.attempt_no = n.attempt_no",
        )
        .bind(order)
        .bind(attempts)
        .bind(places)
        .execute(&mut *tx)
        .await?;
    }
    let numbered = change.steps().into_iter().flatten().zip(steps);
    let updated: Vec<i64> = numbered.filter(|(step, _)| *step == OrderStep::Updated).map(|(_, seq)| *seq).collect();
    sqlx::query(
        "-- name changed contents
         UPDATE order_feed SET changed = CASE WHEN seq = ANY ($2) THEN $1::text[] END, has_details = true
         WHERE position = dispatchq_feed_position() AND seq = ANY ($3)",
    )
    .bind(&contents.fields)
    .bind(updated)
    .bind(steps)
    .execute(&mut *tx)
    .await?;
    if before.live_offers().next().is_some() && contents.fields.iter().any(|name| OFFERED.contains(name)) {
        sqlx::query(
            "-- refresh offers
             UPDATE offers f SET version = f.version + 1,
                    distance_m = CASE WHEN $4 THEN dispatchq_distance_m(d.lat, d.lng, $2, $3) ELSE f.distance_m END
             FROM drivers d WHERE f.order_id = $1 AND f.state || '' = 'offered' AND d.id = f.driver_id",
        )
        .bind(order)
        .bind(change.order.pickup_lat)
        .bind(change.order.pickup_lng)
        .bind(before.order.pickup() != change.order.pickup())
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// Members of an order that its offers contain.
const OFFERED: [&str; 4] = ["pickup", "dropoff", "notes", "requires"];

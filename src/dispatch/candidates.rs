//! The free drivers near a pickup, from Postgres.
//!
//! Free: available, of the service type, without an active order, without a live offer, and not yet asked for this
//! order in this round nor ever declined by it. A driver taken between this read and the offer is noticed by the unique
//! index on live offers, and the next one is asked.

use sqlx::PgPool;
use workers::Outcome;

use super::{
    policy::DispatchPolicy,
    ranking::{Candidate, rank},
};
use crate::{
    app::App,
    orders::{Order, Snapshot},
    worker::step,
};

/// Metres of one degree of latitude.
const METRES_PER_DEGREE: f64 = 111_320.0;

/// Who could be asked for this order, and the rules it goes by; or what becomes of a job that cannot know.
pub(super) async fn of(app: &App, s: &Snapshot) -> Result<(Vec<(String, f64)>, DispatchPolicy), Outcome> {
    let policy = app.config.policy(&s.order.service_type);
    let ranked = ranked(&app.db, &s.order, &policy).await.map_err(|e| step::database_failed(&e))?;
    Ok((ranked, policy))
}

/// Ids and distances in metres, best first; at most `policy.candidates` are looked at.
pub async fn ranked(db: &PgPool, order: &Order, policy: &DispatchPolicy) -> Result<Vec<(String, f64)>, sqlx::Error> {
    let lat_span = policy.radius_m / METRES_PER_DEGREE;
    // Meridians converge; near a pole every longitude is near.
    let lng_span = lat_span / order.pickup_lat.to_radians().cos().max(0.01);
    let candidates: Vec<Candidate> = sqlx::query_as(
        "-- candidates
         SELECT d.id AS driver_id, d.lat, d.lng, d.idle_since FROM drivers d
         WHERE d.available AND $2 = ANY (d.service_types)
           AND d.lat BETWEEN $3 - $5 AND $3 + $5 AND d.lng BETWEEN $4 - $6 AND $4 + $6
           AND NOT EXISTS (SELECT 1 FROM orders o
                           WHERE o.driver_id = d.id AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP'))
           AND NOT EXISTS (SELECT 1 FROM offers f WHERE f.driver_id = d.id AND f.state = 'offered')
           AND NOT EXISTS (SELECT 1 FROM offers f WHERE f.order_id = $1 AND f.driver_id = d.id
                           AND (f.state = 'declined' OR f.round = $7))
         ORDER BY ((d.lat - $3) / $5) ^ 2 + ((d.lng - $4) / $6) ^ 2, d.idle_since, d.id
         LIMIT $8",
    )
    .bind(order.id.as_str())
    .bind(&order.service_type)
    .bind(order.pickup_lat)
    .bind(order.pickup_lng)
    .bind(lat_span)
    .bind(lng_span)
    .bind(order.round)
    .bind(i64::from(policy.candidates))
    .fetch_all(db)
    .await?;
    Ok(rank(candidates, order.pickup_lat, order.pickup_lng, policy.radius_m))
}

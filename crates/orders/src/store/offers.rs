//! Offers that a change creates.

use model::{
    decide::Change,
    ids::{DriverId, OfferId},
    order::{Offer, OfferState},
};
use uuid::Uuid;

use crate::order_store::planned::OFFERING;
use foundation::db::Connection;

/// Created offer: id, driver, distance in metres.
type Made = (OfferId, DriverId, f64);

/// Inserts offers to the best drivers who are still free, as many as the change wants. Returns the offers with the
/// distances in metres, or `None` if no driver was free.
///
/// Skips drivers who were taken since the ranking: they have an active order or no free slot for a live offer. Also
/// skips a driver to whom another transaction is making an offer. Waiting for its commit would serialize all orders of
/// a busy place.
pub(super) async fn insert_offers(
    tx: &mut Connection,
    change: &Change,
) -> Result<Option<Vec<(Offer, f64)>>, sqlx::Error> {
    let Some(new) = &change.new_offers else { return Ok(Some(Vec::new())) };
    let wanted = usize::from(new.at_once.max(1));
    let mut made: Vec<Made> = Vec::new();
    let mut passed = 0;
    while made.len() < wanted && passed < new.ranked.len() {
        let next = &new.ranked[passed..new.ranked.len().min(passed + wanted - made.len())];
        let ids: Vec<OfferId> = next.iter().map(|_| OfferId::from_uuid(Uuid::now_v7())).collect();
        let drivers: Vec<&DriverId> = next.iter().map(|r| &r.driver_id).collect();
        let distances: Vec<f64> = next.iter().map(|r| r.distance_m).collect();
        let scores: Vec<f64> = next.iter().map(|r| r.score).collect();
        let rows: Vec<Made> = sqlx::query_as(include_str!("insert_offers.sql"))
            .bind(&ids)
            .bind(&drivers)
            .bind(&distances)
            .bind(&scores)
            .bind(change.order.id.as_str())
            .bind(change.order.attempt_no)
            .bind(change.order.round)
            .bind(i32::try_from(passed).unwrap_or(i32::MAX))
            .bind(change.at)
            .bind(new.expires_at)
            .bind(i32::from(new.per_driver.max(1)))
            .bind(OFFERING)
            .bind(new.wave)
            .fetch_all(&mut *tx)
            .await?;
        made.extend(rows);
        passed += next.len();
    }
    if made.is_empty() {
        return Ok(None);
    }
    let offer = |(id, driver_id, distance_m): Made| {
        let offer = Offer {
            id,
            attempt_no: change.order.attempt_no,
            wave: new.wave,
            round: change.order.round,
            driver_id,
            state: OfferState::Offered,
            offered_at: change.at,
            expires_at: new.expires_at,
        };
        (offer, distance_m)
    };
    Ok(Some(made.into_iter().map(offer).collect()))
}

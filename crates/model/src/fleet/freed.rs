//! Drivers that a change frees for other orders. Pure.

use crate::{
    decide::Change,
    ids::DriverId,
    order::{OfferState, Snapshot},
};

/// Returns the own drivers who lose this order, or an offer of it, by the change. They may still be on a trip or
/// cooling down; the caller must check whether they may be asked.
pub fn freed_drivers(before: &Snapshot, change: &Change) -> Vec<DriverId> {
    let order = &before.order;
    if order.partner.is_some() {
        return Vec::new();
    }
    let unasked = change.offers.iter().filter(|end| end.to != OfferState::Accepted).map(|end| &end.offer.driver_id);
    let leaves = order.status.occupies_driver() && !change.order.status.occupies_driver();
    let mut freed: Vec<DriverId> = unasked.chain(order.driver_id.iter().filter(|_| leaves)).cloned().collect();
    freed.sort_unstable();
    freed.dedup();
    freed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::{Decision, actions},
        fleet::decide,
        order::order::fixture,
        policy,
        ranking::fixture::ranking_of,
    };

    fn freed_by(s: &Snapshot, decision: Decision) -> Vec<String> {
        let Decision::Change(change) = decision else { panic!("{decision:?}") };
        freed_drivers(s, &change).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn decline_timeout_and_trip_end_free_the_driver() {
        let offered = fixture::offered_snapshot();
        let (driver, offer) = (DriverId::from("D1"), offered.offers[0].id);
        let decline = actions::decline_offer(&offered, &driver, offer, None);
        assert_eq!(freed_by(&offered, decline), ["D1"]);
        let lapse = decide::time_out_attempt(&offered, ranking_of(&["D2"]), &policy::example_policy());
        assert_eq!(freed_by(&offered, lapse.into()), ["D1"]);

        let accept = actions::accept_offer(&offered, &driver, offer);
        assert_eq!(freed_by(&offered, accept.clone()), Vec::<String>::new());
        let Decision::Change(accept) = accept else { panic!("{accept:?}") };
        let assigned = offered.apply(&accept);
        assert_eq!(freed_by(&assigned, actions::cancel_by_driver(&assigned, &driver, None)), ["D1"]);
        let Decision::Change(pickup) = actions::record_pickup(&assigned, &driver) else { panic!("no pickup") };
        assert_eq!(freed_drivers(&assigned, &pickup), Vec::<DriverId>::new());
        let aboard = assigned.apply(&pickup);
        assert_eq!(freed_by(&aboard, actions::complete_trip(&aboard, &driver)), ["D1"]);
    }
}

//! Counts the Postgres statements of many concurrent orders.

use tokio::task::JoinSet;

use model::{
    actor::Actor,
    decide::actions,
    ids::{DriverId, OfferId},
};
use orders::{
    accept,
    fleet::drivers::{self, NewDriver},
};
use test_support::{
    Api, TestApp,
    costs::{ORDERS, assert_no_timer_left, assert_shared, count_statements, create_orders, latitudes, timer_kinds},
    eventually, id, millis,
    partnership::work,
    update_order,
};

#[tokio::test]
async fn a_hundred_orders_of_the_own_fleet_share_their_statements() {
    let mut t = TestApp::start().await;
    count_statements(&mut t.postgres).await;
    let api = Api::start(&t.app).await;
    // The distance exceeds the search radius.
    let apart = 0.1;
    let fleet: Vec<_> = latitudes(apart)
        .map(|(n, latitude)| NewDriver {
            id: format!("D{n}").as_str().into(),
            service_types: vec!["RIDE".into()],
            latitude,
            longitude: 106.8456,
            available: true,
            phone: None,
            name: None,
            skills: None,
        })
        .collect();
    drivers::import_drivers(&t.app.core.db, &fleet).await.unwrap();
    let first_xid = create_orders(&t, &api, "RIDE", apart).await;
    let _work = work(&t.app);
    eventually("each is offered", || async {
        t.count("SELECT count(*) FROM offers WHERE state = 'offered'").await == 100
    })
    .await;
    let told = "SELECT count(*) FROM outbox WHERE kind = 'OFFER' AND state = 'delivered'";
    // A message that finds its channel full waits by the clock of the database.
    eventually("each offer is delivered", || async {
        t.advance(millis(50)).await;
        t.count(told).await == 100
    })
    .await;
    let offers: Vec<(String, OfferId, DriverId)> =
        sqlx::query_as("SELECT order_id, id, driver_id FROM offers").fetch_all(&t.app.core.db).await.unwrap();
    assert_eq!(timer_kinds(&t).await["timeout"], ORDERS);
    let mut rides = JoinSet::new();
    for (order, offer, driver) in offers {
        let app = t.app.clone();
        rides.spawn(async move {
            let (order, by) = (id(&order), Actor::for_driver(&driver));
            accept::accept_offer(&app.orders, &order, &driver, offer, &by).await.unwrap();
            update_order(&app.orders, &order, |s| actions::record_pickup(s, &driver)).await.unwrap();
            update_order(&app.orders, &order, |s| actions::complete_trip(s, &driver)).await.unwrap();
        });
    }
    rides.join_all().await;
    assert_no_timer_left(&t).await;
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await, 100);
    assert_shared(&t, first_xid).await;
    t.assert_sound().await;
}

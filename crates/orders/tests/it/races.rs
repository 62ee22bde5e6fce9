//! Concurrent requests for the same order or driver: exactly one succeeds.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use model::{
    decide::{OrderRefusal, actions},
    order::OrderStatus,
};
use orders::{change::ChangeError, changed::Changed};
use test_support::{TestApp, by, millis};

type Answer = Result<Changed, ChangeError>;

fn won(answer: &Answer) -> bool {
    matches!(answer, Ok(changed) if changed.is_written())
}

/// Runs the due jobs, each in its own task.
async fn work(t: Arc<TestApp>) {
    loop {
        for leased in t.try_take().await.unwrap_or_default() {
            let t = t.clone();
            tokio::spawn(async move {
                let outcome = t.perform(&leased).await;
                t.settle(&leased, outcome).await;
            });
        }
        tokio::time::sleep(millis(1)).await;
    }
}

/// Number of requests that succeeded for one order, by kind of client.
#[derive(Default)]
struct Wins {
    driver: usize,
    dispatcher: usize,
    customer: usize,
}

/// Runs drivers, a customer and a dispatcher concurrently on one order while workers run its timers. The race takes
/// about 200 ms at pace 1.
async fn fight(t: &TestApp, order: &str, seed: u64, pace: u32) -> Wins {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut pause = |most: u64| millis(rng.random_range(0..most)) * pace;
    let answers: Vec<_> = (0..20).map(|_| pause(60)).collect();
    let (cancel, assign) = (pause(400), pause(700));
    let too_late = millis(180) * pace;
    t.order(order).await;
    let drivers = async {
        let mut wins = 0;
        for answer in answers {
            let Some(offer) = t.snapshot(order).await.live_offer().cloned() else {
                tokio::time::sleep(millis(10) * pace).await;
                continue;
            };
            tokio::time::sleep(answer).await;
            if (answer / pace).as_millis().is_multiple_of(2) {
                let _ = t.act(order, |s| actions::decline_offer(s, &offer.driver_id, offer.id, None)).await;
            } else {
                wins += usize::from(won(&t.accept(order, &offer.driver_id, offer.id).await));
            }
        }
        wins
    };
    let customer = async {
        if cancel > too_late {
            return 0;
        }
        tokio::time::sleep(cancel).await;
        usize::from(won(&t.cancel(order).await))
    };
    let dispatcher = async {
        if assign > too_late {
            return 0;
        }
        tokio::time::sleep(assign).await;
        let driver = format!("D{}", seed % 30).into();
        usize::from(won(&t.act(order, |s| actions::assign_driver(s, &by("operator:test"), &driver)).await))
    };
    let (driver, customer, dispatcher) = tokio::join!(drivers, customer, dispatcher);
    Wins { driver, dispatcher, customer }
}

const ROUNDS: u64 = 20;

/// Runs races for orders, sixteen at a time, and returns the number of wins of each rival. Ends early when a rival
/// never wins, unless `goes_on` is set.
async fn race(pace: u32, goes_on: bool) -> BTreeMap<&'static str, usize> {
    let t = TestApp::on_real_time(|config| {
        config.dispatch.attempt = millis(40) * pace;
        config.dispatch.retry = vec![millis(5) * pace];
        config.dispatch.lifetime = millis(160) * pace;
    })
    .await;
    t.app.orders.kept.check_each();
    let drivers: Vec<String> = (0..30).map(|n| format!("D{n}")).collect();
    t.drivers(&drivers.iter().map(|d| (d.as_str(), 100.0)).collect::<Vec<_>>()).await;
    let t = Arc::new(t);
    let stop = CancellationToken::new();
    for _ in 0..2 {
        tokio::spawn(stop.clone().run_until_cancelled_owned(work(t.clone())));
    }
    let mut ends = BTreeMap::<OrderStatus, usize>::new();
    for round in 0..ROUNDS {
        let seeds: Vec<u64> = (0..16).map(|n| round * 16 + n).collect();
        let names: Vec<String> = seeds.iter().map(|seed| format!("ORD-{seed}")).collect();
        let mut fights = JoinSet::new();
        for (seed, name) in seeds.into_iter().zip(names.clone()) {
            let t = t.clone();
            fights.spawn(async move { (seed, fight(&t, &name, seed, pace).await) });
        }
        let mut wins = fights.join_all().await;
        wins.sort_by_key(|(seed, _)| *seed);
        let searching = "SELECT count(*) FROM orders WHERE status IN ('DISPATCHING', 'COMPENSATING')";
        test_support::eventually("all are decided", || async { t.count(searching).await == 0 }).await;
        for (name, (_, wins)) in names.iter().zip(wins) {
            let order = t.snapshot(name).await.order;
            *ends.entry(order.status).or_default() += 1;
            let taken = wins.driver + wins.dispatcher;
            assert!(taken <= 1, "{name}: {taken} were given the order");
            assert_eq!(order.driver_id.is_some(), taken == 1, "{name}: {order:?}");
            assert_eq!(order.status == OrderStatus::CancelledByUser, wins.customer == 1, "{name}: {order:?}");
            assert_eq!(order.status == OrderStatus::CancelledBySystem, taken + wins.customer == 0, "{name}: {order:?}");
            if order.status == OrderStatus::DriverAssigned {
                t.carry_out(name, &order.driver_id.unwrap()).await;
            }
        }
        if round == 4 && !goes_on && count_wins(&t, &ends).await.values().any(|n| *n == 0) {
            break;
        }
    }
    let wins = count_wins(&t, &ends).await;
    t.assert_sound().await;
    stop.cancel();
    wins
}

async fn count_wins(t: &TestApp, ends: &BTreeMap<OrderStatus, usize>) -> BTreeMap<&'static str, usize> {
    let ended = |status| ends.get(&status).copied().unwrap_or(0);
    let mut wins = BTreeMap::from([
        ("driver", ended(OrderStatus::DriverAssigned)),
        ("customer", ended(OrderStatus::CancelledByUser)),
        ("lifetime", ended(OrderStatus::CancelledBySystem)),
    ]);
    for reason in ["ATTEMPT_TIMEOUT", "OFFER_DECLINED"] {
        let count = t.count(&format!("SELECT count(*) FROM order_events WHERE reason = '{reason}'")).await;
        wins.insert(reason, usize::try_from(count).unwrap());
    }
    wins
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accept_timeout_cancel_decline_assign_and_lifetime_have_one_winner() {
    let mut wins = BTreeMap::<&str, usize>::new();
    // On a slow machine the lifetime wins every race until the pace leaves more time.
    for pace in [1, 5, 25] {
        for (rival, n) in race(pace, pace == 25).await {
            *wins.entry(rival).or_default() += n;
        }
        if wins.values().all(|n| *n >= 10) {
            break;
        }
    }
    assert!(wins.values().all(|n| *n >= 1), "each wins now and then: {wins:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_accept_and_decline_one_counts() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let mut winners = HashMap::<&str, usize>::new();
    for round in 0..100 {
        let order = format!("ORD-{round}");
        t.order(&order).await;
        t.run_due().await;
        let offer = t.live_offer(&order).await.id;
        let accept = || t.accept(&order, "D1", offer);
        // An accept reads more before it decides, so the decline is delayed by a few reads.
        let decline = || async {
            for _ in 0..round % 8 {
                t.status(&order).await;
            }
            t.act(&order, |s| actions::decline_offer(s, &"D1".into(), offer, None)).await
        };
        let answers: [Answer; 4] = if round % 2 == 0 {
            tokio::join!(accept(), decline(), accept(), decline()).into()
        } else {
            tokio::join!(decline(), accept(), decline(), accept()).into()
        };
        assert_eq!(answers.iter().filter(|a| won(a)).count(), 1, "{answers:?}");
        // A repeat of the winning answer succeeds; the other answer is refused.
        assert_eq!(
            answers.iter().filter(|a| matches!(a, Ok(changed) if !changed.is_written())).count(),
            1,
            "{answers:?}"
        );
        let accepted = t.status(&order).await == OrderStatus::DriverAssigned;
        *winners.entry(if accepted { "accept" } else { "decline" }).or_default() += 1;
        t.cancel(&order).await.unwrap();
        t.run_due().await;
    }
    assert_eq!(winners.len(), 2, "{winners:?}");
    t.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_wanted_by_three_orders_gets_one() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    for round in 0..60 {
        let [offered, second, third] = [1, 2, 3].map(|n| format!("ORD-{round}-{n}"));
        t.order(&offered).await;
        t.run_due().await;
        let offer = t.live_offer(&offered).await.id;
        t.order(&second).await;
        t.order(&third).await;
        let by_hand = |order: String| {
            let t = &t;
            async move { t.act(&order, |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await }
        };
        let answers: [Answer; 3] =
            tokio::join!(by_hand(second.clone()), t.accept(&offered, "D1", offer), by_hand(third.clone())).into();
        assert_eq!(answers.iter().filter(|a| won(a)).count(), 1, "{answers:?}");
        let busy = answers.iter().filter(|a| matches!(a, Err(ChangeError::Refused(OrderRefusal::DriverBusy)))).count();
        assert_eq!(busy, 2, "{answers:?}");
        for order in [&offered, &second, &third] {
            t.cancel(order).await.unwrap();
        }
        t.run_due().await;
    }
    t.assert_sound().await;
}

//! Workers that die or stop while they send the messages that they wrote.

use test_support::Receiver;

use super::orders;
use crate::support::{Fleet, eventually, hire};

const DELIVERED: &str = "SELECT count(*) FROM outbox WHERE kind = 'OFFER' AND state = 'delivered'";
const UNRECORDED: &str = "SELECT count(*) FROM outbox_attempts WHERE error = 'no answer was recorded'";

/// Starts servers whose offers go to this receiver, with one driver and one order.
async fn with_an_order(receiver: &Receiver) -> Fleet {
    let more = format!(
        "[service_types.RIDE]\nattempt = \"5m\"\n[channels.hook]\ntype = \"webhook\"\nurl = \"{}\"\n\
         [notifications]\ndriver = [\"hook\"]\n",
        receiver.url("/hook")
    );
    let fleet = Fleet::with("1h", &more).await;
    hire(&fleet.app, 1).await;
    orders(&fleet, "ORD", 1).await;
    fleet
}

#[tokio::test]
async fn message_survives_a_crash_around_its_first_try() {
    for (point, sent) in [("first_try.sends", 1), ("first_try.sent", 2)] {
        let receiver = Receiver::start().await;
        let fleet = with_an_order(&receiver).await;
        let mut doomed = fleet.worker_with(point, &[("CRASH_AT", point)]);
        assert!(!doomed.ended().await.success());
        assert!(doomed.log().contains(&format!("CRASH_AT={point}")), "{}", doomed.log());
        let _survivor = fleet.worker("survivor");
        fleet.reach(1, DELIVERED).await;
        let received = receiver.received();
        assert_eq!(received.len(), sent, "{point}: {received:?}");
        assert!(received.iter().all(|message| message.id == received[0].id), "{point}: {received:?}");
        assert_eq!(fleet.count(UNRECORDED).await, 1, "{point}: the log shows the first try");
    }
}

#[tokio::test]
async fn stopping_worker_finishes_its_first_tries() {
    let receiver = Receiver::start().await;
    receiver.hold();
    let fleet = with_an_order(&receiver).await;
    let mut worker = fleet.worker("w1");
    eventually("the message is being sent", || async { receiver.received().len() == 1 }).await;
    worker.terminate();
    eventually("the worker is stopping", || async { worker.log().contains("Stopping: running work may finish") }).await;
    receiver.release();
    assert_eq!(worker.ended().await.code(), Some(0));
    assert_eq!((fleet.count(DELIVERED).await, receiver.received().len()), (1, 1));
}

//! Creations while the jobs of orders are late.

use reqwest::header::RETRY_AFTER;
use tokio_util::sync::CancellationToken;

use accounts::api_keys::AccountRole;
use jobs::{DispatchOrder, queues};
use orders::late_work;
use queue::{
    LeaseToken, LeasedJob, NewJob,
    store::{TakeAnswer, TakeMode, TakeRequest},
};
use test_support::{Answer, Api, Counting, TestApp, eventually, ride, secs};

const ORDERS: &str = "/api/v1/orders";
const REFUSED: &str = "dispatchq_creations_refused_total";
/// More jobs than a worker takes during the test, one per measurement.
const BACKLOG: usize = 1_000;

struct Shop {
    t: TestApp,
    api: Api,
    key: String,
}

impl Shop {
    async fn create(&self, idempotency_key: &str) -> Answer {
        self.api.post_once(ORDERS, &self.key, idempotency_key, ride()).await
    }

    /// Makes jobs of orders that do not exist a second late.
    async fn fall_behind(&self) {
        let job = |n| NewJob::now(&DispatchOrder { order: format!("GONE-{n}").parse().unwrap(), attempt: 1 });
        self.t.app.core.queue().enqueue(&(0..BACKLOG).map(job).collect::<Vec<_>>()).await.unwrap();
        self.t.advance(secs(1)).await;
    }

    async fn wait_for_measurements(&self, count: u64) {
        let turns = || self.t.app.core.loops.count_turns("late work");
        let before = turns();
        eventually("the lateness is measured", async || turns() >= before + count).await;
    }

    /// Takes the next job at each measurement, and holds it until it has taken another one.
    async fn work_slowly(&self) {
        let mut held: Option<LeasedJob> = None;
        for n in 0.. {
            let token = LeaseToken::new("slow", n);
            let request =
                TakeRequest { queues: &[(queues::DISPATCH, 1)], token: &token, lease: secs(8), mode: TakeMode::Normal };
            let taken = self.t.app.core.store.take(&request).await.unwrap();
            let TakeAnswer::Jobs { mut jobs, .. } = taken else { panic!("no epoch") };
            if let Some(done) = std::mem::replace(&mut held, jobs.pop()) {
                let outcome = self.t.perform(&done).await;
                self.t.settle(&done, outcome).await;
            }
            self.wait_for_measurements(1).await;
        }
    }
}

#[tokio::test]
async fn late_jobs_refuse_creations_until_they_are_settled() {
    let (counting, t) = (Counting::start(), TestApp::start().await);
    let (api, key) = (Api::start(&t.app).await, t.key(AccountRole::Producer).await);
    let shop = Shop { t, api, key };
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let (app, max) = (&shop.t.app, shop.t.app.config.http.max_lateness);
    tokio::spawn(late_work::run(app.core.clone(), app.orders.late_work.clone(), max, stop));
    let first = shop.create("first").await;
    assert_eq!(first.status, 201);

    shop.fall_behind().await;
    shop.wait_for_measurements(5).await;
    assert_eq!(shop.create("idle").await.status, 201, "no worker takes the late jobs");

    let late_work = &shop.t.app.orders.late_work;
    let requests = async {
        eventually("the jobs are too late", async || late_work.lateness() >= secs(1)).await;
        let request = shop.api.client.post(shop.api.url(ORDERS)).bearer_auth(&shop.key);
        let refused = request.header("idempotency-key", "late").json(&ride()).send().await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.headers()[RETRY_AFTER].as_bytes()), (503, &b"1"[..]));
        assert_eq!(shop.create("late").await.error(), (503, "OVERLOADED"));
        assert_eq!(counting.of(REFUSED), [format!("{REFUSED} 2")]);
        assert_eq!(shop.create("first").await, Answer { replayed: true, ..first });
        let other = shop.api.post_once(
            ORDERS,
            &shop.key,
            "first",
            serde_json::json!({ "service_type": "RENT",
            "pickup": { "latitude": -6.2, "longitude": 106.8 } }),
        );
        assert_eq!(other.await.error(), (422, "IDEMPOTENCY_KEY_REUSED"));
        assert_eq!(shop.api.get(ORDERS, &shop.key).await.status, 200, "only creations are refused");
    };
    tokio::select! {
        () = shop.work_slowly() => unreachable!("it works until it is dropped"),
        () = requests => {}
    }

    // The slow worker has died with a job in hand.
    shop.t.outlive_leases().await;
    shop.t.run_due().await;
    eventually("the jobs are on time", async || late_work.lateness().is_zero()).await;
    assert_eq!(shop.create("late").await.status, 201, "a refused request may be repeated");
    shop.t.run_for(secs(1_800)).await;
    assert_eq!(shop.t.count("SELECT count(*) FROM orders").await, 3);
    assert_eq!(shop.t.count("SELECT count(*) FROM orders WHERE closed_at IS NULL").await, 0);
    shop.t.assert_sound().await;
}

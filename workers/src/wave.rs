//! Queue: `dispatch-timeout-queue`.
//!
//! `wave:{order}:{n}:{k}`: starts wave k of attempt n, which asks further drivers in a wider circle. The attempt keeps
//! its deadline. The offers of earlier waves stay live.
//!
//! If the process dies before the commit, the job runs again and ranks the drivers again. After the commit the repeated
//! job is superseded, because the row has the next wave.

use jobs::StartWave;
use model::fleet::decide;

use orders::{
    capability::Orders,
    fleet::candidates,
    step::{self, Step},
};
use queue::{Job, Outcome};

pub async fn perform_wave(orders: Orders, job: StartWave) -> Outcome {
    let orders = &orders;
    step::run_step(orders, &job.order, &job.id(), |s| async move {
        let (ranked, policy) = candidates::rank_for_next_wave(orders, &s).await?;
        Ok(Step::write(decide::start_wave(&s, ranked, &policy), s))
    })
    .await
}

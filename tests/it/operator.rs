//! What operators do with single jobs and with dead letters, and what is kept of it.

mod binding_explain;
mod commands;
mod explain;
mod jobs;
mod mirror;
mod requeue;

use crate::support::{by, secs};
use app::App;
use desk::dead_letters::{
    decide::DecisionAuthor,
    walk::{self, DeadSelection},
};
use queue::{
    JobId, LeaseToken, Outcome,
    store::{DeadEntry, TakeAnswer, TakeMode, TakeRequest},
};

fn job(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

fn anna() -> DecisionAuthor {
    DecisionAuthor { who: by("operator:anna"), why: Some("routing is back".to_owned()) }
}

/// Everything that is due dies of this. Answers how many.
pub(crate) async fn bury_due(app: &App, error: &str) -> usize {
    let queues = ::jobs::queues::ALL.map(|queue| (queue, 500));
    let registry = workers::registry::build_registry(app);
    let mut buried = 0;
    for turn in 0.. {
        let token = LeaseToken::new("undertaker", turn);
        let request = TakeRequest { queues: &queues, token: &token, lease: secs(8), mode: TakeMode::Normal };
        let TakeAnswer::Jobs { jobs, .. } = app.core.store.take(&request).await.unwrap() else { panic!("no epoch") };
        if jobs.is_empty() {
            break;
        }
        let settles: Vec<_> =
            jobs.iter().map(|leased| registry.settle(leased, Outcome::Dead(error.to_owned()))).collect();
        app.core.store.settle(&settles).await.unwrap();
        buried += jobs.len();
    }
    buried
}

/// All that is dead in Redis.
async fn dead(app: &App) -> Vec<DeadEntry> {
    let page = walk::list_page(&app.core, &DeadSelection::default(), None, 10_000).await.unwrap();
    assert_eq!(page.next, None);
    page.entries
}

async fn dead_ids(app: &App) -> Vec<String> {
    dead(app).await.into_iter().map(|entry| entry.id).collect()
}

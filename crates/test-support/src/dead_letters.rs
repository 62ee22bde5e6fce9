//! Dead letters: jobs that die at once, and the dead jobs in Redis.

use app::App;
use desk::dead_letters::walk::{self, DeadSelection};
use queue::{
    JobId, LeaseToken, Outcome,
    store::{DeadEntry, TakeAnswer, TakeMode, TakeRequest},
};
use workers::registry::build_registry;

use crate::secs;

/// Parses a job id.
pub fn job(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

/// Settles every due job as dead with this error, and returns their number.
pub async fn bury_due(app: &App, error: &str) -> usize {
    let queues = jobs::queues::ALL.map(|queue| (queue, 500));
    let registry = build_registry(app);
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

/// Lists all dead letters in Redis.
pub async fn dead(app: &App) -> Vec<DeadEntry> {
    let page = walk::list_page(&app.core, &DeadSelection::default(), None, 10_000).await.unwrap();
    assert_eq!(page.next, None);
    page.entries
}

/// Lists the ids of all dead letters in Redis.
pub async fn dead_ids(app: &App) -> Vec<String> {
    dead(app).await.into_iter().map(|entry| entry.id).collect()
}

//! The one list of all jobs and who performs them.

use workers::{Delivery, Job, Outcome, Registry};

use crate::{app::App, compensation, dispatch, notifications, periodic};

pub fn registry(app: &App) -> Registry {
    let registry = Registry::new();
    let registry = on(registry, app, dispatch::dispatch::perform);
    let registry = on(registry, app, dispatch::timeout::perform);
    let registry = on(registry, app, dispatch::lifetime::perform);
    let registry = on(registry, app, compensation::compensate::perform);
    let registry = on(registry, app, notifications::notify::perform);
    let registry = on(registry, app, notifications::escalate::perform);
    let registry = on(registry, app, notifications::escalate::remind);
    let registry = on(registry, app, notifications::alarm::perform);
    on(registry, app, periodic::tick::perform)
}

fn on<J, F, Fut>(registry: Registry, app: &App, perform: F) -> Registry
where
    J: Job,
    F: Fn(App, J) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let app = app.clone();
    registry.register::<J, _, _>(move |job: J, _: Delivery| perform(app.clone(), job))
}

//! What a client was answered is kept, and a short outage of Postgres needs no person.

mod batches;
mod commits;
mod creations;
mod hang_ups;
mod outages;
mod waits;

use servers::TcpProxy;

use crate::support::TestApp;
use app::App;
use foundation::{db, loops::LoopRegistry};
use settings::Config;

/// The configuration with a way to Postgres that can be broken.
fn config_behind(t: &TestApp, proxy: &TcpProxy) -> Config {
    let mut config = (*t.app.config).clone();
    let port = |port: u16| format!(":{port}/");
    config.database.url = config.database.url.replace(&port(t.postgres.port()), &port(proxy.port()));
    config
}

async fn behind(t: &TestApp, proxy: &TcpProxy, loops: LoopRegistry) -> App {
    let config = config_behind(t, proxy);
    let pool = db::connect_pool(&config.database).await.unwrap();
    let app = App::new(config, pool, t.app.core.store.clone()).unwrap();
    app.with_core(|parts| parts.loops = loops)
}

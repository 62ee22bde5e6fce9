//! The application with a breakable connection to Postgres.

use app::App;
use foundation::{db, loops::LoopRegistry};
use servers::TcpProxy;
use settings::Config;

use crate::TestApp;

/// Returns the configuration of the application with the proxy in front of Postgres.
pub fn config_behind(t: &TestApp, proxy: &TcpProxy) -> Config {
    let mut config = (*t.app.config).clone();
    let port = |port: u16| format!(":{port}/");
    config.database.url = config.database.url.replace(&port(t.postgres.port()), &port(proxy.port()));
    config
}

/// Connects a second application to the same servers, with the proxy in front of Postgres.
pub async fn app_behind(t: &TestApp, proxy: &TcpProxy, loops: LoopRegistry) -> App {
    let config = config_behind(t, proxy);
    let pool = db::connect_pool(&config.database).await.unwrap();
    let app = App::new(config, pool, t.app.core.store.clone()).unwrap();
    app.with_core(|parts| parts.loops = loops)
}

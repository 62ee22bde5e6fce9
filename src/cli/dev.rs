//! `dispatchq dev`: everything on this machine, with its own Redis and Postgres, whose data stays in `.dispatchq/`.

use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use servers::{Postgres, Redis};

use super::{serve, signals};
use crate::{
    app::App,
    config::Config,
    db, http,
    people::api_keys::{self, Role},
    telemetry,
    worker::process,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where Redis, Postgres and the key keep their data
    #[arg(long, default_value = ".dispatchq", value_name = "DIR")]
    data: PathBuf,
    /// Listen here instead of http.bind
    #[arg(long, value_name = "HOST:PORT")]
    bind: Option<String>,
}

impl Args {
    pub(super) async fn run(self, config_file: Option<&Path>) -> anyhow::Result<ExitCode> {
        let mut config = Config::load(config_file)?;
        telemetry::init_logs(&config.log)?;
        let stop = signals::stop_token()?;
        std::fs::create_dir_all(&self.data).with_context(|| format!("cannot make {}", self.data.display()))?;
        let data = self.data.canonicalize()?;
        let bind = self.bind.unwrap_or_else(|| config.http.bind.clone());
        let listener = http::server::bind(&bind, "http.bind (or --bind)").await?;

        let mut redis = Redis::start_in(&data.join("redis"), None).await?;
        let mut postgres = Postgres::start_in(&data.join("postgres"), None).await?;
        config.redis.url = redis.url();
        config.database.url = postgres.url();
        let pool = db::connect(&config.database).await?;
        db::migrate(&pool).await?;
        db::publish_service_types(&pool, &config).await?;
        let app = App::connect(config).await?;
        let key = admin_key(&app, &data.join("api-key")).await?;

        let address = listener.local_addr()?;
        println!("API       http://{address}/api/v1/orders");
        println!("Key       {key}");
        if !app.config.http.admin_bind.is_empty() {
            println!("Metrics   http://{}/metrics", app.config.http.admin_bind);
        }
        println!("Postgres  {}", postgres.url());
        println!("Redis     {}", redis.url());
        println!("Data      {}", data.display());
        println!("\nTry:  curl -s http://{address}/api/v1/orders -H 'Authorization: Bearer {key}' \\");
        println!("        -H 'Content-Type: application/json' \\");
        println!(
            "        -d '{{\"service_type\": \"RIDE\", \"pickup\": {{\"latitude\": -6.2088, \"longitude\": 106.8456}}}}'"
        );
        println!("\nCtrl-C ends it; the data stays.");

        let admin = match serve::admin(&app, &app.config.http.admin_bind, "http.admin_bind", &stop).await {
            Ok(admin) => admin,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "There will be no /metrics.");
                None
            }
        };
        let queues = process::queues(&app, &[], None)?;
        let serve = http::server::serve(listener, http::api(app.clone()), stop.clone());
        let work = process::run(app.clone(), queues, stop.clone());
        let (served, worked) = tokio::join!(serve, work);
        if let Some(admin) = admin {
            admin.await??;
        }
        app.db.close().await;
        redis.stop().await?;
        postgres.stop().await?;
        served?;
        worked?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A key for everything, kept in a file only its owner reads.
async fn admin_key(app: &App, file: &Path) -> anyhow::Result<String> {
    if let Ok(key) = std::fs::read_to_string(file)
        && api_keys::find(&app.db, key.trim()).await?.is_some()
    {
        return Ok(key.trim().to_owned());
    }
    let (_, key) = api_keys::create(&app.db, "dev", Role::Admin, None).await?;
    let mut out = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    writeln!(out, "{key}")?;
    Ok(key)
}

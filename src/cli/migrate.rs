//! `dispatchq migrate`: the schema, and what producers in SQL must know of the configuration.

use std::process::ExitCode;

use crate::{config::Config, db};

pub(super) async fn run(config: Config) -> anyhow::Result<ExitCode> {
    let pool = db::connect(&config.database).await?;
    db::migrate(&pool).await?;
    db::publish_service_types(&pool, &config).await?;
    println!("The schema is up to date.");
    Ok(ExitCode::SUCCESS)
}

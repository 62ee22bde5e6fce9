//! `dispatchq migrate`: migrates the schema, and publishes the service types for producers in SQL.

use std::process::ExitCode;

use super::output;
use foundation::db::{self, history_days};
use maintenance::proof::violations;
use settings::Config;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only add missing days of the history, and drop days past retention.events
    #[arg(long)]
    partitions: bool,
    #[arg(long, requires = "partitions")]
    json: bool,
}

impl Args {
    pub(super) async fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        if self.partitions {
            return self.keep_days(&config).await;
        }
        anyhow::ensure!(
            !config.database.pooler,
            "a migration needs its own session: point DISPATCHQ_DATABASE__URL directly at Postgres and set \
             DISPATCHQ_DATABASE__POOLER=false for this command"
        );
        let pool = db::connect_pool(&config.database).await?;
        db::migrate_schema(&pool).await?;
        orders::service_types::publish(&pool, &config).await?;
        println!("The schema is up to date.");
        let open = violations::count_open(&pool).await?;
        if open > 0 {
            eprintln!("Warning: the history has {open} open violations. See: dispatchq check status");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Adds and drops days of the history. Exits with 1 if a day was postponed, so that the timer that runs the command
    /// reports a failure.
    async fn keep_days(self, config: &Config) -> anyhow::Result<ExitCode> {
        let Some(report) = history_days::keep_days(&config.database, config.retention.events).await? else {
            println!("Another process is doing this now.");
            return Ok(ExitCode::SUCCESS);
        };
        if self.json {
            output::print_json(&report)?;
        } else {
            println!("{} days of the history added, {} dropped.", report.added.len(), report.dropped.len());
            for postponed in &report.postponed {
                output::print_escaped(&format!("Postponed: {postponed}"));
            }
        }
        Ok(if report.postponed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

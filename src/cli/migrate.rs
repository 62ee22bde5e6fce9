//! `dispatchq migrate`: the schema, and what producers in SQL must know of the configuration.

use std::process::ExitCode;

use super::output;
use foundation::db::{self, history_days};
use settings::Config;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only add the days of the history that are missing, and drop those past retention.events
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
            "a migration needs a session of its own: set DISPATCHQ_DATABASE__URL straight to Postgres and \
             DISPATCHQ_DATABASE__POOLER=false for this command"
        );
        let pool = db::connect_pool(&config.database).await?;
        db::migrate_schema(&pool).await?;
        orders::service_types::publish(&pool, &config).await?;
        println!("The schema is up to date.");
        Ok(ExitCode::SUCCESS)
    }

    /// Fails when something was postponed, so that the timer that runs it reports a failure.
    async fn keep_days(self, config: &Config) -> anyhow::Result<ExitCode> {
        let Some(report) = history_days::keep_days(&config.database, config.retention.events).await? else {
            println!("Another process is at it.");
            return Ok(ExitCode::SUCCESS);
        };
        if self.json {
            output::print_json(&report)?;
        } else {
            println!("{} days of the history added, {} dropped.", report.added.len(), report.dropped.len());
            for postponed in &report.postponed {
                output::print_escaped(&format!("Not yet: {postponed}"));
            }
        }
        Ok(if report.postponed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

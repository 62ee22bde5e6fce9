//! `dispatchq provider-sim`: a simulated provider of transactions for trials and benchmarks. It checks every call.

use std::process::ExitCode;

use serde_json::json;

use super::{output, signals};
use provider_sim::{ProviderSim, ProviderSimOptions};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    options: ProviderSimOptions,
    /// Print one line of JSON at the start and one at the end
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let stop = signals::stop_token()?;
        let provider = ProviderSim::start(&self.options).await?;
        let (url, control, api_key) = (provider.url(), provider.control_url(), &self.options.api_key);
        if self.json {
            output::print_text(&json!({ "url": url, "control_url": control, "api_key": api_key }).to_string());
        } else {
            output::print_text(&format!(
                "Servers  {url}/servers/NAME\nKey      {api_key}\nControl  {control}/_sim/state\n\nPress Ctrl-C to stop."
            ));
        }
        stop.cancelled().await;
        let report = serde_json::to_value(provider.read_report())?;
        if self.json {
            output::print_text(&report.to_string());
        } else {
            let lines = report.as_object().into_iter().flatten();
            let lines: Vec<_> =
                lines.map(|(name, count)| format!("{:<24}{count:>12}", name.replace('_', " "))).collect();
            output::print_text(&format!("\n{}", lines.join("\n")));
        }
        Ok(ExitCode::SUCCESS)
    }
}

//! `dispatchq partner-sim`: a simulated taxi partner for trials and benchmarks.

use std::process::ExitCode;

use serde_json::json;

use super::{output, signals};
use partner_sim::{PartnerSim, PartnerSimOptions};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    options: PartnerSimOptions,
    /// Print one line of JSON at the start and one at the end
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let stop = signals::stop_token()?;
        let partner = PartnerSim::start(&self.options).await?;
        let (url, control) = (partner.url(), partner.control_url());
        let PartnerSimOptions { api_key, callback_secret, .. } = &self.options;
        let callback_url = self.options.knobs.callback_url.as_deref();
        if self.json {
            let started = json!({ "url": url, "control_url": control, "callback_url": callback_url,
                                  "api_key": api_key, "callback_secret": callback_secret });
            output::print_text(&started.to_string());
        } else {
            output::print_text(&format!(
                "Partner    {url}\nKey        {api_key}\nCallbacks  {}\nSecret     {callback_secret}\nControl    {control}/_sim/state\n\
                 \nPress Ctrl-C to stop.",
                callback_url.unwrap_or("none (--callback-url)"),
            ));
        }
        stop.cancelled().await;
        let report = partner.read_report();
        if self.json {
            output::print_text(&serde_json::to_string(&report)?);
        } else {
            output::print_text(&format!("\n{}{:<24}{:>12}", report.counters, "bookings open", report.open_bookings));
        }
        Ok(ExitCode::SUCCESS)
    }
}

//! The simulated provider as a separate process, and its verdict about its callers.

use std::time::Duration;

use anyhow::{Context, bail};
use model::binding::ServerId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{BindingsOptions, PROVIDER_LATENCY};
use crate::testbed::processes::ChildProcesses;

/// Name in the configuration, and key of the callers.
pub(super) const NAME: &str = "sim";
pub(super) const API_KEY: &str = "bench-key";

const COMMAND: &str = "provider-sim";
const START_WAIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(20);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Provider process. It ends with the other processes of the testbed.
#[derive(Debug)]
pub(super) struct ProviderProcess {
    pub(super) pid: u32,
    address: ProviderAddress,
    http: reqwest::Client,
}

/// First output line of the process.
#[derive(Debug, Deserialize)]
struct ProviderAddress {
    url: String,
    control_url: String,
}

/// Counts of the provider's judge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JudgeVerdict {
    pub(super) calls: u64,
    pub(super) max_open: u64,
    pub(super) max_open_per_server: u64,
    pub(super) overlaps: u64,
    pub(super) over_admissions: u64,
    pub(super) keys_differing: u64,
    pub(super) duplicates: u64,
    pub(super) gaps: u64,
    pub(super) cycles_backwards: u64,
    pub(super) late_refused: u64,
}

impl ProviderProcess {
    pub(super) async fn start(processes: &mut ChildProcesses, options: &BindingsOptions) -> anyhow::Result<Self> {
        let latency = format!("{}ms", PROVIDER_LATENCY.as_millis());
        let (calls, per_server) = (options.calls.to_string(), options.calls_per_server.to_string());
        let limits: [&str; 4] = ["--max-open", &calls, "--max-open-per-server", &per_server];
        let others: [&str; 5] = ["--json", "--api-key", API_KEY, "--latency", &latency];
        let pid = processes.start_beside(COMMAND, &[&others[..], &limits[..]].concat())?;
        let address = wait_for_address(processes).await?;
        let http = foundation::outbound::client_builder().no_proxy().timeout(ANSWER_TIMEOUT).build()?;
        Ok(Self { pid, address, http })
    }

    /// Returns the base URL of one server's API.
    pub(super) fn server_url(&self, server: &ServerId) -> String {
        format!("{}/servers/{server}", self.address.url)
    }

    /// Returns the counts since the provider started.
    pub(super) async fn read_verdict(&self) -> anyhow::Result<JudgeVerdict> {
        let url = format!("{}/_sim/state", self.address.control_url);
        let answer = self.http.get(url).send().await.and_then(reqwest::Response::error_for_status);
        answer
            .context("the simulated provider does not answer")?
            .json()
            .await
            .context("the provider's verdict is not JSON")
    }
}

async fn wait_for_address(processes: &mut ChildProcesses) -> anyhow::Result<ProviderAddress> {
    let deadline = Instant::now() + START_WAIT;
    loop {
        let address = processes.read_log(COMMAND).lines().find_map(|line| serde_json::from_str(line).ok());
        if let Some(address) = address {
            return Ok(address);
        }
        if let Some(ended) = processes.replace_ended()?.pop() {
            bail!("{ended}");
        }
        if Instant::now() >= deadline {
            bail!("the provider is not ready within {START_WAIT:?}; {}", processes.log_tail(COMMAND));
        }
        sleep(START_POLL).await;
    }
}

impl JudgeVerdict {
    /// Returns all counts as JSON. The most important ones are also on the top level.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "over_admissions": self.over_admissions,
            "overlaps": self.overlaps,
            "late_refused": self.late_refused,
            "gaps": self.gaps,
            "judge": self,
        })
    }

    /// Returns a line for each kind of violation. The provider counts a gap for a cycle whose start never arrived, so
    /// `never_arrived` gaps are explained.
    pub(super) fn find_violations(&self, never_arrived: u64) -> Vec<String> {
        let counts = [
            ("calls arrived while another call of their binding was open", self.overlaps),
            ("calls arrived while the limit of open calls was reached", self.over_admissions),
            ("keys were repeated with other content", self.keys_differing),
            ("cycles were skipped without a start that never arrived", self.gaps.saturating_sub(never_arrived)),
            ("cycles started after a later one", self.cycles_backwards),
        ];
        let found = counts.into_iter().filter(|(_, count)| *count > 0);
        found.map(|(what, count)| format!("the provider's judge: {count} {what}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_calls_and_explained_gaps_are_allowed() {
        let clean =
            JudgeVerdict { calls: 9, max_open: 3, duplicates: 2, late_refused: 4, gaps: 1, ..JudgeVerdict::default() };
        assert_eq!(clean.find_violations(1), Vec::<String>::new());
        assert_eq!(clean.find_violations(0).len(), 1);
        let bad = JudgeVerdict { overlaps: 2, ..clean };
        assert_eq!(
            bad.find_violations(1),
            ["the provider's judge: 2 calls arrived while another call of their binding was open"]
        );
    }
}

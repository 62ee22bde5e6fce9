//! `dispatchq binding otp`.

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::{Context, ensure};
use model::binding::{BindingId, TrxId};
use serde_json::json;

use crate::cli::{output, remote::ApiClient};

/// Maximum bytes read from standard input. Longer lines are not an OTP.
const MOST_BYTES: u64 = 256;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct OtpArgs {
    id: BindingId,
    /// Transaction that waits for the OTP, as `binding show` prints it
    #[arg(long, value_name = "TRX_ID")]
    trx: TrxId,
}

impl OtpArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let body = json!({ "trx_id": self.trx, "otp": self.ask_otp()? });
        let answer = api.post(&["bindings", self.id.as_str(), "otp"], &body).await?;
        self.print_stored(answer["changed"] == true);
        Ok(())
    }

    fn ask_otp(&self) -> anyhow::Result<String> {
        if io::stdin().is_terminal() {
            output::print_note(&format!("Type the OTP for {}, then press Enter:", self.trx));
        }
        read_line()
    }

    fn print_stored(&self, has_changed: bool) {
        println!("The OTP for {} is stored{}.", self.trx, if has_changed { "" } else { " already" });
        output::print_note(&format!("See the result: dispatchq binding explain {}", self.id));
    }
}

fn read_line() -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().lock().take(MOST_BYTES).read_line(&mut line).context("cannot read the OTP")?;
    let otp = line.trim();
    ensure!(!otp.is_empty(), "no OTP on standard input: one line is read");
    Ok(otp.to_owned())
}

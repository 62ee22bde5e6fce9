//! Checks that docs/PARTNER.md matches the simulator.

use clap::Args;
use standardwebhooks::Webhook;

use super::*;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PARTNER.md")).unwrap()
}

/// Returns the first line of the page that starts with `begin`.
fn line(begin: &str) -> String {
    page().lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}")).to_owned()
}

#[test]
fn every_knob_is_on_the_page_with_its_default() {
    let sim = PartnerSimOptions::augment_args(clap::Command::new("partner-sim"));
    let page = page();
    let table: Vec<_> = page.lines().filter(|line| line.starts_with("| `--")).collect();
    let knobs = sim.get_arguments().filter(|arg| arg.get_help_heading().is_some());
    let mut count = 0;
    for arg in knobs {
        let name = format!("`--{}`", arg.get_long().unwrap());
        let row = table.iter().find(|row| row.contains(&name)).unwrap_or_else(|| panic!("{name} is not on the page"));
        for default in arg.get_default_values() {
            let default = default.to_str().unwrap();
            assert!(row.split('|').nth(2).unwrap().contains(default), "{name} is {default}: {row}");
        }
        count += 1;
    }
    // The page lists all knobs except the two that are only set at run time.
    let fields = serde_json::to_value(PartnerKnobs::default()).unwrap();
    assert_eq!(fields.as_object().unwrap().len(), count + 2);
}

#[test]
fn documented_signature_matches_its_callback() {
    let secret = line("`whsec_").split('`').nth(1).unwrap().to_owned();
    assert_eq!(secret, PartnerSimOptions::default().callback_secret);
    let webhook = Webhook::new(&secret).unwrap();
    let value = |header: &str| line(&format!("{header}: ")).split_once(": ").unwrap().1.to_owned();
    let timestamp = value("webhook-timestamp").parse().unwrap();
    let body = line("{\"event_id\"");
    let signature = webhook.sign(&value("webhook-id"), timestamp, body.as_bytes()).unwrap();
    assert_eq!(signature, value("webhook-signature"));
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["event_id"], value("webhook-id"));
}

#[tokio::test]
async fn the_examples_on_the_page_are_answered_as_it_says() {
    let partner = start(
        1.0,
        PartnerKnobs { driver_delay: "1h".parse().unwrap(), job_id_delay: "0s".parse().unwrap(), ..smooth() },
    )
    .await;
    let booking = partner.booked("ORD-1:1").await;
    assert_eq!(json!({ "booking_id": booking }), serde_json::from_str::<Value>(&line("{\"booking_id\": \"")).unwrap());
    eventually("a job id", || async { partner.poll(&booking).await.body["job_id"].is_string() }).await;
    let page = page();
    let said: Vec<Value> = page.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for answer in [partner.poll(&booking).await.body, partner.cancel(&booking).await.body] {
        assert!(said.contains(&answer), "{answer} is not on the page");
    }
}

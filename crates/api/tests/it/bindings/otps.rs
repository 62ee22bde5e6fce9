//! OTPs that people submit.

use provider_sim::ProviderKnobs;
use serde_json::{Value, json};

use super::{BINDINGS, Desk, outcome};
use test_support::{Answer, secs};

fn wants_otps(knobs: &mut ProviderKnobs) {
    knobs.otp_rate = "1".parse().unwrap();
}

fn otp(trx_id: &str, otp: &str) -> Value {
    json!({ "trx_id": trx_id, "otp": otp })
}

impl Desk {
    async fn hand_in(&self, idempotency_key: &str, body: Value) -> Answer {
        self.api.post_once(&format!("{BINDINGS}/B-1/otp"), &self.support, idempotency_key, body).await
    }

    async fn status_of(&self, trx_id: &str) -> Value {
        self.get(&format!("/api/v1/transactions/{trx_id}")).await.body["transaction"]["status"].clone()
    }
}

#[tokio::test]
async fn an_otp_is_stored_once_and_sent() {
    let desk = Desk::with(wants_otps).await;
    desk.run_binding("B-1", json!({ "otp_attempts": 2 })).await;
    desk.run_due().await;
    assert_eq!(desk.standing("B-1").await, ("RUNNING".to_owned(), "WAITING_OTP".to_owned()));

    assert_eq!(desk.hand_in("", otp("B-2.1", "123456")).await.error(), (404, "TRANSACTION_NOT_FOUND"));
    assert_eq!(desk.hand_in("", otp("B-1.2", "123456")).await.error(), (404, "TRANSACTION_NOT_FOUND"));
    for bad in [otp("B-1.1", ""), otp("B-1.1", "1 2"), otp("B-1.1", &"1".repeat(65)), json!({ "otp": "1" })] {
        assert_eq!(desk.hand_in("", bad).await.error(), (422, "INVALID"));
    }
    let stored = desk.hand_in("", otp("B-1.1", "987654")).await;
    assert_eq!(outcome(&stored), ("RUNNING", true, ""));
    assert!(stored.body["binding"].get("otp_value").is_none() && !stored.body.to_string().contains("987654"));
    assert_eq!(desk.hand_in("", otp("B-1.1", "123456")).await.error(), (409, "OTP_STORED"));
    desk.run_due().await;
    // The OTP was wrong, so the binding waits for another one.
    assert_eq!(desk.status_of("B-1.1").await, "WAITING_OTP");
    assert_eq!(outcome(&desk.hand_in("", otp("B-1.1", "123456")).await), ("RUNNING", true, ""));
    desk.run_due().await;
    assert_eq!(desk.status_of("B-1.1").await, "SUKSES");
    assert_eq!(desk.hand_in("", otp("B-1.1", "123456")).await.error(), (410, "OTP_OVER"));
}

#[tokio::test]
async fn an_otp_that_comes_too_late_is_gone() {
    let desk = Desk::with(wants_otps).await;
    desk.run_binding("B-1", json!({})).await;
    desk.run_due().await;
    desk.advance(secs(600)).await;
    assert_eq!(desk.hand_in("", otp("B-1.1", "123456")).await.error(), (410, "OTP_OVER"));
}

#[tokio::test]
async fn an_otp_that_is_not_wanted_is_refused() {
    let desk = Desk::with(|knobs| {
        knobs.processing_rate = "1".parse().unwrap();
        knobs.processing_duration = "1h".parse().unwrap();
    })
    .await;
    desk.run_binding("B-1", json!({})).await;
    desk.run_due().await;
    assert_eq!(desk.hand_in("", otp("B-1.1", "123456")).await.error(), (409, "OTP_NOT_WANTED"));
}

#[tokio::test]
async fn repeated_otp_returns_the_first_answer() {
    let desk = Desk::with(wants_otps).await;
    desk.run_binding("B-1", json!({})).await;
    desk.run_due().await;
    let first = desk.hand_in("k1", otp("B-1.1", "123456")).await;
    assert_eq!(outcome(&first), ("RUNNING", true, ""));
    assert_eq!(desk.hand_in("k1", otp("B-1.1", "123456")).await, Answer { replayed: true, ..first });
    assert_eq!(desk.hand_in("k1", otp("B-1.1", "654321")).await.error(), (422, "IDEMPOTENCY_KEY_REUSED"));

    // The process that stored the OTP died before it answered.
    desk.sql("UPDATE idempotency_keys SET status = NULL, body = NULL").await;
    desk.advance(secs(61)).await;
    let again = desk.hand_in("k1", otp("B-1.1", "123456")).await;
    assert_eq!(outcome(&again), ("RUNNING", false, "already submitted"));
    assert_eq!(desk.count("SELECT count(*) FROM binding_events WHERE kind = 'otp_submitted'").await, 1);
    desk.run_due().await;
    assert_eq!(desk.status_of("B-1.1").await, "SUKSES");
    assert_eq!(desk.count("SELECT count(*) FROM bindings WHERE otp_value IS NOT NULL").await, 0);
}

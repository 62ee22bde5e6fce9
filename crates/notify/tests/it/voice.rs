//! Offers by phone call: a provider like Twilio, keys that drivers press, and calls that are not answered.

use axum::http::StatusCode;
use reqwest::Url;
use uuid::Uuid;

use model::order::OrderStatus;
use notify::channels::voice::CallEvent;
use settings::{ChannelConfig, Config, VoiceConfig};
use test_support::{Api, Receiver, TestApp, http_client, ids};

fn by_phone(config: &mut Config, receiver: &Receiver, language: &str) {
    let voice = VoiceConfig {
        url: receiver.url(""),
        account: "AC1".to_owned(),
        token: Some("0123456789abcdef0123456789abcdef".to_owned()),
        from: "+15550100000".to_owned(),
        callback_url: "https://dispatch.example.com".to_owned(),
        language: language.to_owned(),
        ..VoiceConfig::default()
    };
    config.channels.insert("calls".to_owned(), ChannelConfig::Voice(voice));
    config.notifications.driver_by_service_type.insert("RIDE".into(), vec!["calls".to_owned()]);
}

struct Phones {
    t: TestApp,
    api: Api,
    receiver: Receiver,
}

/// Creates two drivers with phones; the nearer one is being called about ORD-1.
async fn calling() -> Phones {
    calling_in("en-US").await
}

async fn calling_in(language: &str) -> Phones {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| by_phone(config, &receiver, language)).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.sql("UPDATE drivers SET phone = '+628123456' || right(id, 1)").await;
    let api = Api::start(&t.app).await;
    t.order("ORD-1").await;
    t.run_due().await;
    Phones { t, api, receiver }
}

impl Phones {
    /// Returns the message id of the latest call.
    async fn message(&self) -> Uuid {
        self.t.texts("SELECT message_id::text FROM outbox ORDER BY id DESC LIMIT 1").await[0].parse().unwrap()
    }

    /// Sends a callback of the provider about a call.
    async fn callback(&self, event: CallEvent, message: Uuid, fields: &[(&str, &str)]) -> (u16, String) {
        let owned: Vec<_> = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let signature =
            self.t.app.notify.channels.voice_channel("calls").unwrap().sign_callback(event, message, &owned);
        self.signed(event, message, fields, &signature).await
    }

    async fn signed(&self, event: CallEvent, message: Uuid, fields: &[(&str, &str)], signature: &str) -> (u16, String) {
        let path = format!("/api/v1/voice/calls/{}?message={message}", event.url_path());
        let mut form = Url::parse("form:?").unwrap();
        form.query_pairs_mut().extend_pairs(fields);
        let request = http_client().post(self.api.url(&path)).header("x-twilio-signature", signature);
        let request = request.header("content-type", "application/x-www-form-urlencoded; charset=UTF-8");
        let answer = request.body(form.query().unwrap_or_default().to_owned()).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

#[tokio::test]
async fn call_is_spoken_in_the_channel_language() {
    let p = calling_in("id-ID").await;
    let call = p.receiver.received().remove(0);
    let form = Url::parse(&format!("form:?{}", std::str::from_utf8(&call.bytes).unwrap())).unwrap();
    let script = form.query_pairs().find(|(name, _)| name == "Twiml").unwrap().1.into_owned();
    let offered = "<Say language=\"id-ID\">Pesanan RIDE baru, 0,1 kilometer dari Anda. Tekan 1 untuk mengambil, 2 untuk \
                   menolak.</Say>";
    assert!(script.contains(offered), "{script}");
    let (_, said) = p.callback(CallEvent::Answer, p.message().await, &[("Digits", "2")]).await;
    assert!(said.contains("<Say language=\"id-ID\">Anda telah menolak.</Say>"), "{said}");
    p.t.run_due().await;
    p.t.assert_sound().await;
}

#[tokio::test]
async fn called_driver_accepts_by_pressing_1() {
    let p = calling().await;
    let call = p.receiver.received().remove(0);
    assert_eq!(call.path, "/2010-04-01/Accounts/AC1/Calls.json");
    assert_eq!(call.headers["authorization"], "Basic QUMxOjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm");
    let form = Url::parse(&format!("form:?{}", std::str::from_utf8(&call.bytes).unwrap())).unwrap();
    let field = |name: &str| form.query_pairs().find(|(n, _)| n == name).unwrap().1.into_owned();
    let message = p.message().await;
    assert_eq!((field("To"), field("From")), ("+6281234561".to_owned(), "+15550100000".to_owned()));
    assert!(field("Twiml").contains("Press 1 to take it, 2 to decline."), "{}", field("Twiml"));
    let expected = format!("https://dispatch.example.com/api/v1/voice/calls/status?message={message}");
    assert_eq!(field("StatusCallback"), expected);

    let (status, said) = p.callback(CallEvent::Answer, message, &[("CallSid", "CA1"), ("Digits", "1")]).await;
    assert_eq!(status, 200);
    assert!(said.contains("The job is yours."), "{said}");
    assert_eq!(p.t.status("ORD-1").await, OrderStatus::DriverAssigned);
    // The provider reports twice that the call is completed.
    for _ in 0..2 {
        assert_eq!(p.callback(CallEvent::Status, message, &[("CallStatus", "completed")]).await.0, 200);
    }
    let (_, again) = p.callback(CallEvent::Answer, message, &[("Digits", "1")]).await;
    assert!(again.contains("The job is yours."), "{again}");
    p.t.assert_sound().await;
}

#[tokio::test]
async fn declined_or_missed_call_asks_next_driver() {
    let p = calling().await;
    let first = p.message().await;
    let (_, said) = p.callback(CallEvent::Answer, first, &[("Digits", "2")]).await;
    assert!(said.contains("You have declined."), "{said}");
    assert_eq!(ids(&p.t.run_due().await)[0], "timeout:ORD-1:1");
    assert_eq!(p.t.asked("ORD-1").await, "D2");
    let (_, late) = p.callback(CallEvent::Answer, first, &[("Digits", "1")]).await;
    assert!(late.contains("This offer is no longer open."), "{late}");

    let second = p.message().await;
    assert_eq!(p.callback(CallEvent::Status, second, &[("CallStatus", "no-answer")]).await.0, 200);
    assert_eq!(p.t.reasons("ORD-1").await.last().unwrap(), "OFFER_WITHDRAWN");
    let why = p.t.texts("SELECT reason FROM offers WHERE state = 'withdrawn'").await.remove(0);
    assert_eq!(why, "D2: the call ended as no-answer");
    p.t.run_due().await;
    p.t.assert_sound().await;
}

#[tokio::test]
async fn call_without_key_ends_voice_only_offer() {
    let p = calling().await;
    assert_eq!(p.callback(CallEvent::Status, p.message().await, &[("CallStatus", "completed")]).await.0, 200);
    assert_eq!(p.t.reasons("ORD-1").await.last().unwrap(), "OFFER_WITHDRAWN");
    p.t.run_due().await;
    assert_eq!(p.t.asked("ORD-1").await, "D2");
    // The driver's app has also shown the second offer.
    let second = p.message().await;
    p.t.sql(
        "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
         SELECT order_id, kind, 'app', dedupe_key, payload, 'delivered', next_attempt_at, expires_at, created_at
         FROM outbox ORDER BY id DESC LIMIT 1",
    )
    .await;
    assert_eq!(p.callback(CallEvent::Status, second, &[("CallStatus", "busy")]).await.0, 200);
    assert_eq!(p.t.asked("ORD-1").await, "D2");
    p.t.assert_sound().await;
}

#[tokio::test]
async fn a_callback_nobody_signed_is_refused() {
    let p = calling().await;
    let message = p.message().await;
    let fields = [("Digits", "1")];
    assert_eq!(p.signed(CallEvent::Answer, message, &fields, "").await.0, 401);
    assert_eq!(p.signed(CallEvent::Answer, message, &fields, "0/KCTR6DLpKmkAf8muzZqo1nDgQ=").await.0, 401);
    assert_eq!(p.callback(CallEvent::Answer, Uuid::nil(), &fields).await.0, 200, "signed, but about nothing");
    assert_eq!(p.t.status("ORD-1").await, OrderStatus::Dispatching);
    let path = "/api/v1/voice/pager/status?message=00000000-0000-0000-0000-000000000000";
    assert_eq!(p.api.post(path, "", serde_json::json!({})).await.error(), (401, "BAD_SIGNATURE"));
}

#[tokio::test]
async fn uncallable_driver_is_skipped_at_once() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| by_phone(config, &receiver, "en-US")).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0), ("D3", 300.0)]).await;
    t.sql("UPDATE drivers SET phone = '+6281234567' WHERE id <> 'D1'").await;
    receiver.fail(StatusCode::GONE, 1);
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D3");
    let why = t.texts("SELECT reason FROM offers WHERE state = 'withdrawn' ORDER BY offered_at, driver_id").await;
    assert!(why[0].contains("the driver has no phone"), "{why:?}");
    assert!(why[1].contains("the receiver answered 410"), "{why:?}");
    t.assert_sound().await;
}

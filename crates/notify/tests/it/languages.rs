//! Customers get the reason in the language of their order, and dispatchers get messages at their own address.

use std::collections::BTreeSet;

use model::texts::{Language, TextKey};
use serde_json::{Value, json};

use accounts::{api_keys::AccountRole, users::UserAccount};
use maintenance::recovery::reconciler;
use model::messages::DISPATCH_FAILED;
use settings::{ChannelConfig, Config};
use test_support::{Api, MailServer, Receiver, TestApp, secs};

/// Configures a webhook for customers, with a custom text in Indonesian.
fn with_own_words(config: &mut Config, receiver: &Receiver) {
    config.channels.insert("customer".to_owned(), ChannelConfig::unsigned_webhook(receiver.url("/customer")));
    config.notifications.customer = vec!["customer".to_owned()];
    let own = config.notifications.texts.templates.entry(Language::Indonesian).or_default();
    own.insert(TextKey::OrderCancelled, "Halo! {reason} ({order_id})".to_owned());
}

#[tokio::test]
async fn customer_reads_the_cause_in_order_language() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| with_own_words(config, &receiver)).await;
    let api = Api::start(&t.app).await;
    let producer = t.key(AccountRole::Producer).await;
    let asked = |language: &str| {
        json!({ "order_id": "ORD-EN", "service_type": "RENT", "language": language,
                "pickup": { "latitude": -6.2088, "longitude": 106.8456 } })
    };
    assert_eq!(api.post("/api/v1/orders", &producer, asked("english")).await.error(), (422, "INVALID"));
    let created = api.post("/api/v1/orders", &producer, asked("en-GB")).await;
    assert_eq!((created.status, created.text("language")), (201, "en-GB"));
    assert_eq!(api.get("/api/v1/orders/ORD-EN", &producer).await.text("language"), "en-GB");
    t.order_of("ORD-ID", "RENT", "PAID").await;
    assert_eq!(api.get("/api/v1/orders/ORD-ID", &producer).await.body.get("language"), None);
    t.sql("SELECT dispatchq_create_order('ORD-VI', 'RENT', -6.2, 106.8, language => 'vi')").await;
    let no_tag = "SELECT dispatchq_create_order('ORD-X', 'RENT', -6.2, 106.8, language => 'Tiếng Việt')";
    assert!(sqlx::raw_sql(no_tag).execute(&t.app.core.db).await.is_err());
    t.advance(secs(5)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_for(secs(1800)).await;

    let received = receiver.received();
    let told = |order: &str, field: &str| -> Value {
        let message = received.iter().find(|m| m.body["data"]["order_id"] == order);
        message.unwrap_or_else(|| panic!("{received:?}")).body["data"][field].clone()
    };
    assert_eq!((received.len(), told("ORD-EN", "cause")), (3, json!("no_driver")));
    for (order, language, message) in [
        ("ORD-EN", "en", "Your order ORD-EN was cancelled. Sorry, we could not find a driver for you in time."),
        (
            "ORD-ID",
            "id",
            "Halo! Maaf, kami tidak berhasil menemukan pengemudi untuk Anda. (ORD-ID) \
             Uang Anda akan dikembalikan; tim kami sedang mengurusnya.",
        ),
        (
            "ORD-VI",
            "vi",
            "Đơn hàng ORD-VI của bạn đã bị hủy. Rất tiếc, chúng tôi không tìm được tài xế cho bạn kịp thời.",
        ),
    ] {
        assert_eq!((told(order, "language"), told(order, "message")), (json!(language), json!(message)));
    }
    let why = t.texts("SELECT payload->>'reason' FROM alerts WHERE kind = 'MANUAL_REFUND_REQUIRED'").await;
    assert_eq!(why, ["no driver within the lifetime of the order"], "support reads of the system");
    t.assert_sound().await;
}

#[tokio::test]
async fn each_dispatcher_is_addressed_personally() {
    let (receiver, mail) = (Receiver::start().await, MailServer::start().await);
    let t = TestApp::with(|config| {
        receiver.configure(config);
        config.channels.insert("email".to_owned(), mail.channel());
    })
    .await;
    for (user, channel) in [("anna", "email"), ("budi", "email"), ("cici", "hook")] {
        t.user(user, AccountRole::Dispatcher, channel).await;
    }
    t.sql("UPDATE users SET email = 'anna@own.example.com' WHERE id = 'anna'").await;
    t.order_of("ORD-1", "RENT", "UNPAID").await;
    t.sql("UPDATE orders SET customer_id = 'C-1'").await;
    t.run_due().await;

    let mails: BTreeSet<_> = mail.mails().into_iter().map(|mail| mail.to).collect();
    let desk = ["desk@example.com", "anna@example.com"].map(str::to_owned).to_vec();
    assert_eq!(mails, BTreeSet::from([vec!["anna@own.example.com".to_owned()], desk]), "budi has no address");
    let [told] = receiver.received().try_into().expect("one webhook");
    let data = &told.body["data"];
    assert_eq!((&told.body["type"], &data["user_id"]), (&json!(DISPATCH_FAILED), &json!("cici")));
    assert_eq!((&data["user_name"], &data["customer_id"]), (&json!("cici"), &json!("C-1")));

    let user = |email: Option<&str>, phone: Option<&str>| UserAccount {
        id: "dewi".to_owned(),
        name: "Dewi".to_owned(),
        role: AccountRole::Dispatcher,
        channel: "email".to_owned(),
        email: email.map(str::to_owned),
        phone: phone.map(str::to_owned),
        scope: None,
    };
    let problem = |user: UserAccount| user.find_problem(&["email"]).unwrap_or_default();
    assert_eq!(problem(user(Some("dewi@example.com"), Some("+628123456789"))), "");
    assert!(problem(user(Some("dewi"), None)).starts_with("email must be"));
    assert!(problem(user(None, Some("0812"))).starts_with("phone must be"));
    t.assert_sound().await;
}

//! Each channel delivers a readable message under a stable id, independently of the other channels.

use std::collections::HashSet;

use axum::http::StatusCode;
use serde_json::json;

use model::{messages::MANUAL_REFUND_REQUIRED, order::OfferState};
use settings::{ChannelConfig, Config, SlackConfig, TicketConfig, WebhookConfig};
use test_support::{MailServer, Receiver, TestApp, secs};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const REFUND: &str = "🚨 Manual Refund Required\n\
    \n\
    Order ID: ORD-1\n\
    Status: CANCELLED_BY_SYSTEM_AFTER_PAYMENT\n\
    Reason: no driver within the lifetime of the order\n\
    Payment Status: PAID\n\
    Payment Amount: Rp 150,000\n\
    \n\
    Action Required:\n\
    1. Verify order details in admin panel\n\
    2. Process full refund via refund module\n\
    3. Contact customer if needed\n\
    4. Mark as resolved in support system\n\
    \n\
    Priority: High\n\
    SLA: Within 24 hours";

/// Configures Slack, e-mail and tickets as the channels of support.
fn three(config: &mut Config, receiver: &Receiver, mail: &MailServer) {
    let slack = SlackConfig { url: Some(receiver.url("/slack")), ..SlackConfig::default() };
    let ticket =
        TicketConfig { url: Some(receiver.url("/ticket")), token: Some("t0ken".to_owned()), ..TicketConfig::default() };
    config.channels.insert("slack".to_owned(), ChannelConfig::Slack(slack));
    config.channels.insert("ticket".to_owned(), ChannelConfig::Ticket(ticket));
    config.channels.insert("email".to_owned(), mail.channel());
    config.notifications.support = ["slack", "email", "ticket"].map(str::to_owned).to_vec();
}

async fn with_three() -> (Receiver, MailServer, TestApp) {
    let (receiver, mail) = (Receiver::start().await, MailServer::start().await);
    let t = TestApp::with(|config| three(config, &receiver, &mail)).await;
    (receiver, mail, t)
}

/// Creates a paid order without a driver.
async fn refund_due(t: &TestApp) {
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1800)).await;
}

async fn message_id(t: &TestApp, channel: &str) -> String {
    t.texts(&format!("SELECT message_id::text FROM outbox WHERE channel = '{channel}'")).await.remove(0)
}

#[tokio::test]
async fn refund_alert_text_matches_on_all_channels() {
    let (receiver, mail, t) = with_three().await;
    refund_due(&t).await;

    let received = receiver.received();
    let [slack] = received.iter().filter(|m| m.path == "/slack").collect::<Vec<_>>()[..] else {
        panic!("{received:?}")
    };
    assert_eq!(slack.body, json!({ "text": REFUND }));

    let [ticket] = received.iter().filter(|m| m.path == "/ticket").collect::<Vec<_>>()[..] else {
        panic!("{received:?}")
    };
    assert_eq!(ticket.headers["authorization"], "Bearer t0ken");
    let id = message_id(&t, "ticket").await;
    assert_eq!(
        (&ticket.body["external_id"], ticket.headers["idempotency-key"].to_str().unwrap()),
        (&json!(id), id.as_str())
    );
    assert_eq!(ticket.body["subject"], "🚨 Manual Refund Required: ORD-1");
    assert_eq!(ticket.body["description"], REFUND);
    assert_eq!(ticket.body["priority"], "high");
    assert_eq!(ticket.body["due_at"], "2030-01-02T08:30:00Z");
    assert_eq!(ticket.body["data"]["alert_type"], MANUAL_REFUND_REQUIRED);

    let [mail] = mail.mails().try_into().expect("one mail");
    assert_eq!(
        (mail.from.as_str(), &mail.to[..]),
        ("dispatchq@example.com", &["desk@example.com", "anna@example.com"].map(str::to_owned)[..])
    );
    assert_eq!(mail.header("Message-ID"), format!("<{}@example.com>", message_id(&t, "email").await));
    assert!(mail.header("Subject").starts_with("=?utf-8?"), "{}", mail.text);
    assert!(mail.header("Content-Type").contains("text/plain; charset=utf-8"));

    let states: HashSet<_> = t.messages("ORD-1").await.into_iter().filter(|m| m.0 == MANUAL_REFUND_REQUIRED).collect();
    let delivered = |channel: &str| (MANUAL_REFUND_REQUIRED.to_owned(), channel.to_owned(), "delivered".to_owned());
    assert_eq!(states, HashSet::from(["slack", "email", "ticket"].map(delivered)));
    t.assert_sound().await;
}

#[tokio::test]
async fn failing_channel_delays_no_other_and_recovers() {
    let (receiver, mail, t) = with_three().await;
    mail.refuse("451 try later", 5);
    refund_due(&t).await;
    assert_eq!(receiver.received().len(), 2, "Slack and the ticket do not wait for the mail");
    let mail_state = "SELECT state FROM outbox WHERE channel = 'email'";
    assert_eq!(t.texts(mail_state).await, ["pending"]);

    t.run_for(secs(600)).await;
    let mails = mail.mails();
    assert_eq!(mails.len(), 6);
    assert!(mails.iter().all(|m| m.header("Message-ID") == mails[0].header("Message-ID")));
    assert_eq!(t.texts(mail_state).await, ["delivered"]);
    let errors = t.texts("SELECT coalesce(error, 'none') FROM outbox_attempts a JOIN outbox m ON m.id = outbox_id WHERE channel = 'email' ORDER BY attempt_no").await;
    assert_eq!(errors, ["the mail server answered 451"; 5].into_iter().chain(["none"]).collect::<Vec<_>>());
    assert_eq!(receiver.received().len(), 2);
    t.assert_sound().await;
}

#[tokio::test]
async fn refused_message_is_dead_soon_410_at_once() {
    for (status, tries) in [(404, 5), (401, 5), (410, 1)] {
        let receiver = Receiver::start().await;
        let t = TestApp::with(|config| receiver.configure(config)).await;
        receiver.fail(StatusCode::from_u16(status).unwrap(), 100);
        refund_due(&t).await;
        t.run_for(secs(60)).await;
        assert_eq!(receiver.received().len(), tries, "{status}");
        let error = t.texts("SELECT last_error FROM outbox WHERE state = 'dead'").await.remove(0);
        assert_eq!(error, format!("given up after {tries} tries: the receiver answered {status}"));
        t.assert_sound().await;
    }
    let (_, mail, t) = with_three().await;
    mail.refuse("550 no such user", 100);
    refund_due(&t).await;
    t.run_for(secs(60)).await;
    assert_eq!(mail.mails().len(), 5);
    assert_eq!(t.texts("SELECT state FROM outbox WHERE channel = 'email'").await, ["dead"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_pause_gets_it() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    receiver.fail_until(StatusCode::TOO_MANY_REQUESTS, "120");
    receiver.fail_until(StatusCode::SERVICE_UNAVAILABLE, "300");
    refund_due(&t).await;
    t.run_for(secs(1000)).await;
    assert_eq!(receiver.received().len(), 3);
    let waits: Vec<f64> = sqlx::query_scalar(
        "SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY attempt_no))::float8 FROM outbox_attempts a
         JOIN outbox m ON m.id = a.outbox_id WHERE m.channel = 'hook' ORDER BY attempt_no OFFSET 1",
    )
    .fetch_all(&t.app.core.db)
    .await
    .unwrap();
    assert_eq!(waits, [120.0, 300.0]);
    t.assert_sound().await;
}

fn signed(receiver: &Receiver) -> ChannelConfig {
    ChannelConfig::Webhook(WebhookConfig {
        url: Some(receiver.url("/hook")),
        secret: Some(SECRET.to_owned()),
        ..WebhookConfig::default()
    })
}

#[tokio::test]
async fn webhook_with_a_secret_is_signed() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| {
        receiver.configure(config);
        config.channels.insert("hook".to_owned(), signed(&receiver));
    })
    .await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let [message] = receiver.received().try_into().expect("one message");
    let key = standardwebhooks::Webhook::new(SECRET).unwrap();
    key.verify(&message.bytes, &message.headers).unwrap();
    // Verification fails with another secret or another body.
    assert!(
        standardwebhooks::Webhook::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
            .unwrap()
            .verify(&message.bytes, &message.headers)
            .is_err()
    );
    assert!(key.verify(b"{}", &message.headers).is_err());
    t.assert_sound().await;
}

#[tokio::test]
async fn crash_after_sending_repeats_the_same_message() {
    let (receiver, mail, t) = with_three().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.advance(secs(1800)).await;
    // Runs jobs until the jobs of the alerts are leased. Their process runs them and dies before it settles them.
    let jobs = loop {
        let jobs = t.take().await;
        if jobs.iter().any(|j| j.delivery.id.as_str().starts_with("notify:")) {
            break jobs;
        }
        assert!(!jobs.is_empty());
        for leased in jobs {
            let outcome = t.perform(&leased).await;
            t.settle(&leased, outcome).await;
        }
    };
    t.sql("CREATE TABLE kept AS SELECT * FROM outbox").await;
    for leased in &jobs {
        t.perform(leased).await;
    }
    assert_eq!((receiver.received().len(), mail.mails().len()), (2, 1));
    t.sql(
        "DELETE FROM outbox_attempts; DELETE FROM outbox;
         INSERT INTO outbox OVERRIDING SYSTEM VALUE SELECT * FROM kept",
    )
    .await;
    t.outlive_leases().await;
    t.run_due().await;
    let (received, mails) = (receiver.received(), mail.mails());
    assert_eq!((received.len(), mails.len()), (4, 2));
    let tickets: HashSet<_> =
        received.iter().filter(|m| m.path == "/ticket").map(|m| m.body["external_id"].to_string()).collect();
    assert_eq!(tickets.len(), 1, "the ticket system can tell");
    assert_eq!(mails[0].header("Message-ID"), mails[1].header("Message-ID"));
    assert_eq!(t.count("SELECT count(*) FROM outbox_attempts a JOIN outbox m ON m.id = a.outbox_id WHERE kind = 'MANUAL_REFUND_REQUIRED'").await, 3);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_receiver_that_hangs_leaves_room_for_the_others() {
    let receiver = Receiver::start().await;
    // This server accepts connections and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let t = TestApp::with(|config| {
        receiver.configure(config);
        config.channels.insert("silent".to_owned(), ChannelConfig::unsigned_webhook(format!("http://{address}/")));
        config.notifications.driver = vec!["silent".to_owned()];
        config.worker.concurrency.insert(jobs::queues::NOTIFY.to_owned(), 1);
    })
    .await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    for leased in t.take().await {
        let outcome = t.perform(&leased).await;
        t.settle(&leased, outcome).await;
    }
    let offers: Vec<_> = t.take().await.into_iter().filter(|j| j.delivery.id.kind() == "notify").collect();
    assert_eq!(offers.len(), 2);
    // The channel allows one delivery at a time. The second message waits a moment and uses no try.
    let (first, second) = tokio::join!(t.perform(&offers[0]), async {
        tokio::task::yield_now().await;
        let (_stream, _) = silent.accept().await.unwrap();
        t.perform(&offers[1]).await
    });
    let queue::Outcome::Snooze { delay } = second else { panic!("{second:?}") };
    assert!(delay < secs(1), "{delay:?}");
    assert!(matches!(first, queue::Outcome::Snooze { .. }), "{first:?}");
    assert_eq!(t.texts("SELECT attempts::text FROM outbox ORDER BY attempts").await, ["0", "1"]);
    assert_eq!(t.offers("ORD-1").await[0].1, OfferState::Offered);
}

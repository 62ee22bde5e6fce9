//! The ticket system's answer contains the ticket id, which is stored with the message and linked in the API.

use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use model::messages::MANUAL_REFUND_REQUIRED;
use notify::alerts::{self, AlertFilter};
use settings::{ChannelConfig, TicketConfig};
use test_support::{Api, Receiver, TestApp, id, secs};

/// Configures tickets as the only channel of support. `more` contains the settings for ids and addresses.
async fn with_tickets(receiver: &Receiver, more: TicketConfig) -> TestApp {
    let ticket = TicketConfig { url: Some(receiver.url("/ticket")), ..more };
    TestApp::with(|config| {
        config.channels.insert("desk".to_owned(), ChannelConfig::Ticket(ticket));
        config.notifications.support = vec!["desk".to_owned()];
    })
    .await
}

fn linked() -> TicketConfig {
    TicketConfig {
        ticket_url: Some("https://tickets.example.com/tickets/{ticket}".to_owned()),
        ..TicketConfig::default()
    }
}

/// Creates and cancels a paid order and delivers its alert.
async fn owe(t: &TestApp, order: &str) {
    t.order_of(order, "RIDE", "PAID").await;
    t.cancel(order).await.unwrap();
    t.run_due().await;
}

/// Returns state and ticket of the refund alerts.
async fn kept(t: &TestApp) -> Vec<String> {
    let rows = "SELECT concat_ws(' ', state, ticket) FROM outbox WHERE kind = 'MANUAL_REFUND_REQUIRED' ORDER BY id";
    t.texts(rows).await
}

#[tokio::test]
async fn the_ticket_that_a_system_names_is_kept_and_linked() {
    let receiver = Receiver::start().await;
    let t = with_tickets(&receiver, linked()).await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Support).await;
    receiver.answer_json(&json!({ "id": 4711, "url": "https://evil.example/4711" }));
    owe(&t, "OWED").await;
    assert_eq!(kept(&t).await, ["delivered 4711"]);
    let ticket = json!({ "channel": "desk", "ticket": "4711", "url": "https://tickets.example.com/tickets/4711" });

    let alerts = api.get("/api/v1/alerts", &key).await;
    assert_eq!(alerts.body["alerts"][0]["tickets"], json!([ticket]));
    let refunds = api.get("/api/v1/refunds", &key).await;
    assert_eq!(refunds.body["refunds"][0]["tickets"], json!([ticket]));
    let alert = &alerts.body["alerts"][0]["id"];
    let acked = api.post(&format!("/api/v1/alerts/{alert}/ack"), &key, json!({ "note": "I have it" })).await;
    assert_eq!(acked.body["tickets"], json!([ticket]));

    // A changed address applies to existing tickets. Without an address only the id remains.
    let moved = t.reconfigured(|config| {
        let Some(ChannelConfig::Ticket(desk)) = config.channels.get_mut("desk") else { panic!("no desk") };
        desk.ticket_url = Some("https://new.example.com/t/{ticket}".to_owned());
    });
    let refunds = Api::start(&moved).await.get("/api/v1/refunds", &key).await;
    assert_eq!(refunds.body["refunds"][0]["tickets"][0]["url"], "https://new.example.com/t/4711");
    let gone = t.reconfigured(|config| drop(config.channels.remove("desk")));
    let refunds = Api::start(&gone).await.get("/api/v1/refunds", &key).await;
    assert_eq!(refunds.body["refunds"][0]["tickets"], json!([{ "channel": "desk", "ticket": "4711" }]));
    t.assert_sound().await;
}

#[tokio::test]
async fn answer_without_ticket_counts_as_delivered() {
    let long = "x".repeat(70_000);
    for answer in [
        Value::Null,
        json!({}),
        json!("4711"),
        json!({ "id": "a\nb" }),
        json!({ "id": "x".repeat(129) }),
        json!({ "id": 4711, "more": long }),
    ] {
        let receiver = Receiver::start().await;
        let t = with_tickets(&receiver, linked()).await;
        receiver.answer_json(&answer);
        owe(&t, "OWED").await;
        assert_eq!(kept(&t).await, ["delivered"], "{answer:.80}");
        assert_eq!(receiver.received().len(), 1, "{answer:.80}");
        let alerts =
            alerts::list_alerts(&t.app.core.db, &AlertFilter { limit: 10, ..AlertFilter::default() }).await.unwrap();
        assert!(alerts.iter().all(|alert| alert.tickets.is_empty()), "{alerts:?}");
        t.assert_sound().await;
    }
}

#[tokio::test]
async fn the_id_is_read_where_the_configuration_says() {
    let receiver = Receiver::start().await;
    let t = with_tickets(&receiver, TicketConfig { ticket_id: Some("/ticket/key".to_owned()), ..linked() }).await;
    receiver.answer_json(&json!({ "id": 1, "ticket": { "key": "OPS-7" } }));
    owe(&t, "OWED").await;
    assert_eq!(kept(&t).await, ["delivered OPS-7"]);
}

/// A message that is sent again keeps its ticket: the latest answer counts. An order whose first alert failed has one
/// ticket.
#[tokio::test]
async fn a_message_that_is_sent_again_keeps_one_ticket() {
    let receiver = Receiver::start().await;
    let t = with_tickets(&receiver, linked()).await;
    receiver.answer_json(&json!({ "id": 4711 }));
    receiver.fail(axum::http::StatusCode::SERVICE_UNAVAILABLE, 2);
    t.order_of("OWED", "RIDE", "PAID").await;
    t.cancel("OWED").await.unwrap();
    t.run_for(secs(60)).await;
    assert_eq!(receiver.received().iter().filter(|one| one.path == "/ticket").count(), 3);
    assert_eq!(kept(&t).await, ["delivered 4711"]);

    // The process that sent the message died before it stored the result.
    t.sql(
        "UPDATE outbox SET state = 'pending', ticket = NULL, next_attempt_at = dispatchq_now(), delivered_at = NULL
         WHERE kind = 'MANUAL_REFUND_REQUIRED'",
    )
    .await;
    let jobs = alerts::derived_jobs(&t.app.core.db, &id("OWED")).await.unwrap();
    t.app.core.store.enqueue(&jobs).await.unwrap();
    t.run_due().await;
    assert_eq!(receiver.received().iter().filter(|one| one.path == "/ticket").count(), 4);
    assert_eq!(kept(&t).await, ["delivered 4711"]);
    let filter = AlertFilter { kind: Some(MANUAL_REFUND_REQUIRED.to_owned()), limit: 10, ..AlertFilter::default() };
    let alerts = alerts::list_alerts(&t.app.core.db, &filter).await.unwrap();
    assert_eq!(alerts[0].tickets.len(), 1, "{alerts:?}");
    t.assert_sound().await;
}

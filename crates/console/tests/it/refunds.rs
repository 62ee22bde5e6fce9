//! Refunds: their tickets link to the ticket system.

use super::{Browser, statements_of};
use accounts::api_keys::AccountRole;
use settings::{ChannelConfig, Config, TicketConfig};
use test_support::{Api, TestApp};

fn with_desk(config: &mut Config, ticket_url: Option<&str>) {
    let ticket = TicketConfig {
        url: Some("http://127.0.0.1:9/tickets".to_owned()),
        ticket_url: ticket_url.map(str::to_owned),
        ..TicketConfig::default()
    };
    config.channels.insert("desk".to_owned(), ChannelConfig::Ticket(ticket));
    config.notifications.support = vec!["desk".to_owned()];
}

const LINK: &str = "<a class=\"id ticket\" href=\"https://tickets.example.com/%22%3E%3Cb%3E\" target=\"_blank\" rel=\"noopener noreferrer\"";
const WORDS: &str = ">&quot;&gt;&lt;b&gt;<span";

// Rule F1: Pages can be loaded whatever amounts are stored.
// Rule U16: Amounts of the export have the decimals of their currency.
#[tokio::test]
async fn tickets_are_links_on_every_page() {
    let t = TestApp::with(|config| with_desk(config, Some("https://tickets.example.com/{ticket}"))).await;
    let api = Api::start(&t.app).await;
    for order in ["NONE", "OWED"] {
        t.order_of(order, "RIDE", "PAID").await;
        t.cancel(order).await.unwrap();
    }
    t.sql("UPDATE orders SET amount_minor = 9223372036854775807, currency = 'USD'").await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let page = viewer.text("/console/refunds").await;
    assert!(!page.contains("Ticket"), "no ticket is known yet");
    for page in [page, viewer.text("/console").await] {
        assert!(page.contains("USD 184,467,440,737,095,516.14"), "the sum of all refunds: {page}");
    }
    // A hostile ticket id is escaped.
    t.sql("UPDATE outbox SET ticket = '\"><b>' WHERE order_id = 'OWED' AND kind = 'MANUAL_REFUND_REQUIRED'").await;
    for path in ["/console/refunds", "/console/alerts", "/console/orders/OWED"] {
        let (page, statements) = statements_of(&viewer, path).await;
        assert!(page.contains(LINK) && page.contains(WORDS) && !page.contains("\"><b>"), "{path}: {page}");
        assert!(statements.len() <= 8, "{path} takes {}: {statements:#?}", statements.len());
    }
    assert!(!viewer.text("/console/orders/NONE").await.contains("tickets.example.com"));
    let csv = viewer.text("/console/refunds.csv").await;
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",closed_at,tickets"), "{csv}");
    assert!(lines[1].contains(",PAID,92233720368547758.07,USD,"), "{csv}");
    let of = |order: &str| *lines.iter().find(|line| line.starts_with(order)).unwrap();
    assert!(of("NONE,").ends_with("Z,"), "{csv}");
    assert!(of("OWED,").ends_with("Z,https://tickets.example.com/%22%3E%3Cb%3E"), "{csv}");

    // Without an address the page shows only the ticket id.
    let plain = t.reconfigured(|config| with_desk(config, None));
    let api = Api::start(&plain).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let page = viewer.text("/console/refunds").await;
    assert!(page.contains("<span class=\"id\" title=\"desk\">&quot;&gt;&lt;b&gt;</span>"), "{page}");
    assert!(viewer.text("/console/refunds.csv").await.contains(",\"\"\"><b>\""));
}

/// Refunds of 10,500 orders. Hundreds have the same time, so pages of the export end between equal times.
const MANY: &str = "
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, amount_minor, currency, payment_status, paid_at, status,
                        lifetime_deadline, created_at, updated_at, closed_at)
    SELECT 'MANY-' || n, 'RIDE', -6.2, 106.8, n, 'IDR', 'PAID', at, 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT', at, at, at, at
    FROM generate_series(1, 10500) n, LATERAL (SELECT dispatchq_now() - n / 700 * interval '1 minute' AS at) AS times";

#[tokio::test]
async fn export_contains_every_refund_beyond_ten_thousand() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.sql(MANY).await;
    t.sql("UPDATE orders SET status = 'REFUND_PENDING' WHERE amount_minor % 2 = 0").await;
    t.sql("UPDATE orders SET status = 'REFUNDED' WHERE amount_minor % 3 = 0").await;
    let listed = async |filter: &str, query: &str| {
        let csv = viewer.text(&format!("/console/refunds.csv{filter}")).await;
        let ids: Vec<String> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap().to_owned()).collect();
        assert!(csv.starts_with("order_id,state,"), "{filter}");
        assert_eq!(ids, t.texts(query).await, "{filter}");
        ids.len()
    };
    let open = "SELECT id FROM orders WHERE status <> 'REFUNDED' ORDER BY closed_at, id";
    assert_eq!(listed("", open).await, 7_000);
    let done = "SELECT id FROM orders WHERE status = 'REFUNDED' ORDER BY created_at DESC, id DESC";
    assert_eq!(listed("?state=completed", done).await, 3_500);
    t.sql("UPDATE orders SET status = 'REFUND_PENDING'").await;
    let all = "SELECT id FROM orders ORDER BY closed_at, id";
    assert_eq!(listed("?state=started", all).await, 10_500);
    assert_eq!(listed("?state=owed", "SELECT id FROM orders WHERE false").await, 0);
}

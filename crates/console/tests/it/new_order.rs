//! The form that creates an order by hand.

use serde_json::json;

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, admission::full_for};

const CREATE: &str = "/console/new-order/create";
const KEY: &str = "01937c3e-8f00-4000-8000-000000000001";
/// A form with a value in each field, with the names of the fields.
const FILLED: [(&str, &str); 16] = [
    ("form_key", KEY),
    ("service_type", "RIDE"),
    ("customer_id", "CUS-1"),
    ("pickup", "-6.2088, 106.8456"),
    ("pickup_address", "Jalan Thamrin 9"),
    ("dropoff", "-6.1754, 106.8272"),
    ("dropoff_address", "Jalan Merdeka 1"),
    ("contact_name", "Ana"),
    ("contact_phone", "%2B62 812-3456-789"),
    ("contact_email", "ana@example.com"),
    ("notes", "Two suitcases.%0D%0ABlue gate."),
    ("requires", "van, wheelchair"),
    ("metadata_key", "crm_id"),
    ("metadata_value", "7"),
    ("metadata_key", ""),
    ("metadata_value", ""),
];

/// Returns the filled form with another value for a field.
fn with<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    FILLED.iter().map(|(own, kept)| if *own == name { (*own, value) } else { (*own, *kept) }).collect()
}

/// Returns the value of the form's key on a page.
fn form_key(page: &str) -> &str {
    page.split("name=\"form_key\" value=\"").nth(1).unwrap().split('"').next().unwrap()
}

#[tokio::test]
async fn filled_form_creates_one_order_with_its_contents() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let page = dispatcher.text("/console/new-order").await;
    assert_ne!(form_key(&page), form_key(&dispatcher.text("/console/new-order").await));
    let (first, second) = tokio::join!(dispatcher.post(CREATE, &FILLED), dispatcher.post(CREATE, &FILLED));
    let created = if first.status() == 303 { first } else { second };
    let address = place(&created).to_owned();
    assert!(address.starts_with("/console/orders/ORD-") && address.ends_with("?did=order-created"), "{address}");
    assert_eq!(place(&dispatcher.post(CREATE, &FILLED).await), address, "sent again");
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 1);
    let events = "SELECT concat_ws(' ', reason, actor) FROM order_events";
    assert_eq!(t.texts(events).await, ["ORDER_CREATED dispatcher:test-dispatcher"]);

    let id = address.split('?').next().unwrap().rsplit('/').next().unwrap();
    let order = api.get(&format!("/api/v1/orders/{id}"), &t.key(AccountRole::Viewer).await).await.body;
    assert_eq!(
        json!({ "pickup": order["pickup"], "dropoff": order["dropoff"], "notes": order["notes"],
                "metadata": order["metadata"], "customer_id": order["customer_id"], "requires": order["requires"] }),
        json!({ "pickup": { "latitude": -6.2088, "longitude": 106.8456, "address": "Jalan Thamrin 9" },
                "dropoff": { "latitude": -6.1754, "longitude": 106.8272, "address": "Jalan Merdeka 1" },
                "notes": "Two suitcases. Blue gate.", "metadata": { "crm_id": "7" }, "customer_id": "CUS-1",
                "requires": ["van", "wheelchair"] })
    );
    let contact = "SELECT contact::text FROM order_details";
    assert_eq!(t.texts(contact).await, [r#"{"name": "Ana", "email": "ana@example.com", "phone": "+628123456789"}"#]);
    let page = dispatcher.text(&address).await;
    assert!(page.contains("The order was created.") && page.contains("Jalan Thamrin 9"), "{page}");
    t.assert_sound().await;
}

// Rule U1: A bad value shows the form again, with every value and with the message at the field.
#[tokio::test]
async fn bad_value_keeps_the_form_and_names_its_field() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    let long = "x".repeat(301);
    for (name, bad, field, text) in [
        ("service_type", "NONE", "service_type", "This service type does not exist."),
        ("customer_id", "%C3%A9", "customer_id", "A customer id has"),
        ("pickup", "here", "pickup", "Write a latitude"),
        ("pickup", "91, 0", "pickup", "Write a latitude"),
        ("pickup_address", &long, "pickup_address", "Write at most 300 characters"),
        ("dropoff", "", "dropoff", "Write the coordinates of this address, too."),
        ("contact_phone", "08123456789", "contact_phone", "Write an existing phone number"),
        ("requires", "Big van", "requires", "Write at most 16 labels"),
        ("contact_email", "nobody", "contact_email", "Write an e-mail address"),
        ("metadata_value", &"x".repeat(501), "metadata", "Write at most 50 keys"),
    ] {
        let answer = support.post(CREATE, &with(name, bad)).await;
        assert_eq!(answer.status(), 422, "{name}");
        let page = answer.text().await.unwrap();
        let at_field = page.split(&format!("id=\"wrong-{field}\"")).nth(1).unwrap_or_else(|| panic!("{name}: {page}"));
        assert!(at_field.split("</p>").next().unwrap().contains(text), "{name}: {page}");
        assert!(page.contains("id=\"refused\" role=\"alert\"") && page.contains("data-page=\"/console/new-order\""));
        for kept in ["Jalan Thamrin 9", "Jalan Merdeka 1", "ana@example.com", "CUS-1", "crm_id", "Blue gate."] {
            let was_sent = with(name, bad).iter().any(|(_, value)| value.contains(kept));
            assert!(!was_sent || page.contains(kept), "{name} loses {kept}: {page}");
        }
        assert_eq!(form_key(&page), KEY, "{name}");
    }
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 0);
    let indonesian = Browser { cookie: format!("{}; dispatchq_language=id", support.cookie), ..Browser::new(&api) };
    let page = indonesian.post(CREATE, &with("contact_phone", "0812")).await.text().await.unwrap();
    assert!(page.contains("Isi nomor telepon yang ada"), "{page}");

    // The corrected form has the same key.
    assert_eq!(support.post(CREATE, &FILLED).await.status(), 303);
    // A form that is changed after its order was created gets a new key.
    let answer = support.post(CREATE, &with("customer_id", "CUS-2")).await;
    assert_eq!(answer.status(), 422);
    let page = answer.text().await.unwrap();
    assert!(page.contains("may have created an order") && form_key(&page) != KEY, "{page}");
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 1);
}

#[tokio::test]
async fn full_area_is_refused_on_the_form() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    full_for(&t, "RIDE", 1).await;
    assert_eq!(dispatcher.post(CREATE, &FILLED).await.status(), 303);
    let other = with("form_key", "01937c3e-8f00-4000-8000-000000000002");
    let answer = dispatcher.post(CREATE, &other).await;
    assert_eq!(answer.status(), 409);
    let page = answer.text().await.unwrap();
    for text in [
        "The area is busy, please try again in a moment.",
        "In area JKT, 1 orders wait; the threshold is 1.",
        "Nearby areas with room: Area BGR (BGR).",
        "value=\"Jalan Merdeka 1\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let outside = dispatcher.post(CREATE, &[("form_key", KEY), ("service_type", "RIDE"), ("pickup", "50, 10")]).await;
    assert!([303, 422].contains(&outside.status().as_u16()), "{outside:?}");
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE area_id = 'JKT'").await, 1);
}

#[tokio::test]
async fn rows_are_added_and_keep_all_values() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let rows = |page: &str| page.matches("name=\"metadata_key\"").count();
    assert_eq!(rows(&dispatcher.text("/console/new-order").await), 3);
    let page = dispatcher.post("/console/new-order/rows", &FILLED).await.text().await.unwrap();
    assert!(rows(&page) == 7 && page.contains("value=\"crm_id\"") && page.contains("Blue gate."), "{page}");
    assert_eq!(form_key(&page), KEY);
    for address in ["/console/new-order/rows", CREATE] {
        assert_eq!(place(&dispatcher.get(address).await), "/console/new-order", "{address}");
    }
    // The longest values fit into the form.
    let wide = "%E0%B8%81".repeat(1_000);
    assert_eq!(dispatcher.post(CREATE, &with("notes", &wide)).await.status(), 303);
    assert_eq!(t.count("SELECT length(notes)::bigint FROM order_details").await, 1_000);
}

#[tokio::test]
async fn only_dispatchers_support_and_admins_create_orders() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let button = "href=\"/console/new-order\"";
    for (role, may) in [
        (AccountRole::Viewer, false),
        (AccountRole::Operator, false),
        (AccountRole::Dispatcher, true),
        (AccountRole::Support, true),
        (AccountRole::Admin, true),
    ] {
        let browser = Browser::signed_in(&t, &api, role).await;
        assert_eq!(browser.text("/console/orders").await.contains(button), may, "{role:?}");
        assert_eq!(browser.get("/console/new-order").await.status(), if may { 200 } else { 403 }, "{role:?}");
        let sent = browser.post(CREATE, &FILLED).await;
        assert_eq!(sent.status(), if may { 303 } else { 403 }, "{role:?}");
        // The API has the same roles.
        let ride = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
        let answer = api.post("/api/v1/orders", &t.key(role).await, ride).await;
        assert_eq!(answer.status, if may { 201 } else { 403 }, "{role:?}");
    }
}

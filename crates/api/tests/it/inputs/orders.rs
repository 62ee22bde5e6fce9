//! Values of an order: HTTP and SQL accept the same ones.

use model::key_name::KeyName;
use serde_json::{Value, json};
use sqlx::postgres::PgDatabaseError;

use accounts::api_keys::AccountRole;
use settings::DispatchOverrides;
use test_support::{Api, TestApp, admission::full_for};

/// Returns valid and invalid values of each field of an order.
fn cases() -> Vec<(&'static str, Value)> {
    let mut cases = Vec::new();
    for amount in
        [json!(0), json!(9_007_199_254_740_991_i64), json!(9_007_199_254_740_992_i64), json!(i64::MAX), json!(-1)]
    {
        cases.push(("amount_minor", amount));
    }
    let texts = [
        "C-1",
        "a b",
        "x;=1+1;@SUM(A1)",
        "",
        " ",
        " a",
        "a ",
        "é",
        "\u{200b}",
        "a\u{1b}[31mb",
        "a\u{202e}b",
        "\u{feff}a",
        "a\nb",
        "__binding__",
        "a.b",
        "a/b",
        "ORD-1:2",
    ];
    let long = ["x".repeat(64), "x".repeat(65), "ก".repeat(22)];
    for name in ["customer_id", "area_id", "order_id"] {
        cases.extend(texts.iter().map(|text| (name, json!(text))));
        cases.extend(long.iter().map(|text| (name, json!(text))));
    }
    for currency in ["IDR", "idr", "ID", "IDRX", "", "ÄÖÜ", "I R"] {
        cases.push(("currency", json!(currency)));
    }
    for language in ["id", "zh-Hant-TW", "x", "en-a", "en-", "english", "", "en_US", "e1"] {
        cases.push(("language", json!(language)));
    }
    for status in ["PAID", "paid", "", "PA ID"] {
        cases.push(("payment_status", json!(status)));
    }
    cases.push(("payment_status", json!("X".repeat(33))));
    for latitude in [json!(90), json!(-90), json!(90.1), json!(-1e300)] {
        cases.push(("latitude", latitude));
    }
    for longitude in [json!(180), json!(180.1), json!(1e300)] {
        cases.push(("longitude", longitude));
    }
    cases
}

// Rule F1: HTTP and SQL refuse an amount above 9007199254740991 and name amount_minor.
// Rule F8: The SQL function applies the rules of HTTP to every value of an order.
// Rule F7: HTTP and SQL allow the same characters in a customer's id and limit its length in characters.
#[tokio::test]
async fn http_and_sql_accept_the_same_orders() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    for (n, (name, value)) in cases().into_iter().enumerate() {
        let mut body = json!({
            "order_id": format!("HTTP-{n}"), "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 },
        });
        match name {
            "latitude" | "longitude" => body["pickup"][name] = value.clone(),
            _ => body[name] = value.clone(),
        }
        let answer = api.post("/api/v1/orders", &key, body.clone()).await;
        let by_http = match answer.status {
            201 => None,
            422 => Some(answer.body["errors"][0]["pointer"].as_str().unwrap().trim_start_matches("#/").to_owned()),
            _ => panic!("{name} {value}: {answer:?}"),
        };
        if name != "order_id" {
            body["order_id"] = json!(format!("SQL-{n}"));
        } else if by_http.is_none() {
            t.sql("DELETE FROM orders").await;
        }
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        let created = sqlx::query_scalar::<_, bool>(
            "SELECT dispatchq_create_order($1, 'RIDE', $2, $3, coalesce($4, 'UNPAID'), $5, $6, area_id => $7, customer_id => $8,
                                           language => $9)",
        )
        .bind(text("order_id"))
        .bind(body["pickup"]["latitude"].as_f64())
        .bind(body["pickup"]["longitude"].as_f64())
        .bind(text("payment_status"))
        .bind(body["amount_minor"].as_i64())
        .bind(text("currency"))
        .bind(text("area_id"))
        .bind(text("customer_id"))
        .bind(text("language"))
        .fetch_one(&t.app.core.db)
        .await;
        // HTTP has both coordinates in one field.
        let by_sql = created
            .err()
            .map(|error| refused_column(&error).replace("pickup_lat", "pickup").replace("pickup_lng", "pickup"));
        assert_eq!(by_http, by_sql, "{name} {value}");
    }
}

/// Returns the field that the SQL function refused.
fn refused_column(error: &sqlx::Error) -> String {
    let error = error.as_database_error().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(error.code().as_deref(), Some("22023"), "{error}");
    let column = error.downcast_ref::<PgDatabaseError>().column().unwrap_or_default().to_owned();
    assert!(error.message().starts_with(&column), "{error}");
    column
}

// Rule F22: The SQL function accepts an owner only in the normalised form of key names, and the error shows that form.
// Rule F8: The SQL function refuses an actor with control characters, and a lifetime out of range.
#[tokio::test]
async fn sql_orders_have_plain_actors_and_bounded_lifetimes() {
    let t = TestApp::start().await;
    let check = async |actor: &str, owner: Option<&str>, lifetime: &str, amount: i64| {
        let checked = sqlx::query(
            "SELECT dispatchq_check_order('ORD-1', 'RIDE', 1.0, 2.0, 'PAID', $4, 'IDR', NULL, NULL, $1, $3::text::interval, $2, NULL)",
        );
        let checked = checked.bind(actor).bind(owner).bind(lifetime).bind(amount).execute(&t.app.core.db).await;
        checked.err().map(|error| refused_column(&error))
    };
    let long = "x".repeat(201);
    for (actor, owner, lifetime, amount, column) in [
        ("a\u{1b}[31mb", None, "1 hour", 1, "actor"),
        ("a\u{202e}b", None, "1 hour", 1, "actor"),
        ("", None, "1 hour", 1, "actor"),
        (&long, None, "1 hour", 1, "actor"),
        ("sql", Some("\u{200b}"), "1 hour", 1, "owner"),
        ("sql", Some(&long[..65]), "1 hour", 1, "owner"),
        ("sql", Some("shop "), "1 hour", 1, "owner"),
        ("sql", Some("shop  2"), "1 hour", 1, "owner"),
        ("sql", Some("sh\u{200b}op"), "1 hour", 1, "owner"),
        ("sql", Some("ＳＨＯＰ"), "1 hour", 1, "owner"),
        ("sql", None, "100000 years", 1, "lifetime"),
        ("sql", None, "-1 second", 1, "lifetime"),
        ("sql", None, "0", 1, "lifetime"),
        ("sql", None, "1 hour", i64::MAX, "amount_minor"),
    ] {
        assert_eq!(
            check(actor, owner, lifetime, amount).await.as_deref(),
            Some(column),
            "{actor:?} {owner:?} {lifetime}"
        );
    }
    assert_eq!(check("producer:toko", Some("toko"), "2 hours", 0).await, None);
    // Keys and owners have the same valid names.
    for name in
        ["Toko 2", "José", "太远了", "shop\u{3000}", " a", "ﬁx", "e\u{301}", "a\u{feff}b", "a\u{e000}", "x\u{a0}y"]
    {
        let is_own_form = KeyName::parse(name).is_ok_and(|key| key.as_str() == name);
        assert_eq!(check("sql", Some(name), "1 hour", 1).await.is_none(), is_own_form, "{name:?}");
    }
}

// Rule L7: The served document names the configured service types, and its examples conform to it.
// Rule F11: A filter that names an unknown area or service type gets 422.
// Rule F5: A driver's key can be created only with the valid id of an existing driver, and one rule applies to all
// phone numbers.
// Rule F19: An instant out of range gets 422, and the answer names the range.
// Rule F11: For a time whose '+' became a blank, the error suggests %2B.
#[tokio::test]
async fn document_and_filters_know_what_is_configured() {
    let t = TestApp::with(|config| {
        let [taxi, towing] = ["TAXI", "TOWING"].map(|name| (name.into(), DispatchOverrides::default()));
        config.service_types = [taxi, towing].into_iter().collect();
    })
    .await;
    let api = Api::start(&t.app).await;
    let admin = t.key(AccountRole::Admin).await;
    let spec = api.get("/openapi.json", "").await.body;
    let known = json!(["TAXI", "TOWING"]);
    for schema in ["NewOrder", "AvailabilityRequest", "LimitsChange"] {
        let words = spec.pointer(&format!("/components/schemas/{schema}/properties/service_type/enum"));
        assert_eq!(words, Some(&known), "{schema}");
    }
    let example = &spec["paths"]["/api/v1/orders"]["post"]["requestBody"]["content"]["application/json"]["example"];
    assert_eq!(example["service_type"], "TAXI");
    let order = api.post("/api/v1/orders", &admin, example.clone()).await;
    assert_eq!(order.status, 201, "{order:?}");

    full_for(&t, "TAXI", 1_000).await;
    for (url, parameter, hint) in [
        ("/api/v1/orders?service_type=nope", "service_type", "TAXI, TOWING"),
        ("/api/v1/drivers?service_type=nope", "service_type", "TAXI, TOWING"),
        ("/api/v1/orders?area=NOPE", "area", "no area 'NOPE'"),
        ("/api/v1/admin/dispatcher/areas/report?area_id=NOPE", "area_id", "no area 'NOPE'"),
        ("/api/v1/admin/audit?to=-9999-01-01T00:00:00Z", "to", "1970 to 9999"),
        ("/api/v1/orders?from=2026-11-27T00:00:00+07:00", "from", "%2B"),
        ("/api/v1/orders?limit=1&limit=2", "limit", "given twice"),
        ("/api/v1/orders?cursor=x", "cursor", "cursor"),
        ("/api/v1/orders?q=", "q", "1 to 128"),
        ("/api/v1/events?after=x", "after", "next"),
        ("/api/v1/orders?colour=red", "colour", "no parameter 'colour'"),
    ] {
        let answer = api.get(url, &admin).await;
        assert_eq!(answer.error(), (422, "INVALID"), "{url}");
        let error = &answer.body["errors"][0];
        assert_eq!(error["parameter"], parameter, "{url}: {answer:?}");
        assert!(error["detail"].as_str().unwrap().contains(hint), "{url}: {answer:?}");
    }
    for url in ["/api/v1/orders?service_type=TAXI", "/api/v1/orders?area=JKT", "/api/v1/drivers?service_type=TOWING"] {
        assert_eq!(api.get(url, &admin).await.status, 200, "{url}");
    }

    let key = |driver: &str| json!({ "name": "d", "role": "driver", "driver_id": driver, "reason": "new" });
    for driver in ["No Such", "DRV-404"] {
        let answer = api.post("/api/v1/admin/keys", &admin, key(driver)).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!("#/driver_id")), "{answer:?}");
    }
    let driver = json!({ "id": "D1", "service_types": ["TAXI"], "latitude": 0, "longitude": 0, "phone": "+0123456789", "reason": "new" });
    let answer = api.post("/api/v1/drivers", &admin, driver).await;
    assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!("#/phone")), "{answer:?}");
    let pattern = spec.pointer("/components/schemas/CreateDriverRequest/properties/phone/pattern").unwrap();
    assert_eq!(pattern, "^\\+[1-9][0-9]{6,14}$");
}

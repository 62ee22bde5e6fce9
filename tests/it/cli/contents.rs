//! Contents of orders on the command line.

use serde_json::{Value, json};

use super::remote::Desk;

/// Options that set every value of an order.
const CONTENTS: [&str; 20] = [
    "--address",
    "Jalan Thamrin 9",
    "--dropoff-lat",
    "-6.1754",
    "--dropoff-lng",
    "106.8272",
    "--dropoff-address",
    "Jalan Merdeka 1",
    "--notes",
    "Ring twice.",
    "--contact-name",
    "Ana",
    "--contact-phone",
    "+628123456789",
    "--contact-email",
    "ana@example.com",
    "--metadata",
    "crm_id=7",
    "--metadata",
    "site=north",
];

fn contents_of(order: &Value) -> Value {
    json!({
        "pickup": order["pickup"]["address"], "dropoff": order["dropoff"], "notes": order["notes"],
        "contact": order["contact"], "metadata": order["metadata"],
    })
}

#[tokio::test]
async fn every_value_of_an_order_is_set_and_changed() {
    let desk = Desk::open(&["producer", "support"]).await;
    let new =
        ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8", "--json"];
    let created = desk.json("producer", &[&new[..], &CONTENTS].concat());
    let expected = json!({
        "pickup": "Jalan Thamrin 9", "notes": "Ring twice.", "contact": null,
        "dropoff": { "latitude": -6.1754, "longitude": 106.8272, "address": "Jalan Merdeka 1" },
        "metadata": { "crm_id": "7", "site": "north" },
    });
    assert_eq!(contents_of(&created), expected);
    assert_eq!(contents_of(&desk.json("support", &["order", "show", "ORD-1", "--json"])), expected);
    let listed =
        desk.json("support", &["order", "list", "--metadata", "crm_id=7", "--metadata", "site=north", "--json"]);
    assert_eq!(contents_of(&listed[0]), expected);
    assert_eq!(desk.json("support", &["order", "list", "--metadata", "crm_id=8", "--json"]), json!([]));

    let plain = ["order", "create", "--id", "ORD-2", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8"];
    assert_eq!(desk.run("producer", &plain).code, Some(0));
    let update = ["order", "update", "ORD-2", "--if-version", "0", "--json"];
    assert_eq!(contents_of(&desk.json("support", &[&update[..], &CONTENTS].concat())), expected);
    let again = desk.run("support", &[&update[..], &["--notes", "Late."]].concat());
    assert!(again.code == Some(1) && again.stderr.contains("(412 VERSION_CHANGED)"), "{again:?}");
    let moved =
        ["order", "update", "ORD-2", "--lat", "-6.3", "--lng", "106.9", "--remove", "dropoff", "--remove", "contact"];
    let shown = desk.run("support", &moved).stdout;
    assert!(shown.contains("-6.30000, 106.90000") && !shown.contains("dropoff") && !shown.contains("Ana"), "{shown}");
    for wrong in [
        &["--notes", ""][..],
        &["--address", "a\u{1b}b"],
        &["--contact-phone", "0812"],
        &["--contact-email", "no-address"],
        &["--metadata", "=x"],
        &["--dropoff-lat", "91", "--dropoff-lng", "0"],
    ] {
        let refused = desk.run("support", &[&["order", "update", "ORD-2"], wrong].concat());
        assert!(refused.code == Some(1) && refused.stderr.contains("(422 INVALID)"), "{wrong:?}: {refused:?}");
    }
}

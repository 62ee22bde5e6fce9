//! The README commands, as a new user types them.

use serde_json::{Value, json};

use super::remote::Desk;
use crate::support::{Fleet, eventually, run_binary};

/// Settings with offers that last a minute, and a provider.
const PATIENT: &str = "[service_types.RIDE]\nattempt = \"60s\"\n\
    [providers.acme]\napi_key = \"key\"\nhosts = [\"127.0.0.1\"]\nallow_private = true\n\
    [bindings]\notp_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n";
const PLACE: [&str; 6] = ["--service-type", "RIDE", "--lat", "-6.2088", "--lng", "106.8456"];

fn names(value: &Value) -> Vec<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

// Rule U13: Three commands act for a driver, on the servers and over the API: offers, accept and complete.
// Rule U2: `order show` prints the pickup.
// Rule U8: `order list --json` has the same format and the same defaults on the servers and over the API.
// Rule U9: `worker list`, `job`, `partner` and `server` print the same over the API as on the servers.
#[tokio::test]
async fn three_commands_answer_an_order_as_its_driver() {
    let fleet = Fleet::with("1h", PATIENT).await;
    let desk = Desk::of(fleet, &["admin", "viewer", "operator", "producer"]).await;
    let worker = desk.fleet.worker("w1");
    let line = "{\"id\": \"D-1\", \"service_types\": [\"RIDE\"], \"latitude\": -6.2, \"longitude\": 106.85}\n";
    std::fs::write(desk.fleet.dir().join("drivers.jsonl"), line).unwrap();
    assert_eq!(desk.fleet.run(&["driver", "import", "drivers.jsonl"]).code, Some(0));

    let nothing = desk.fleet.run(&["driver", "accept", "D-1"]);
    assert!(nothing.code == Some(1) && nothing.stderr.contains("dispatchq driver offers D-1 --wait"), "{nothing:?}");
    let idle = desk.fleet.run(&["driver", "complete", "D-1"]);
    assert!(idle.code == Some(1) && idle.stderr.contains("dispatchq driver accept D-1"), "{idle:?}");

    for (order, over_api) in [("RIDE-1", false), ("RIDE-2", true)] {
        let run = |args: &[&str]| {
            let printed = if over_api { desk.run("admin", args) } else { desk.fleet.run(args) };
            assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
            printed.stdout
        };
        run(&[&["order", "create", "--id", order], &PLACE[..]].concat());
        eventually("the driver is asked", || async {
            run(&["driver", "offers", "D-1", "--wait", "5"]).contains(&format!("{order} "))
        })
        .await;
        let offers: Value = serde_json::from_str(&run(&["driver", "offers", "D-1", "--json"])).unwrap();
        assert_eq!(offers[0]["pickup"], json!({ "latitude": -6.2088, "longitude": 106.8456 }));
        let args = if over_api { vec!["driver", "accept", "D-1"] } else { vec!["driver", "accept", "D-1", order] };
        assert!(run(&args).contains("DRIVER_ASSIGNED"));
        assert!(run(&["order", "show", order]).contains("pickup         -6.20880, 106.84560\n"));
        let completed = run(&["driver", "complete", "D-1"]);
        assert!(completed.contains("PICKED_UP") && completed.contains("COMPLETED"), "{completed}");
    }

    assert_eq!(desk.fleet.run(&["driver", "disable", "D-1", "--reason", "a test"]).code, Some(0));
    for step in ["accept", "complete"] {
        let refused = desk.fleet.run(&["driver", step, "D-1"]);
        assert!(refused.code == Some(1) && refused.stderr.contains("dispatchq driver enable D-1"), "{refused:?}");
    }

    // Without --open the list includes closed orders, with the fields of the API.
    desk.fleet.run(&[&["order", "create", "--id", "RIDE-3"], &PLACE[..]].concat());
    for (args, expected) in [
        (&["order", "list", "--json"][..], &["RIDE-3", "RIDE-2", "RIDE-1"][..]),
        (&["order", "list", "--open", "--json"], &["RIDE-3"]),
        (&["order", "list", "--status", "COMPLETED", "--json"], &["RIDE-2", "RIDE-1"]),
        (&["order", "list", "--limit", "1", "--json"], &["RIDE-3"]),
    ] {
        let local: Value = serde_json::from_str(&desk.fleet.run(args).stdout).unwrap();
        let remote = desk.json("viewer", args);
        for listed in [&local, &remote] {
            let ids: Vec<_> =
                listed.as_array().unwrap().iter().map(|order| order["order_id"].as_str().unwrap()).collect();
            assert_eq!(ids, expected, "{args:?}");
        }
        assert_eq!(names(&local[0]), names(&remote[0]), "{args:?}");
    }
    assert_eq!(desk.json("producer", &["order", "list", "--json"]), json!([]), "a producer lists its own orders");

    for args in [
        &["job", "list", "lifetime-cancel-queue"][..],
        &["job", "show", "lifetime:RIDE-3", "--json"],
        &["partner", "list"],
        &["partner", "list", "--json"],
    ] {
        let remote = desk.run("operator", args);
        assert_eq!((remote.code, remote.stdout), (Some(0), desk.fleet.run(args).stdout), "{args:?}");
    }
    let workers = desk.json("operator", &["worker", "list", "--json"]);
    assert_eq!(workers[0]["replica"], "w1");
    assert!(desk.run("operator", &["worker", "list"]).stdout.contains("w1"));
    let stays = desk.run("operator", &["job", "cancel", "lifetime:RIDE-3", "--reason", "a test"]);
    assert!(stays.code == Some(1) && stays.stderr.contains("dispatchq order cancel RIDE-3"), "{stays:?}");
    let json = ["job", "reschedule", "lifetime:RIDE-3", "--in", "2h", "--reason", "a test", "--json"];
    assert!(desk.run("operator", &json).stdout.contains("WOULD_BE_MOVED_BACK"));
    let now = desk.run("operator", &["job", "run-now", "lifetime:RIDE-3", "--reason", "a test"]);
    assert!(now.code == Some(0) && now.stdout == "lifetime:RIDE-3 is due now.\n", "{now:?}");
    compare_servers(&desk);
    drop(worker);
}

/// Compares setting and listing of provider servers on the servers and over the API.
fn compare_servers(desk: &Desk) {
    let because = ["--reason", "a test"];
    let fresh = ["server", "set", "S2", "--provider", "acme", "--url", "http://127.0.0.1:1/S2"];
    let local = desk.fleet.run(&["server", "set", "S1", "--provider", "acme", "--url", "http://127.0.0.1:1/S1"]);
    let unexplained = desk.run("operator", &fresh);
    assert!(unexplained.code == Some(1) && unexplained.stderr.contains("--reason is required"), "{unexplained:?}");
    let remote = desk.run("operator", &[&fresh[..], &because].concat());
    assert_eq!((remote.code, remote.stdout), (Some(0), local.stdout.replace("S1", "S2")));
    // A command that could create a server changes an existing one.
    for more in [&fresh[..], &fresh[..3]] {
        let change = [more, &["--max-concurrent", "4", "--json"]].concat();
        let changed = desk.json("operator", &[&change[..], &because].concat());
        assert_eq!((&changed["id"], &changed["max_concurrent"]), (&json!("S2"), &json!(4)));
        assert_eq!(changed, serde_json::from_str::<Value>(&desk.fleet.run(&change).stdout).unwrap());
    }
    for args in [&["server", "set", "S9", "--enabled", "false"][..], &["server", "set", "S1"]] {
        let refused = desk.run("operator", &[args, &because].concat());
        assert_eq!((refused.code, refused.stderr), (Some(1), desk.fleet.run(args).stderr), "{args:?}");
    }
    for args in [&["server", "limit", "60"][..], &["server", "limit", "--default", "--json"]] {
        let local = desk.fleet.run(args).stdout;
        assert_eq!(desk.run("operator", &[args, &because].concat()).stdout, local, "{args:?}");
    }
    for args in
        [&["server", "list"][..], &["server", "list", "--json"], &["server", "limit"], &["server", "limit", "--json"]]
    {
        let remote = desk.run("viewer", args);
        assert_eq!((remote.code, remote.stdout), (Some(0), desk.fleet.run(args).stdout), "{args:?}");
    }
    let listed = desk.json("viewer", &["server", "list", "--json"]);
    assert_eq!((&listed[1]["id"], &listed[1]["in_use"], &listed[1]["waiting"]), (&json!("S2"), &json!(0), &json!(0)));
    let denied = desk.run("viewer", &[&["server", "limit", "9"][..], &because].concat());
    assert!(denied.code == Some(1) && denied.stderr.contains("403"), "{denied:?}");
}

// Rule U15: A command that cannot reach Postgres prints the first cause and does not wait for a pool.
#[tokio::test]
async fn unreachable_postgres_is_named_with_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = [("DISPATCHQ_DATABASE__URL", "postgres://u@127.0.0.1:1/d")];
    for args in [&["order", "list"][..], &["driver", "list"], &["check", "history"], &["migrate"]] {
        let printed = run_binary(dir.path(), args, &nowhere);
        assert_eq!(printed.code, Some(1), "{printed:?}");
        assert!(printed.stderr.contains("Connection refused") && printed.stderr.contains("127.0.0.1:1"), "{printed:?}");
        assert!(!printed.stderr.contains("pool"), "{printed:?}");
    }
}

// Rule U15: Cancelling an order that was ever paid asks for confirmation, on the servers and over the API. An unpaid or
// free order is cancelled at once.
// Rule U15: A dry run ends with exit code 0, even if it finds that something would be refused.
#[tokio::test]
async fn paid_order_is_cancelled_after_a_question() {
    let desk = Desk::of(Fleet::start().await, &["support"]).await;
    let create = |id: &str, payment: &str, amount: &str| {
        let more = ["order", "create", "--id", id, "--payment-status", payment, "--amount-minor", amount];
        let made = desk.fleet.run(&[&more[..], &PLACE[..], &["--currency", "IDR"]].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
    };
    for id in ["PAID-1", "PAID-2"] {
        create(id, "PAID", "5000");
    }
    create("FREE-1", "UNPAID", "5000");
    create("FREE-2", "PAID", "0");
    // A later payment status does not undo that the order was paid.
    let disputed = "WITH u AS (UPDATE orders SET payment_status = 'DISPUTE' WHERE id LIKE 'PAID-%' RETURNING 1) SELECT count(*) FROM u";
    assert_eq!(desk.fleet.count(disputed).await, 2);
    let cancel = |id: &'static str, yes: bool| {
        let mut args = vec!["order", "cancel", id];
        args.extend(yes.then_some("--yes"));
        args
    };
    let unasked = [desk.fleet.run(&cancel("PAID-1", false)), desk.run("support", &cancel("PAID-2", false))];
    for printed in &unasked {
        assert_eq!(printed.code, Some(1), "{printed:?}");
        assert!(printed.stderr.contains("is paid") && printed.stderr.contains("--yes"), "{printed:?}");
    }
    assert_eq!(desk.fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, 0);
    assert_eq!(desk.fleet.run(&cancel("PAID-1", true)).code, Some(0));
    assert_eq!(desk.run("support", &cancel("PAID-2", true)).code, Some(0));
    for free in ["FREE-1", "FREE-2"] {
        assert_eq!(desk.fleet.run(&cancel(free, false)).code, Some(0), "{free}");
    }
    assert_eq!(desk.fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, 4);

    let dry = desk.fleet.run(&["dead", "requeue", "dispatch:PAID-1:1", "--dry-run"]);
    assert!(dry.code == Some(0) && dry.stdout.contains("it is not dead"), "{dry:?}");
}

//! Plans over HTTP: created with a filter, shown, run and cancelled by id.

use serde_json::{Value, json};

use super::{BINDINGS, Desk};
use accounts::api_keys::AccountRole;
use test_support::{Answer, secs};

const PLANS: &str = "/api/v1/admin/plans";

impl Desk {
    async fn plan(&self, filter: Value, action: &str, dry_run: bool) -> Answer {
        let body = json!({ "filter": filter, "action": action, "reason": "the books are closed", "dry_run": dry_run });
        self.post(&format!("{BINDINGS}/actions"), body).await
    }

    async fn create_all(&self, ids: &[&str]) {
        for id in ids {
            assert_eq!(self.create(id, json!({ "interval_ms": [3_600_000, 3_600_000] })).await.status, 201);
        }
    }

    /// Returns the path of the plan in an answer.
    fn path_of(answer: &Answer) -> String {
        format!("{PLANS}/{}", answer.body["plan"]["id"].as_str().unwrap_or_else(|| panic!("no plan: {answer:?}")))
    }

    async fn run_plan(&self, path: &str, idempotency_key: &str) -> Answer {
        self.api.post_once(&format!("{path}/run"), &self.operator, idempotency_key, json!({})).await
    }
}

/// Returns `id state` of each item.
fn fates(page: &Answer) -> Vec<String> {
    let items = page.body["items"].as_array().unwrap_or_else(|| panic!("no items: {page:?}"));
    items.iter().map(|item| format!("{} {}", item["subject_id"], item["state"]).replace('"', "")).collect()
}

#[tokio::test]
async fn dry_run_is_run_once_by_id() {
    let desk = Desk::open().await;
    desk.create_all(&["B-1", "B-2", "B-3", "B-4"]).await;
    for verb in ["start", "pause"] {
        desk.verb("B-2", verb).await;
    }
    desk.verb("B-3", "start").await;
    let made = desk.plan(json!({ "server_id": "S1" }), "start", true).await;
    assert_eq!(made.status, 201, "{made:?}");
    let plan = &made.body["plan"];
    assert_eq!((&plan["state"], &plan["total"], &plan["left"]), (&json!("PLANNED"), &json!(4), &json!(2)));
    assert_eq!((&plan["created_by"], &plan["run_by"]), (&json!("operator:test-operator"), &Value::Null));
    assert_eq!(plan["filter"], json!({ "server_id": "S1" }));
    let refusals = &made.body["refusals"];
    assert_eq!((&refusals[0]["error_code"], &refusals[0]["count"]), (&json!("BINDING_PAUSED"), &json!(1)));
    let path = Desk::path_of(&made);
    let page = desk.get(&format!("{path}/items?limit=3")).await;
    assert_eq!(fates(&page), ["B-1 PENDING", "B-2 REFUSED", "B-3 UNCHANGED"]);
    let rest = desk.get(&format!("{path}/items?cursor={}", page.text("next_cursor"))).await;
    assert_eq!((fates(&rest), &rest.body["next_cursor"]), (vec!["B-4 PENDING".to_owned()], &Value::Null));
    assert_eq!(fates(&desk.get(&format!("{path}/items?state=REFUSED")).await), ["B-2 REFUSED"]);

    desk.create_all(&["B-5"]).await;
    desk.run_due().await;
    assert_eq!(desk.standing("B-1").await.0, "STOPPED", "nothing is done by a dry run");
    assert_eq!(desk.run_plan(&path, "").await.body["plan"]["state"], "RUNNING");
    assert_eq!(desk.run_plan(&path, "").await.error(), (409, "PLAN_RUNNING"));
    desk.run_due().await;
    let done = desk.get(&path).await;
    assert_eq!((&done.body["plan"]["state"], &done.body["plan"]["changed"]), (&json!("DONE"), &json!(2)));
    assert_eq!(desk.standing("B-4").await.0, "RUNNING");
    assert_eq!(desk.standing("B-5").await.0, "STOPPED", "it fits the filter, and was not planned");
    assert_eq!(desk.run_plan(&path, "").await.error(), (409, "PLAN_ENDED"));
    assert_eq!(desk.post(&format!("{path}/cancel"), json!({})).await.error(), (409, "PLAN_ENDED"));
}

#[tokio::test]
async fn plan_without_dry_run_starts_at_once() {
    let desk = Desk::open().await;
    desk.create_all(&["B-1", "B-2"]).await;
    let made = desk.plan(json!({}), "start", false).await;
    assert_eq!((made.status, &made.body["plan"]["state"]), (201, &json!("RUNNING")));
    let cancelled = desk.post(&format!("{}/cancel", Desk::path_of(&made)), json!({})).await;
    assert_eq!((cancelled.status, &cancelled.body["plan"]["state"]), (200, &json!("CANCELLED")));
    let again = desk.post(&format!("{}/cancel", Desk::path_of(&made)), json!({})).await;
    assert_eq!((again.status, again.text("note")), (200, "CANCELLED already"));
    desk.run_for(secs(5)).await;
    assert_eq!(desk.standing("B-1").await.0, "STOPPED");

    let made = desk.plan(json!({ "state": "STOPPED" }), "start", false).await;
    desk.run_due().await;
    assert_eq!(desk.get(&Desk::path_of(&made)).await.body["plan"]["changed"], 2);
    let none = desk.plan(json!({ "state": "PAUSED" }), "resume", false).await;
    assert_eq!((&none.body["plan"]["state"], &none.body["plan"]["total"]), (&json!("DONE"), &json!(0)));

    let list = desk.get(&format!("{PLANS}?limit=2")).await;
    let states: Vec<_> = list.body["plans"].as_array().unwrap().iter().map(|plan| plan["state"].clone()).collect();
    assert_eq!(states, ["DONE", "DONE"], "the newest first");
    let rest = desk.get(&format!("{PLANS}?cursor={}", list.text("next_cursor"))).await;
    assert_eq!(rest.body["plans"][0]["state"], "CANCELLED");
    assert_eq!(desk.get(&format!("{PLANS}?state=CANCELLED")).await.body["plans"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_bad_filter_is_refused_with_what_is_wrong() {
    let desk = Desk::open().await;
    desk.create_all(&["B-1"]).await;
    for (filter, named) in [
        (json!({ "server": "S1" }), "there is no member 'server'"),
        (json!({ "state": "running" }), "'running' is not known"),
        (json!({ "server_id": "a b" }), "'a b' is not a valid server id"),
        (json!("all"), "filter: "),
    ] {
        let refused = desk.plan(filter, "stop", true).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{refused:?}");
        assert!(refused.text("message").contains(named), "{refused:?}");
        let pointer = refused.body["errors"][0]["pointer"].as_str().unwrap();
        assert!(pointer.starts_with("#/filter"), "{refused:?}");
    }
    let nowhere = desk.plan(json!({ "server_id": "S9" }), "stop", true).await;
    assert_eq!(nowhere.error(), (400, "SERVER_NOT_FOUND"));
    for (what, body) in [
        ("no filter", json!({ "action": "stop", "dry_run": true })),
        ("an unknown action", json!({ "filter": {}, "action": "delete", "dry_run": true })),
        ("neither dry nor not", json!({ "filter": {}, "action": "stop" })),
        ("an empty reason", json!({ "filter": {}, "action": "stop", "reason": " ", "dry_run": true })),
        ("an unknown field", json!({ "filter": {}, "action": "stop", "dry_run": true, "limit": 1 })),
    ] {
        assert_eq!(desk.post(&format!("{BINDINGS}/actions"), body).await.error(), (422, "INVALID"), "{what}");
    }
    assert_eq!(desk.count("SELECT count(*) FROM plans").await, 0);
    assert_eq!(desk.create("actions", json!({})).await.error(), (422, "INVALID"), "the path is taken");
    let unknown = format!("{PLANS}/01937c3e-8f00-7000-8000-000000000001");
    assert_eq!(desk.get(&unknown).await.error(), (404, "PLAN_NOT_FOUND"));
    assert_eq!(desk.get(&format!("{unknown}/items")).await.error(), (404, "PLAN_NOT_FOUND"));
    assert_eq!(desk.run_plan(&unknown, "").await.error(), (404, "PLAN_NOT_FOUND"));
    assert_eq!(desk.get(&format!("{PLANS}/1")).await.error(), (422, "INVALID"));
}

#[tokio::test]
async fn operators_plan_and_run_and_staff_read() {
    let desk = Desk::open().await;
    desk.create_all(&["B-1"]).await;
    let path = Desk::path_of(&desk.plan(json!({}), "start", true).await);
    let body = json!({ "filter": {}, "action": "start", "dry_run": true });
    for (role, changes, reads) in
        [(AccountRole::Producer, 403, 403), (AccountRole::Dispatcher, 403, 200), (AccountRole::Support, 403, 200)]
    {
        let key = desk.key(role).await;
        assert_eq!(desk.api.post(&format!("{BINDINGS}/actions"), &key, body.clone()).await.status, changes, "{role:?}");
        for verb in ["run", "cancel"] {
            assert_eq!(desk.api.post(&format!("{path}/{verb}"), &key, json!({})).await.status, changes, "{role:?}");
        }
        for path in [PLANS, &path, &format!("{path}/items")] {
            assert_eq!(desk.api.get(path, &key).await.status, reads, "{role:?}: {path}");
        }
    }
    let admin = desk.key(AccountRole::Admin).await;
    assert_eq!(desk.api.post(&format!("{path}/run"), &admin, json!({})).await.status, 200);
}

#[tokio::test]
async fn a_repeated_request_makes_one_plan_and_runs_it_once() {
    let desk = Desk::open().await;
    desk.create_all(&["B-1"]).await;
    let body = json!({ "filter": {}, "action": "start", "dry_run": true });
    let make = async || -> Answer {
        desk.api.post_once(&format!("{BINDINGS}/actions"), &desk.operator, "k1", body.clone()).await
    };
    let made = make().await;
    assert_eq!(make().await, Answer { replayed: true, ..made.clone() });
    let path = Desk::path_of(&made);
    let ran = desk.run_plan(&path, "k2").await;
    assert_eq!(desk.run_plan(&path, "k2").await, Answer { replayed: true, ..ran });

    // The processes that created and ran the plan died before they answered.
    desk.sql("UPDATE idempotency_keys SET status = NULL, body = NULL").await;
    desk.advance(secs(61)).await;
    let again = make().await;
    assert_eq!((again.status, &again.body["plan"]["id"]), (201, &made.body["plan"]["id"]));
    let again = desk.run_plan(&path, "k2").await;
    assert_eq!((again.status, &again.body["plan"]["state"]), (200, &json!("RUNNING")));
    assert_eq!(desk.run_plan(&path, "k3").await.error(), (409, "PLAN_RUNNING"));
    assert_eq!(desk.count("SELECT count(*) FROM plans").await, 1);
    desk.run_due().await;
    assert_eq!(desk.count("SELECT count(*) FROM binding_events WHERE kind = 'started'").await, 1);
}

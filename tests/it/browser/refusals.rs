//! Requests of console buttons that are refused to a viewer and to another site.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    pages::{PAGES, SUBJECT_PAGES},
    stage::{Console, OtherSite, lay_out},
};
use crate::support::TestApp;
use accounts::api_keys::AccountRole;

/// Actions of buttons with their subject. The list has only buttons that the test below reaches.
const DEEDS: [&str; 47] = [
    "admission flag",
    "alerts ack",
    "areas override",
    "areas threshold",
    "bindings otp",
    "bindings pause",
    "bindings resume",
    "bindings start",
    "bindings stop",
    "dead discard",
    "dead plan",
    "dead requeue",
    "drivers change",
    "drivers disable",
    "drivers phone",
    "fleet create",
    "keys create",
    "keys revoke",
    "new-order create",
    "new-order rows",
    "orders assign",
    "orders cancel",
    "orders change",
    "orders hold",
    "orders leave",
    "orders redispatch",
    "orders refund-done",
    "orders refund-start",
    "orders release",
    "orders resume",
    "orders rows",
    "orders take",
    "outbox replay",
    "partners share",
    "plans cancel",
    "plans run",
    "queues pause",
    "sessions end",
    "users disable",
    "users remove",
    "users save",
    "webhooks create",
    "webhooks delete",
    "webhooks pause",
    "webhooks replay",
    "webhooks rotate",
    "webhooks test",
];

/// Script that returns the requests of all buttons of a page: path and filled-in form.
const REQUESTS: &str = "[...document.querySelectorAll('form[method=post]')].flatMap((form) => {
    const sample = { driver_id: 'D1', minutes: '5' };
    const fields = [...new FormData(form)].map(([name, value]) => [name, value || sample[name] || 'a test']);
    const others = [...form.querySelectorAll('[formaction]')].map((button) => button.formAction);
    return [form.action, ...others].map((to) => [new URL(to).pathname, fields]);
}).filter(([path]) => !/\\/(logout|language)$/.test(path))";

/// Returns all data that the buttons could change, as text.
async fn state_of(t: &TestApp) -> String {
    let rest = "SELECT concat_ws(E'\\n',
        (SELECT string_agg(b::text, E'\\n' ORDER BY b.id) FROM bindings b),
        (SELECT string_agg(p::text, E'\\n' ORDER BY p.id) FROM plans p),
        (SELECT string_agg(o::text, E'\\n' ORDER BY o.area_id) FROM area_overrides o),
        (SELECT string_agg(l::text, E'\\n' ORDER BY l.area_id, l.service_type) FROM area_limits l),
        (SELECT f::text FROM admission_flag f),
        (SELECT string_agg(u::text, E'\\n' ORDER BY u.id) FROM users u),
        (SELECT string_agg(s::text, E'\\n' ORDER BY s.partner) FROM partner_settings s),
        (SELECT string_agg(t::text, E'\\n' ORDER BY t.order_id) FROM desk_takes t),
        (SELECT string_agg(concat_ws(' ', d.id, d.disabled_at, d.service_types, d.phone), E'\\n' ORDER BY d.id) FROM drivers d),
        (SELECT string_agg(k.name || coalesce(k.revoked_at::text, ''), E'\\n' ORDER BY k.id) FROM api_keys k),
        (SELECT count(*) FROM staff_actions))";
    let queues = t.app.core.store.queue_stats(&jobs::queues::ALL).await.unwrap();
    let queues: Vec<_> = queues.into_iter().map(|queue| (queue.queue, queue.paused, queue.dead)).collect();
    format!("{}\n{:?}\n{queues:?}", t.dump().await, t.texts(rest).await)
}

/// Converts `/console/orders/ORD-1/assign` to `orders assign`.
pub(super) fn deed(path: &str) -> String {
    let mut parts = path.split('/').skip(2);
    let about = parts.next().unwrap_or_default();
    format!("{about} {}", parts.last().unwrap_or_default())
}

#[tokio::test]
async fn viewer_requests_of_every_button_are_refused() {
    let stage = lay_out().await;
    let t = &stage.t;
    let mut console = Console::open(t, AccountRole::Admin).await;
    let mut requests = Vec::new();
    for path in PAGES.into_iter().chain(SUBJECT_PAGES) {
        console.visit(path).await;
        let found = console.browser.eval(REQUESTS).await;
        requests.extend(found.as_array().unwrap().iter().cloned());
    }
    let deeds: BTreeSet<String> = requests.iter().map(|request| deed(request[0].as_str().unwrap())).collect();
    let missing: Vec<_> = DEEDS.iter().filter(|deed| !deeds.contains(**deed)).collect();
    assert!(missing.is_empty(), "no page has a button for {missing:?}: {deeds:?}");

    let browser = &mut console.browser;
    browser.sign_out().await;
    browser.sign_in(&console.api.url(""), "/console", &t.key(AccountRole::Viewer).await).await;
    for path in PAGES.into_iter().chain(SUBJECT_PAGES) {
        let url = format!("{}{path}", console.base);
        browser.open(&url).await;
        assert_eq!(browser.eval(REQUESTS).await, json!([]), "{path} shows a viewer a button");
    }
    browser.open(&console.base).await;
    let before = state_of(t).await;
    let send = "Promise.all(requests.map(([path, fields]) =>
        fetch(path, { method: 'POST', body: new URLSearchParams(fields) }).then((answer) => [path, answer.status])))";
    let answers = browser.eval(&format!("((requests) => {send})({})", Value::from(requests.clone()))).await;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), requests.len());
    for answer in answers {
        assert_eq!(answer[1], 403, "{answer}");
    }
    assert_eq!(state_of(t).await, before);
    browser.open(&console.base).await;
    browser.until_text("test-viewer").await;
}

/// The form comes from another host without the cookie, and from another port of this host with the cookie.
#[tokio::test]
async fn another_site_sends_a_form_and_changes_nothing() {
    let stage = lay_out().await;
    let t = &stage.t;
    let mut console = Console::open(t, AccountRole::Admin).await;
    let before = state_of(t).await;
    let target = format!("{}/orders/WAITS/cancel", console.base);
    let page = format!(
        "<!doctype html><title>A prize</title><form method=\"post\" action=\"{target}\"><input name=\"reason\" value=\"a test\">
         <button>Take it</button></form>"
    );
    let site = OtherSite::start(page).await;
    let browser = &mut console.browser;
    for host in ["localhost", "127.0.0.1"] {
        browser.open(&site.url(host)).await;
        let unseen = format!(
            "fetch({target:?}, {{ method: 'POST', mode: 'no-cors', credentials: 'include', body: new URLSearchParams({{ reason: 'a test' }}) }})
                .then((answer) => answer.type)"
        );
        assert_eq!(browser.eval(&unseen).await, "opaque", "{host}");
        browser.click("button", "Take it").await;
        browser.until_text("This request came from another site.").await;
        assert_eq!(browser.status, 403, "{host}");
        assert_eq!(state_of(t).await, before, "{host}");
    }

    // The same form is accepted when a console page sends it.
    console.visit("/orders/WAITS").await;
    let browser = &mut console.browser;
    browser.click("summary", "Cancel order").await;
    browser.fill("details[open] input[name=reason]", "a test").await;
    browser.click("details[open] input[name=sure]", "").await;
    browser.click("details[open] button", "Cancel order").await;
    browser.until_text("The order was cancelled.").await;
}

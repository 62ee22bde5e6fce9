//! Errors as callers read them: the fields of RFC 9457 and ours, the headers, and the page of each code.

use std::{collections::BTreeSet, fs};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, ride, secs, workspace};

const ORDERS: &str = "/api/v1/orders";

#[test]
fn the_page_of_errors_has_every_code() {
    let path = workspace().join("docs/ERRORS.md");
    let made = api::errors_page();
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), made, "run this test with UPDATE_PAGES=1");
    let spec: Value = serde_json::from_str(&api::OPENAPI).unwrap();
    let codes = spec.pointer("/components/schemas/ErrorBody/properties/error_code/enum").unwrap();
    let codes: BTreeSet<_> = codes.as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect();
    let entries: Vec<_> = made.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(codes, entries.iter().copied().collect(), "each code has an entry in crates/api/src/error/codes.rs");
    assert_eq!(entries.len(), codes.len(), "and only one");
    assert!(!made.contains("(HTTP )"), "each code comes with a status");
}

/// The API, and a client that sends its own request ids.
struct Shop {
    api: Api,
    client: reqwest::Client,
    key: String,
}

impl Shop {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.api.url(path)).bearer_auth(&self.key);
        request.header("x-request-id", "shop-1:42").header("content-type", "application/json")
    }

    /// Sends the request and checks the common parts of errors. Returns the headers and body of the answer.
    async fn refused(&self, request: RequestBuilder, status: u16, code: &str) -> (reqwest::header::HeaderMap, Value) {
        let request = request.build().unwrap();
        let path = request.url().path().to_owned();
        let answer = self.client.execute(request).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (status, &"application/problem+json".parse().unwrap()),
            "{path}"
        );
        assert_eq!(answer.headers()["x-request-id"], "shop-1:42");
        let headers = answer.headers().clone();
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error_code"], code, "{body}");
        assert_eq!((&body["instance"], &body["request_id"]), (&json!(path), &json!("shop-1:42")), "{body}");
        assert_eq!((&body["status"], &body["detail"]), (&json!(status), &body["message"]), "{body}");
        let page = self.client.get(self.api.url(body["type"].as_str().unwrap())).send().await.unwrap();
        let text = page.text().await.unwrap();
        assert!(text.starts_with(&format!("## {code}\n\n**{}**", body["title"].as_str().unwrap())), "{body}: {text}");
        (headers, body)
    }

    async fn order_refused(&self, body: Value) -> Value {
        let (_, error) = self.refused(self.request(Method::POST, ORDERS).body(body.to_string()), 422, "INVALID").await;
        error["errors"][0]["pointer"].clone()
    }
}

#[tokio::test]
async fn errors_name_page_request_and_field() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Admin).await;
    let shop = Shop { api, client: foundation::outbound::build_client(secs(30)).unwrap(), key };
    let post = |path: &str, body: &str| shop.request(Method::POST, path).body(body.to_owned());

    // Errors from the router and from axum.
    shop.refused(shop.request(Method::GET, "/nowhere"), 404, "NOT_FOUND").await;
    let (headers, _) = shop.refused(shop.request(Method::DELETE, ORDERS), 405, "METHOD_NOT_ALLOWED").await;
    assert!(headers["allow"].to_str().unwrap().contains("POST"));
    shop.refused(post(ORDERS, "{"), 400, "MALFORMED").await;
    shop.refused(shop.request(Method::GET, "/api/v1/orders/%FF"), 400, "MALFORMED").await;
    shop.refused(post("/api/v1/callbacks/%FF", "{}"), 400, "MALFORMED").await;
    shop.refused(post(ORDERS, &" ".repeat(70_000)), 413, "TOO_LARGE").await;
    let text = shop.client.post(shop.api.url("/api/v1/dispatcher/availability-check")).bearer_auth(&shop.key);
    shop.refused(text.header("x-request-id", "shop-1:42").body("{}"), 415, "NOT_JSON").await;
    shop.refused(shop.request(Method::GET, "/errors/NO_SUCH_CODE"), 404, "ERROR_CODE_NOT_FOUND").await;
    shop.refused(shop.request(Method::GET, "/api/v1/orders/ORD-1"), 404, "ORDER_NOT_FOUND").await;

    // 401 names the required authentication.
    let nameless = shop.client.get(shop.api.url("/api/v1/orders/ORD-1")).header("x-request-id", "shop-1:42");
    let (headers, _) = shop.refused(nameless, 401, "UNAUTHENTICATED").await;
    assert_eq!(headers["www-authenticate"], "Bearer realm=\"dispatchq\"");
    let (headers, _) = shop.refused(post("/api/v1/callbacks/bbd", "{}"), 401, "BAD_SIGNATURE").await;
    assert_eq!(headers["www-authenticate"], "Signature realm=\"dispatchq\"");

    // Fields of bodies, queries and headers.
    let mut order = ride();
    order["pickup"]["latitude"] = json!("north");
    assert_eq!(shop.order_refused(order.clone()).await, "#/pickup/latitude");
    order["pickup"]["latitude"] = json!(91.0);
    assert_eq!(shop.order_refused(order.clone()).await, "#/pickup");
    order["pickup"] = json!({ "latitude": -6.2 });
    assert_eq!(shop.order_refused(order).await, "#/pickup/longitude");
    assert_eq!(shop.order_refused(json!([])).await, "#");
    let mut order = ride();
    order["currency"] = json!("rupiah");
    assert_eq!(shop.order_refused(order).await, "#/currency");
    for query in ["limit=0", "limit=many"] {
        let request = shop.request(Method::GET, &format!("/api/v1/alerts?{query}"));
        let (_, error) = shop.refused(request, 422, "INVALID").await;
        assert_eq!(error["errors"][0]["parameter"], "limit", "{error}");
    }
    let request = shop.request(Method::DELETE, "/api/v1/admin/dispatcher/areas/JKT").header("if-match", "old");
    let (_, error) = shop.refused(request, 422, "INVALID").await;
    assert_eq!(error["errors"], json!([{ "header": "If-Match", "detail": error["message"] }]));
}

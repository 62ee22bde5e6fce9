//! docs/openapi.json names what is served, and nothing else.

use std::collections::BTreeSet;

use api::OPENAPI;
use reqwest::Method;
use serde_json::Value;

use crate::support::{Api, TestApp};

/// `/api/v1/orders/{id}`, as the code mounts it: every `.route(..)` under its `.nest(..)`.
fn mounted() -> BTreeSet<String> {
    let source = |file: &str| {
        std::fs::read_to_string(format!("{}/crates/api/src/{file}.rs", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let routes = |text: &str| -> Vec<String> {
        text.split(".route(\"").skip(1).filter_map(|rest| Some(rest.split('"').next()?.to_owned())).collect()
    };
    let root = source("lib");
    let api = root.split("pub fn admin").next().unwrap();
    let mut paths: BTreeSet<String> = routes(api).into_iter().collect();
    for nest in api.split(".nest(\"").skip(1) {
        let prefix = nest.split('"').next().unwrap();
        let module = nest.split(", ").nth(1).and_then(|rest| rest.split("::").next()).unwrap();
        for route in routes(&source(module)) {
            paths.insert(format!("{prefix}{}", route.trim_end_matches('/')));
        }
    }
    paths.remove("/openapi.json");
    paths
}

#[tokio::test]
async fn every_path_is_described_and_every_description_served() {
    let spec: Value = serde_json::from_str(OPENAPI).unwrap();
    let described: BTreeSet<String> = spec["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(described, mounted());

    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    assert_eq!(api.get("/openapi.json", "").await.body, spec);
    for (path, methods) in spec["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let somewhere = path.replace("{id}", "X-1").replace("{area_id}", "X").replace(['{', '}'], "");
            let answer = api.send(method.clone(), &somewhere, "", "", "{}").await;
            assert!(!["NOT_FOUND", "METHOD_NOT_ALLOWED"].contains(&answer.error().1), "{method} {path}: {answer:?}");
            let documented = methods[&method.as_str().to_lowercase()]["responses"].get(answer.status.to_string());
            assert!(documented.is_some(), "{method} {path} answers {}, which is not described", answer.status);
        }
    }
}

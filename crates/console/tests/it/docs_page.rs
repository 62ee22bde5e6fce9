//! The reference of the API: its switch and its headers. tests/it/browser opens it in a browser.

use test_support::{Api, TestApp, http_client};

#[tokio::test]
async fn reference_is_off_by_default() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    assert_eq!(http_client().get(api.url("/docs")).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn reference_permits_no_other_host() {
    let t = TestApp::with(|config| config.http.docs = true).await;
    let api = Api::start(&t.app).await;
    let answer = http_client().get(api.url("/docs")).send().await.unwrap();
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("http"), "{policy}");
    let page = answer.text().await.unwrap();
    let scripts: Vec<_> = page.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(scripts.len(), 2, "{page}");
    for script in scripts {
        assert_eq!(http_client().get(api.url(script)).send().await.unwrap().status(), 200, "{script}");
    }
}

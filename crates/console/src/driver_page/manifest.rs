//! Web app manifest: browsers can install the page on the home screen.

use axum::{
    Json,
    http::{HeaderName, header::CONTENT_TYPE},
};
use serde_json::{Value, json};

use super::BASE;
use crate::{assets, catalogue::tr, language::Language};

/// Serves the manifest. Browsers request it without cookies, so it needs no session.
pub(super) async fn serve_manifest() -> ([(HeaderName, &'static str); 1], Json<Value>) {
    let icon = format!("{BASE}/assets/{}", assets::icon_name());
    let manifest = json!({
        "id": BASE,
        "name": tr("driver_page.app_name").get(),
        "short_name": "dispatchq",
        "lang": Language::current().tag(),
        "start_url": BASE,
        "scope": BASE,
        "display": "standalone",
        "background_color": "#f5f4f0",
        "theme_color": "#0b6e6e",
        "icons": [{ "src": icon, "sizes": "any", "type": "image/svg+xml", "purpose": "any" }],
    });
    ([(CONTENT_TYPE, "application/manifest+json")], Json(manifest))
}

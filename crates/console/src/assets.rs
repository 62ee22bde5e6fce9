//! Style, scripts and icon, in the binary. Their names contain a hash of their content, so browsers may cache them
//! forever.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

/// Service worker of the driver page.
pub(crate) const SERVICE_WORKER: &str = include_str!("../assets/sw.js");

/// A file that pages load.
struct Asset {
    name: String,
    media_type: &'static str,
    bytes: &'static [u8],
}

impl Asset {
    fn new(stem: &str, ending: &str, media_type: &'static str, bytes: &'static [u8]) -> Self {
        let hash = hex::encode(&Sha256::digest(bytes)[..6]);
        Self { name: format!("{stem}.{hash}.{ending}"), media_type, bytes }
    }
}

/// All files.
struct Assets {
    style: Asset,
    script: Asset,
    sign_in: Asset,
    htmx: Asset,
    icon: Asset,
    driver_style: Asset,
    driver_script: Asset,
    docs_viewer: Asset,
    docs_script: Asset,
    tracking_script: Asset,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: Asset::new("console", "css", "text/css; charset=utf-8", include_bytes!("../assets/console.css")),
    script: Asset::new("console", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/console.js")),
    sign_in: Asset::new("sign-in", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/sign-in.js")),
    htmx: Asset::new("htmx", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/htmx.min.js")),
    icon: Asset::new("icon", "svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
    driver_style: Asset::new("driver", "css", "text/css; charset=utf-8", include_bytes!("../assets/driver.css")),
    driver_script: Asset::new("driver", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/driver.js")),
    docs_viewer: Asset::new(
        "redoc",
        "js",
        "text/javascript; charset=utf-8",
        include_bytes!("../assets/redoc.standalone.js"),
    ),
    docs_script: Asset::new("docs", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/docs.js")),
    tracking_script: Asset::new("track", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/track.js")),
});

pub(crate) fn style_name() -> &'static str {
    &ASSETS.style.name
}

pub(crate) fn script_name() -> &'static str {
    &ASSETS.script.name
}

pub(crate) fn sign_in_name() -> &'static str {
    &ASSETS.sign_in.name
}

pub(crate) fn htmx_name() -> &'static str {
    &ASSETS.htmx.name
}

pub(crate) fn icon_name() -> &'static str {
    &ASSETS.icon.name
}

pub(crate) fn driver_style_name() -> &'static str {
    &ASSETS.driver_style.name
}

pub(crate) fn driver_script_name() -> &'static str {
    &ASSETS.driver_script.name
}

pub(crate) fn docs_viewer_name() -> &'static str {
    &ASSETS.docs_viewer.name
}

pub(crate) fn docs_script_name() -> &'static str {
    &ASSETS.docs_script.name
}

pub(crate) fn tracking_script_name() -> &'static str {
    &ASSETS.tracking_script.name
}

/// Serves one of the files. A name always has the same content, so the answer is immutable.
pub(crate) async fn serve_asset(Path(name): Path<String>) -> Response {
    let Assets { style, script, sign_in, htmx, icon, .. } = &*ASSETS;
    let Assets { driver_style, driver_script, tracking_script, docs_viewer, docs_script, .. } = &*ASSETS;
    let of_console = [style, script, sign_in, htmx, icon];
    let of_others = [driver_style, driver_script, tracking_script, docs_viewer, docs_script];
    let Some(asset) = of_console.into_iter().chain(of_others).find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [(CONTENT_TYPE, asset.media_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.bytes).into_response()
}

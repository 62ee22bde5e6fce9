//! Pictures of the console for docs/CONSOLE.md, taken while the sample of `dispatchq replay` runs. `make screenshots`
//! takes them.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use super::chromium::Chromium;
use crate::support::{Child, eventually, secs};
use accounts::{api_keys::AccountRole, key_admin};
use app::{App, settings};

/// Plays three hours in twelve minutes: a curve gets a point each minute, and some orders always wait.
const SPEED: &str = "15";
/// Low acceptance rate, so that orders have several offers.
const ACCEPT_RATE: &str = "0.4";
/// Pickup zones of the sample. Each zone is an area.
const ZONES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/lab/src/replay/sample/zones.geojson");
/// Low enough that some areas are full.
const MAX_WAITING: &str = "4";

/// Returns the configuration of the replay's processes after it is written.
fn config_of_run(dir: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir).unwrap().filter_map(Result::ok);
    let run = entries.find(|entry| entry.file_name().to_string_lossy().starts_with("dispatchq-run-"))?;
    Some(run.path().join("config.toml")).filter(|file| file.metadata().is_ok_and(|found| found.len() > 0))
}

impl Chromium {
    async fn take_screenshot(&mut self, name: &str) {
        let taken = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        let picture = BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), picture).unwrap();
    }
}

#[tokio::test]
#[ignore = "takes minutes and writes into docs/images: make screenshots"]
async fn pictures_of_the_sample() {
    // Postgres may have to run as another user, who needs access to the directory.
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let args = [
        ["replay", "--sample", "--speed", SPEED, "--accept-rate", ACCEPT_RATE].as_slice(),
        &["--areas", ZONES, "--max-waiting-orders", MAX_WAITING],
    ]
    .concat();
    let mut replay = Child::spawn(dir.path(), "replay", &args, &[("TMPDIR", dir.path().to_str().unwrap())]);
    eventually("the replay writes its configuration", || async { config_of_run(dir.path()).is_some() }).await;
    let config = settings::load_config(config_of_run(dir.path()).as_deref()).unwrap();
    let origin = format!("http://{}", config.http.bind);
    let client = foundation::outbound::build_client(secs(10)).unwrap();
    eventually("the replay serves its API", || async {
        client.get(format!("{origin}/readyz")).send().await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    let app = App::connect(config).await.unwrap();
    let (_, key) = key_admin::create_permanent_key(&app.core.db, "operator", AccountRole::Admin, None).await.unwrap();

    let mut browser = Chromium::start().await;
    browser.resize(1280, 860, false).await;
    browser.call("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await;
    browser.sign_in(&origin, "/console", &key).await;
    for points in 2..=4_i64 {
        eventually("curves have another point", || async {
            let has_points = sqlx::query_scalar("SELECT count(DISTINCT at) >= $1 FROM waiting_snapshots").bind(points);
            has_points.fetch_one(&app.core.db).await.unwrap_or(false)
        })
        .await;
    }
    browser.open(&format!("{origin}/console")).await;
    browser.until("curves are drawn", "document.querySelectorAll('figure.chart').length >= 3").await;
    browser.take_screenshot("console-now.png").await;

    browser.open(&format!("{origin}/console/areas")).await;
    browser.until("orders wait", "document.querySelectorAll('.meter rect:not([width=\"0\"])').length >= 1").await;
    browser.take_screenshot("console-areas.png").await;

    browser.open(&format!("{origin}/console/orders?status=DRIVER_ASSIGNED")).await;
    browser.until("a driver has an order", "Boolean(document.querySelector('tbody tr a.id'))").await;
    browser.click("tbody tr a.id", "").await;
    browser.until_text("Drivers considered").await;
    browser.take_screenshot("console-order.png").await;

    app.core.close().await;
    replay.terminate();
    replay.ended().await;
}

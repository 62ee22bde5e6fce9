//! The commands of docs/DRIVER.md work in their order against real processes.

use std::{fs, path::Path};

use model::ids::DriverId;

use crate::support::{
    Fleet,
    pages::{read_steps, run_steps},
};
use accounts::{api_keys::AccountRole, key_admin};

/// Offers that last long enough for a slow machine.
const SETTINGS: &str = "[service_types.RIDE]\nattempt = \"60s\"\n";

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

#[tokio::test]
async fn commands_lead_from_sign_in_to_completion() {
    let fleet = Fleet::with("1h", SETTINGS).await;
    let _worker = fleet.running_worker("w1").await;
    let pages =
        [("DISPATCHQ_HTTP__DRIVER_PAGE", "true"), ("DISPATCHQ_HTTP__PUBLIC_URL", "https://dispatch.example.com")];
    let (_serve, api) = fleet.api_with(&pages).await;
    let made = key_admin::create_permanent_key(&fleet.app.core.db, "admin", AccountRole::Admin, None).await;
    let (_, admin) = made.unwrap();
    let steps = read_steps(&read("docs/DRIVER.md"));
    assert!(steps.len() >= 14, "{} blocks", steps.len());
    let settings = [("API", api.as_str()), ("ADMIN", admin.as_str())];
    let out = run_steps(fleet.dir(), "", &steps, &settings).concat();
    for text in ["/driver/sign-in#code=", "\"available\":true", "Budi", "\"active_order\":\"TRY-1\"", "COMPLETED"] {
        assert!(out.contains(text), "{text}: {out}");
    }
    let states = "SELECT count(*) FROM orders WHERE (id, status) IN (('TRY-1', 'COMPLETED'), ('TRY-2', 'DISPATCHING'),
                  ('TRY-3', 'DISPATCHING')) AND (id = 'TRY-3') = ('DRV-1' = ANY (former_drivers))";
    assert_eq!(fleet.count(states).await, 3, "{out}");
    let driver = DriverId::from("DRV-1");
    let record = orders::fleet::drivers::find_driver(&fleet.app.core.db, &driver).await.unwrap().unwrap();
    assert!(record.available && record.active_order.is_none() && record.latitude == -6.2088, "{record:?}");
}

#[test]
fn guide_explains_each_refusal_of_drivers() {
    let (page, texts) = (read("docs/DRIVER.md"), read("crates/console/texts/en.toml"));
    let group = texts.split_once("[driver_notice]\n").unwrap().1.split_once("\n\n").unwrap().0;
    let codes: Vec<&str> = group.lines().filter_map(|line| line.split(' ').next()).collect();
    for code in codes.iter().filter(|code| code.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')) {
        assert!(page.contains(&format!("`{code}`")), "docs/DRIVER.md does not explain {code}");
    }
    assert!(codes.len() > 15, "{codes:?}");
}

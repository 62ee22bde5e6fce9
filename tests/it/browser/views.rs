//! The views of a page: 1280, 1440 and 390 px, light and dark, with forms closed and open. Each page is checked in all of
//! them empty, with data, and after refused actions.
//!
//! `views.js` finds the faults. `DISPATCHQ_TEST_PICTURES=DIR` also writes a picture of each view.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    chromium::Chromium,
    pages::{PAGES, SUBJECT_PAGES},
    person::quoted,
    refusals::deed,
    stage::{Console, OtherSite, lay_out},
};
use accounts::api_keys::AccountRole;

const FAULTS: &str = include_str!("views.js");
/// Windows of laptops and of a phone: width, height, and whether it is a phone.
const WINDOWS: [(u32, u32, bool); 3] = [(1280, 900, false), (1440, 900, false), (390, 844, true)];

/// Script that returns the actions of the forms that require a value.
const FORMS: &str =
    "[...document.querySelectorAll('form[method=post]')].filter((form) => form.querySelector('[required]'))
    .map((form) => new URL(form.action).pathname)";

/// Actions with an invalid filter, each with the page that is shown again.
const REFUSED_FILTERS: [&str; 7] = [
    "/orders?status=NONE",
    "/charts?span=2d",
    "/map?at=nowhere&km=1",
    "/scheduled?hour=noon",
    "/jobs?state=lost",
    "/audit?from=yesterday",
    "/areas/JKT-PUSAT?hours=0",
];

impl Chromium {
    /// Returns the faults of the page's layout and colours in every view. Leaves a light window of 1280 by 800 pixels.
    pub(super) async fn find_view_faults(&mut self, what: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for (width, height, is_phone) in WINDOWS {
            self.resize(width, height, is_phone).await;
            for is_open in [false, true] {
                // Forms that show a refusal stay open.
                let fold = format!(
                    "document.querySelectorAll('details:not(:has(#refused))').forEach((part) => {{ part.open = {is_open}; }})"
                );
                self.eval(&fold).await;
                faults.extend(
                    self.find_faults(&format!("{what} at {width} px, forms open: {is_open}"), "layout", !is_phone)
                        .await,
                );
            }
            for is_dark in [false, true] {
                self.set_dark(is_dark).await;
                faults.extend(
                    self.find_faults(&format!("{what} at {width} px, dark: {is_dark}"), "colours", !is_phone).await,
                );
                self.keep_picture(&format!("{what} {width} {}", if is_dark { "dark" } else { "light" })).await;
            }
            self.set_dark(false).await;
        }
        self.resize(1280, 800, false).await;
        faults
    }

    async fn find_faults(&mut self, what: &str, part: &str, is_desk: bool) -> Vec<String> {
        let faults = self.eval(&format!("({FAULTS})({part:?}, {is_desk})")).await;
        let faults = faults.as_array().unwrap_or_else(|| panic!("{what}: {faults}"));
        faults.iter().filter_map(Value::as_str).map(|fault| format!("{what}: {fault}")).collect()
    }

    /// Writes a picture of the whole page, with forms closed, if the environment names a folder.
    async fn keep_picture(&mut self, what: &str) {
        let Some(folder) = env::var_os("DISPATCHQ_TEST_PICTURES").map(PathBuf::from) else { return };
        self.eval("document.querySelectorAll('details:not(:has(#refused))').forEach((part) => { part.open = false; })")
            .await;
        let how = json!({ "format": "png", "captureBeyondViewport": true });
        let taken = self.call("Page.captureScreenshot", how).await;
        let picture = BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        let name: String = what.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }

    /// Asserts that the refusal is explained and in the window.
    async fn assert_refusal_in_view(&mut self, what: &str) {
        let in_view = "(() => { const box = document.getElementById('refused')?.getBoundingClientRect();
            return Boolean(box) && box.height > 0 && box.top >= 0 && box.top < innerHeight; })()";
        self.until(&format!("{what}: the refusal is in view"), in_view).await;
        let text = self.eval("document.getElementById('refused').innerText.length").await;
        assert!(text.as_u64() > Some(20), "{what} is refused without an explanation");
    }
}

// Rule U1: Each form that requires a value is sent once without it, and its refusal is readable in every view.
#[tokio::test]
async fn refused_actions_are_readable_in_every_view() {
    let stage = lay_out().await;
    let mut console = Console::open(&stage.t, AccountRole::Admin).await;
    let (mut refused, mut faults) = (BTreeSet::new(), Vec::new());
    for path in PAGES.into_iter().chain(SUBJECT_PAGES) {
        console.visit(path).await;
        let forms = console.browser.eval(FORMS).await;
        for form in forms.as_array().unwrap().iter().filter_map(Value::as_str) {
            if !refused.insert(deed(form)) {
                continue;
            }
            console.visit(path).await;
            let browser = &mut console.browser;
            let send = format!(
                "(() => {{ const form = [...document.querySelectorAll('form[method=post]')]
                    .find((form) => form.querySelector('[required]') && new URL(form.action).pathname === {});
                    form.querySelectorAll('input[required]').forEach((field) => {{ field.value = ''; }});
                    form.noValidate = true; form.requestSubmit(); }})()",
                quoted(form)
            );
            browser.eval(&send).await;
            let what = format!("{} refused", deed(form));
            browser.assert_refusal_in_view(&what).await;
            faults.extend(browser.find_view_faults(&what).await);
            browser.assert_no_other_faults(&what).await;
        }
    }
    for expected in ["orders cancel", "alerts ack", "keys create", "queues pause", "new-order create", "areas override"]
    {
        assert!(refused.contains(expected), "no form for {expected}: {refused:?}");
    }
    for path in REFUSED_FILTERS {
        console.visit(path).await;
        assert_eq!(console.browser.status, 422, "{path}");
        console.browser.assert_refusal_in_view(path).await;
        faults.extend(console.browser.find_view_faults(path).await);
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Proves that the checks find the faults of a bad page.
#[tokio::test]
async fn view_checks_find_each_fault() {
    let page = "<!doctype html><html lang='en'><meta name='viewport' content='width=device-width'><title>t</title>
        <style>body { background: white; color: black; }</style>
        <main><p style='width: 900px'>wide</p><p style='color: #999'>pale</p><button style='height: 12px'>Low</button>
        <button style='position: absolute; top: 400px; left: 10px; height: 40px'>One</button>
        <button style='position: absolute; top: 420px; left: 20px; height: 40px'>Two</button>
        <div class='panel' style='width: 60px; white-space: nowrap'>a text that is too long</div></main>";
    let site = OtherSite::start(page).await;
    let mut browser = Chromium::start().await;
    browser.resize(390, 844, true).await;
    browser.open(&site.url("127.0.0.1")).await;
    let mut faults = String::new();
    for part in ["layout", "colours"] {
        faults += &browser.eval(&format!("({FAULTS})({part:?}, false)")).await.to_string();
    }
    for fault in ["outside of the window", "contrast of 2.85", "by 12 px", "covers button", "text leaves div.panel"] {
        assert!(faults.contains(fault), "{fault}: {faults}");
    }
}

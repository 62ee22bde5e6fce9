//! Checks for faults that no page may have.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{chromium::Chromium, stage::OtherSite};

/// See axe/README.md.
const AXE: &str = include_str!("axe/axe.min.js");

/// Script that returns the serious axe findings with rule and element. It waits until animations end, because text that
/// fades in has low contrast before.
const FINDINGS: &str = "Promise.all(document.getAnimations().map((one) => one.finished))
    .then(() => axe.run(document, { resultTypes: ['violations'] })).then((found) => found.violations
    .filter((rule) => ['serious', 'critical'].includes(rule.impact))
    .flatMap((rule) => rule.nodes.map((node) => `${rule.id} at ${node.target.join(' ')}: ${node.failureSummary}`)))";

impl Chromium {
    /// Returns the errors that pages reported since the last call.
    pub(super) fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }

    /// Asserts that no page reported an error since the last call: no failed script, no request refused by the policy,
    /// no missing file.
    pub(super) async fn assert_no_faults(&mut self, what: &str) {
        // Earlier errors arrive before this answer.
        self.eval("true").await;
        assert_eq!(self.take_faults(), Vec::<String>::new(), "{what}");
    }

    /// Like [`assert_no_faults`](Self::assert_no_faults) for an answer with an error. The browser reports its status as a fault.
    pub(super) async fn assert_no_other_faults(&mut self, what: &str) {
        self.eval("true").await;
        let faults = self.take_faults();
        assert!(faults.iter().all(|fault| fault.starts_with("network: ")), "{what}: {faults:?}");
    }

    /// Returns the serious and critical axe findings of the page, with all sections unfolded.
    pub(super) async fn accessibility_findings(&mut self) -> Vec<String> {
        self.eval("document.querySelectorAll('details').forEach((part) => { part.open = true; })").await;
        self.eval(&format!("{AXE}; true")).await;
        let found = self.eval(FINDINGS).await;
        let found = found.as_array().unwrap_or_else(|| panic!("axe says {found}"));
        found.iter().map(|finding| finding.as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(super) async fn assert_accessible(&mut self, what: &str) {
        let found = self.accessibility_findings().await;
        assert!(found.is_empty(), "{what}: {found:#?}");
    }

    /// Asserts that no element exceeds the right edge of the page, unless it scrolls within another element.
    pub(super) async fn assert_fits(&mut self, what: &str, width: u32) {
        let wide = "(() => { const root = document.documentElement;
            const over = [...document.querySelectorAll('main *')]
                .filter((e) => e.getBoundingClientRect().right > root.clientWidth && !e.closest('.scroll')).map((e) => e.outerHTML.slice(0, 120));
            return { window: root.clientWidth, page: root.scrollWidth, over: over.slice(0, 5) }; })()";
        let found = self.eval(wide).await;
        let fits = found["window"] == width && found["page"].as_u64().is_some_and(|page| page <= u64::from(width));
        assert!(fits, "{what} scrolls sideways at {width} px: {found:#}");
    }

    /// Returns the lightness of the page background: 0 is black, 255 is white.
    pub(super) async fn background(&mut self) -> u64 {
        let colour = self.eval("getComputedStyle(document.body).backgroundColor").await;
        let colour = colour.as_str().unwrap_or_default().to_owned();
        let parts = colour.trim_start_matches(|c: char| !c.is_ascii_digit()).trim_end_matches(')').split(',');
        let parts: Vec<u64> = parts.filter_map(|part| part.trim().parse().ok()).collect();
        assert_eq!(parts.len(), 3, "{colour}");
        parts.iter().sum::<u64>() / 3
    }
}

/// Proves that the checks find the faults of a bad page.
#[tokio::test]
async fn the_checks_find_what_they_look_for() {
    let page = "<!doctype html><html lang='en'><meta name='viewport' content='width=device-width'><title>t</title>
        <meta http-equiv='content-security-policy' content=\"default-src 'none'\">
        <body bgcolor='white'><main><h1>t</h1><p style='color:red'>refused</p><input name='unlabelled'><div><svg width='800' height='9'></svg></div></main>";
    let site = OtherSite::start(page).await;
    let mut browser = Chromium::start().await;
    browser.resize(390, 844, true).await;
    browser.open(&site.url("127.0.0.1")).await;
    browser.eval("true").await;
    let faults = browser.take_faults();
    assert!(faults.iter().any(|fault| fault.starts_with("security: ")), "{faults:?}");
    let found = browser.accessibility_findings().await;
    assert!(found.iter().any(|finding| finding.starts_with("label at input")), "{found:?}");
    let wide = browser.eval("document.documentElement.scrollWidth").await;
    assert!(wide.as_u64() > Some(390), "{wide}");
    assert_eq!(browser.background().await, 255);
    browser.eval("setTimeout(() => { throw new Error('thrown'); })").await;
    browser.until("the error was thrown", "new Promise((done) => setTimeout(() => done(true)))").await;
    let faults = browser.take_faults();
    assert!(faults.iter().any(|fault| fault.contains("thrown")), "{faults:?}");
    assert_eq!(browser.eval("1 + 1").await, Value::from(2));
}

#[test]
fn axe_is_the_file_whose_sum_is_noted() {
    let sum: String = Sha256::digest(AXE).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    assert!(include_str!("axe/README.md").contains(&sum), "{sum}");
}

//! User actions in the browser, and waits. Hidden or covered elements cannot be used.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::chromium::{Chromium, PATIENCE};
use crate::support::millis;

/// JavaScript that finds the first visible element of a selector, optionally with this text.
const FIND: &str = "const find = (css, text) => [...document.querySelectorAll(css)]
    .find((e) => e.checkVisibility() && (text === '' || e.textContent.trim() === text));";

/// Quotes a text as a JavaScript string.
pub(super) fn quoted(text: &str) -> String {
    json!(text).to_string()
}

impl Chromium {
    /// Opens an address as if it were typed.
    pub(super) async fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url })).await;
        assert_eq!(opened["errorText"], Value::Null, "{url}: {opened}");
        self.until("the page is loaded", "document.readyState === 'complete'").await;
    }

    /// Evaluates a JavaScript expression in the page.
    pub(super) async fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).await.unwrap_or_else(|problem| panic!("{expression}: {problem}"))
    }

    async fn try_eval(&mut self, expression: &str) -> Result<Value, String> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.try_call("Runtime.evaluate", params).await?;
        if let Some(details) = answer.get("exceptionDetails") {
            return Err(details.to_string());
        }
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true on the current page.
    pub(super) async fn until(&mut self, what: &str, expression: &str) {
        let begun = Instant::now();
        loop {
            // The evaluation fails when the page is closed.
            let found = self.try_eval(expression).await;
            if found == Ok(Value::Bool(true)) {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let page = self.try_eval("`${location.href}\\n${document.body.innerText.slice(0, 2000)}`").await;
                panic!("not within {PATIENCE:?}: {what} ({found:?}) on {page:#?}; {:#?}", self.faults);
            }
            sleep(millis(50)).await;
        }
    }

    /// Waits until the page shows this text.
    pub(super) async fn until_text(&mut self, text: &str) {
        let shown = format!("document.body.innerText.includes({})", quoted(text));
        self.until(&format!("the page shows '{text}'"), &shown).await;
    }

    /// Waits until the page of this path is loaded.
    pub(super) async fn until_path(&mut self, path: &str) {
        let there = format!("location.pathname === {} && document.readyState === 'complete'", quoted(path));
        self.until(&format!("the page is {path}"), &there).await;
    }

    /// Returns whether an element of this selector is visible.
    pub(super) async fn shows(&mut self, css: &str) -> bool {
        self.eval(&format!("(() => {{ {FIND} return Boolean(find({}, '')); }})()", quoted(css))).await == true
    }

    /// Clicks an element of this selector with this text as soon as it is clickable. An empty text matches any.
    pub(super) async fn click(&mut self, css: &str, text: &str) {
        let click = format!(
            "(() => {{ {FIND}
                const e = find({}, {});
                if (!e) return false;
                e.scrollIntoView({{ block: 'center', behavior: 'instant' }});
                const box = e.getClientRects()[0];
                const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                if (!top || !e.contains(top)) return false;
                e.click();
                return true; }})()",
            quoted(css),
            quoted(text)
        );
        self.until(&format!("'{css}' with '{text}' can be clicked"), &click).await;
    }

    /// Types a text into a field and replaces its value.
    pub(super) async fn fill(&mut self, css: &str, text: &str) {
        let css = quoted(css);
        let focus = format!(
            "(() => {{ {FIND} const e = find({css}, ''); if (!e) return false;
                e.focus(); e.select(); return document.activeElement === e; }})()"
        );
        self.until(&format!("{css} can be filled in"), &focus).await;
        self.call("Input.insertText", json!({ "text": text })).await;
        let filled = format!("(() => {{ {FIND} return find({css}, '')?.value === {}; }})()", quoted(text));
        self.until(&format!("{css} holds the text"), &filled).await;
    }

    /// Chooses an option of a list by its value.
    pub(super) async fn choose(&mut self, css: &str, value: &str) {
        let choose = format!(
            "(() => {{ {FIND} const e = find({}, ''); if (!e) return false;
                e.value = {value}; e.dispatchEvent(new Event('change', {{ bubbles: true }})); return e.value === {value}; }})()",
            quoted(css),
            value = quoted(value)
        );
        self.until(&format!("'{css}' offers '{value}'"), &choose).await;
    }

    /// Presses the key of this character, or a key with a name such as `ArrowDown`.
    pub(super) async fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            let event = json!({ "type": kind, "key": key, "text": text });
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    pub(super) async fn press_enter(&mut self) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { "\r" } else { "" };
            let event =
                json!({ "type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": text });
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Waits until `Fetch.enable` pauses a request.
    pub(super) async fn until_refresh_is_held_back(&mut self) {
        let begun = Instant::now();
        while self.held_back.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "the page does not refresh itself");
            sleep(millis(50)).await;
            // Earlier events arrive before this answer.
            self.eval("true").await;
        }
    }

    /// Signs in with a key and waits for this path of the console.
    pub(super) async fn sign_in(&mut self, origin: &str, path: &str, key: &str) {
        self.open(&format!("{origin}{path}")).await;
        self.fill("input[name=key]", key).await;
        self.click("button", "Sign in").await;
        self.until_path(path).await;
    }

    /// Ends the session.
    pub(super) async fn sign_out(&mut self) {
        self.click("button", "Sign out").await;
        self.until_text("Your key").await;
    }
}

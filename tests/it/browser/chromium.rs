//! A headless Chromium with one tab, controlled over the DevTools protocol.
//!
//! The protocol runs over two pipes instead of a port: no other process can connect, and no WebSocket is needed.
//! Chromium exits when the pipes close, so it never outlives its test, even when the test is killed.

use std::{
    env,
    fs::{self, File},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdin, ChildStdout},
    time::timeout,
};

use crate::support::secs;

/// Maximum time that a test waits for a browser answer or for page content.
pub(super) const PATIENCE: Duration = secs(30);

/// Programs that speak the protocol; the first one in PATH is used. The headless shell uses a third less CPU.
const NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
/// Paths on macOS.
const APPS: [&str; 2] = [
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];
const MISSING: &str =
    "no Chromium is installed: `make setup` installs it; `DISPATCHQ_TEST_BROWSER=off make test` leaves its tests out";

/// Chromium reads requests from descriptor 3 and answers on 4. The child process has them on 0 and 1.
const WITH_PIPES: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
const FLAGS: [&str; 10] = [
    "--headless",
    "--remote-debugging-pipe",
    // Containers have a small /dev/shm.
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-default-browser-check",
    "--no-first-run",
    "--lang=en-US",
];
/// Lines of Chromium's log shown when it exits early.
const TAIL: usize = 20;

/// A running browser. Dropping it ends the browser.
pub(super) struct Chromium {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Directory of its profile and log.
    dir: TempDir,
    /// Session id of the tab. Empty before the tab exists.
    session: String,
    last_id: u64,
    /// Console errors of pages, oldest first: exceptions, policy refusals, missing files.
    pub(super) faults: Vec<String>,
    /// HTTP status of the last loaded page.
    pub(super) status: u64,
    /// Addresses that pages requested, oldest first.
    pub(super) requested: Vec<String>,
    /// Requests paused by `Fetch.enable`.
    pub(super) held_back: Vec<String>,
    /// Ids of the registrations of service workers, after `ServiceWorker.enable`.
    pub(super) registrations: Vec<String>,
}

impl Chromium {
    /// Starts a browser with an empty tab of 1280 by 800 pixels.
    pub(super) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WITH_PIPES, "sh"]).arg(find_program()).args(FLAGS);
        command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
        // Chromium refuses to run as root with its sandbox, which isolates pages from the machine. These pages are
        // trusted.
        if fs::metadata(dir.path()).unwrap().uid() == 0 {
            command.arg("--no-sandbox");
        }
        command.process_group(0);
        command.arg("about:blank").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().unwrap();
        let requests = ChildStdin::from_std(process.stdin.take().unwrap()).unwrap();
        let answers = BufReader::new(ChildStdout::from_std(process.stdout.take().unwrap()).unwrap());
        let mut browser = Self {
            process,
            requests,
            answers,
            dir,
            session: String::new(),
            last_id: 0,
            faults: Vec::new(),
            status: 0,
            requested: Vec::new(),
            held_back: Vec::new(),
            registrations: Vec::new(),
        };
        browser.open_tab().await;
        browser
    }

    async fn open_tab(&mut self) {
        let tab = self.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": tab["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", attach).await;
        attached["sessionId"].as_str().unwrap().clone_into(&mut self.session);
        for domain in ["Page", "Log", "Runtime", "Network"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
        self.resize(1280, 800, false).await;
    }

    /// Attaches to the service worker and returns its session id.
    pub(super) async fn attach_to_worker(&mut self) -> String {
        let targets = self.call("Target.getTargets", json!({})).await;
        let mut all = targets["targetInfos"].as_array().unwrap().iter();
        let worker = all.find(|target| target["type"] == "service_worker").expect("a service worker");
        let attach = json!({ "targetId": worker["targetId"], "flatten": true });
        self.call("Target.attachToTarget", attach).await["sessionId"].as_str().unwrap().to_owned()
    }

    /// Directs later commands to another session. Returns the earlier one.
    pub(super) fn use_session(&mut self, session: &str) -> String {
        std::mem::replace(&mut self.session, session.to_owned())
    }

    /// Sends a command and returns its result.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).await.unwrap_or_else(|problem| panic!("{method}: {problem}"))
    }

    /// Like [`call`](Self::call), but returns an error, for example when the page is closed during the call.
    pub(super) async fn try_call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.last_id += 1;
        let id = self.last_id;
        let mut request = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        let mut message = serde_json::to_vec(&request).unwrap();
        message.push(0);
        match timeout(PATIENCE, self.requests.write_all(&message)).await {
            Ok(Ok(())) => {}
            failed => panic!("Chromium takes no more commands ({failed:?}):\n{}", self.log_tail()),
        }
        loop {
            let mut answer = self.read_message().await;
            if answer["id"] != id {
                self.note_event(&answer);
                continue;
            }
            return match answer["error"]["message"].as_str() {
                Some(problem) => Err(problem.to_owned()),
                None => Ok(answer["result"].take()),
            };
        }
    }

    /// Reads one message. A zero byte ends each message.
    async fn read_message(&mut self) -> Value {
        let mut message = Vec::new();
        let read = timeout(PATIENCE, self.answers.read_until(0, &mut message)).await;
        if !matches!(read, Ok(Ok(_))) || message.pop() != Some(0) {
            panic!("Chromium says nothing more ({read:?}):\n{}", self.log_tail());
        }
        serde_json::from_slice(&message).unwrap()
    }

    fn note_event(&mut self, event: &Value) {
        let params = &event["params"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match event["method"].as_str().unwrap_or_default() {
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                let entry = &params["entry"];
                self.faults.push(format!("{}: {} ({})", text(&entry["source"]), text(&entry["text"]), entry["url"]));
            }
            "Runtime.exceptionThrown" => self.faults.push(format!("exception: {}", params["exceptionDetails"])),
            "Network.responseReceived" if params["type"] == "Document" => {
                self.status = params["response"]["status"].as_u64().unwrap_or_default();
            }
            "Network.requestWillBeSent" => self.requested.push(text(&params["request"]["url"])),
            "ServiceWorker.workerRegistrationUpdated" => {
                let updated = params["registrations"].as_array().into_iter().flatten();
                self.registrations.extend(updated.map(|one| text(&one["registrationId"])));
            }
            "Fetch.requestPaused" => self.held_back.push(text(&params["requestId"])),
            _ => {}
        }
    }

    /// Sets the window size. A phone has touch and a mobile layout.
    pub(super) async fn resize(&mut self, width: u32, height: u32, is_phone: bool) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Makes pages see a preference for dark or light mode.
    pub(super) async fn set_dark(&mut self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // On Debian a script starts the shell, so the whole process group is killed.
        let _ =
            Command::new("/bin/sh").args(["-c", "kill -KILL -\"$1\"", "sh", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

fn find_program() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = NAMES.iter().flat_map(|name| env::split_paths(&path).map(move |dir| dir.join(name)));
    in_path.chain(APPS.map(PathBuf::from)).find(|file| file.is_file()).expect(MISSING)
}

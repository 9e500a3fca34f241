//! A real browser without a window, spoken to in Chromium's DevTools protocol over its own pipes.

use crate::say;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Once;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long the browser may take to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// The browser of this machine: `FLUX_STATS_BROWSER`, or a Chromium on PATH. Where there is none, one line says so.
pub fn found() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let on_path = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    };
    let named = std::env::var_os("FLUX_STATS_BROWSER").map(PathBuf::from);
    let browser =
        named.or_else(|| ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(on_path));
    if browser.is_none() {
        SAID.call_once(|| say("skipped: the report in a browser, for there is no chromium here"));
    }
    browser
}

/// A browser with one page.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    last: u64,
    /// What it told without having been asked, since the page was opened.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it; it ends when it is dropped.
    pub fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It reads descriptor 3 and writes 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null 2>&1 </dev/null";
        let mut process = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), messages(process.stdout.take().unwrap()));
        let mut browser = Browser {
            process,
            to,
            from,
            session: String::new(),
            last: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session =
            browser.ask("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Asks, and awaits the answer.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.to.flush().unwrap();
        let start = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(start.elapsed());
            let message = self
                .from
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("the browser does not answer {method}"));
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// What an expression is in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.ask(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// How wide and high the window is, and whether its owner likes it dark.
    pub fn window(&mut self, width: u32, height: u32, dark: bool) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.ask("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", feature);
    }

    /// Opens a file, and awaits that it is drawn.
    pub fn open(&mut self, file: &Path) {
        self.events.clear();
        self.ask("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        let start = Instant::now();
        while self.evaluate("document.readyState") != "complete" {
            assert!(start.elapsed() < LIMIT, "the page is not complete");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.settle();
    }

    /// Until two frames have been drawn.
    pub fn settle(&mut self) {
        self.evaluate(
            "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => drawn(1))))",
        );
    }

    /// Errors and warnings of the page since it was opened.
    pub fn complaints(&self) -> Vec<String> {
        let complaint = |event: &Value| match event["method"].as_str()? {
            "Runtime.exceptionThrown" => Some(event["params"]["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" => Some(event["params"]["args"].to_string()),
            "Log.entryAdded" => Some(event["params"]["entry"].to_string()),
            _ => None,
        };
        self.events.iter().filter_map(complaint).collect()
    }

    /// What the page asked for since it was opened, itself included.
    pub fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap_or("?").to_owned()).collect()
    }

    /// A picture of the whole page, as PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let shown = self.ask("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        STANDARD.decode(shown["data"].as_str().unwrap()).unwrap()
    }

    /// The page on paper, as PDF.
    pub fn print(&mut self) -> Vec<u8> {
        let printed = self.ask("Page.printToPDF", json!({ "paperWidth": 8.27, "paperHeight": 11.69 }));
        STANDARD.decode(printed["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let start = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Its messages, each ended by a zero, read by a thread that ends with it.
fn messages(output: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut message = Vec::new();
        while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
            message.pop();
            let Ok(value) = serde_json::from_slice(&message) else { break };
            if sender.send(value).is_err() {
                break;
            }
            message.clear();
        }
    });
    receiver
}

//! A headless browser: Debian's Chromium, controlled by its DevTools protocol over a pair of pipes,
//! so that no driver is needed.

use crate::sandbox::{Need, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use waiting::eventually;

/// Path at which `cargo xtask setup test` leaves axe-core.
pub(crate) const AXE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../tools/axe.min.js");

/// What a story needs that looks at a page beside a switch, on all sizes and for barriers.
pub(crate) const NEEDS: [Need; 4] = [
    Need::Tap,
    Need::Program("ethtool"),
    Need::Program("chromium"),
    Need::Brought(AXE, "axe-core"),
];

/// One page of a separate browser.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    /// Errors and refusals that the page's own scripts caused.
    complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser with an empty page. It reads commands from descriptor 3 and answers to 4.
    ///
    /// IPv6 is switched off in the story's world: the kernel completes an address one or two
    /// seconds after a device comes up, and each new address makes Chromium abort what it loads
    /// (`ERR_NETWORK_CHANGED`).
    pub(crate) fn open() -> Browser {
        run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null",
            "sh",
        ]);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.arg("--hide-scrollbars");
        command.args([
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-background-networking",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.env("HOME", profile.path()).env("XDG_RUNTIME_DIR", profile.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut browser = Browser {
            child,
            to,
            from: BufReader::new(from),
            session: None,
            calls: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser
            .call("Target.attachToTarget", json!({"targetId": page["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens an address.
    pub(crate) fn visit(&mut self, address: &str) {
        let answer = self.call("Page.navigate", json!({"url": address}));
        assert!(answer["errorText"].is_null(), "{address}: {answer}");
    }

    /// Runs a script in each page before the page's own.
    pub(crate) fn prepare(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": script}));
    }

    /// Returns the value of an expression in the page, awaited if it is a promise.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, what: &str, expression: &str) {
        let held = eventually(|| (self.value(expression) == true).then_some(()));
        if held.is_none() {
            let text = self.value("document.body.innerText");
            panic!("waited in vain until {what}; the page says: {text}; {:?}", self.complaints);
        }
    }

    /// Presses a key, as Input.dispatchKeyEvent names it.
    pub(crate) fn press(&mut self, key: &str) {
        // The character that Enter writes is what submits a form.
        let down = match key {
            "Enter" => json!({"type": "keyDown", "key": key, "code": key, "text": "\r"}),
            _ => json!({"type": "rawKeyDown", "key": key, "code": key}),
        };
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "code": key}));
    }

    /// Types text where the focus is.
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Drags along a line with the left button, between two places of an element: shares of its
    /// width from its left.
    pub(crate) fn drag(&mut self, selector: &str, shares: [f64; 2]) {
        let measured = self.value(&format!(
            "(() => {{ const it = document.querySelector('{selector}'); it.scrollIntoView({{block: 'center'}}); \
             const {{left, top, width, height}} = it.getBoundingClientRect(); return [left, top + height / 2, width]; }})()"
        ));
        let measured = |place: usize| measured[place].as_f64().unwrap();
        let [from, to] = shares.map(|share| measured(0) + share * measured(2));
        for (kind, x, buttons) in [
            ("mouseMoved", from, 0),
            ("mousePressed", from, 1),
            ("mouseMoved", to, 1),
            ("mouseReleased", to, 0),
        ] {
            let mouse = json!({"type": kind, "x": x, "y": measured(1), "button": "left", "buttons": buttons, "clickCount": 1});
            self.call("Input.dispatchMouseEvent", mouse);
        }
    }

    /// Sets the window's size, and whether the system is dark.
    pub(crate) fn look(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// Saves a picture of the whole page in the directory `MILLRACE_PICTURES`, for people, if that
    /// is set.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("MILLRACE_PICTURES") else { return };
        let answer = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let coded = answer["data"].as_str().unwrap();
        let path = Path::new(&directory).join(format!("{name}.png"));
        let mut decode = Command::new("base64");
        decode.arg("-d").stdin(Stdio::piped()).stdout(std::fs::File::create(path).unwrap());
        let mut decoding = decode.spawn().unwrap();
        decoding.stdin.take().unwrap().write_all(coded.as_bytes()).unwrap();
        assert!(decoding.wait().unwrap().success());
    }

    /// Returns the serious and critical findings of axe-core, one line each.
    pub(crate) fn barriers(&mut self) -> Vec<String> {
        let script = std::fs::read_to_string(AXE).unwrap();
        self.value(&format!("{script};true"));
        let found = self.value(
            "axe.run().then(({violations}) => violations.map(({id, impact, nodes}) => \
             ({id, impact, at: nodes.map(({html}) => html.slice(0, 160))})))",
        );
        let is_bad =
            |found: &&Value| ["serious", "critical"].iter().any(|bad| found["impact"] == *bad);
        found.as_array().unwrap().iter().filter(is_bad).map(Value::to_string).collect()
    }

    /// Returns the errors and refusals so far.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut text = Vec::new();
            self.from.read_until(0, &mut text).unwrap();
            text.pop().expect("the browser has ended");
            let message: Value = serde_json::from_slice(&text).unwrap();
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let told = &event["params"];
        let is_error = |level: &Value| level == "error" || level == "warning";
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(&told["exceptionDetails"]),
            Some("Log.entryAdded") => {
                Some(&told["entry"]).filter(|entry| is_error(&entry["level"]))
            }
            _ => None,
        };
        self.complaints.extend(complaint.map(Value::to_string));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

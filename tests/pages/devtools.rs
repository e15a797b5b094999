//! A Chromium that is driven: keys are pressed and the document is read, by its DevTools protocol over two pipes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::LONG;
use crate::common::{patience, test_dir, wait_for};

pub const FLAGS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// `CHROMIUM` names one; else the one in `PATH`. `None`: there is none.
pub fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("chromium")).find(|file| file.is_file());
    named.or(found)
}

#[derive(Debug)]
#[allow(dead_code)] // As below.
pub struct AccessibleNode {
    pub role: String,
    pub name: String,
    pub is_focusable: bool,
}

pub struct Browser {
    child: Child,
    requests: ChildStdin,
    messages: Receiver<Value>,
    next: u64,
    /// Of the page.
    session: Value,
    /// Exceptions and violated policies, as the browser reports them.
    pub errors: Vec<Value>,
    _profile: tempfile::TempDir,
}

// The tests press keys, the benchmark of the page asks for the process.
#[allow(dead_code)]
impl Browser {
    pub fn open(chromium: &Path, url: &str) -> Browser {
        let profile = test_dir();
        // It reads requests from descriptor 3 and writes answers to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"])
            .arg(chromium)
            .args(FLAGS)
            .args(["--remote-debugging-pipe", "--window-size=1280,800"])
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (requests, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message else { return };
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let (errors, session) = (Vec::new(), Value::Null);
        let mut browser = Browser { child, requests, messages, next: 0, session, errors, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].clone();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}));
        }
        browser.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
        browser.call("Page.navigate", json!({"url": url}));
        browser.waits_for("location.href !== 'about:blank' && document.readyState === 'complete'");
        browser
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut request = json!({"id": self.next, "method": method, "params": params});
        if self.session.is_string() {
            request["sessionId"] = self.session.clone();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).unwrap();
        loop {
            let message = self.messages.recv_timeout(LONG * patience());
            let mut message = message.unwrap_or_else(|_| panic!("no answer to {method}"));
            let level = &message["params"]["entry"]["level"];
            if message["method"] == "Runtime.exceptionThrown"
                || (message["method"] == "Log.entryAdded" && level == "error")
            {
                self.errors.push(message);
            } else if message["id"] == self.next {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let mut answer = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    #[track_caller]
    pub fn waits_for(&mut self, expression: &str) {
        let value = || (self.value(expression) == true).then_some(());
        wait_for(expression, LONG * patience(), value);
    }

    /// Role and name of all that a screen reader finds; a row has the names of its head cells.
    pub fn accessible(&mut self) -> Vec<AccessibleNode> {
        let mut tree = self.call("Accessibility.getFullAXTree", json!({}));
        let nodes: Vec<Value> = std::mem::take(tree["nodes"].as_array_mut().unwrap());
        let text = |node: &Value, field: &str| node[field]["value"].as_str().unwrap_or_default().to_owned();
        let by_id: BTreeMap<&str, &Value> = nodes.iter().map(|node| (node["nodeId"].as_str().unwrap(), node)).collect();
        let parent = |node: &&Value| by_id.get(node["parentId"].as_str()?).copied();
        let mut heads: BTreeMap<&str, String> = BTreeMap::new();
        for node in nodes.iter().filter(|node| ["rowheader", "columnheader"].contains(&&*text(node, "role"))) {
            let row = std::iter::successors(Some(node), parent).find(|above| text(above, "role") == "row");
            if let Some(row) = row {
                heads.entry(row["nodeId"].as_str().unwrap()).or_default().push_str(&text(node, "name"));
            }
        }
        let shown = nodes.iter().filter(|node| node["ignored"] != true);
        let described = shown.map(|node| {
            let properties = node["properties"].as_array().into_iter().flatten();
            let has_focus = |one: &Value| one["name"] == "focusable" && one["value"]["value"] == true;
            let (role, name) = (text(node, "role"), text(node, "name"));
            let head = heads.get(node["nodeId"].as_str().unwrap()).filter(|_| name.is_empty());
            AccessibleNode {
                is_focusable: properties.into_iter().any(has_focus),
                name: head.cloned().unwrap_or(name).trim().to_owned(),
                role,
            }
        });
        described.collect()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Size of the window, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// One key: a character, or the name of another key.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            character => (0, character),
        };
        let mut event = json!({"type": if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "key": key});
        if code > 0 {
            event["code"] = key.into();
            event["windowsVirtualKeyCode"] = code.into();
        }
        if !text.is_empty() {
            event["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = "keyUp".into();
        if let Some(event) = event.as_object_mut() {
            event.remove("text");
        }
        self.call("Input.dispatchKeyEvent", event);
    }

    pub fn types(&mut self, word: &str) {
        word.chars().for_each(|c| self.press(c.encode_utf8(&mut [0; 4])));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

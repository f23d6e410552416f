"""Chromium over WebDriver and Firefox over Marionette, with the standard library only.

Both have the same methods. Debian has no geckodriver, so Firefox is driven by its own protocol: frames of
`LENGTH:JSON` on a TCP port, with the commands of WebDriver.
"""

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class BrowserError(Exception):
    """A command of the browser failed."""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(what, check, seconds=20):
    """Polls `check` until it returns something true."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Browser:
    """Commands that both browsers share."""

    def command(self, name, **params):
        raise NotImplementedError

    def go(self, url):
        self.command("Navigate", url=url)

    def script(self, body, *args):
        """Runs a function body in the page and returns its result, also that of a promise."""
        wrapped = (
            "const done = arguments[arguments.length - 1], args = [...arguments].slice(0, -1);"
            f"(async function (args) {{ {body} }})(args)"
            ".then((value) => done({ value }), (error) => done({ error: String(error?.stack ?? error) }))"
        )
        # Firefox returns nothing if the page is loaded again before the end of the script.
        result = self.command("ExecuteAsyncScript", script=wrapped, args=list(args)) or {}
        if "error" in result:
            raise BrowserError(result["error"])
        return result.get("value")

    def wait(self, body, *args, seconds=20, what=None):
        """Polls an expression in the page until it is true, and returns its value."""
        return wait_for(what or body, lambda: self.script(f"return ({body});", *args), seconds)

    def find(self, selector):
        return self.command("FindElement", using="css selector", value=selector)[ELEMENT]

    def type(self, selector, text):
        self.command("ElementSendKeys", id=self.find(selector), text=text)

    def click(self, selector):
        self.command("ElementClick", id=self.find(selector))

    def press(self, text, within="body"):
        """Clicks the button or link with this text or accessible name, as a user does."""
        marked = self.wait(
            """(() => {
              document.querySelectorAll("[data-press]").forEach((node) => node.removeAttribute("data-press"));
              const all = [...document.querySelectorAll(args[1] + " button, " + args[1] + " a, " + args[1] + " summary")];
              const node = all.find((n) => (n.getAttribute("aria-label") ?? n.textContent).trim() === args[0] && n.getAttribute("aria-disabled") !== "true" && n.checkVisibility());
              if (!node) return false;
              node.setAttribute("data-press", "");
              return true;
            })()""",
            text,
            within,
            what=f"a button {text!r}",
        )
        assert marked
        self.click("[data-press]")

    def hover(self, selector):
        """Moves the mouse to the middle of an element."""
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {ELEMENT: self.find(selector)}}
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
        self.command("PerformActions", actions=[mouse])

    def text(self, selector="main"):
        return self.script("return document.querySelector(args[0])?.innerText ?? '';", selector)

    def size(self, width, height=900):
        raise NotImplementedError

    def scheme(self, dark):
        raise NotImplementedError

    def shot(self, path):
        Path(path).write_bytes(base64.b64decode(self.command("TakeScreenshot", full=False)))


class Chromium(Browser):
    name = "chromium"
    ROUTES = {
        "Navigate": ("POST", "url"),
        "ExecuteAsyncScript": ("POST", "execute/async"),
        "FindElement": ("POST", "element"),
        "TakeScreenshot": ("GET", "screenshot"),
        "Cdp": ("POST", "goog/cdp/execute"),
        "ElementClick": ("POST", "element/{id}/click"),
        "ElementSendKeys": ("POST", "element/{id}/value"),
        "Back": ("POST", "back"),
        "PerformActions": ("POST", "actions"),
    }

    def __init__(self):
        self.port = free_port()
        self.profile = tempfile.mkdtemp(prefix="page-chromium-")
        self.driver = subprocess.Popen(
            [shutil.which("chromedriver"), f"--port={self.port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        wait_for("chromedriver", self.ready)
        options = {
            "binary": shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"),
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={self.profile}",
                     "--js-flags=--expose-gc", "--enable-precise-memory-info"],
        }
        made = self.http("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "timeouts": {"script": 60000}}}})
        self.session = made["sessionId"]

    def ready(self):
        try:
            return self.http("GET", "/status")["ready"]
        except (OSError, BrowserError):
            return False

    def http(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, None if body is None else json.dumps(body))
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(value, dict) and "error" in value and "message" in value:
            raise BrowserError(f"{value['error']}: {value['message'].splitlines()[0]}")
        return value

    def command(self, name, **params):
        method, path = self.ROUTES[name]
        path = f"/session/{self.session}/{path.format(**params)}"
        return self.http(method, path, None if method == "GET" else params)

    def cdp(self, cmd, **params):
        return self.command("Cdp", cmd=cmd, params=params)

    def size(self, width, height=900):
        # A window of headless Chromium is at least 500 wide; the metrics of the device are not.
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, dark):
        value = "dark" if dark else "light"
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def heap(self):
        """Bytes of the page's JavaScript heap after a collection."""
        self.cdp("HeapProfiler.collectGarbage")
        return self.cdp("Runtime.getHeapUsage")["usedSize"]

    def close(self):
        try:
            self.http("DELETE", f"/session/{self.session}")
        except (OSError, BrowserError):
            pass
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Firefox(Browser):
    name = "firefox"

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="page-firefox-")
        self.port = free_port()
        settings = {
            "marionette.port": self.port,
            "browser.shell.checkDefaultBrowser": False,
            "datareporting.policy.dataSubmissionEnabled": False,
            "app.update.enabled": False,
            "toolkit.telemetry.reportingpolicy.firstRun": False,
            "layout.css.devPixelsPerPx": "1.0",
        }
        lines = [f"user_pref({json.dumps(key)}, {json.dumps(value)});" for key, value in settings.items()]
        Path(self.profile, "user.js").write_text("\n".join(lines))
        self.process = subprocess.Popen(
            [shutil.which("firefox-esr") or shutil.which("firefox"), "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", self.profile],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": self.profile, "MOZ_DISABLE_CONTENT_SANDBOX": "1"},
        )
        self.socket = wait_for("Firefox", self.connect, 60)
        self.number = 0
        self.read()
        self.raw("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"timeouts": {"script": 60000}}}})

    def connect(self):
        try:
            return socket.create_connection(("127.0.0.1", self.port), timeout=120)
        except OSError:
            return None

    def read(self):
        length = b""
        while True:
            byte = self.socket.recv(1)
            if byte == b":":
                break
            if not byte:
                raise BrowserError("Firefox closed the connection")
            length += byte
        data = b""
        while len(data) < int(length):
            data += self.socket.recv(int(length) - len(data))
        return json.loads(data)

    def raw(self, name, params):
        self.number += 1
        text = json.dumps([0, self.number, name, params]).encode()
        self.socket.sendall(str(len(text)).encode() + b":" + text)
        _, _, error, result = self.read()
        if error:
            raise BrowserError(f"{error['error']}: {error['message']}")
        return result

    def command(self, name, **params):
        result = self.raw(f"WebDriver:{name}", params)
        return result["value"] if isinstance(result, dict) and "value" in result else result

    def size(self, width, height=900):
        # The window of headless Firefox is at least 450 wide, the viewport of the content is set by its own page.
        self.raw("WebDriver:SetWindowRect", {"width": width, "height": height})

    def scheme(self, dark):
        self.raw("Marionette:SetContext", {"value": "chrome"})
        body = "Services.prefs.setIntPref('layout.css.prefers-color-scheme.content-override', arguments[0]);"
        self.raw("WebDriver:ExecuteScript", {"script": body, "args": [0 if dark else 1], "sandbox": "system"})
        self.raw("Marionette:SetContext", {"value": "content"})

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

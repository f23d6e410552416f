#!/usr/bin/env python3
"""Tests of the page in real browsers: the real daemon, real sessions, a scripted model behind the real agent.

    tests/page/run.py --quack target/debug/quack [--quick] [--browser chromium] [--shots DIR] [--only NAME]

Needs chromium and chromium-driver, and firefox-esr unless --browser chromium. The accessibility check needs axe-core
(`--axe .../axe.min.js` or QUACKD_AXE), the check of types needs tsc (in PATH, or QUACKD_TSC); without them these two are
skipped, and fail with QUACKD_REQUIRE=all. --quick: one browser, fewer sessions, at most 120 s.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from browser import BrowserError, Chromium, Firefox, wait_for  # noqa: E402
from world import ROOT, Refused, World  # noqa: E402

ASSETS = ROOT / "crates/remote/assets"
RIGHTS = {"approvals": True, "apply": True, "terminals": True}
EVIL = (
    "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script> "
    "[click](javascript:window.hacked=1) javascript:window.hacked=1 data:text/html,x "
    "\u202etxt.exe\u202c \u2066x\u2069 zero\u200bwidth \x1b]0;title\x07\x1b[31mred\x1b[0m \x1b[2J https://user@evil.example/ "
    "https://good.example/a?b=c http://xn--80ak6aa92e.example/"
)
SCRIPT = {
    "models": ["fake-1"],
    "rules": [
        {"if": {"last_user": "hostile"}, "reply": {"text": EVIL}},
        {"if": {"last_user": "slow", "last_role": "user"}, "reply": {"text": "I wait.", "tool_calls": [{"name": "bash", "arguments": {"command": "until [ -e go ]; do sleep 0.1; done; echo went"}}]}},
        {"if": {"last_role": "tool"}, "reply": {"text": "The tests **pass**. See https://example.org/docs and `make`.\n\n```\nok 3\n```"}},
    ],
    "replies": [{"text": "I run the tests.", "tool_calls": [{"name": "bash", "arguments": {"command": "echo from-the-agent; exit 3"}}]}],
    "on_exhausted": "repeat_last",
}
SKIPPED = []


def skip(why):
    if os.environ.get("QUACKD_REQUIRE") == "all":
        raise AssertionError(why)
    SKIPPED.append(why)
    print(f"    skipped: {why}")


class Page:
    """One signed-in page in a browser."""

    def __init__(self, world, browser, rights=None):
        self.world, self.browser = world, browser
        browser.size(1440)
        browser.go("about:blank")
        browser.go(world.link(**(RIGHTS if rights is None else rights)))
        self.connected()

    def connected(self):
        self.browser.wait("document.getElementById('connection').textContent === 'connected' && !document.getElementById('views').hidden")

    def view(self, name):
        """Shows a view, and waits until it has its content."""
        self.browser.script("if (location.hash === '#/' + args[0]) dispatchEvent(new HashChangeEvent('hashchange')); else location.hash = '#/' + args[0];", name)
        self.browser.wait("!!document.querySelector('main h1') && !document.querySelector('main').innerText.includes('Loading …') && !document.querySelector('[aria-busy=true]')", what=f"view {name}")

    def has(self, text, selector="main", seconds=20):
        self.browser.wait("document.querySelector(args[1])?.innerText.includes(args[0])", text, selector, seconds=seconds, what=f"{text!r} in {selector}")


# Each test gets a page and the sessions of the world.


def signs_in_by_a_code_that_counts_once(page, _sessions):
    browser = page.browser
    assert browser.script("return location.hash + location.search") in ("", "#/sessions")
    link = page.world.link()
    browser.script("sessionStorage.clear(); localStorage.clear();")
    browser.go("about:blank")
    browser.go(link)
    page.connected()
    assert "code=" not in browser.script("return location.href + JSON.stringify(history.state)")
    assert browser.script("return localStorage.length") == 0, "nothing stays unless the user wants it"
    assert browser.script("return document.cookie") == ""
    # A reload keeps the tab signed in; the code of the link does not count again.
    browser.go(link.split("#")[0])
    page.connected()
    browser.script("sessionStorage.clear();")
    browser.go("about:blank")
    browser.go(link)
    page.has("The code is wrong, used or older than 10 minutes")


def stays_signed_in_if_the_user_wants_it(page, _sessions):
    browser = page.browser
    browser.press("Sign out")
    browser.click("dialog input")
    browser.press("Cancel", "dialog")
    browser.script("sessionStorage.clear()")
    browser.go("about:blank")
    browser.go(page.world.link().split("#")[0])
    page.connected()
    ids = lambda: {one["id"] for one in page.world.wire.request("quack.page_tokens")["tokens"]}
    before = ids()
    browser.press("Sign out")
    browser.press("Sign out", "dialog")
    page.has("Sign in")
    wait_for("the revocation", lambda: len(before - ids()) == 1)
    assert browser.script("return sessionStorage.length + localStorage.length") == 0
    printed = json.loads(page.world.run("open", "--print", "--json", "--approvals"))
    browser.type("main input", printed["link"])
    browser.press("Sign in")
    page.connected()


def does_not_move_while_it_loads(page, sessions):
    if page.browser.name != "chromium":
        return
    for view in views_of(sessions):
        page.browser.go("about:blank")
        page.browser.go(page.world.link(**RIGHTS).split("#")[0] + f"#/{view}")
        page.connected()
        page.view(view)
        # The time in which shifts are counted.
        page.browser.script("await new Promise((resolve) => setTimeout(resolve, args[0]))", 500 if ARGS.quick else 3000)
        shift = page.browser.script("""return await new Promise((resolve) => new PerformanceObserver((list) =>
          resolve(list.getEntries().filter((one) => !one.hadRecentInput).reduce((sum, one) => sum + one.value, 0))).observe({ type: "layout-shift", buffered: true }) ?? setTimeout(() => resolve(0), 500))""")
        assert shift < 0.1, f"{view}: {shift}"


def shows_sessions_in_groups(page, sessions):
    page.view("sessions")
    page.has("demo")
    text = page.browser.text()
    assert "Done (" in text and "tier " in text and "isolated" in text, text
    call = threading.Thread(target=page.world.session_call, args=(sessions["busy"], "until [ -e go-busy ]; do sleep 0.1; done"))
    call.start()
    try:
        page.has("Working (2)")
        page.browser.press("Abort project/busy")
        call.join(20)
        assert not call.is_alive(), "the page ends the call"
    finally:
        (page.world.repo / "go-busy").touch()
        call.join()


def makes_and_deletes_a_session(page, _sessions):
    browser = page.browser
    page.view("sessions")
    browser.press("New session")
    browser.script("const [path, name] = document.querySelectorAll('dialog input'); path.value = args[0]; name.value = 'made';", str(page.world.repo))
    browser.press("Create", "dialog")
    page.has("project/made", "h1")
    browser.press("Delete")
    assert "project/made" in browser.text("dialog"), "the confirmation names the target"
    browser.press("Delete project/made", "dialog")
    browser.wait("location.hash === '#/sessions'")
    names = [one["name"] for one in page.world.wire.request("sessions", all=True)["sessions"]]
    assert "made" not in names


def shows_calls_as_they_happen(page, sessions):
    page.view(f"session/{sessions['demo']}")
    go = page.world.repo / "go-demo"
    call = threading.Thread(target=page.world.session_call, args=(sessions["demo"], "echo first; until [ -e go-demo ]; do sleep 0.1; done; echo second; exit 7"))
    call.start()
    try:
        page.has("first", ".log")
        page.has("running …", ".log")
        assert "second" not in page.browser.script("return [...document.querySelectorAll('.log pre')].at(-1).textContent")
    finally:
        go.touch()
        call.join()
    page.has("second", ".log")
    page.has("exit code 7", ".log")
    go.unlink()
    # The last line of the session is in the list.
    page.view("sessions")
    page.has("second", ".virtual")


def shows_denials_with_their_remedy(page, sessions):
    # A page that may answer is asked first.
    page = Page(page.world, page.browser, rights={})
    page.view(f"session/{sessions['demo']}")
    page.world.tool(sessions["demo"], "echo x > /etc/quackd-test; curl -sS https://denied.example")
    page.has("Denied: network denied.example:443", ".log")
    page.has("To allow it: quack sandbox allow denied.example --session project/demo", ".log")
    page.has("Probably denied: write /etc/quackd-test", ".log")


def talks_to_the_agent_and_steers(page, sessions):
    browser = page.browser
    page.view(f"session/{sessions['agent']}")
    browser.type("textarea", "run the tests")
    browser.press("Send")
    page.has("I run the tests.", ".log")
    page.has("from-the-agent", ".log")
    page.has("The tests pass.", ".log")
    link = browser.script("const a = document.querySelector('.log a'); return [a.href, a.rel, a.target, a.textContent];")
    assert link == ["https://example.org/docs", "noopener noreferrer", "_blank", "https://example.org/docs"], link
    go = page.world.repo / "go"
    try:
        browser.type("textarea", "slow")
        browser.press("Send")
        page.has("Steer", ".prompt")
        browser.type("textarea", "and look at this")
        browser.press("Steer")
        page.has("For the running turn: and look at this", ".log")
    finally:
        go.touch()
    page.has("went", ".log")
    page.has("Send", ".prompt")
    go.unlink()
    # The conversation is there for a page that comes later.
    page.view("sessions")
    page.view(f"session/{sessions['agent']}")
    page.has("run the tests", ".log")
    page.has("and look at this", ".log")


def answers_a_question(page, sessions):
    page.view("questions")
    results = []
    call = threading.Thread(target=lambda: results.append(page.world.session_call(sessions["demo"], "curl -sS https://asked.example")))
    call.start()
    try:
        page.has("asked.example:443", ".card")
        page.has("1", "#asked")
        assert page.browser.script("return document.querySelector('.card').firstElementChild.textContent") == "asked.example:443", "the target comes first"
        assert page.browser.script("return document.title").startswith("(1) ")
        page.browser.press("Allow for this session: asked.example:443")
        call.join(30)
    finally:
        call.join(60)
    assert "was allowed by the user for this session" in results[0]["text"], results
    page.has("No open questions")
    page.has("Allowed for session project/demo")
    page.browser.press("Revoke asked.example:443")
    page.has("Revoked")
    assert page.world.wire.request("quack.sandbox", sessionId=sessions["demo"]).get("grants", []) == []


def keeps_a_closed_question_in_its_place(page, sessions):
    browser = page.browser
    page.view("questions")
    calls = []
    try:
        for name in ("first", "second"):
            call = threading.Thread(target=page.world.session_call, args=(sessions["demo"], f"curl -sS https://{name}.example"))
            call.start()
            calls.append(call)
            page.has(f"{name}.example:443", ".cards")
        places = "return [...document.querySelectorAll('.cards:first-of-type > .card')].map((node) => [node.offsetTop, node.offsetLeft])"
        before = browser.script(places)
        assert len(before) == 2
        browser.hover(".card:nth-child(2) .danger")
        first = page.world.wire.request("quack.approvals")["pending"][0]["request"]["id"]
        page.world.wire.request("quack.answer", id=first, decision="deny")
        page.has("Denied (once) by", ".cards")
        assert browser.script(places) == before, "the second card stays under the pointer"
        assert browser.script("return [...document.querySelectorAll('.cards:first-of-type .actions')].map((node) => node.inert)") == [True, False]
        browser.hover("h2:last-of-type")
        assert browser.script(places) == before, "nor does anything below move while the pointer is there"
        browser.hover("nav a")
        browser.wait("document.querySelectorAll('.over').length === 0")
        page.has("second.example:443", ".cards")
    finally:
        page.world.deny_all()
        for call in calls:
            call.join(60)


def shows_calls_that_began_before(page, _sessions):
    session = page.world.session("early")
    call = threading.Thread(target=page.world.session_call, args=(session, "until [ -e go-early ]; do sleep 0.1; done; echo came-late"))
    call.start()
    try:
        wait_for("the call", lambda: any(one["calls"] for one in page.world.wire.request("quack.ps")["workers"] if one["sessionId"] == session))
        page.view(f"session/{session}")
        page.has("running …", ".log")
    finally:
        (page.world.repo / "go-early").touch()
        call.join()
    page.has("came-late", ".log")
    (page.world.repo / "go-early").unlink()
    assert browser_items(page) == 1, "the end belongs to the same item"


def browser_items(page):
    return page.browser.script("return document.querySelectorAll('.log > li').length")


def captured(page):
    """Connects the page again, by a WebSocket that the test can give messages of its own."""
    page.browser.script("""
      const Native = WebSocket;
      window.WebSocket = class extends Native { constructor(url) { super(url); window.captured = this; } };
      dispatchEvent(new Event("pagehide"));""")
    page.browser.wait("!!window.captured && document.getElementById('connection').textContent === 'connected'")


def draws_hostile_json_as_text(page, sessions):
    page.view(f"session/{sessions['hostile']}")
    captured(page)
    hostile = {"class": "evil", "onclick": "window.hacked=1", "hidden": True, "id": "main"}
    events = [
        ("tool_execution_start", {"toolCallId": "x", "toolName": hostile, "args": hostile}),
        ("tool_execution_end", {"toolCallId": "x", "toolName": hostile, "isError": True, "result": {"content": [{"text": "end"}], "details": {"hint": hostile}}}),
        ("message_end", {"message": {"role": "assistant", "content": "said", "errorMessage": hostile}}),
        ("extension_ui_request", {"id": "q", "method": "select", "title": hostile, "message": hostile, "options": [hostile, "b"]}),
    ]
    for number, (event, data) in enumerate(events):
        page.browser.script("captured.onmessage({ data: JSON.stringify(args[0]) })", {"event": event, "sessionId": sessions["hostile"], "seq": 10**9 + number, "data": data})
    page.browser.wait("[...document.querySelectorAll('.log button')].some((node) => node.textContent === 'b')")
    found = page.browser.script("return [document.querySelectorAll('main .evil, main [onclick], main #main, .log [hidden]:not(details)').length, document.querySelector('.log').textContent]")
    assert found[0] == 0 and "[object Object]" in found[1], found


def loads_itself_again_after_an_upgrade(page, _sessions):
    browser = page.browser
    captured(page)
    browser.script("window.old = true; captured.onmessage({ data: JSON.stringify({ event: 'remote_ready', sessionId: 'remote-control', data: { rights: {}, version: '0.0.0-other' } }) })")
    browser.wait("!window.old && document.getElementById('connection').textContent === 'connected'")


def removes_an_old_service_worker(page, _sessions):
    browser = page.browser
    browser.script("await caches.open('old'); await navigator.serviceWorker.register('/sw.js');")
    wait_for("no worker and no cache", lambda: browser.script("return (await navigator.serviceWorker.getRegistrations()).length + (await caches.keys()).length") == 0)


def keeps_its_code_while_too_many_are_wrong(page, _sessions):
    browser, base = page.browser, page.world.link().split("/#")[0]

    def wrong():
        request = urllib.request.Request(f"{base}/token", b'{"code":"wrong"}', method="POST")
        try:
            urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            return error.code

    wait_for("a block", lambda: wrong() == 429)
    browser.script("sessionStorage.clear()")
    browser.go("about:blank")
    browser.go(f"{base}/#code=wrong-code")
    page.has("tries again in", "#connection")
    page.has("The code is wrong", "main", 60)
    # A right one is not blocked.
    wait_for("a block", lambda: wrong() == 429, 60)
    Page(page.world, browser)


def applies_and_undoes_changes(page, sessions):
    browser, workspace = page.browser, page.world.repo / "main.py"
    before = workspace.read_text()
    page.view(f"changes/{sessions['feature']}")
    page.has("2 changed files")
    browser.script("document.querySelector('details').open = true")
    page.has("+print(4)", ".diff")
    browser.press("Apply")
    browser.press("Apply", "dialog")
    page.has("0 changed files")
    assert "print(4)\nprint(4)" in workspace.read_text() and (page.world.repo / "new.txt").exists()
    browser.press("Undo")
    browser.press("Undo", "dialog")
    page.has("2 changed files")
    assert workspace.read_text() == before
    # Both sides change the file.
    workspace.write_text(before.replace("print(3)", "print(33)"))
    browser.press("Reload")
    page.has("1 conflict")
    browser.press("Apply")
    browser.press("Apply", "dialog")
    page.has("Nothing was written", "#messages")
    browser.press(browser.script("return document.querySelector('#messages button').getAttribute('aria-label')"), "#messages")
    workspace.write_text(before)


def shows_network_and_health(page, sessions):
    page.world.denied(sessions["other"], "curl -sS https://denied.example")
    page.view("health")
    page.has("denied.example")
    page.has("ok daemon:")
    for text in ("Hosts by verdict", "Processes", "Deaths", "Limits", "Doctor"):
        assert text in page.browser.text(), text


def draws_a_terminal(page, sessions):
    page.world.wire.request("quack.run", sessionId=sessions["other"], argv=["sh", "-c", "printf 'size \\033[31mred\\033[0m\\n'; exec cat"], cols=40, rows=10)
    page.view(f"session/{sessions['other']}")
    page.has("size red", ".screen")
    page.browser.type(".screen", "typed here")
    page.has("typed here", ".screen")
    page.world.wire.request("quack.term_kill", sessionId=sessions["other"])
    page.has("The program has ended")


def shows_hostile_text_as_text(page, sessions):
    browser = page.browser
    page.view(f"session/{sessions['hostile']}")
    (page.world.repo / "evil.txt").write_text(EVIL)
    page.world.tool(sessions["hostile"], "cat evil.txt; head -c 10000000 /dev/zero | tr '\\0' y; echo; cat evil.txt")
    page.world.wire.request("say", sessionId=sessions["hostile"], message="hostile", preferPi=True)
    page.has("good.example", ".log > li:last-child .prose")
    # The text comes in parts.
    browser.wait("document.querySelector('main .log > li:last-child .prose a')")
    found = browser.script("""
      const bad = /[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u2069]/;
      return {
        hacked: window.hacked ?? 0,
        markup: document.querySelectorAll("main img, main script, main iframe, main style").length,
        links: [...document.querySelectorAll("main .log a")].map((a) => a.href),
        raw: [...document.querySelectorAll("main .log li")].some((node) => bad.test(node.textContent)),
        shown: document.querySelector("main .log > li:last-child .prose").innerText,
        longest: Math.max(...[...document.querySelectorAll("main pre")].map((node) => node.textContent.length)),
        wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      };""")
    assert found["hacked"] == 0 and found["markup"] == 0 and not found["raw"], found
    assert found["links"] and all(link.startswith("http") and "user@" not in link for link in found["links"]), found["links"]
    assert "<img src=x" in found["shown"] and "⟨U+202E⟩" in found["shown"], found["shown"]
    assert found["longest"] < 70000 and found["wide"] <= 0, found


def comes_back_after_a_lost_connection(page, sessions):
    browser = page.browser
    page.view(f"session/{sessions['demo']}")
    page.world.tool(sessions["demo"], "echo before-the-loss")
    page.has("before-the-loss", ".log")
    # What a sleeping phone does: the socket dies, and events happen without it.
    browser.script("window.NativeSocket ??= WebSocket; window.WebSocket = class { constructor() { setTimeout(() => this.onclose?.({ code: 1006, reason: '' }), 50); } close() {} };")
    page.world.wire.request("remote_configure", enabled=False)
    browser.wait("document.getElementById('connection').textContent !== 'connected'")
    page.world.wire.request("remote_configure", enabled=True)
    page.world.tool(sessions["demo"], "echo while-it-was-away")
    browser.script("window.WebSocket = window.NativeSocket;")
    page.connected()
    browser.wait("document.getElementById('connection').textContent === 'connected'", seconds=40)
    page.has("while-it-was-away", ".log")
    assert "Events were lost" not in browser.text(".log")


def survives_a_restart_of_the_daemon(page, sessions):
    page.view(f"session/{sessions['demo']}")
    page.world.tool(sessions["demo"], "echo before-the-restart")
    page.has("before-the-restart", ".log")
    page.world.stop()
    page.browser.wait("document.getElementById('connection').textContent !== 'connected'")
    page.world.start()
    # The token still counts, and the page says that the daemon has no earlier events.
    page.browser.wait("document.getElementById('connection').textContent === 'connected'", seconds=60)
    page.has("Events were lost here", ".log")
    page.world.tool(sessions["demo"], "echo after-the-restart")
    page.has("after-the-restart", ".log")


def stays_usable_at_every_width(page, sessions):
    for width in (320, 768, 1440, 3840) if page.browser.name == "chromium" else (500, 1440):
        page.browser.size(width)
        for view in views_of(sessions):
            page.view(view)
            found = page.browser.script("return [document.documentElement.scrollWidth, document.documentElement.clientWidth, innerWidth]")
            assert found[0] <= found[1] and (page.browser.name != "chromium" or found[2] == width), (view, width, found)
    page.browser.size(1440)


def works_by_keyboard(page, sessions):
    browser = page.browser
    page.view("sessions")
    assert browser.script("return document.activeElement.tagName") == "H1", "the focus goes to the heading of the view"
    page.has("demo")
    browser.script("document.querySelector('.session a').focus()")
    browser.script("scrollTo(0, 0)")
    link = browser.script("return document.activeElement.hash")
    # The row with the focus keeps it while the list is updated.
    before = browser.script("return +document.querySelector('.session').ariaSetSize")
    page.world.wire.request("quack.session_new", path=str(page.world.repo))
    browser.wait("+document.querySelector('.session').ariaSetSize > args[0]", before)
    assert browser.script("return document.activeElement.hash") == link
    names = browser.script("""return [...document.querySelectorAll("button, a, input, textarea, select, [tabindex='0']")]
      .filter((node) => node.checkVisibility()).filter((node) => !(node.getAttribute("aria-label") ?? node.labels?.[0]?.textContent ?? node.textContent).trim()).map((node) => node.outerHTML)""")
    assert names == [], names
    browser.press("Delete project/demo")
    assert browser.script("return document.activeElement.closest('dialog') != null"), "the focus is in the dialog"
    browser.type("dialog", "\ue00c")
    browser.wait("!document.querySelector('dialog')")
    assert browser.script("return document.activeElement.getAttribute('aria-label')") == "Delete project/demo", "and comes back"


def has_no_accessibility_violation(page, sessions):
    source = ARGS.axe and Path(ARGS.axe)
    if not source or not source.exists():
        return skip("no axe-core (--axe or QUACKD_AXE)")
    axe, browser, bad = source.read_text(), page.browser, []
    for dark in (False, True):
        browser.scheme(dark)
        for width in (1440,) if browser.name != "chromium" else (320, 1440) if ARGS.shots or not ARGS.quick else ((1440,) if dark else (320,)):
            browser.size(width)
            for view in views_of(sessions):
                page.view(view)
                names = {f"session/{id}": name for name, id in sessions.items()}
                asking = None
                if view == "sessions":
                    browser.wait("document.querySelectorAll('.session').length > 2")
                elif names.get(view) == "terminal":
                    page.has("ready>", ".screen")
                elif names.get(view):
                    page.world.session_call(sessions[names[view]], "echo shown")
                    browser.wait("document.querySelector('.log li') != null")
                elif view == "questions":
                    asking = threading.Thread(target=page.world.session_call, args=(sessions["demo"], f"curl -sS https://asks-{width}-{dark}.example"))
                    asking.start()
                    page.has(f"asks-{width}-{dark}.example:443".lower(), ".card")
                elif view.startswith("changes/"):
                    page.has("2 changed files")
                    browser.script("document.querySelector('details').open = true")
                result = browser.script(axe + """;
                  const result = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
                  return result.violations.map((one) => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 200), one.nodes[0].failureSummary]);""")
                bad += [(view, width, "dark" if dark else "light", *one) for one in result]
                if ARGS.shots:
                    name = names.get(view) or view.split("/")[0] + ("-one" if "/" in view else "")
                    browser.script("document.activeElement.blur(), scrollTo(0, 0)")
                    browser.shot(ARGS.shots / f"{name}-{width}-{'dark' if dark else 'light'}-{browser.name}.png")
                if asking:
                    page.world.deny_all()
                    asking.join()
    browser.scheme(False)
    browser.size(1440)
    assert bad == [], "\n".join(map(str, bad))


def a_foreign_origin_gets_nothing(page, _sessions):
    browser, base = page.browser, page.world.link().split("/#")[0]
    code = page.world.link(**RIGHTS).split("code=")[1]

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!doctype html><title>evil</title><iframe src='{base}/'></iframe>".encode())

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        browser.go(f"http://localhost:{server.server_port}/")
        found = browser.script("""
          const [base, code] = args;
          const status = async (path, options) => { try { return (await fetch(base + path, options)).status; } catch { return "refused"; } };
          const socket = () => new Promise((resolve) => {
            const ws = new WebSocket(base.replace("http", "ws") + "/ws");
            ws.onmessage = (event) => resolve("message: " + event.data);
            ws.onclose = (event) => resolve("closed");
            ws.onerror = () => resolve("closed");
            ws.onopen = () => ws.send(JSON.stringify({ token: "0".repeat(32) }));
            setTimeout(() => resolve("open"), 8000);
          });
          const frame = document.querySelector("iframe");
          let inside = "refused";
          try { inside = frame.contentDocument ? "readable" : "refused"; } catch {}
          return {
            token: await status("/token", { method: "POST", body: JSON.stringify({ code }) }),
            status: await status("/status"), rpc: await status("/rpc", { method: "POST", body: '{"id":1,"method":"sessions"}' }),
            withCookies: await status("/status", { credentials: "include" }),
            socket: await socket(), inside, kept: sessionStorage.length + localStorage.length,
          };""", base, code)
    finally:
        server.shutdown()
    assert found["token"] in (403, "refused") and found["socket"] == "closed" and found["inside"] == "refused" and found["kept"] == 0, found
    assert found["status"] in (401, 403, "refused") and found["rpc"] in (401, 403, "refused") and found["withCookies"] in (401, 403, "refused"), found
    # The code that the foreign page tried is not spent.
    browser.go("about:blank")
    browser.go(f"{base}/#code={code}")
    page.connected()


def is_signed_out_when_its_token_is_revoked(page, _sessions):
    # Other pages of this world may be signed in: each test has its own page.
    page.world.wire.request("quack.page_tokens", all=True)
    page.has("Signed out")
    assert page.browser.script("return sessionStorage.length + localStorage.length") == 0
    assert page.browser.script("return document.getElementById('views').hidden")


def without_rights_it_only_looks(page, sessions):
    page = Page(page.world, page.browser, rights={})
    page.view(f"changes/{sessions['feature']}")
    page.has("This page may not change workspaces")
    assert "Apply" not in page.browser.script("return [...document.querySelectorAll('main button')].map((b) => b.textContent)")
    refused = page.browser.script("""
      const socket = new WebSocket(location.origin.replace("http", "ws") + "/ws");
      const token = sessionStorage.getItem("quackd-token");
      const answers = {};
      return await new Promise((resolve) => {
        socket.onopen = () => socket.send(JSON.stringify({ token }));
        socket.onmessage = (event) => {
          const message = JSON.parse(event.data);
          if (message.event === "remote_ready") {
            socket.send(JSON.stringify({ id: "apply", method: "quack.isolated", params: { sessionId: args[0], action: "apply" } }));
            socket.send(JSON.stringify({ id: "answer", method: "quack.answer", params: { id: "quack-x-1", decision: "allow" } }));
            socket.send(JSON.stringify({ id: "run", method: "quack.run", params: { sessionId: args[0], argv: ["sh"] } }));
            socket.send(JSON.stringify({ id: "set", method: "quack.sandbox", params: { sessionId: args[0], action: "set", network: true } }));
            socket.send(JSON.stringify({ id: "code", method: "quack.page_code", params: { apply: true } }));
          }
          if (message.id) answers[message.id] = message.ok;
          if (Object.keys(answers).length === 5) resolve(answers);
        };
      });""", sessions["feature"])
    assert refused == {"apply": False, "answer": False, "run": False, "set": False, "code": False}, refused


TESTS = [
    shows_sessions_in_groups, makes_and_deletes_a_session, shows_calls_as_they_happen, shows_denials_with_their_remedy,
    shows_calls_that_began_before, talks_to_the_agent_and_steers, answers_a_question, keeps_a_closed_question_in_its_place, applies_and_undoes_changes, shows_network_and_health, draws_a_terminal,
    shows_hostile_text_as_text, draws_hostile_json_as_text, comes_back_after_a_lost_connection, stays_usable_at_every_width, works_by_keyboard,
    has_no_accessibility_violation, without_rights_it_only_looks, signs_in_by_a_code_that_counts_once, a_foreign_origin_gets_nothing,
    survives_a_restart_of_the_daemon, loads_itself_again_after_an_upgrade, removes_an_old_service_worker,
    keeps_its_code_while_too_many_are_wrong, stays_signed_in_if_the_user_wants_it, does_not_move_while_it_loads, is_signed_out_when_its_token_is_revoked,
]


def views_of(sessions):
    return ("sessions", f"session/{sessions['agent']}", f"session/{sessions['hostile']}", f"session/{sessions['terminal']}", "questions", "changes", f"changes/{sessions['feature']}", "health")


def session_call(world, session, command):
    """A call on its own connection, for threads."""
    wire = world.connect()
    try:
        return wire.request("quack.tool", sessionId=session, tool="bash", arguments={"command": command}, timeoutMs=60000)
    finally:
        wire.close()


def denied(world, session, command):
    """A call whose question is answered with a denial, because a page that may answer is open."""
    call = threading.Thread(target=session_call, args=(world, session, command))
    call.start()
    wait_for("a question", lambda: world.wire.request("quack.approvals")["pending"])
    deny_all(world)
    call.join()


def deny_all(world):
    for one in world.wire.request("quack.approvals")["pending"]:
        world.wire.request("quack.answer", id=one["request"]["id"], decision="deny")


World.session_call = session_call
World.denied = denied
World.deny_all = deny_all


def prepared(quack):
    world = World(quack, SCRIPT)
    sessions = {name: world.session(name) for name in ("demo", "busy", "agent", "other", "hostile")}
    sessions["feature"] = world.session("feature", isolated=True)
    sessions["terminal"] = world.session("terminal")
    world.wire.request("quack.run", sessionId=sessions["terminal"], argv=["sh", "-c", "ls -la --color=always / | head -20; printf '\\033[1;32mready\\033[0m> '; exec cat"], cols=80, rows=24)
    world.tool(sessions["feature"], "sed -i s/3/4/ main.py; echo new > new.txt")
    return world, sessions


def check_types():
    """The scripts against the declarations of the wire."""
    named = os.environ.get("QUACKD_TSC") or shutil.which("tsc")
    if not named:
        return skip("no TypeScript compiler (tsc in PATH, or QUACKD_TSC)")
    generated = Path(__file__).parent / "generated"
    generated.mkdir(exist_ok=True)
    text = subprocess.run([ARGS.quack, "schema", "--typescript"], check=True, capture_output=True, text=True).stdout
    (generated / "quackd.d.ts").write_text(text)
    done = subprocess.run([named, "-p", str(Path(__file__).parent / "tsconfig.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def check_files():
    """What the scripts must not contain. A test of crates/remote limits their size."""
    files = [path for path in ASSETS.rglob("*") if path.is_file()]
    for path in files:
        text = path.read_text()
        for bad in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", " style=", ' onclick="', "//cdn", "document.cookie"):
            assert bad not in text, f"{bad} in {path.name}"


def figures(world, browser, number):
    """Time to the first list, heap, bytes for an event, and frames with many sessions and events."""
    have = len(world.wire.request("sessions", all=True)["sessions"])
    for count in range(have, number):
        world.wire.request("quack.session_new", path=str(world.repo), name=f"many-{count}")
    page = Page(world, browser)
    browser.go("about:blank")
    link = world.link(**RIGHTS)
    browser.go(link)
    page.connected()
    found = browser.wait("(() => { const paint = performance.getEntriesByName('first-contentful-paint')[0]; return document.querySelector('.session') && { list: performance.now(), paint: paint?.startTime }; })()")
    page.view("sessions")
    browser.wait(f"document.querySelector('.session')?.ariaSetSize >= {number}")
    rows = browser.script("return document.querySelectorAll('.virtual > li').length")
    frames = browser.script("""
      const times = [];
      let before = performance.now();
      for (let n = 0; n < 120; n += 1) {
        scrollBy(0, 400);
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - before);
        before = performance.now();
      }
      return times.sort((a, b) => a - b);""")
    print(f"    {number} sessions: list after {found['list']:.0f} ms (upper bound), {rows} rows in the document, "
          f"frames while scrolling: median {frames[60]:.1f} ms, 95 % {frames[114]:.1f} ms, longest {frames[-1]:.1f} ms")
    assert rows < 120, "only visible rows are in the document"
    session = world.session("flood") if number else None
    page.view(f"session/{session}")
    heap = browser.heap() if browser.name == "chromium" else 0
    page.world.tool(session, "true")
    page.has("ok", ".log")
    before = browser.script("return performance.getEntriesByType('resource').length, window.longest = 0, new PerformanceObserver((list) => list.getEntries().forEach((one) => (window.longest = Math.max(window.longest, one.duration)))).observe({ entryTypes: ['longtask'] }), 0")
    started, calls = time.monotonic(), 0
    wires = [world.connect() for _ in range(4)]
    seconds = 5 if ARGS.quick else ARGS.minutes * 60
    while time.monotonic() - started < seconds:
        numbers = [(wire, wire.send("quack.tool", sessionId=session, tool="read_file", arguments="README.md")) for wire in wires for _ in range(8)]
        for wire, sent in numbers:
            wire.receive(sent)
        calls += len(numbers)
    took = time.monotonic() - started
    for wire in wires:
        wire.close()
    longest = browser.script("return window.longest")
    items = browser.script("return document.querySelectorAll('.log > li').length")
    after = browser.heap() if browser.name == "chromium" else 0
    print(f"    {calls * 2 / took:.0f} events a second for {took:.0f} s: longest task {longest:.0f} ms, {items} items in the document, "
          f"heap {heap / 1e6:.1f} MB before, {after / 1e6:.1f} MB after")
    assert items <= 400 and before == 0
    page.view("health")
    page.has("This page")
    print("    " + browser.script("return [...document.querySelectorAll('dl dd')].at(-1).textContent"))


def main():
    failed, started = [], time.monotonic()

    def attempt(name, test, *args):
        if ARGS.only and ARGS.only not in name:
            return
        begun = time.monotonic()
        try:
            test(*args)
            print(f"ok  {name} ({time.monotonic() - begun:.1f} s)", flush=True)
        except (AssertionError, BrowserError, Refused, OSError) as problem:
            failed.append(name)
            print(f"BAD {name} ({time.monotonic() - begun:.1f} s): {problem}", flush=True)
            if not isinstance(problem, AssertionError):
                traceback.print_exc()
            for arg in args:
                if isinstance(arg, Page) and ARGS.shots:
                    arg.browser.shot(ARGS.shots / f"failed-{test.__name__}-{arg.browser.name}.png")

    attempt("files", check_files)
    attempt("types", check_types)
    for kind in BROWSERS[ARGS.browser]:
        world, sessions = prepared(ARGS.quack)
        try:
            browser = kind()
            try:
                for test in TESTS:
                    if ARGS.only and ARGS.only not in test.__name__:
                        continue
                    attempt(f"{kind.name}: {test.__name__}", test, Page(world, browser), sessions)
                attempt(f"{kind.name}: figures", figures, world, browser, 200 if ARGS.quick else 1000)
            finally:
                browser.close()
        finally:
            world.close()
    print(f"{len(failed)} failed, {len(SKIPPED)} skipped, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


BROWSERS = {"chromium": [Chromium], "firefox": [Firefox], "all": [Chromium, Firefox]}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quack", default=str(ROOT / "target/debug/quack"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--browser", choices=BROWSERS, default=None)
    parser.add_argument("--shots", type=Path)
    parser.add_argument("--axe", default=os.environ.get("QUACKD_AXE"))
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=1, help="length of the flood of events")
    ARGS = parser.parse_args()
    ARGS.browser = ARGS.browser or ("chromium" if ARGS.quick else "all")
    if ARGS.shots:
        ARGS.shots.mkdir(parents=True, exist_ok=True)
    sys.exit(main())

// Signs in, keeps the connection, and shows the view that the address names. Types are in tests/page/types.d.ts.
import { announce, ask, checkbox, h, report, setText } from "./dom.js";
import { Questions, Sessions } from "./store.js";
import { Wire } from "./wire.js";
import { changes } from "./views/changes.js";
import { health } from "./views/health.js";
import { questions } from "./views/questions.js";
import { session } from "./views/session.js";
import { sessions } from "./views/sessions.js";

/** @type {Record<string, View>} */
const VIEWS = { sessions, session, questions, changes, health };
const KEY = "quackd-token";
const byId = (id = "") => /** @type {HTMLElement} */ (document.getElementById(id));
const [main, nav, connection, asked, signOut] = [byId("main"), byId("views"), byId("connection"), byId("asked"), byId("sign-out")];

/** @type {App | undefined} */
let app;
let leave = () => {};

function titled() {
	const open = app?.questions.open.length;
	setText(asked, open ? String(open) : "");
	document.title = `${open ? `(${open}) ` : ""}${main.querySelector("h1")?.textContent} · quackd`;
}

function route() {
	if (location.hash === "#main") return main.focus();
	if (!app) return;
	const [, name = "", id = ""] = location.hash.split("/");
	leave();
	main.replaceChildren();
	scrollTo(0, 0);
	leave = ((Object.hasOwn(VIEWS, name) && VIEWS[name]) || sessions)(main, app, decodeURIComponent(id));
	for (const link of nav.querySelectorAll("a")) link.ariaCurrent = link.hash === `#/${name === "session" ? "sessions" : name || "sessions"}` ? "page" : null;
	titled();
	const heading = main.querySelector("h1");
	heading?.setAttribute("tabindex", "-1");
	heading?.focus({ preventScroll: true });
}

const connecting = () => main.replaceChildren(h("h1", "quackd"), h("p", "Connecting …"));

function start(token = "") {
	connecting();
	const wire = new Wire(token, {
		state(state) {
			setText(connection, state);
			if (state !== "connected" || !app) return;
			app.rights = wire.rights ?? {};
			app.questions.refresh();
			app.sessions.refresh();
			if (!nav.hidden) return;
			nav.hidden = signOut.hidden = false;
			route();
		},
		signedOut: (why) => forget(`Signed out: ${why}.`),
	});
	const open = new Questions(wire);
	app = { wire, request: (method, params) => wire.request(method, params), questions: open, sessions: new Sessions(wire, open), rights: {} };
	let before = 0;
	open.watch(() => {
		titled();
		if (open.open.length > before) announce("A question is open");
		before = open.open.length;
	});
}

function forget(why = "") {
	sessionStorage.removeItem(KEY);
	localStorage.removeItem(KEY);
	leave();
	leave = () => {};
	app?.wire.close();
	app = undefined;
	nav.hidden = signOut.hidden = true;
	signIn(why);
}

/** Keeps the token for this tab, or on this device. */
function keep(token = "", stay = false) {
	sessionStorage.setItem(KEY, token);
	localStorage.removeItem(KEY);
	if (stay) localStorage.setItem(KEY, token);
}

/** Exchanges a code for a token. @returns {Promise<void>} */
async function exchange(code = "", stay = false) {
	const answer = await fetch("/token", { method: "POST", body: JSON.stringify({ code }), headers: { "Content-Type": "application/json" } });
	if (answer.status === 429) {
		const seconds = Number(answer.headers.get("Retry-After")) || 5;
		setText(connection, `too many wrong codes, tries again in ${seconds} s`);
		await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
		setText(connection, "signed out");
		return exchange(code, stay);
	}
	const { token, error } = await answer.json();
	if (!token) throw new Error(error);
	keep(token, stay);
	start(token);
}

function signIn(why = "") {
	setText(connection, "signed out");
	const code = h("input", { autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true });
	const stay = checkbox();
	const problem = h("p.bad", { role: "alert" }, why);
	main.replaceChildren(h("h1", "Sign in"), problem,
		h("p", "Run ", h("code", "quack open"), " on the daemon's machine. It opens this page, or prints a link that is valid once, for 10 minutes. With ",
			h("code", "--approvals"), " the page may answer questions, with ", h("code", "--apply"), " write changes to workspaces, with ", h("code", "--terminals"), " type into terminals."),
		h("form.card", {
			onsubmit(event) {
				event.preventDefault();
				exchange(code.value.trim().replace(/^.*#code=/, ""), stay.checked).catch((error) => setText(problem, error.message));
			},
		}, h("label", "Code or link", code), h("label.check", stay, "Stay signed in on this device"), h("button.primary", { type: "submit" }, "Sign in")));
	titled();
}

signOut.onclick = async () => {
	const stay = checkbox();
	stay.checked = !!localStorage.getItem(KEY);
	stay.onchange = () => keep(app?.wire.token, stay.checked);
	const body = h("div", h("p", "The token of this page ends."), h("label.check", stay, "Or stay signed in on this device"));
	const token = app?.wire.token;
	if (!(await ask("Sign out?", body, "Sign out"))) return;
	forget();
	const { status } = await fetch("/token", { method: "DELETE", headers: { Authorization: `Bearer ${token}` } }).catch(() => ({ status: 0 }));
	// 401: it was revoked before.
	if (status !== 204 && status !== 401) report("The daemon was not reached or cannot save, so the token is still valid. To end it, run quack remote tokens revoke.");
};
addEventListener("hashchange", route);

const code = /^#code=(.+)$/.exec(location.hash)?.[1];
const known = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
// The code must not stay in the history.
if (code) history.replaceState(null, "", "/"), connecting();
if (code) exchange(code).catch((error) => (known ? (start(known), report(error)) : signIn(error.message)));
else if (known) start(known);
else signIn();

// Open questions about permissions, and the grants that answers have left.
import { announce, button, h, setText, viewLink } from "../dom.js";
import { ago, duration, line } from "../text.js";
import { label } from "./sessions.js";

/** Scopes that a page may give. */
const SCOPES = { once: "Allow once", session: "Allow for this session" };
/** Sessions whose grants are asked for: the last used ones. */
const MOST_SESSIONS = 50;
/** Cards, of open and closed questions, above which the closed ones go. */
const MOST_CARDS = 100;

/** @param {App} app @param {Question} question */
function card({ request, rights, questions }, { request: asked, sessionId, label, until }) {
	const { kind, target, likely, scopes } = asked.permission;
	const [fact, ...words] = asked.message.split("\n");
	const [time, left] = [h("dt", "Time left"), h("dd.foreign")];
	/** @param {string} text @param {object} what @param {string} [look] */
	const answer = (text, what, look) => button(text, async () => {
		const { notSaved } = await request("quack.answer", { id: asked.id, ...what });
		announce(`${text}: ${target}`);
		questions.refresh();
		if (notSaved) throw new Error(notSaved);
	}, { class: look, "aria-label": `${text}: ${target}` });
	const actions = rights.approvals
		? h("div.actions", answer("Deny", { decision: "deny" }, "danger"),
			...Object.entries(SCOPES).map(([scope, text]) => scopes.some((one) => one === scope) && answer(text, { decision: "allow", scope })))
		: h("p.faint", "This page may not answer. quack open --approvals makes one that may.");
	let over = "";
	const tick = () => setText(left, line(over) || duration(Math.max(0, until - performance.now())));
	const node = h("li.card",
		h("h2.mono.foreign", target), h("p.foreign", fact),
		h("dl", h("dt", "Kind"), h("dd", kind.replace("_", " "), likely && ", guessed from a program's output"), h("dt", "Session"), h("dd", viewLink("session", sessionId, label)), time, left),
		words.length > 0 && h("p.faint", "Words of the agent or its programs:"), words.length > 0 && h("pre", { tabindex: 0 }, words.join("\n")),
		actions, h("p.faint", "With all scopes: ", h("code", `quack allow ${asked.id}`)));
	/** @type {Card["close"]} */
	const close = ({ decision, scope, by, reason } = {}) => {
		over = decision ? `${decision === "deny" ? "Denied" : "Allowed"} (${scope}) by ${by ?? "a client"}` : reason || "without an answer";
		actions.inert = true;
		node.classList.add("over");
		setText(time, "Closed");
		tick();
	};
	return { node, tick, close };
}

/** @param {App} app @param {HTMLElement} box */
async function grants({ sessions: { rows }, request, rights }, box) {
	const used = rows.toSorted((a, b) => b.lastActiveAt.localeCompare(a.lastActiveAt)).slice(0, MOST_SESSIONS);
	const answers = await Promise.all(used.map(({ id }) => request("quack.sandbox", { sessionId: id }).catch(() => ({}))));
	const cards = new Map();
	for (const { label, sessionId, workspacePath, grants: all = [] } of answers) {
		for (const { scope, id, target, decision, at, client } of /** @type {Grant[]} */ (all)) {
			const whose = { session: `session ${label}`, workspace: `workspace ${workspacePath}`, always: "all sessions" }[scope];
			const revoke = button("Revoke", async () => {
				await request("quack.sandbox", { action: "revoke", sessionId, rules: [id] });
				// It stays, so that no other one moves under the pointer.
				revoke.replaceWith("Revoked");
			}, { "aria-label": `Revoke ${target}` });
			cards.set(id, h("li.card", h("h3.mono.foreign", target), h("p.foreign", `${decision === "allow" ? "Allowed" : "Denied"} for ${whose}, ${ago(at)}, by ${client ?? "a client"}`),
				rights.approvals && decision === "allow" ? revoke : h("code.foreign", `quack sandbox revoke ${id} --session ${label}`)));
		}
	}
	box.replaceChildren(h("p.faint", cards.size ? "" : "None.", rows.length > MOST_SESSIONS && ` Of the ${MOST_SESSIONS} last used sessions.`), h("ul.cards", ...cards.values()));
}

/** @type {View} */
export function questions(main, app) {
	const { questions: store, sessions } = app;
	/** @type {Map<string, Card>} */
	const cards = new Map();
	// A card that closes stays until the pointer leaves the view, so that nothing moves under it.
	const tidy = ({ pointerType = "mouse" } = {}) => {
		if (pointerType !== "mouse") return;
		for (const [id, { node }] of cards) if (!store.find(id)) node.remove(), cards.delete(id);
	};
	const list = h("ul.cards");
	const empty = h("p.faint", "Loading …");
	const waiting = h("p");
	const granted = h("div", h("p.faint", "Loading …"));
	const view = h("div", { onpointerleave: tidy }, h("h1", "Questions"), empty, list, waiting, h("h2", "Grants"), granted);
	main.append(view);
	let before = -1;
	function draw() {
		for (const [id, { node, close }] of cards) if (!store.find(id) && !node.matches(".over")) close(store.recent.find((one) => one.id === id));
		if (cards.size > MOST_CARDS && !view.matches(":hover")) tidy();
		for (const question of store.open) {
			if (cards.has(question.request.id)) continue;
			const made = card(app, question);
			cards.set(question.request.id, made);
			list.append(made.node);
			made.tick();
		}
		if (store.loaded) setText(empty, store.problem || (store.open.length ? "" : "No open questions."));
		// Questions of an agent are in its conversation.
		waiting.replaceChildren(...sessions.rows.filter((row) => row.status === "waiting" && !store.of(row.id)).map((row) => h("span", viewLink("session", row.id, label(row)), " waits for an answer in its conversation. ")));
		if (!sessions.loaded || before === store.open.length || granted.matches(":hover")) return;
		before = store.open.length;
		grants(app, granted);
	}
	const ends = [store.watch(draw), sessions.watch(draw)];
	const ticks = setInterval(() => cards.forEach(({ tick }) => tick()), 1000);
	// The daemon reports questions only to those that may answer.
	const polls = app.rights.approvals ? 0 : setInterval(() => store.refresh(), 3000);
	draw();
	return () => (ends.forEach((end) => end()), clearInterval(ticks), clearInterval(polls));
}

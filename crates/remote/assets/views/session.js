// One session: its conversation and calls as they happen, its prompt and its terminal.
import { announce, button, h, setText } from "../dom.js";
import { duration, line, output, prose } from "../text.js";
import { terminal } from "../terminal.js";
import { facts, label, remove, why } from "./sessions.js";

/** Items, characters of a call's output, events that wait for the conversation, and items drawn in a frame. */
const MOST_ITEMS = 400;
const MOST_OUTPUT = 65536;
const MOST_EARLY = 4096;
const MOST_DRAWN = 40;
const ENDS = { timedOut: "timed out", aborted: "aborted", workerDied: "worker died", busy: "not run: busy" };

/** @param {any} content */
const textOf = (content) => (typeof content === "string" ? content : (content ?? []).map((/** @type {any} */ part) => part.text ?? (part.type === "image" ? "[image]" : "")).join("\n"));

/** Items in their order. */
class Log {
	node = h("ol.log", { "aria-busy": "true", "aria-label": "Conversation and calls" });
	/** @type {Map<string, LogItem>} */
	items = new Map();
	#dirty = new Set();
	#frame = 0;

	/** @param {string} key @param {LogItem["draw"]} draw */
	put(key, draw) {
		const item = this.items.get(key) ?? { draw };
		item.draw = draw;
		this.items.set(key, item);
		this.#dirty.add(item);
		if (this.items.size > MOST_ITEMS) {
			const [[old = "", { node } = item] = []] = this.items;
			node?.remove();
			this.#dirty.delete(this.items.get(old));
			this.items.delete(old);
		}
		this.#again();
	}
	#again() {
		this.#frame ||= requestAnimationFrame(() => this.#draw());
	}
	#draw() {
		this.#frame = 0;
		const page = document.documentElement;
		const bottom = innerHeight + scrollY > page.scrollHeight - 96;
		for (const item of [...this.#dirty].slice(0, MOST_DRAWN)) {
			this.#dirty.delete(item);
			item.node ??= this.node.appendChild(h("li"));
			try {
				item.draw(item.node);
			} catch (problem) {
				setText(item.node, `Malformed: ${problem}`);
			}
		}
		if (this.#dirty.size) this.#again();
		if (bottom) scrollTo(0, page.scrollHeight);
	}
}

/** @param {any} call */
const drawCall = (call) => (/** @type {HTMLElement} */ node) => {
	const { name, args, out, end } = call;
	if (!node.firstChild) {
		node.append(h("div.call", h("strong", String(name)), h("code.foreign"), h("span")), h("details", { open: name === "bash" }, h("summary", "Output"), h("pre", { tabindex: 0 })), h("div"));
	}
	const [head, details, denials] = /** @type {any} */ (node.children);
	setText(head.children[1], line(args?.command ?? Object.entries(args ?? {}).map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" "), 300));
	const text = end ? textOf(end.result?.content) : out;
	details.hidden = !text;
	setText(details.lastChild, output(text));
	const state = head.lastChild;
	if (!end) return setText(state, "running …");
	const more = end.result?.details ?? {};
	const took = end.durationMs ?? more.durationMs;
	const how = Object.entries(ENDS).find(([key]) => more[key])?.[1] ?? (!end.isError ? "ok" : end.exitCode ? `exit code ${end.exitCode}` : "failed");
	setText(state, took == null ? how : `${how}, ${duration(took)}`);
	state.className = end.isError ? "bad" : "good";
	node.className = end.isError ? "failed" : "done";
	// The daemon appends a line for each denial, with what allows the operation. Its lines are the last ones.
	const told = text.match(/^\[Sandbox: .{1,999} denied .{1,999}\]$/gm) ?? [];
	const facts = (more.denials ?? []).map((/** @type {any} */ { kind, target = "", likely }) => [`${likely ? "Probably denied" : "Denied"}: ${kind} ${target}`, told.findLast((/** @type {string} */ one) => one.includes(target.replace(/:\d+$/, "")))]);
	const all = facts.length ? facts : told.map((/** @type {string} */ one) => ["The output reports a denial", one]);
	denials.replaceChildren(...all.map((/** @type {string[]} */ [what, remedy = ""]) => h("div.denial.foreign", h("strong", what), h("div", remedy.slice(10, -1)))), more.hint ? h("p.foreign", String(more.hint)) : "");
};

/** @param {any} message @param {string} [streamed] text of an incomplete message */
const drawMessage = (message, streamed) => (/** @type {HTMLElement} */ node) => {
	const user = message.role === "user";
	node.className = user ? "user" : message.errorMessage ? "failed" : "";
	const thoughts = Array.isArray(message.content) ? message.content.map((/** @type {any} */ part) => part.thinking ?? "").join("").trim() : "";
	node.replaceChildren(h("strong", user ? "You" : "Agent"), thoughts ? h("details", h("summary", "Thinking"), prose(thoughts)) : "",
		streamed == null ? prose(textOf(message.content)) : h("div.prose", h("p", streamed)), message.errorMessage ? h("p.bad.foreign", String(message.errorMessage)) : "");
};

/** A question of the agent, or a pointer to the view of questions. @param {App} app @param {string} sessionId @param {any} asked */
const drawQuestion = ({ request }, sessionId, asked) => (/** @type {HTMLElement} */ node) => {
	const choose = (text = "", value = () => ({})) => button(text, () => request("extension_ui_response", { sessionId, id: asked.id, ...value() }));
	const field = h("input", { "aria-label": line(asked.title), value: asked.prefill });
	const ways = asked.method === "select" ? asked.options.map((/** @type {string} */ value) => choose(String(value), () => ({ value })))
		: asked.method === "confirm" ? [choose("Yes", () => ({ confirmed: true })), choose("No", () => ({ confirmed: false }))]
		: [field, choose("Answer", () => ({ value: field.value }))];
	node.replaceChildren(h("strong.warn.foreign", String(asked.title)), prose(String(asked.message ?? "")),
		asked.permission ? h("a", { href: "#/questions" }, "Answer it in Questions") : h("div.actions", ...ways, choose("Cancel", () => ({ cancelled: true }))));
};

/** @type {View} */
export function session(main, app, id) {
	const { request, sessions } = app;
	const log = new Log();
	const title = h("h1.foreign", "Session");
	const about = h("p.faint.foreign", "\u00a0");
	const more = h("p.faint", "\u00a0");
	const side = h("div");
	const text = h("textarea", { rows: 2, onkeydown: (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && (event.preventDefault(), submit.click()) });
	const caption = h("span", "Message to the agent");
	const submit = button("Send", send, { class: "primary" });
	main.append(
		h("div.head", title, h("div.actions", button("Abort", () => request("abort", { sessionId: id })), button("Delete", async () => {
			const row = sessions.find(id);
			if (row) await remove(app, row);
		}, { class: "danger" }))),
		about, more, h("div.two", log.node, side), h("div.prompt", h("label", caption, text), submit));

	let running = false;
	let number = 0;
	/** @type {Map<string, any>} */
	const calls = new Map();
	/** @type {Open | undefined} */
	let open;
	/** Events before the conversation. @type {DaemonEvent[] | undefined} */
	let early = [];

	function turn(is = false) {
		running = is;
		setText(caption, is ? "Message to the running turn" : "Message to the agent");
		setText(submit, is ? "Steer" : "Send");
	}
	async function send() {
		const message = text.value.trim();
		if (!message) return;
		const steers = running;
		if (steers) await request("quack.agent", { sessionId: id, command: { type: "steer", message } });
		else await request("say", { sessionId: id, message, preferPi: true });
		text.value = "";
		if (steers) note(`For the running turn: ${message}`);
	}
	/** @param {unknown} what */
	function note(what, look = "faint", key = `note ${(number += 1)}`) {
		log.put(key, (node) => node.replaceChildren(h(`span.${look}.foreign`, String(what))));
	}
	function call(key = "", values = {}) {
		const one = Object.assign(calls.get(key) ?? { out: "", at: `call ${(number += 1)}` }, values);
		calls.set(key, one);
		if (calls.size > MOST_ITEMS) calls.delete(calls.keys().next().value ?? "");
		log.put(one.at, drawCall(one));
		return one;
	}
	/** @param {any} message */
	function whole({ role, content, toolCallId, toolName, details, isError, ...rest }) {
		if (role === "toolResult" && !calls.get(toolCallId)?.end) call(toolCallId, { name: toolName, end: { result: { content, details }, isError } });
		if (role !== "user" && role !== "assistant") return;
		const key = `${role} ${rest.timestamp ?? textOf(content).slice(0, 200)}`;
		const streamed = open && role === "assistant" && log.items.get(open.key);
		// The complete message takes the place of the streamed one.
		if (textOf(content).trim() || rest.errorMessage) log.put(streamed && !log.items.has(key) ? open?.key ?? key : key, drawMessage({ role, content, ...rest }));
		for (const part of Array.isArray(content) ? content : []) if (part.type === "toolCall" && !calls.has(part.id)) call(part.id, { name: part.name, args: part.arguments });
	}
	/** @type {Record<string, (data: any) => void>} */
	const on = {
		tool_execution_start: (data) => call(data.toolCallId, { name: data.toolName, args: data.args, end: null }),
		tool_execution_update(data) {
			const known = calls.has(data.toolCallId);
			const one = call(data.toolCallId, { name: data.toolName, args: data.args });
			one.out = (known && data.delta != null ? one.out + data.delta : textOf(data.partialResult?.content)).slice(-MOST_OUTPUT);
		},
		tool_execution_end: (data) => call(data.toolCallId, { name: data.toolName, end: data }),
		agent_start: () => turn(true),
		agent_end({ reason }) {
			turn(false);
			announce(reason ? `The turn ended early: ${reason}` : "The turn ended");
		},
		message_start({ message }) {
			if (message.role === "assistant") open = { key: `open ${(number += 1)}`, message, text: "" };
		},
		message_update({ assistantMessageEvent: part }) {
			if (part.type !== "text_delta" || !open) return;
			open.text = (open.text + part.delta).slice(-MOST_OUTPUT);
			log.put(open.key, drawMessage(open.message, open.text));
		},
		message_end({ message }) {
			whole(message);
			if (message.role === "assistant") open = undefined;
		},
		extension_ui_request: (data) => data.method === "setStatus" || log.put(`question ${data.id}`, drawQuestion(app, id, data)),
		extension_ui_closed: ({ id: asked, decision, scope, by, reason }) => note(decision ? `Question answered: ${decision} ${scope ?? ""} by ${by ?? "a client"}` : `Question closed: ${reason}`, "faint", `question ${asked}`),
		prompt_error: ({ error }) => note(error, "bad"),
		extension_error: ({ error }) => note(error, "bad"),
		network_denied: ({ host, port, why }) => note(`Network denied: ${host}:${port} (${why})`, "warn"),
		terminal_started: attach,
		session_deleted: () => note("The session was deleted", "bad"),
		page_error: ({ message }) => note(message, "bad", "problem"),
	};
	/** @param {DaemonEvent} event */
	function take(event) {
		if (early && event.event !== "page_error") return early.push(event) > MOST_EARLY && early.shift();
		try {
			if (Object.hasOwn(on, event.event)) on[event.event]?.(event.data);
		} catch {
			// Pi may send anything.
		}
	}

	function lost() {
		note("Events were lost here: the daemon has them no longer.", "bad");
		// Another run of the daemon uses the same ids.
		calls.clear();
	}
	const unfollow = app.wire.follow(id, { event: take, began: load, lost });
	async function load() {
		if (!early) return;
		const { piSessionFile, piState } = await request("get_state", { sessionId: id }).catch(() => ({}));
		// Asking for the conversation starts the agent, so only if there is one.
		const history = piSessionFile && (await request("quack.agent", { sessionId: id, command: { type: "get_messages" } }).catch(() => null));
		// No event of a later follower shows their start.
		const { workers = [] } = await request("quack.ps").catch(() => ({}));
		const before = early ?? [];
		early = undefined;
		for (const message of history?.data?.messages ?? []) take({ event: "message_end", sessionId: id, data: { message } });
		before.forEach(take);
		/** @type {PsData["workers"]} */
		const all = workers;
		for (const { toolCallId, tool } of all.find((one) => one.sessionId === id)?.calls ?? []) if (toolCallId && !calls.has(toolCallId)) call(toolCallId, { name: tool });
		if (piState?.isStreaming) turn(true);
		log.node.ariaBusy = null;
	}
	let detach = () => {};
	function attach() {
		detach();
		side.replaceChildren();
		detach = terminal(app, id, side);
	}
	attach();
	function draw() {
		const row = sessions.find(id);
		if (!row) return;
		setText(title, line(label(row)));
		setText(about, line(`${row.workspacePath}: ${row.status} ${why(row)}`, 400));
		setText(more, facts(row));
	}
	const end = sessions.watch(draw);
	draw();
	return () => (unfollow(), end(), detach());
}

// Draws a terminal from its rows. Keys are sent only if the token may use terminals.
import { button, h, setText } from "./dom.js";
import { line, visible } from "./text.js";

/** The basic colors; the others of the palette are computed. */
const BASIC = "334 f77 9c9 fc6 7af c9c 6cc ddd 889 f9a bfb fe8 9cf ebe 8ee fff".split(" ");
/** @type {Record<string, string>} */
const KEYS = { Enter: "\r", Backspace: "\x7f", Escape: "\x1b", ArrowUp: "\x1b[A", ArrowDown: "\x1b[B", ArrowRight: "\x1b[C", ArrowLeft: "\x1b[D", Home: "\x1b[H", End: "\x1b[F", Delete: "\x1b[3~", PageUp: "\x1b[5~", PageDown: "\x1b[6~" };
/** Keys that phones lack, and Tab, which moves the focus. */
const BUTTONS = { "Ctrl-C": "\x03", Tab: "\t", ...KEYS };

/** @param {unknown} color */
function css(color) {
	if (typeof color !== "number") return String(color ?? "");
	const n = color - 16;
	if (n < 0) return `#${BASIC[color]}`;
	if (color > 231) return `rgb(${Array(3).fill(8 + (color - 232) * 10)})`;
	return `rgb(${[n / 36, (n / 6) % 6, n % 6].map((part) => (part < 1 ? 0 : 55 + Math.floor(part) * 40))})`;
}

/** @param {Run} run */
function styled({ text, fg, bg, inverse, ...looks }) {
	const names = Object.entries(looks).filter(([, is]) => is).map(([name]) => name);
	const node = h(["span", ...names].join("."), text);
	node.style.color = css(inverse ? bg ?? "#101014" : fg);
	node.style.background = css(inverse ? fg ?? "#d8d8dc" : bg);
	return node;
}

/** Shows the last started terminal. Returns what detaches it. @param {App} app @param {string} sessionId @param {HTMLElement} box */
export function terminal({ wire, request, rights }, sessionId, box) {
	let terminalId = "";
	/** @type {HTMLElement[]} */
	let rows = [];
	const title = h("h2");
	const state = h("p.faint", { role: "status" }, rights.terminals ? "Keys go to the program, except Tab." : "Read only. quack open --terminals makes a page that may type.");
	const type = (text = "") => request("quack.term_input", { sessionId, terminalId, bytes: btoa(String.fromCharCode(...new TextEncoder().encode(text))) });
	const screen = h("pre.screen", {
		tabindex: 0, role: "group", "aria-label": "Terminal",
		onkeydown(event) {
			const { key, ctrlKey, altKey, metaKey } = event;
			const text = KEYS[key] ?? (key.length > 1 ? "" : ctrlKey ? String.fromCharCode(key.charCodeAt(0) & 31) : key);
			if (!rights.terminals || altKey || metaKey || !text) return;
			event.preventDefault();
			type(text).catch((problem) => setText(state, visible(problem.message)));
		},
	});
	const keys = h("div.actions", ...Object.entries(BUTTONS).slice(0, 7).map(([name, text]) => button(name, () => type(text), { "aria-label": `Type ${name}` })));

	/** @param {(data: any) => void} take */
	const mine = (take) => (/** @type {DaemonEvent} */ event) => event.sessionId === sessionId && event.data.terminalId === terminalId && take(event.data);
	const ends = [
		wire.on("term_rows", mine(({ screen: { whole, lines, rows: height, cursor } }) => {
			if (whole || rows.length !== height) screen.replaceChildren(...(rows = Array.from({ length: height }, () => h("div", "\n"))));
			for (const { row, runs } of lines) rows[row]?.replaceChildren(...runs.map(styled), "\n");
			rows.forEach((row, number) => row.classList.toggle("cursor", cursor.visible && number === cursor.row));
		})),
		wire.on("term_exit", mine(({ reason, signal, exitCode }) => setText(state, visible(`The program has ended: ${reason ?? (signal ? `signal ${signal}` : `exit code ${exitCode}`)}.`)))),
		wire.on("remote_ready", attach),
	];
	async function attach() {
		const data = await request("quack.term_attach", { sessionId, asRows: true, readOnly: !rights.terminals }).catch(() => null);
		if (!data) return;
		terminalId = data.terminalId;
		setText(title, `Terminal ${terminalId}: ${line(data.title ?? data.command)}`);
		if (!screen.isConnected) box.append(title, screen, rights.terminals ? keys : "", state);
	}
	attach();
	return () => {
		for (const end of ends) end();
		if (terminalId) request("quack.term_detach", { sessionId, terminalId }).catch(() => {});
	};
}

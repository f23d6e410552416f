// All sessions: which need the user, work, are done or failed.
import { VirtualList, ask, button, checkbox, h, setText, viewLink } from "../dom.js";
import { ago, count, line, memory } from "../text.js";

const GROUPS = ["Needs you", "Working", "Done", "Failed"];
const LOOKS = ["warn", "good", "faint", "bad"];

/** @param {Row} row */
const group = ({ asked, status }) => (asked || status === "waiting" ? 0 : status === "working" ? 1 : status === "failed" ? 3 : 2);

/** @param {Row} row */
export const label = (row) => row.label || row.name;

/** The reason for the status. An age would not change with time. @param {Row} row */
export const why = ({ statusWhy = "" }) => (/^idle/.test(statusWhy) ? "" : statusWhy);

/** @param {Row} row */
export const facts = ({ worker, cpu, isolated, lastActiveAt }) => [
	worker?.pi && (worker.pi.native ? "quackd agent" : "Pi"),
	worker?.place && `on ${worker.place}`,
	worker?.tier && `tier ${worker.tier}`,
	worker && (worker.network ? "network on" : worker.hosts ? "some hosts" : "no network"),
	isolated && "isolated",
	cpu != null && `${cpu.toFixed(0)} % CPU`,
	memory(worker?.usage?.rssKb),
	`used ${ago(lastActiveAt)}`,
].filter(Boolean).join(" · ");

/** Asks, and deletes the session. @param {App} app @param {Row} row */
export async function remove(app, row) {
	const name = label(row);
	const force = checkbox();
	const body = h("div",
		h("p.foreign", `Session ${name} of ${row.workspacePath} is deleted with its outputs. Your files stay.`),
		row.isolated && h("p.warn", "Changes in its private copy that were not applied are lost."),
		h("label.check", force, "Also end its running calls and jobs"));
	if (!(await ask(`Delete ${name}?`, body, `Delete ${name}`, "danger"))) return;
	await app.request("quack.session_delete", { sessionId: row.id, force: force.checked });
	location.hash = "#/sessions";
	app.sessions.refresh();
}

/** @param {App} app */
async function create(app) {
	const paths = [...new Set(app.sessions.rows.map((row) => row.workspacePath))];
	const path = h("input", { list: "workspaces", required: true, value: paths.at(-1) });
	const name = h("input", { maxlength: 100 });
	const safe = checkbox();
	const body = h("div",
		h("label", "Directory on the daemon's machine", path), h("datalist", { id: "workspaces" }, ...paths.slice(-200).map((value) => h("option", { value }))),
		h("label", "Name (optional)", name), h("label.check", safe, "Safe mode: it changes no files"));
	if (!(await ask("New session", body, "Create"))) return;
	const { session } = await app.request("quack.session_new", { path: path.value, name: name.value || undefined, safeMode: safe.checked || undefined });
	location.hash = `#/session/${encodeURIComponent(session.id)}`;
}

/** @param {App} app @param {Row} row */
function rowOf(app, row) {
	const link = viewLink("session", row.id);
	const [state, path, more, last] = ["state", "path.faint.foreign", "facts.faint", "last.foreign"].map((name) => h(`span.${name}`));
	const abort = button("Abort", () => app.request("abort", { sessionId: row.id }));
	const del = button("Delete", () => remove(app, row));
	return Object.assign(h("li.session", link, state, path, more, last, h("span.actions", abort, del)), {
		/** @param {Item} item */
		update(item) {
			row = item.row ?? row;
			const kind = group(row);
			setText(link, line(label(row)));
			setText(state, row.asked ? "asks" : row.status);
			state?.setAttribute("class", `state ${LOOKS[kind]}`);
			setText(path, line(row.workspacePath));
			setText(more, facts(row));
			setText(last, line([row.worker?.calls.map((call) => call.tool).join(), row.lastLine ?? why(row)].filter(Boolean).join(": ")));
			abort.ariaLabel = `Abort ${label(row)}`;
			del.ariaLabel = `Delete ${label(row)}`;
			abort.hidden = kind > 1;
		},
	});
}

/** @type {View} */
export function sessions(main, app) {
	/** @type {VirtualList<Item>} */
	const list = new VirtualList("Sessions", ({ title, row }) => row?.id ?? title.replace(/ .*/, ""), ({ row }) => {
		if (row) return rowOf(app, row);
		const text = h("h2");
		return Object.assign(h("li.group", text), { update: (/** @type {Item} */ { title }) => setText(text, title) });
	});
	const filter = h("input", { type: "search", "aria-label": "Filter sessions", placeholder: "Filter", oninput: draw });
	const empty = h("p.faint", "Loading …");
	main.append(h("div.head", h("h1", "Sessions"), h("div.actions", filter, button("New session", () => create(app), { class: "primary" }))), empty, list.node);

	function draw() {
		const { rows, loaded } = app.sessions;
		const words = filter.value.toLowerCase();
		const found = rows.filter((row) => `${label(row)} ${row.workspacePath} ${row.status}`.toLowerCase().includes(words));
		const since = (/** @type {Row} */ row) => row.statusSince ?? row.lastActiveAt;
		found.sort((a, b) => since(b).localeCompare(since(a)));
		list.draw(GROUPS.flatMap((name, number) => {
			const all = found.filter((row) => group(row) === number);
			return all.length ? [{ title: `${name} (${all.length})` }, ...all.map((row) => ({ title: "", row }))] : [];
		}));
		empty.hidden = found.length > 0;
		if (loaded) setText(empty, rows.length ? `None of ${count(rows.length, "session")} has this text.` : "No sessions yet.");
	}
	const end = app.sessions.watch(draw);
	draw();
	return () => (end(), list.close());
}

// Isolated sessions: what they changed, applying it and taking it back, and recorded states.
import { announce, ask, button, checkbox, h, setText, viewLink } from "../dom.js";
import { count, output } from "../text.js";
import { label } from "./sessions.js";

const MERGES = { "": "Write nothing", markers: "Write conflict markers", ours: "Keep the workspace's file", theirs: "Take the session's file", skip: "Leave the file out" };
const MOST_FILES = 500;

/** @param {Changed} file */
const fileOf = ({ path, change, outcome, reason, diff }) => h("details.card",
	h("summary", h("span.mono.foreign", path), ` ${change} `, outcome !== "taken" && h("strong.warn", outcome)),
	reason && h("p.warn.foreign", reason),
	diff ? h("pre.diff", { tabindex: 0 }, ...output(diff, 100000).split("\n").slice(0, 3000).map((text) =>
		h(/^(\+\+\+|---|@@)/.test(text) ? "span.faint" : text[0] === "+" ? "span.plus" : text[0] === "-" ? "span.minus" : "span", text || " "))) : h("p.faint", "No text difference."));

/** @type {View} */
export function changes(main, app, id) {
	const title = h("h1.foreign", "Changes");
	const about = h("p.faint.foreign", "Loading …");
	const list = h("ul.cards");
	main.append(title, about, list);
	let shown = "";
	const end = app.sessions.watch(draw);
	function draw() {
		const { loaded, rows } = app.sessions;
		if (!loaded) return;
		if (id) {
			const row = app.sessions.find(id);
			setText(about, row?.workspacePath ?? "This session does not exist.");
			if (row) setText(title, `Changes of ${label(row)}`);
			return;
		}
		const isolated = rows.filter((row) => row.isolated);
		const key = isolated.map((row) => row.id + row.status).join();
		setText(about, isolated.length ? `${count(isolated.length, "session")} with a private copy of the workspace` : "No isolated sessions. quack new --isolated makes one.");
		if (key === shown) return;
		shown = key;
		list.replaceChildren(...isolated.map((row) => h("li.card", h("h2", viewLink("changes", row.id, label(row))), h("p.mono.foreign", row.workspacePath), h("p.faint", row.status))));
	}
	draw();
	if (id) copy(main, app, id);
	return end;
}

/** Shows the changes of one session. @param {HTMLElement} main @param {App} app @param {string} sessionId */
function copy(main, app, sessionId) {
	const files = h("div");
	const states = h("div");
	const force = checkbox();
	const merge = h("select", ...Object.entries(MERGES).map(([value, text]) => h("option", { value }, text)));
	const conflicts = h("label", { hidden: true }, "If both sides changed a file", merge);
	let expect = "";
	/** @param {string} action @param {object} [more] @returns {Promise<Isolated>} */
	const request = (action, more) => app.request("quack.isolated", { sessionId, action, ...more });

	/** @type {Act} */
	const act = (text, warning, more, look) => app.rights.apply && button(text, async () => {
		const row = app.sessions.find(sessionId);
		if (!(await ask(`${text} ${row ? label(row) : sessionId}?`, h("p", warning), text, look))) return;
		const { written, conflicts: left } = await request(text.toLowerCase(), { ...more?.(), force: (force.checked && text !== "Discard") || undefined });
		await load();
		if (text === "Apply" && !written) throw new Error(`Nothing was written: ${count(left, "conflict")}. Choose what happens to them.`);
		announce(`${text}: done`);
	}, { class: look });

	async function load() {
		const { digest, conflicts: number, files: all, more = 0, notes = [] } = await request("diff", { text: true });
		expect = digest;
		conflicts.hidden = !number;
		const summary = count(all.length + more, "changed file") + (number ? `, ${count(number, "conflict")}` : "");
		files.replaceChildren(h("h2", summary), ...notes.map((note) => h("p.warn.foreign", note)), ...all.slice(0, MOST_FILES).map(fileOf), all.length + more > MOST_FILES ? "quack diff shows the others." : "");
		const { checkpoints = [] } = await request("checkpoints");
		states.replaceChildren(h("h2", "Checkpoints"), h("ul.cards", ...checkpoints.reverse().map(({ number, atMs, calls = [], files: changed, changes: some = [] }) => h("li.card",
			h("h3", `State ${number}${atMs ? `, ${new Date(atMs).toLocaleString()}` : ""}`), h("p.foreign", calls.join("\n")),
			h("p.faint.foreign", `${count(changed, "file")} ${some.map(({ path }) => path).join(", ")}`),
			act("Restore", `The files become those of state ${number}. The present state is recorded first.`, () => ({ number }))))));
	}
	const again = button("Reload", load);
	main.append(
		h("p", h("a", { href: "#/changes" }, "All isolated sessions")),
		app.rights.apply ? "" : h("p.faint", "This page may not change workspaces. quack open --apply makes one that may."),
		h("div.actions",
			act("Apply", "The workspace gets these changes, all or none. Undo takes them back.", () => ({ expect, merge: merge.value || undefined }), "primary"),
			act("Undo", "The last apply is taken back. Files that changed since stay."),
			act("Discard", "The private copy is thrown away, with all its changes.", undefined, "danger"), again),
		conflicts, app.rights.apply ? h("label.check", force, "Also while calls or jobs run") : "", files, states);
	again.click();
}

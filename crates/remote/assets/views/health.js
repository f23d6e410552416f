// Network and health: hosts by verdict, forwards, processes, deaths, limits and doctor.
import { button, h, setText, viewLink } from "../dom.js";
import { ago, count, duration, line, link, memory } from "../text.js";
import { label } from "./sessions.js";

/** Sessions whose hosts are asked for: the last used ones with a worker. */
const MOST_SESSIONS = 32;
const VERDICTS = /** @type {const} */ (["denied", "failed", "allowed"]);
const LOOKS = { ok: "good", warn: "warn", fail: "bad" };
const PARTS = ["Hosts by verdict", "Forwards and servers", "Processes", "Deaths", "Limits", "Doctor"];

/** @type {View} */
export function health(main, { wire, request, sessions }) {
	const boxes = PARTS.map(() => h("div"));
	const wait = h("p.faint", "Loading …");
	// Shown at once, so that nothing moves.
	const parts = h("div", { hidden: true }, ...PARTS.flatMap((name, number) => [h("h2", name), boxes[number]]));
	const again = button("Reload", load);
	main.append(h("div.head", h("h1", "Network and health"), again), wait, parts);
	/** @param {number} part @param {string[]} names @param {Kid[][]} rows */
	const show = (part, names, rows) => boxes[part]?.replaceChildren(rows.length ? h("div.wide", { tabindex: 0, role: "region", "aria-label": PARTS[part] }, h("table",
		h("thead", h("tr", ...names.map((name) => h("th", { scope: "col" }, name)))),
		h("tbody", ...rows.map((row) => h("tr", ...row.map((kid) => h("td.foreign", kid))))))) : h("p.faint", "None."));

	async function load() {
		const used = sessions.rows.filter((row) => row.worker).sort((a, b) => b.lastActiveAt.localeCompare(a.lastActiveAt)).slice(0, MOST_SESSIONS);
		/** @type {Network[]} */
		const logs = await Promise.all(used.map((row) => request("quack.sandbox", { action: "network", sessionId: row.id }).catch(() => ({ hosts: [] }))));
		const totals = logs.flatMap((log) => log.hosts.map((host) => ({ ...host, of: log.label })));
		show(0, ["Verdict", "Host", "Requests", "Sent", "Received", "Session", "Last"], VERDICTS.flatMap((verdict) => totals.filter((one) => one[verdict]).map((one) =>
			[verdict, one.host, one[verdict], ...[one.sent, one.received].map((bytes) => memory(Math.ceil(bytes / 1024))), one.of, ago(one.lastAt)])).slice(0, 500));
		/** @type {{forwards: Forward[]}} */
		const { forwards } = await request("quack.forward", { list: true });
		const servers = sessions.rows.flatMap((row) => (row.worker?.servers ?? []).map((one) => [label(row), one.port, one.link ? link(one.link) : `quack forward ${one.port} --link`, ""]));
		show(1, ["Session", "Port", "Link, on that machine", "Since"], [...forwards.map((one) => [one.label, one.port, link(`http://127.0.0.1:${one.local}/`), ago(one.since)]), ...servers]);
		/** @type {{checks: Check[]}} */
		const { checks } = await request("doctor");
		boxes[5]?.replaceChildren(...checks.map(({ status, name, message, hint }) => h("p.foreign", h(`strong.${LOOKS[status]}`, status), ` ${name}: ${message}`, hint && h("span.faint", `\n${hint}`))));
		wait.hidden = true;
		parts.hidden = false;
	}
	let loaded = false;
	const facts = h("dl");
	async function draw() {
		/** @type {PsData | null} */
		const ps = await request("quack.ps").catch(() => null);
		if (!ps || !sessions.loaded) return;
		if (!loaded) again.click();
		loaded = true;
		const live = ps.workers.filter((one) => one.pid || one.place || one.pi?.pid).slice(0, 200);
		show(2, ["Session", "State", "Process", "Memory", "CPU time", "Calls", "Jobs", "Crashes"], live.map((one) =>
			[viewLink("session", one.sessionId, one.label || one.sessionName), one.state, one.place ?? one.pid, memory(one.usage?.rssKb), duration(one.usage?.cpuMs), one.calls.length, one.jobs?.length ?? 0, one.restarts]));
		show(3, ["When", "Process", "Session", "Cause"], ps.deaths.toReversed().map((one) => [ago(one.at), one.child, one.label || one.sessionName, line(one.cause)]));
		const { version, pid, uptime, rssKb, memoryPressure, places, loopLag, clients, slowClients } = ps.supervisor;
		const now = {
			Daemon: `quackd ${version}, process ${pid}, running for ${duration(uptime)}`,
			Memory: `${memory(rssKb)}${memoryPressure ? `, under pressure: ${memoryPressure}` : ""}`,
			Commands: `${places.running} of ${places.max} run, ${places.waiting} wait, ${count(places.jobs, "background job")}`,
			"Loop lag": `at most ${duration(loopLag.maxUs / 1000)} in the last minute`,
			Clients: `${clients} connected, ${slowClients} were too slow`,
			"This page": `${memory(Math.ceil(wire.received.bytes / 1024))} in ${count(wire.received.messages, "message")}`,
		};
		if (!facts.firstChild) facts.append(...Object.keys(now).flatMap((name) => [h("dt", name), h("dd.foreign")]));
		boxes[4]?.append(facts);
		Object.values(now).forEach((text, number) => setText(facts.children[number * 2 + 1], text));
	}
	const end = sessions.watch(draw);
	const polls = setInterval(() => document.hidden || draw(), 3000);
	return () => (end(), clearInterval(polls));
}

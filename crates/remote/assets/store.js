// The sessions and open questions that several views show.

/** Interval between two lists of sessions in milliseconds, and the bytes of one that make it 1 ms longer. */
const INTERVAL = 2000;
const BYTES_PER_MS = 100;

class Store {
	/** @type {Set<() => void>} */
	listeners = new Set();
	loaded = false;
	/** @param {Wire} wire */
	constructor(wire) {
		this.wire = wire;
	}
	/** Returns what ends it. @param {() => void} listener */
	watch(listener) {
		this.listeners.add(listener);
		this.refresh();
		return () => void this.listeners.delete(listener);
	}
	changed() {
		this.loaded = true;
		for (const listener of this.listeners) listener();
	}
	async refresh() {}
}

/** Asks for the changed sessions again and again while a visible view shows them. The daemon waits for a change. */
export class Sessions extends Store {
	/** @type {Map<string, Row>} */
	#all = new Map();
	/** @type {Row[]} */
	rows = [];
	#revision = 0;
	#timer = 0;
	#busy = false;

	/** @param {Wire} wire @param {Questions} questions */
	constructor(wire, questions) {
		super(wire);
		this.questions = questions;
		questions.listeners.add(() => this.#draw());
		document.addEventListener("visibilitychange", () => this.refresh());
	}
	/** @override */
	async refresh() {
		if (this.#busy || !this.listeners.size || document.hidden || !this.wire.ready) return;
		this.#busy = true;
		clearTimeout(this.#timer);
		const { bytes } = this.wire.received;
		try {
			this.#take(await this.wire.request("quack.session_rows", { since: this.#revision }));
		} catch {
			// The next interval asks again.
		}
		this.#busy = false;
		this.#timer = setTimeout(() => this.refresh(), INTERVAL + (this.wire.received.bytes - bytes) / BYTES_PER_MS);
	}
	/** @param {RowsData} data */
	#take({ revision, whole, rows, gone }) {
		this.#revision = revision;
		const [now, before] = [performance.now(), this.#all];
		// Without a change, a process has used no processor time.
		this.#all = new Map(whole ? [] : [...before].map(([id, row]) => [id, row.cpu ? { ...row, cpu: 0 } : row]));
		for (const row of rows) {
			// A row comes within an interval after a change, perhaps long after the row before.
			const old = before.get(row.id);
			const [was, is] = [old?.worker?.usage?.cpuMs, row.worker?.usage?.cpuMs];
			const cpu = old == null || was == null || is == null ? undefined : (Math.max(0, is - was) / Math.min(now - old.at, 2 * INTERVAL)) * 100;
			this.#all.set(row.id, { ...row, cpu, at: now, asked: 0 });
		}
		for (const id of gone) this.#all.delete(id);
		this.loaded = true;
		this.#draw();
	}
	#draw() {
		if (!this.loaded) return;
		this.rows = [...this.#all.values()].map((row) => ({ ...row, asked: this.questions.of(row.id) }));
		this.changed();
	}
	find(id = "") {
		return this.rows.find((row) => row.id === id);
	}
}

/** The questions about permissions. The daemon reports new ones if the token may answer them. */
export class Questions extends Store {
	/** @type {Question[]} */
	open = [];
	/** @type {Closed[]} */
	recent = [];
	problem = "";

	/** @param {Wire} wire */
	constructor(wire) {
		super(wire);
		for (const name of ["extension_ui_request", "extension_ui_closed"]) wire.on(name, ({ seq }) => seq ?? this.refresh());
	}
	/** @override */
	async refresh() {
		if (!this.wire.ready) return;
		try {
			const { pending, recent } = await this.wire.request("quack.approvals", this.wire.rights?.approvals ? { watch: true } : {});
			this.open = pending.map((/** @type {Question} */ one) => ({ ...one, until: performance.now() + one.leftMs }));
			this.recent = recent;
			this.problem = "";
		} catch (problem) {
			this.problem = /** @type {Error} */ (problem).message;
		}
		this.changed();
	}
	find(id = "") {
		return this.open.find((one) => one.request.id === id);
	}
	of(sessionId = "") {
		return this.open.filter((one) => one.sessionId === sessionId).length;
	}
}

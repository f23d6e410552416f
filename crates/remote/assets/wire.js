// One WebSocket to the daemon: requests, events, reconnection, and the events of one followed session.

/** Delays of reconnection, interval of pings, and time for an answer, in milliseconds. */
const FIRST_DELAY = 500;
const LONGEST_DELAY = 30000;
const PING = 20000;
const PONG = 8000;
/** Earlier events that a follower asks for. */
const BACK = 400;

export class Wire {
	/** @type {WebSocket | null} */
	#socket = null;
	/** @type {Map<string, Waiting>} */
	#waiting = new Map();
	/** @type {Map<string, Set<Listener>>} */
	#listeners = new Map();
	/** @type {Followed | null} */
	#followed = null;
	#number = 0;
	#delay = FIRST_DELAY;
	#retry = 0;
	#pong = 0;
	#closed = false;
	ready = false;
	received = { bytes: 0, messages: 0 };
	/** @type {Rights | undefined} */
	rights;
	version = "";

	/** @param {string} token @param {Owner} owner */
	constructor(token, owner) {
		this.token = token;
		this.owner = owner;
		this.wake = () => {
			if (document.hidden) return;
			if (this.#socket) this.#ping();
			else this.#connect();
		};
		document.addEventListener("visibilitychange", this.wake);
		addEventListener("online", this.wake);
		// A page that the browser keeps for "back" must not count as one that answers questions.
		this.hide = () => this.#drop();
		addEventListener("pagehide", this.hide);
		this.pings = setInterval(() => this.#ping(), PING);
		this.#connect();
	}

	/** Disconnects for good. */
	close() {
		this.#closed = true;
		clearInterval(this.pings);
		document.removeEventListener("visibilitychange", this.wake);
		removeEventListener("online", this.wake);
		removeEventListener("pagehide", this.hide);
		this.#drop();
	}

	#connect() {
		clearTimeout(this.#retry);
		this.owner.state("connecting …");
		const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/ws`);
		this.#socket = socket;
		this.#expect();
		socket.onopen = () => socket.send(JSON.stringify({ token: this.token }));
		socket.onmessage = ({ data }) => socket === this.#socket && this.#message(String(data));
		socket.onclose = ({ code, reason }) => {
			if (socket !== this.#socket) return;
			if (code === 1008 && !reason.endsWith("in time")) return this.#end(reason);
			this.#drop();
			// The name of this host ends with the token. Then the handshake is refused, and browsers hide why.
			fetch("/status", { headers: { Authorization: `Bearer ${this.token}` } }).then(({ status }) => status === 401 && this.#end(), () => {});
		};
	}

	#end(reason = "") {
		if (this.#closed) return;
		this.close();
		this.owner.signedOut(reason || "the token is not valid any more");
	}

	/** Gives the connection up, and tries again later. */
	#drop() {
		const socket = this.#socket;
		this.#socket = null;
		this.ready = false;
		clearTimeout(this.#pong);
		clearTimeout(this.#retry);
		socket?.close();
		for (const { reject } of this.#waiting.values()) reject(new Error("The connection was lost. The request may have been done."));
		this.#waiting.clear();
		if (this.#closed) return;
		this.owner.state("not connected");
		this.#retry = setTimeout(() => this.#connect(), this.#delay * (0.7 + 0.6 * Math.random()));
		this.#delay = Math.min(LONGEST_DELAY, this.#delay * 2);
	}

	/** The connection may have died while the device slept. */
	#ping() {
		if (!this.ready) return;
		this.#socket?.send("ping");
		this.#expect();
	}

	/** Gives up unless a message comes. */
	#expect() {
		const { messages } = this.received;
		clearTimeout(this.#pong);
		this.#pong = setTimeout(() => messages === this.received.messages && this.#drop(), PONG);
	}

	/** @param {string} text */
	#message(text) {
		this.received.bytes += text.length;
		this.received.messages += 1;
		if (text === "pong") return;
		const message = JSON.parse(text);
		if (message.event === "remote_ready") {
			const { rights, version } = message.data;
			// These scripts are those of an earlier daemon.
			if (this.version && version !== this.version) location.reload();
			Object.assign(this, { rights, version });
			this.ready = true;
			this.#delay = FIRST_DELAY;
			this.owner.state("connected");
			this.#follow();
		}
		if (message.event) {
			this.#event(message);
			return;
		}
		const waiting = this.#waiting.get(message.id);
		this.#waiting.delete(message.id);
		if (message.ok) waiting?.resolve(message.data ?? {});
		else waiting?.reject(new Error(message.error));
	}

	/** @param {DaemonEvent} message */
	#event(message) {
		const followed = this.#followed;
		if (message.seq && followed?.sessionId === message.sessionId) {
			const { seq, loose, to } = followed;
			// Open questions come again, with their old number.
			const again = message.seq <= seq && message.event === "extension_ui_request";
			if (message.seq > seq + 1 && !loose) to.lost();
			if (!again && (loose || message.seq > seq)) Object.assign(followed, { seq: message.seq, loose: false });
			else if (!again) return;
			to.event(message);
		}
		for (const listener of this.#listeners.get(message.event) ?? []) listener(message);
	}

	/** Rejects with the daemon's error. @returns {Promise<any>} */
	request(method = "", params = {}) {
		return new Promise((resolve, reject) => {
			if (!this.ready) throw new Error("Not connected. Try again when the page is connected.");
			const id = String((this.#number += 1));
			this.#waiting.set(id, { resolve, reject });
			this.#socket?.send(JSON.stringify({ id, method, params }));
		});
	}

	/** Returns what ends it. @param {string} event @param {Listener} listener */
	on(event, listener) {
		const all = this.#listeners.get(event) ?? new Set();
		this.#listeners.set(event, all.add(listener));
		return () => void all.delete(listener);
	}

	/**
	* Follows one session, from earlier events on if the daemon has kept them. After a reconnection the missed events
	* come, or `lost` is called. Returns what ends it.
	* @param {string} sessionId @param {Follower} to
	*/
	follow(sessionId, to) {
		const followed = { sessionId, seq: 0, epoch: "", fresh: true, loose: true, to };
		this.#followed = followed;
		if (this.ready) this.#follow();
		return () => {
			if (this.#followed !== followed) return;
			this.#followed = null;
			this.request("unfollow").catch(() => {});
		};
	}

	async #follow() {
		const followed = this.#followed;
		if (!followed) return;
		const { sessionId, to } = followed;
		try {
			if (followed.fresh) {
				// Earlier events need the epoch of the reply.
				const { seq, epoch } = await this.request("follow", { sessionId });
				Object.assign(followed, { seq: Math.max(0, seq - BACK), epoch });
			}
			if (this.#followed !== followed) return;
			const data = await this.request("follow", { sessionId, sinceSeq: followed.seq, epoch: followed.epoch });
			if (data.resync && !followed.fresh) to.lost();
			// Events before this reply may come after it.
			if (data.resync) Object.assign(followed, { seq: data.seq, epoch: data.epoch, loose: true });
			followed.fresh = false;
			to.began();
		} catch (data) {
			if (this.#followed === followed && this.ready) to.event({ event: "page_error", sessionId, data });
		}
	}
}

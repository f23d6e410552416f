// Text of agents, programs and users as DOM nodes. Nothing in the page sets markup.

/** Controls, invisible and reordering characters, and joiners behind ASCII, where no script needs them. */
const UNSEEN =
	/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]|(?<=[\u0000-\u007f])[\u200c\u200d]/gu;
/** Sequences that choose colors of a terminal. */
const COLORS = /\u001b\[[0-9;:]*m/g;
const ADDRESS = /https?:\/\/[^\s<>"'\x60\u0000-\u0020\u007f-\u00a0\u2000-\u200f\u2028-\u202f\u2060-\u206f]{1,999}/gi;

/** Returns signs for characters that are not seen. @param {unknown} [value] */
export const visible = (value = "") =>
	String(value).replace(/\r\n/g, "\n").replace(UNSEEN, (found) => `⟨U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

/** Returns the end of a program's output, without colors. */
export function output(value = "", most = 16384) {
	const text = value.replace(COLORS, "");
	return (text.length > most ? `[… ${text.length - most} characters before are not shown]\n` : "") + visible(text.slice(-most));
}

/** Returns the text as one line. @param {unknown} value */
export function line(value, most = 200) {
	const text = String(value ?? "").slice(0, most + 1).replace(/\s+/g, " ").trim();
	return visible(text.length > most ? `${text.slice(0, most)}…` : text);
}

/** Returns a link that shows its target, or text if it is no http or https address. */
export function link(address = "") {
	const url = URL.canParse(address) ? new URL(address) : null;
	if (!url || !/^https?:$/.test(url.protocol) || url.username + url.password) return document.createTextNode(visible(address));
	const node = document.createElement("a");
	// As the browser opens it: host names are in ASCII.
	node.href = node.textContent = url.href;
	node.rel = "noopener noreferrer";
	node.target = "_blank";
	return node;
}

/** Returns a message with code, bold words and links. */
export function prose(value = "") {
	const box = document.createElement("div");
	box.className = "prose";
	value.slice(0, 262144).split(/^\x60{3}[^\n]*\n?/m).forEach((part, number) => {
		const block = document.createElement(number % 2 ? "pre" : "p");
		if (number % 2) {
			block.tabIndex = 0;
			block.textContent = visible(part.trimEnd());
		} else {
			for (const piece of part.trim().split(/(`[^\x60\n]+`|\*\*[^*\n]+\*\*)/)) {
				const mark = piece.length > 2 && (piece[0] === "\x60" ? "code" : piece.startsWith("**") && "strong");
				if (mark) {
					const node = document.createElement(mark);
					node.textContent = visible(piece.replace(/^[`*]+|[`*]+$/g, ""));
					block.append(node);
					continue;
				}
				let at = 0;
				for (const { 0: found, index } of piece.matchAll(ADDRESS)) {
					const address = found.replace(/[.,;:!?)\]}*]+$/, "");
					block.append(visible(piece.slice(at, index)), link(address));
					at = index + address.length;
				}
				block.append(visible(piece.slice(at)));
			}
		}
		if (block.textContent) box.append(block);
	});
	return box;
}

/** @param {number} [kib] */
export const memory = (kib) => (kib == null ? "" : kib < 1024 ? `${kib} KB` : `${(kib / 1024).toFixed(1)} MB`);

/** @param {number} [ms] */
export function duration(ms, coarse = false) {
	if (ms == null) return "";
	const s = ms / 1000;
	if (s < 1 && !coarse) return `${Math.round(ms)} ms`;
	if (s < 60) return `${s.toFixed(coarse || s >= 10 ? 0 : 1)} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min${coarse ? "" : ` ${Math.floor(s % 60)} s`}`;
	return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
}

export const ago = (time = "") => (time ? `${duration(Math.max(0, Date.now() - Date.parse(time)), true)} ago` : "");

export const count = (n = 0, noun = "") => `${n} ${noun}${n === 1 ? "" : "s"}`;

// Elements, dialogs and the virtual list.
import { visible } from "./text.js";

/**
 * Creates an element: tag with classes, attributes, children. Texts become text nodes; `on…` attributes are listeners.
 * @template {string} K @param {K} name @param {...(Kid | Attributes)} kids @returns {Tag<K>}
 */
export function h(name, ...kids) {
	const [tag = "", ...classes] = name.split(".");
	const node = document.createElement(tag);
	node.className = classes.join(" ");
	for (const kid of kids) {
		if (kid == null || kid === false) continue;
		if (kid instanceof Node) node.append(kid);
		else if (typeof kid !== "object") node.append(visible(kid));
		else {
			for (const [key, value] of Object.entries(kid)) {
				if (value == null || value === false) continue;
				if (typeof value === "function") node.addEventListener(key.slice(2), value);
				else if (key === "href" && value[0] !== "#") throw new Error("link() makes links to other addresses");
				else node.setAttribute(key, value === true ? "" : visible(value));
			}
		}
	}
	return /** @type {any} */ (node);
}

/** A button that is inert until its action has ended. An error is shown. @param {string} text @param {() => unknown} action @param {Attributes} [more] */
export function button(text, action, more) {
	const node = h("button", { type: "button", ...more }, text);
	node.onclick = async () => {
		if (node.ariaDisabled === "true") return;
		node.ariaDisabled = "true";
		try {
			await action();
		} catch (problem) {
			report(problem);
		}
		node.ariaDisabled = null;
	};
	return node;
}

export const checkbox = () => h("input", { type: "checkbox" });

export const viewLink = (view = "", id = "", text = "") => h("a.foreign", { href: `#/${view}/${encodeURIComponent(id)}` }, text);

/** Changes a text only if it differs. @param {Element | null | undefined} node */
export function setText(node, text = "") {
	if (node && node.textContent !== text) node.textContent = text;
}

/** Tells screen readers. */
export const announce = (text = "") => setText(document.getElementById("announcer"), visible(text));

/** Shows an error. @param {unknown} what */
export function report(what) {
	const text = what instanceof Error ? what.message : String(what);
	const note = h("div.note", h("span.foreign", text));
	note.append(button("Dismiss", () => note.remove(), { "aria-label": `Dismiss: ${text}` }));
	const box = document.getElementById("messages");
	if ((box?.childElementCount ?? 0) > 2) box?.firstElementChild?.remove();
	box?.append(note);
}

/** Returns true if the action was chosen. @param {string} title @param {Kid} body @param {string} action @returns {Promise<boolean>} */
export function ask(title, body, action, look = "primary") {
	const before = /** @type {HTMLElement | null} */ (document.activeElement);
	const dialog = h("dialog", { "aria-labelledby": "title" });
	dialog.append(h("form", { onsubmit: (event) => (event.preventDefault(), dialog.close("yes")) },
		h("h2", { id: "title" }, title), body,
		h("div.actions", button("Cancel", () => dialog.close()), h(`button.${look}`, { type: "submit" }, action))));
	document.body.append(dialog);
	dialog.showModal();
	return new Promise((resolve) => {
		dialog.onclose = () => {
			dialog.remove();
			before?.focus();
			resolve(dialog.returnValue === "yes");
		};
	});
}

/** A list of rows of equal height. Only the visible ones and that with the focus are in the document. @template T */
export class VirtualList {
	/** @type {T[]} */
	items = [];
	/** @type {Map<string, Updating<T>>} */
	#nodes = new Map();
	#frame = 0;

	/** @param {string} label @param {(item: T) => string} key @param {(item: T) => Updating<T>} make */
	constructor(label, key, make) {
		this.node = h("ul.virtual", { "aria-label": label });
		this.key = key;
		this.make = make;
		this.later = () => {
			cancelAnimationFrame(this.#frame);
			this.#frame = requestAnimationFrame(() => this.draw());
		};
		addEventListener("scroll", this.later, { passive: true });
		addEventListener("resize", this.later);
	}
	close() {
		removeEventListener("scroll", this.later);
		removeEventListener("resize", this.later);
	}
	draw(items = this.items) {
		this.items = items;
		const list = this.node;
		const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
		const height = parseFloat(getComputedStyle(list).getPropertyValue("--row")) * rem;
		list.style.height = `${items.length * height}px`;
		const top = -list.getBoundingClientRect().top;
		const first = Math.floor(top / height) - 8;
		const last = Math.ceil((top + innerHeight) / height) + 8;
		const active = [...this.#nodes].find(([, node]) => node.contains(document.activeElement))?.[0];
		const kept = new Map();
		items.forEach((item, number) => {
			const shown = first <= number && number < last;
			const key = shown || active ? this.key(item) : "";
			if (!shown && (!active || key !== active)) return;
			const node = this.#nodes.get(key) ?? this.make(item);
			node.update(item);
			node.style.transform = `translateY(${number * height}px)`;
			node.ariaSetSize = String(items.length);
			node.ariaPosInSet = String(number + 1);
			kept.set(key, node);
		});
		for (const [key, node] of this.#nodes) if (!kept.has(key)) node.remove();
		this.#nodes = kept;
		const nodes = [...kept.values()];
		if (nodes.every((node, number) => node === list.children[number])) return;
		// A row that is moved loses the focus.
		const at = nodes.findIndex((node) => node.contains(document.activeElement));
		nodes.forEach((node, number) => {
			if (number < at) list.insertBefore(node, nodes[at]);
			else if (number !== at) list.append(node);
		});
	}
}

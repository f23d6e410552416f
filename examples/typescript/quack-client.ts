#!/usr/bin/env node
/**
 * A client of quackd in one file without dependencies. Node 22.18 or newer runs it directly; 22.6 or newer
 * requires `--experimental-strip-types`.
 *
 *     node quack-client.ts [--dir DIR] [--session REF] follow
 *     node quack-client.ts [--dir DIR] [--session REF] tool NAME [ARGUMENTS]
 *     node quack-client.ts [--dir DIR] [--session REF] say MESSAGE...
 *
 * `quack schema --typescript > quackd.d.ts` creates the types. Running the client does not need them.
 * Exit codes: 0 done, 1 refused or failed, 2 usage, 3 no daemon, 130 interrupted.
 */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { createConnection } from "node:net";
import { isAbsolute, join, resolve } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import type { Event, ExtensionUiRequestEvent, KnownEvent, Methods, Reply } from "./quackd.d.ts";

const PROTOCOL = 1;

/** The daemon is not running, has closed the connection, or uses another protocol. */
class DaemonError extends Error {}

/** The daemon replied with `ok: false`. The text is for display only. */
class Refused extends Error {}

type Env = Record<string, string | undefined>;
type Socket = ReturnType<typeof createConnection>;
type Params<M extends keyof Methods> = Methods[M]["params"];
type Data<M extends keyof Methods> = Methods[M]["data"];

/** Returns the state directory by the rule of `quack`. The fallback path of the socket hashes this text. */
export function stateDirectory(env: Env = process.env): string {
  const text = (name: string) => (env[name] ?? "").trim();
  const given = text("RUBBER_DUCK_APP_SUPPORT");
  if (given) return given;
  const home = text("HOME");
  if (!isAbsolute(home)) {
    throw new DaemonError("HOME is not set to an absolute path; set it, or RUBBER_DUCK_APP_SUPPORT");
  }
  const shared = join(home, "Library/Application Support/RubberDuck");
  if (process.platform === "darwin") {
    const app = "Library/Containers/co.blode.rubber-duck/Data/Library/Application Support/RubberDuck";
    const container = join(home, app);
    return !existsSync(shared) && existsSync(container) ? container : shared;
  }
  const state = text("XDG_STATE_HOME");
  const ours = join(isAbsolute(state) ? state : join(home, ".local/state"), "quackd");
  const files = ["metadata.json", "metadata.json.bak", "quackd.lock"];
  const inUse = files.some((name) => existsSync(join(ours, name)));
  return !inUse && existsSync(shared) ? shared : ours;
}

/** Returns the socket in the state directory, or a short path in ~/.quackd if that is too long. */
export function socketPath(env: Env = process.env): string {
  const state = stateDirectory(env);
  const preferred = `${state}/daemon.sock`.replace(/\/+/g, "/");
  const mostBytes = process.platform === "darwin" ? 103 : 107;
  if (preferred.length < 104 && Buffer.byteLength(resolve(preferred)) <= mostBytes) return preferred;
  const digest = createHash("sha256").update(state).digest("hex").slice(0, 12);
  return join(env.HOME ?? "", ".quackd", `duck-${digest}.sock`);
}

type Waiting = { resolve: (data: unknown) => void; reject: (error: Error) => void };

/** One connection: `request` sends a request, `events` yields events. */
export class Client {
  private readonly socket: Socket;
  private readonly waiting = new Map<string, Waiting>();
  private readonly kept: Event[] = [];
  private wake: () => void = () => {};
  private gone: DaemonError | undefined;
  private lastId = 0;

  private constructor(socket: Socket) {
    this.socket = socket;
    const lost = (why: string) => {
      this.gone ??= new DaemonError(why);
      for (const { reject } of this.waiting.values()) reject(this.gone);
      this.waiting.clear();
      this.wake();
    };
    // Split the bytes at LF before decoding: a character may arrive in two chunks.
    let rest = Buffer.alloc(0);
    socket.on("data", (bytes: Uint8Array) => {
      rest = Buffer.concat([rest, bytes]);
      for (let end = rest.indexOf(10); end !== -1; end = rest.indexOf(10)) {
        const line = rest.subarray(0, end).toString("utf8");
        rest = rest.subarray(end + 1);
        this.take(JSON.parse(line), lost);
      }
    });
    socket.on("error", () => lost("the daemon has closed the connection"));
    socket.on("close", () => lost("the daemon has closed the connection"));
  }

  static async connect(path: string = socketPath()): Promise<Client> {
    const socket = createConnection(path);
    await new Promise<void>((done, failed) => {
      socket.once("connect", done);
      socket.once("error", (error: Error) =>
        failed(new DaemonError(`no daemon listens on ${path} (${error.message}); \`quack\` starts one`)),
      );
    });
    const client = new Client(socket);
    const { protocol } = await client.request("ping", {});
    if (protocol !== PROTOCOL) {
      client.close();
      throw new DaemonError(`the daemon speaks protocol ${protocol}, this client ${PROTOCOL}`);
    }
    return client;
  }

  close(): void {
    this.socket.destroy();
  }

  /** Sends a request and returns the `data` of the reply. */
  request<M extends keyof Methods>(method: M, params: Params<M>): Promise<Data<M>> {
    if (this.gone) return Promise.reject(this.gone);
    const id = String(++this.lastId);
    return new Promise<Data<M>>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (data: unknown) => void, reject });
      this.socket.write(`${JSON.stringify({ id, method, params })}\n`);
    });
  }

  /** Yields the events of the followed session. Ends when the daemon closes the connection. */
  async *events(): AsyncGenerator<KnownEvent> {
    for (;;) {
      const event = this.kept.shift();
      // Unknown events have other names, so every `switch` ignores them.
      if (event) yield event as KnownEvent;
      else if (this.gone) return;
      else await new Promise<void>((done) => (this.wake = done));
    }
  }

  private take(message: Reply | Event, lost: (why: string) => void): void {
    if ("event" in message) {
      this.kept.push(message);
      this.wake();
      return;
    }
    const waiting = this.waiting.get(String(message.id));
    if (waiting) {
      this.waiting.delete(String(message.id));
      if (message.ok) waiting.resolve(message.data);
      else waiting.reject(new Refused(message.error));
    } else if (message.id === "unknown" && !message.ok) {
      // The daemon rejects this client: too many connections, or a line is too long.
      lost(message.error);
    }
  }
}

const print = (line: string) => process.stdout.write(`${line}\n`);

/** Prints one event. Ignores unknown ones, which newer daemons may send. */
export function printEvent(event: KnownEvent): void {
  switch (event.event) {
    case "message_update": {
      const { type, delta } = event.data.assistantMessageEvent;
      if (type === "text_delta") process.stdout.write(delta ?? "");
      break;
    }
    case "message_end":
      if (event.data.message.role === "assistant") print("");
      break;
    case "tool_execution_start":
      print(`[tool] ${event.data.toolName} ${JSON.stringify(event.data.args ?? {})}`);
      break;
    case "tool_execution_update":
      process.stdout.write(event.data.delta ?? "");
      break;
    case "tool_execution_end":
      print(`[tool] ${event.data.toolName} ${event.data.isError ? "failed" : "done"}`);
      break;
    case "prompt_error":
    case "extension_error":
      print(`[error] ${event.data.error}`);
      break;
    case "extension_ui_closed":
      print(`[question] closed: ${event.data.reason}`);
      break;
    case "session_deleted":
      print("[session] deleted");
      break;
  }
}

type Question = ExtensionUiRequestEvent["data"];
type Answer = { value?: string; confirmed?: boolean; cancelled?: boolean };

/** Prints a question of Pi and reads the answer, one line of stdin. The end of stdin cancels. */
async function answer(question: Question, typed: AsyncIterator<string>): Promise<Answer> {
  let text = [question.title, question.message].filter(Boolean).join(" ");
  const options = (question.options ?? []).map(String);
  if (question.method === "confirm") text += " [y/n]";
  if (question.method === "select") text += options.map((it, n) => `\n  ${n + 1}: ${it}`).join("");
  print(`[question] ${text}`);
  const { value, done } = await typed.next();
  if (done) return { cancelled: true };
  const line = value.trim();
  if (question.method === "confirm") return { confirmed: ["y", "yes"].includes(line.toLowerCase()) };
  if (question.method !== "select") return { value: line };
  const chosen = options[Number(line) - 1];
  return chosen === undefined ? { cancelled: true } : { value: chosen };
}

/**
 * Sends a prompt to the session's Pi and prints the turn. Returns false if it failed.
 *
 * Assumes that no other client sends prompts to the session. Otherwise, `seq` of the reply and the text of
 * the next `message_start` identify the turn.
 */
async function say(client: Client, sessionId: string, message: string): Promise<boolean> {
  const input = createInterface({ input: process.stdin });
  const typed: AsyncIterator<string> = input[Symbol.asyncIterator]();
  try {
    await client.request("say", { sessionId, message, preferPi: true });
    let wentWell = true;
    for await (const event of client.events()) {
      printEvent(event);
      if (event.event === "extension_ui_request") {
        const { id, method } = event.data;
        if (!["confirm", "select", "input", "editor"].includes(method)) continue;
        try {
          const said = await answer(event.data, typed);
          await client.request("extension_ui_response", { sessionId, id, ...said });
        } catch (error) {
          // Another client has answered, or the question timed out. Continue.
          if (!(error instanceof Refused)) throw error;
          print(`[question] ${error.message}`);
        }
      } else if (event.event === "prompt_error") {
        // After a crash of Pi an `agent_end` follows, but not after a refused prompt.
        return false;
      } else if (event.event === "message_end" && event.data.message.stopReason === "error") {
        wentWell = false;
        print(`[error] ${event.data.message.errorMessage ?? "the model has failed"}`);
      } else if (event.event === "agent_end") {
        return wentWell;
      }
    }
  } finally {
    input.close();
  }
  throw new DaemonError("the daemon has closed the connection");
}

/** Runs a tool and prints its result. Returns false if it failed. */
async function runTool(client: Client, sessionId: string, tool: string, given: string): Promise<boolean> {
  let args: unknown = given;
  try {
    args = JSON.parse(given);
  } catch {
    // Not JSON: the text is the tool's main parameter.
  }
  const result = await client.request("quack.tool", { sessionId, tool, arguments: args });
  print(result.text);
  return !result.isError;
}

const USAGE = "usage: quack-client.ts [--dir DIR] [--session REF] follow | tool NAME [ARGUMENTS] | say MESSAGE...";

async function main(): Promise<number> {
  const options = { dir: { type: "string", default: "." }, session: { type: "string" } } as const;
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [verb, ...words]: string[] = positionals;
  const isKnown =
    verb === "follow" || (verb === "tool" && words.length > 0) || (verb === "say" && words.length > 0);
  if (!isKnown) {
    process.stderr.write(`${USAGE}\n`);
    return 2;
  }
  const client = await Client.connect();
  try {
    let session: string | undefined = values.session;
    if (session === undefined) {
      const path = resolve(values.dir);
      session = (await client.request("attach", { path, activate: false })).session.id;
    }
    if (verb === "tool") {
      return (await runTool(client, session, words[0] ?? "", words[1] ?? "{}")) ? 0 : 1;
    }
    const followed = await client.request("follow", { sessionId: session });
    print(`[follow] ${followed.sessionName} ${followed.workspacePath}`);
    if (verb === "say") return (await say(client, session, words.join(" "))) ? 0 : 1;
    for await (const event of client.events()) printEvent(event);
    return 0;
  } finally {
    client.close();
  }
}

process.on("SIGINT", () => process.exit(130));
main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: Error) => {
    process.stderr.write(`error: ${error.message}\n`);
    const isUsage = (error as { code?: string }).code?.startsWith("ERR_PARSE_ARGS");
    process.exitCode = isUsage ? 2 : error instanceof DaemonError ? 3 : 1;
  },
);

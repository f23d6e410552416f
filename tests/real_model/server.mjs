// Serves SmolLM2-135M as OpenAI chat completions on loopback:
//
//   node server.mjs CACHE      CACHE has model.gguf and node_modules; see run.sh
//
// Prints its base URL on stdout when the model is loaded, then one line per request on stderr.
// The model is too small to decide for a call. If tools are offered and the user's prompt has no
// result yet, a grammar of one tool's arguments limits the sampling. Other answers are free text.

import { createServer } from "node:http";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const MODEL = "smollm2-135m-instruct";
const CONTEXT = 4096; // tokens
const MAX_ANSWER = 96; // tokens
const MAX_BODY = 4 << 20; // bytes
const HEARTBEAT = 5000; // ms between comments, so that a slow prompt is not an idle stream

const cache = resolve(process.argv[2] ?? ".");
const library = pathToFileURL(`${cache}/node_modules/node-llama-cpp/dist/index.js`);
const { getLlama, ChatMLChatWrapper, LlamaChatSession } = await import(library);
// The default number of threads stalls on a busy machine with few cores.
const llama = await getLlama({ gpu: false, build: "never", maxThreads: 2, logLevel: "error" });
const model = await llama.loadModel({ modelPath: `${cache}/model.gguf` });
const context = await model.createContext({ contextSize: CONTEXT, threads: 2 });
const sequence = context.getSequence();

const text = ({ content }) =>
  Array.isArray(content) ? content.map((part) => part.text ?? "").join("") : (content ?? "");

/** Returns the tool to call: `read_file`, else the first. None after a result of this prompt. */
function toolToCall({ tools = [], messages }) {
  const prompt = messages.findLastIndex(({ role }) => role === "user");
  if (messages.slice(prompt).some(({ role }) => role === "tool")) return undefined;
  return (tools.find((tool) => tool.function.name === "read_file") ?? tools[0])?.function;
}

/** Returns the schema of the required arguments. A path is a file name of the prompt, if any. */
function schemaOf(tool, prompt) {
  const names = prompt.match(/[\w/-]+(?:\.\w+)+/g) ?? [];
  const properties = {};
  for (const name of tool.parameters.required ?? []) {
    const type = tool.parameters.properties[name].type ?? "string";
    properties[name] = name === "path" && names.length > 0 ? { enum: [...new Set(names)] } : { type };
  }
  return { type: "object", properties };
}

/** Returns the conversation before the last message, and the text that the model answers. */
function split(messages, tool) {
  const history = [];
  for (const message of messages) {
    if (message.role === "system" || message.role === "developer")
      history.push({ type: "system", text: text(message) });
    else if (message.role === "assistant")
      history.push({ type: "model", response: [text(message) || message.tool_calls[0].function.arguments] });
    else if (message.role === "tool")
      history.push({ type: "user", text: `The result is:\n\n${text(message)}\n\nAnswer in one sentence.` });
    else history.push({ type: "user", text: text(message) });
  }
  const last = history.pop().text;
  if (!tool) return { history, last };
  return { history, last: `${last}\n\nWrite the arguments of the tool ${tool.name} as JSON.` };
}

async function complete(body, response, signal) {
  const tool = toolToCall(body);
  const { history, last } = split(body.messages, tool);
  const size = model.tokenize(JSON.stringify(history) + last).length;
  if (size + MAX_ANSWER > CONTEXT) {
    const message = `This model's maximum context length is ${CONTEXT} tokens. The messages have ${size}.`;
    return reply(response, 400, { error: { message, code: "context_length_exceeded" } });
  }
  const prompt = text(body.messages.findLast(({ role }) => role === "user") ?? {});
  const grammar = tool && (await llama.createGrammarForJsonSchema(schemaOf(tool, prompt)));
  const id = `chatcmpl-${Date.now()}`;
  const send = (fields) => {
    const chunk = { id, object: "chat.completion.chunk", model: MODEL, choices: [], ...fields };
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  };
  const delta = (value, finish_reason = null) =>
    send({ choices: [{ index: 0, delta: value, finish_reason }] });
  const call = (part) => delta({ tool_calls: [{ index: 0, ...part }] });

  const session = new LlamaChatSession({ contextSequence: sequence, chatWrapper: new ChatMLChatWrapper() });
  session.setChatHistory(history);
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  const heartbeat = setInterval(() => response.write(": computing\n\n"), HEARTBEAT);
  try {
    delta({ role: "assistant" });
    if (tool) call({ id: `call_${Date.now()}`, type: "function", function: { name: tool.name, arguments: "" } });
    const onTextChunk = (piece) => (tool ? call({ function: { arguments: piece } }) : delta({ content: piece }));
    const answer = await session.prompt(last, { grammar, signal, onTextChunk, temperature: 0, maxTokens: MAX_ANSWER });
    const made = model.tokenize(answer).length;
    delta({}, tool ? "tool_calls" : made < MAX_ANSWER ? "stop" : "length");
    send({ usage: { prompt_tokens: size, completion_tokens: made, total_tokens: size + made } });
    response.end("data: [DONE]\n\n");
    console.error(`${size} tokens, ${tool ? `call of ${tool.name}` : "text"}: ${JSON.stringify(answer)}`);
  } finally {
    clearInterval(heartbeat);
    session.dispose({ disposeSequence: false });
  }
}

function reply(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}

async function bodyOf(request) {
  let body = "";
  for await (const piece of request.setEncoding("utf8"))
    if ((body += piece).length > MAX_BODY) throw new Error("the request is too large");
  return JSON.parse(body);
}

let queue = Promise.resolve(); // The model computes one answer at a time.
const server = createServer(async (request, response) => {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const failed = (error) => {
    if (!gone.signal.aborted) console.error(error);
    if (response.headersSent) response.destroy();
    else reply(response, 400, { error: { message: String(error.message) } });
  };
  const route = `${request.method} ${request.url}`;
  if (route === "GET /v1/models")
    return reply(response, 200, { object: "list", data: [{ id: MODEL, object: "model" }] });
  if (route !== "POST /v1/chat/completions") return reply(response, 404, { error: { message: `no ${route}` } });
  try {
    const body = await bodyOf(request);
    queue = queue.then(() => complete(body, response, gone.signal)).catch(failed);
  } catch (error) {
    failed(error);
  }
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/v1`));

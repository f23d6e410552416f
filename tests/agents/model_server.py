"""Scripted model server on loopback for coding agents.

It streams the four APIs that the agents of run.py use: Anthropic Messages, OpenAI Responses, OpenAI Chat Completions
and Gemini. A script is a list of steps: `{"tool": SUFFIX, "arguments": {...}}` or `{"text": "..."}`.

The position in the script is the number of tool results in the request, so that a repeated request gets the same
answer. A request that offers none of the tools of the script, such as one for a title, does not belong to the script.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAMESPACE = "quackd"


class Conversation:
    """A script, and the record of what the agent sent."""

    def __init__(self, steps):
        self.steps = steps
        self.lock = threading.Lock()
        self.tools = []
        self.results = []
        self.turns = 0
        self.side_requests = []
        self.unknown_paths = []
        self.requests = []

    def answer(self, tools, results, body):
        """Returns the next step, with the agent's own name of the tool."""
        with self.lock:
            self.requests.append(body)
            ours = [name for name in tools if NAMESPACE in name]
            if not ours:
                self.side_requests.append(body)
                return {"text": "A test"}
            self.tools = tools
            self.turns += 1
            if len(results) >= len(self.results):
                self.results = results
            step = self.steps[min(len(results), len(self.steps) - 1)]
        if "tool" not in step:
            return step
        names = [name for name in ours if re.search(r"(^|\W|_)" + re.escape(step["tool"]) + "$", name)]
        if not names:
            return {"text": f"No tool ends with {step['tool']}"}
        return {"tool": min(names, key=len), "arguments": step["arguments"], "id": f"call_{len(results)}"}


def text_of(content):
    """Joins the text of a message or of a tool result, whatever shape the API gives it."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    if isinstance(content.get("text"), str):
        return content["text"]
    return json.dumps(content, ensure_ascii=False, sort_keys=True)


# Each API is a function from a request to the offered tools and the tool results, and one from a step to records.


def read_anthropic(body):
    tools = [tool["name"] for tool in body.get("tools") or []]
    results = []
    for message in body.get("messages") or []:
        if isinstance(message["content"], list):
            results += [text_of(part.get("content")) for part in message["content"] if part["type"] == "tool_result"]
    return tools, results


def message_id(step):
    """Claude Code takes messages with the same id for one."""
    return "msg_" + step.get("id", "1")


def write_anthropic(step, body):
    usage = {"input_tokens": 10, "output_tokens": 10}
    message = {"id": message_id(step), "type": "message", "role": "assistant", "model": body.get("model"), "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    yield "message_start", {"message": message}
    if "tool" in step:
        block = {"type": "tool_use", "id": "toolu_" + step["id"], "name": step["tool"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step["arguments"])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": step["text"]}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "tool_use" if "tool" in step else "end_turn"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 10}}
    yield "message_stop", {}


def whole_anthropic(step, body):
    if "tool" in step:
        content = {"type": "tool_use", "id": "toolu_" + step["id"], "name": step["tool"], "input": step["arguments"]}
    else:
        content = {"type": "text", "text": step["text"]}
    reply = {"id": message_id(step), "type": "message", "role": "assistant", "model": body.get("model"), "content": [content]}
    reason = "tool_use" if "tool" in step else "end_turn"
    return reply | {"stop_reason": reason, "usage": {"input_tokens": 10, "output_tokens": 10}}


def read_responses(body):
    tools = []
    for tool in body.get("tools") or []:
        if tool["type"] == "namespace":
            tools += [tool["name"] + "/" + inner["name"] for inner in tool["tools"]]
        else:
            tools.append(tool.get("name") or tool["type"])
    items = body.get("input") or []
    return tools, [text_of(item["output"]) for item in items if item.get("type") == "function_call_output"]


def write_responses(step, _body):
    yield "response.created", {"response": {"id": "resp_1", "status": "in_progress", "output": []}}
    if "tool" in step:
        namespace, _, name = step["tool"].rpartition("/")
        item = {"type": "function_call", "id": "fc_" + step["id"], "call_id": step["id"], "name": name}
        item |= {"arguments": json.dumps(step["arguments"]), "status": "completed"}
        if namespace:
            item["namespace"] = namespace
    else:
        part = {"type": "output_text", "text": step["text"], "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    done = {"id": "resp_1", "status": "completed", "output": [item], "usage": usage}
    yield "response.completed", {"response": done}


def read_chat(body):
    tools = [tool["function"]["name"] for tool in body.get("tools") or []]
    messages = body.get("messages") or []
    return tools, [text_of(message["content"]) for message in messages if message["role"] == "tool"]


def chat_message(step):
    if "tool" not in step:
        return {"role": "assistant", "content": step["text"]}, "stop"
    function = {"name": step["tool"], "arguments": json.dumps(step["arguments"])}
    call = {"index": 0, "id": step["id"], "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def write_chat(step, body):
    delta, reason = chat_message(step)
    base = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
    yield None, base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield None, base | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    yield None, base | {"choices": [], "usage": usage}
    yield None, "[DONE]"


def whole_chat(step, body):
    message, reason = chat_message(step)
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    reply = {"id": "chat_1", "object": "chat.completion", "created": 1, "model": body.get("model")}
    return reply | {"choices": [choice], "usage": usage}


def read_gemini(body):
    tools = []
    for group in body.get("tools") or []:
        tools += [function["name"] for function in group.get("functionDeclarations") or []]
    results = []
    for content in body.get("contents") or []:
        for part in content.get("parts") or []:
            if "functionResponse" in part:
                response = part["functionResponse"]["response"]
                results.append(text_of(response.get("output", response.get("error", response))))
    return tools, results


def whole_gemini(step, _body):
    if "tool" in step:
        part = {"functionCall": {"id": step["id"], "name": step["tool"], "args": step["arguments"]}}
    else:
        part = {"text": step["text"]}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}
    return {"candidates": [candidate], "usageMetadata": usage}


def write_gemini(step, body):
    yield None, whole_gemini(step, body)


# Path of a request: reader, writer of a stream, writer of a whole reply.
APIS = [
    (r"/messages$", read_anthropic, write_anthropic, whole_anthropic),
    (r"/responses$", read_responses, write_responses, None),
    (r"/chat/completions$", read_chat, write_chat, whole_chat),
    (r":(streamGenerateContent|generateContent)$", read_gemini, write_gemini, whole_gemini),
]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        if self.path.split("?")[0].endswith("/models"):
            self.send_json({"object": "list", "data": [], "models": []})
        else:
            self.unknown()

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return self.unknown()
        if path.endswith("/count_tokens"):
            return self.send_json({"input_tokens": 10})
        if path.endswith(":countTokens"):
            return self.send_json({"totalTokens": 10})
        for pattern, read, stream, whole in APIS:
            if re.search(pattern, path):
                step = self.server.conversation.answer(*read(body), body)
                streaming = body.get("stream") or path.endswith(":streamGenerateContent")
                if whole and not streaming:
                    return self.send_json(whole(step, body))
                return self.send_stream(stream(step, body))
        return self.unknown()

    def unknown(self):
        self.server.conversation.unknown_paths.append(f"{self.command} {self.path}")
        self.send_json({"error": {"message": "no such path"}}, 404)

    def send_json(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_stream(self, records):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for kind, data in records:
            if kind:
                self.wfile.write(f"event: {kind}\n".encode())
                data = {"type": kind} | data
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"data: {text}\n\n".encode())
            self.wfile.flush()


class ModelServer(ThreadingHTTPServer):
    """Model server on a free port of 127.0.0.1. `play` starts a new script."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.conversation = Conversation([{"text": "done"}])
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def play(self, steps):
        self.conversation = Conversation(steps)
        return self.conversation

    def handle_error(self, _request, _address):
        """Ignores agents that close the connection."""

#!/usr/bin/env python3
"""Drives `quack acp` with the official Python client of the Agent Client Protocol, and checks every line that it wrote
against the protocol's JSON Schema.

    python3 -m venv tests/acp/.venv
    tests/acp/.venv/bin/pip install -r tests/acp/requirements.txt
    tests/acp/.venv/bin/python tests/acp/run.py QUACK SCHEMA.json [CONDUCTOR]

QUACK is the program. CONDUCTOR, if it is given, runs between the client and QUACK: the program of the crate
agent-client-protocol-conductor 5.0.0. SCHEMA.json is `schema/v1/schema.json` of the npm package @agentclientprotocol/sdk 2.4.0. The agent
of the sessions is tests/fixtures/fake_pi.py. Everything runs in a private directory. Prints one line for each check; the
exit code is 1 if one failed.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
failed = []


def check(name, ok, detail=""):
    print(("ok      " if ok else "FAILED  ") + name + ("" if ok else f": {detail}"), flush=True)
    if not ok:
        failed.append(name)


def tee(record, command):
    """Runs a program, and writes each line that passes to the record, with its direction."""
    import threading

    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    guard = threading.Lock()
    out = open(record, "a", buffering=1)

    def copy(source, sink, name):
        for line in source:
            with guard:
                out.write(json.dumps([name, line.decode()]) + "\n")
            sink.write(line)
            sink.flush()
        if sink is child.stdin:
            sink.close()

    writer = threading.Thread(target=copy, args=(sys.stdin.buffer, child.stdin, "client"), daemon=True)
    writer.start()
    copy(child.stdout, sys.stdout.buffer, "agent")
    sys.exit(child.wait())


def validate(record, schema_path):
    from jsonschema import Draft202012Validator

    schema = json.load(open(schema_path))
    defs = schema["$defs"]
    validators = {}

    def errors(name, value):
        if name not in validators:
            validators[name] = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": defs})
        return [error.message for error in validators[name].iter_errors(value)]

    by_method = {}
    for name, definition in defs.items():
        method = definition.get("x-method")
        if method:
            kind = "result" if name.endswith("Response") else "params"
            by_method[method, kind] = name
    problems, count, methods, asked = [], 0, {}, set()
    for entry in open(record):
        side, line = json.loads(entry)
        try:
            message = json.loads(line)
        except ValueError as error:
            problems.append(f"{side}: not JSON: {error}")
            continue
        if "method" in message:
            if "id" in message:
                methods[side, json.dumps(message["id"])] = message["method"]
            if side == "agent":
                name = by_method.get((message["method"], "params"))
                found = errors(name, message["params"]) if name else ["unknown method"]
                problems += [f"{message['method']}: {text[:300]}" for text in found]
        elif side == "agent":
            if "error" in message:
                problems += [f"error: {text}" for text in errors("Error", message["error"])]
            else:
                method = methods.get(("client", json.dumps(message["id"])))
                name = by_method.get((method, "result"))
                found = errors(name, message["result"]) if name else [f"answer to {method}"]
                problems += [f"{method}: {text[:300]}" for text in found]
        if side == "agent":
            count += 1
            update = message.get("params", {}).get("update", {}) if isinstance(message.get("params"), dict) else {}
            asked.add(update.get("sessionUpdate") or message.get("method") or "answer")
    return problems, count, asked


def script():
    """What the fake Pi writes for the prompt `script`."""
    args = {"path": "a.txt", "content": "x\n"}
    answer = {"role": "assistant", "api": "a", "provider": "p", "model": "m", "timestamp": 1,
              "content": [], "stopReason": "stop",
              "usage": {"input": 1, "output": 2, "totalTokens": 3, "cost": {"total": 0.25}}}

    def part(**event):
        return {"type": "message_update", "message": {"role": "assistant"}, "assistantMessageEvent": event}

    call = {"toolCallId": "c1", "toolName": "write", "args": args}
    bash = {"toolCallId": "c2", "toolName": "bash", "args": {"command": "ls"}}
    output = {"content": [{"type": "text", "text": "a\nb"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    return [
        {"type": "message_start", "message": answer},
        part(type="thinking_delta", contentIndex=0, delta="hm"),
        part(type="toolcall_end", contentIndex=1,
             toolCall={"type": "toolCall", "id": "c1", "name": "write", "arguments": args}),
        {"type": "message_end", "message": answer},
        {"type": "tool_execution_start", **call},
        {"type": "tool_execution_end", "toolCallId": "c1", "toolName": "write", "isError": False,
         "result": {"content": [{"type": "text", "text": "ok"}]}},
        {"type": "tool_execution_start", **bash},
        {"type": "tool_execution_update", **bash, "partialResult": {"content": [{"type": "text", "text": "a"}]}},
        {"type": "tool_execution_end", "toolCallId": "c2", "toolName": "bash", "isError": True, "result": output},
    ]


async def drive(quack, record, repo, env, fake):
    import acp
    from acp import schema

    class Editor(acp.Client):
        def __init__(self):
            self.updates, self.asked, self.choice = [], [], "allow_once"
            self.seen = asyncio.Event()

        async def session_update(self, session_id, update, **kwargs):
            self.updates.append(update)
            self.seen.set()

        async def request_permission(self, session_id, tool_call, options, **kwargs):
            self.asked.append(options)
            option = next(it for it in options if it.kind == self.choice)
            outcome = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
            return schema.RequestPermissionResponse(outcome=outcome)

        def take(self):
            found, self.updates = self.updates, []
            return found

        async def text(self, wanted):
            """Waits until the chunks are this text. Updates are handled in tasks."""
            while True:
                found = "".join(it.content.text for it in self.updates if it.session_update == "agent_message_chunk")
                if found == wanted or len(found) > len(wanted):
                    self.take()
                    return found
                self.seen.clear()
                await self.seen.wait()

    editor = Editor()
    server = [sys.argv[3], "agent", f"{quack} acp"] if 3 < len(sys.argv) else [quack, "acp"]
    command = [sys.executable, __file__, "--tee", str(record), *server]
    patience = 60
    async with acp.spawn_agent_process(editor, command[0], *command[1:], env=env, cwd=repo) as (agent, process):
        within = lambda waited: asyncio.wait_for(waited, patience)
        info = schema.Implementation(name="acp-python", version="0.12.1")
        begun = await within(agent.initialize(acp.PROTOCOL_VERSION, client_info=info))
        check("initialize", begun.protocol_version == 1 and begun.agent_capabilities.load_session, begun)
        new = await within(agent.new_session(cwd=str(repo), mcp_servers=[]))
        check("session/new has modes", new.modes.current_mode_id == "ask", new)
        prompt = lambda text: agent.prompt(session_id=new.session_id, prompt=[acp.text_block(text)])
        done = await within(prompt("hello"))
        check("a prompt ends", done.stop_reason == "end_turn", done)
        found = await within(editor.text("You said: hello"))
        check("its text arrives", found == "You said: hello", found)
        done = await within(prompt("confirm"))
        found = await within(editor.text('Answer: {"confirmed": true}'))
        check("a permission is asked for and given", len(editor.asked) == 1 and "true" in found, found)
        editor.choice = "reject_once"
        await within(prompt("confirm"))
        found = await within(editor.text('Answer: {"confirmed": false}'))
        check("a permission is denied", "false" in found, found)
        (fake / "script").write_text("".join(json.dumps(line) + "\n" for line in script()))
        await within(prompt("script"))
        running = asyncio.ensure_future(prompt("hang"))
        await within(editor.text("working"))
        await agent.cancel(session_id=new.session_id)
        done = await within(running)
        check("a cancel ends as cancelled", done.stop_reason == "cancelled", done)
        context = [acp.text_block("see"), acp.resource_link_block("a", "file:///a.txt"),
                   acp.resource_block(acp.embedded_text_resource("file:///b.txt", "text"))]
        done = await within(agent.prompt(session_id=new.session_id, prompt=context))
        check("resources are accepted", done.stop_reason == "end_turn", done)
        await within(agent.set_session_mode(session_id=new.session_id, mode_id="read-only"))
        listed = await within(agent.list_sessions(cwd=str(repo)))
        check("session/list", [it.session_id for it in listed.sessions] == [new.session_id], listed)
        loaded = await within(agent.load_session(cwd=str(repo), session_id=new.session_id, mcp_servers=[]))
        check("session/load keeps the mode", loaded.modes.current_mode_id == "read-only", loaded)
        await within(agent.resume_session(cwd=str(repo), session_id=new.session_id, mcp_servers=[]))
        for name, call in [
            ("an unknown mode", agent.set_session_mode(session_id=new.session_id, mode_id="root")),
            ("an unknown session", agent.prompt(session_id="nobody", prompt=[acp.text_block("x")])),
            ("an unknown method", agent.ext_method("dance", {})),
        ]:
            try:
                await within(call)
                check(f"{name} is refused", False, "no error")
            except acp.RequestError as error:
                check(f"{name} is refused", error.code in (-32602, -32601, -32002), error.code)
        await within(agent.close_session(session_id=new.session_id))
        await agent.ext_notification("made/up", {})
    code = await asyncio.wait_for(process.wait(), patience)
    check("the end of stdin ends the program", code == 0, code)


def main():
    if sys.argv[1:2] == ["--tee"]:
        tee(sys.argv[2], sys.argv[3:])
    quack, schema_path = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="quackd-acp-") as world:
        world = pathlib.Path(world)
        home, repo, fake = world / "home", world / "repo", world / "fake"
        for directory in (home, repo / ".git", fake):
            directory.mkdir(parents=True)
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "RUBBER_DUCK_APP_SUPPORT": str(world / "app"),
               "RUBBER_DUCK_PI_BINARY": str(ROOT / "tests/fixtures/fake_pi.py"), "FAKE_PI_DIR": str(fake),
               "OPENAI_API_KEY": "sk-test", "TMPDIR": "/tmp", "SHLVL": "1"}
        record = world / "record"
        try:
            asyncio.run(drive(quack, record, repo, env, fake))
        finally:
            subprocess.run([quack, "stop"], env=env, check=False)
        problems, count, seen = validate(record, schema_path)
        print("seen:", ", ".join(sorted(seen)))
        check(f"{count} messages match the schema", not problems, "\n" + "\n".join(sorted(set(problems))))
    sys.exit(1 if failed else 0)


main()

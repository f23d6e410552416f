"""The official SDK for Python as a client of `quack mcp`: every tool, progress, cancellation, questions and
both revisions.

`client.py QUACK JOB_COMMAND COMMAND MARKER` prints a line of JSON for each check. Called by python.mjs.
"""

import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path

import anyio
import jsonschema
from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

QUACK, JOB, HANGING, MARKER = sys.argv[1:]
PATIENCE = 60


def server(*args):
    return StdioServerParameters(command=QUACK, args=["mcp", *args], env=dict(os.environ), cwd=os.getcwd())


async def check(name, run):
    problem = ""
    try:
        detail = await run()
        name = f"{name}: {detail}" if detail else name
    except Exception:
        problem = traceback.format_exc()
    print(json.dumps({"name": name, "problem": problem}), flush=True)


def runs():
    def has(pid):
        try:
            return MARKER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return any(has(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid() and int(pid) != os.getppid())


async def until(what, fact):
    with anyio.move_on_after(PATIENCE):
        while not fact():
            await anyio.sleep(0.05)
        return
    raise AssertionError(f"never: {what}")


async def every_tool(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    rows = json.loads(Path(__file__).with_name("tools.json").read_text().replace("MARKER", JOB))
    assert set(tools) == {row["tool"] for row in rows}, set(tools)
    job = ""
    for template in rows:
        row = json.loads(json.dumps(template).replace('"JOB"', json.dumps(job)))
        result = await client.call_tool(row["tool"], row["arguments"])
        text = result.content[0].text
        assert re.search(row["text"], text), (row, result)
        assert bool(result.is_error) == row.get("isError", False), (row, result)
        assert result.structured_content["text"] == text, (row, result)
        jsonschema.validate(result.structured_content, tools[row["tool"]].output_schema)
        job = result.structured_content.get("data", {}).get("jobId", job)
    return f"{len(tools)} tools in {len(rows)} calls, revision {client.protocol_version}"


async def cancelled(client):
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "bash", {"command": HANGING})
        await until("the command runs", runs)
        group.cancel_scope.cancel()
    await until("the command is gone", lambda: not runs())
    result = await client.call_tool("bash", {"command": "echo after-the-cancel"})
    assert "after-the-cancel" in result.content[0].text, result


async def progress(client):
    seen = []

    async def on_progress(done, total, message):
        seen.append((done, message))

    command = "for i in 1 2 3 4 5; do echo step-$i; sleep 0.5; done"
    await client.call_tool("bash", {"command": command}, progress_callback=on_progress)
    assert any(re.fullmatch(r"step-\d", message) for _, message in seen), seen
    assert [done for done, _ in seen] == sorted({done for done, _ in seen}), seen
    return f"{len(seen)} notifications"


async def legacy():
    async with Client(server(), mode="legacy") as client:
        result = await client.call_tool("bash", {"command": "echo an-older-revision"})
        assert "an-older-revision" in result.content[0].text, result
        return f"revision {client.protocol_version}"


async def question(**mode):
    seen = []

    async def answer(_context, params):
        seen.append(params.message)
        return ElicitResult(action="accept", content={"value": "Allow for this session"})

    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        async with Client(server(), elicitation_callback=answer, **mode) as client:
            asked = {"kind": "write", "target": directory, "reason": "to test"}
            result = await client.call_tool("request_permission", asked)
            text = result.content[0].text
            assert "was allowed by the user for this session" in text, result
            assert len(seen) == 1 and directory in seen[0], seen
            return f"revision {client.protocol_version}"


async def main():
    async with Client(server("--tools", "all")) as client:
        await check("every tool", lambda: every_tool(client))
        await check("a cancelled command leaves no process", lambda: cancelled(client))
        await check("progress has the last line", lambda: progress(client))
    await check("an older revision", legacy)
    await check("a question", question)
    await check("a question in an older revision", lambda: question(mode="legacy"))


anyio.run(main)

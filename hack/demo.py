#!/usr/bin/env python3
"""`make demo`: starts `runyard dev` on examples/hello, streams one run through the official SDK, and ends.

Uses a free port and a temporary state folder, so it disturbs nothing and leaves nothing. Exit code 0 only if the run
streamed tokens, called its tool and ended with the right answer.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langgraph_sdk import get_client
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "What is 6 times 7?"
START_SECONDS, RUN_SECONDS = 60, 30
console = Console(highlight=False)


class DemoError(Exception):
    """The demo can't show what it should; the text is one sentence."""


@contextlib.contextmanager
def dev_server(state: Path) -> Iterator[str]:
    """Runs `runyard dev --json` on a free port; gives its URL once it answers, stops it at the end. Other people of
    this machine can't call it: it wants the token of its state folder."""
    command = [sys.executable, "-m", "runyard_cli", "dev", "--json", "--token", "--port", "0", "--state", str(state)]
    command += ["--config", str(ROOT / "examples" / "hello" / "langgraph.json")]
    log = state.parent / "dev.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield _url(process, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()


def _url(process: subprocess.Popen[str], log: Path) -> str:
    """Reads what `runyard dev` prints until it says where it listens."""
    assert process.stdout is not None
    for line in process.stdout:
        if (said := json.loads(line))["event"] == "started":
            return str(said["url"])
    process.wait(timeout=15)
    raise DemoError(f"'runyard dev' did not start. {log.read_text().strip()}")


async def show_run(url: str, token: str) -> list[dict[str, Any]]:
    """Streams one run and prints each event as it arrives; gives the messages of the final state."""
    client = get_client(url=url, api_key=token)
    thread = await client.threads.create()
    console.print(Text.assemble(("you    ", "bold"), QUESTION))
    question: dict[str, Any] = {"messages": [{"role": "user", "content": QUESTION}]}
    shown = Shown()
    stream = client.runs.stream(thread["thread_id"], "hello", input=question, stream_mode=["messages-tuple", "values"])
    async for event in stream:
        shown.event(event.event, event.data)
    shown.check()
    state: dict[str, Any] = {**await client.threads.get_state(thread["thread_id"])}
    await client.aclose()
    messages: list[dict[str, Any]] = state["values"]["messages"]
    return messages


class Shown:
    """Prints events and remembers what must have come."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._open: str | None = None
        self._tokens = 0
        self._tools = 0

    def event(self, name: str, data: Any) -> None:
        """Prints one event of the stream. Raises DemoError for an error event."""
        if name == "metadata":
            self._line("run", f"{data['run_id']}, first event after {(time.monotonic() - self._began) * 1000:.0f} ms")
        elif name == "error":
            raise DemoError(f"The run failed: {data['error']}: {data['message']}")
        elif name == "messages":
            self._message(data[0])

    def _message(self, message: dict[str, Any]) -> None:
        if message["type"] == "tool":
            self._line("result", str(message["content"]))
            self._tools += 1
            return
        for part in message.get("tool_call_chunks") or []:
            self._piece("tool", f"{part['name']} " if part["name"] else part["args"])
        if message["content"]:
            self._piece("agent", message["content"])
            self._tokens += 1

    def _piece(self, label: str, text: str) -> None:
        """Goes on with the line of `label`, or begins it."""
        if self._open != label:
            self._end_line()
            console.print(Text(f"{label:<7}", style="bold cyan"), end="")
            self._open = label
        console.print(text, end="", soft_wrap=True, markup=False)

    def _line(self, label: str, text: str) -> None:
        self._end_line()
        console.print(Text.assemble((f"{label:<7}", "bold cyan"), text))

    def _end_line(self) -> None:
        if self._open:
            console.print()
        self._open = None

    def check(self) -> None:
        """Raises DemoError when tokens or the tool's result did not come."""
        self._end_line()
        if self._tokens < 2 or self._tools != 1:
            raise DemoError(f"The stream brought {self._tokens} tokens and {self._tools} tool results.")


def show_end(messages: list[dict[str, Any]]) -> None:
    """Prints the final state and where to go next. Raises DemoError when the answer is wrong."""
    console.print(Rule("final state", style="dim"))
    for message in messages:
        calls = "".join(f"{call['name']}({call['args']})" for call in message.get("tool_calls") or [])
        console.print(Text.assemble((f"{message['type']:<7}", "bold"), str(message["content"]) or calls))
    if "42" not in str(messages[-1]["content"]):
        raise DemoError("The last message does not hold the answer, 42.")
    console.print(Rule("where to go next", style="dim"))
    console.print("The agent     examples/hello (graph.py is an ordinary LangGraph graph)", soft_wrap=True)
    console.print("Your own      cd your-project && runyard dev      (after: . .venv/bin/activate)", soft_wrap=True)
    console.print("The tour      README.md, “Five minutes on a laptop”", soft_wrap=True)


def main() -> int:
    """Runs the demo; gives the exit code."""
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="runyard-demo-") as folder:
            console.print(Rule("Runyard demo: one run of examples/hello", style="dim"))
            state = Path(folder) / "state"
            with dev_server(state) as url:
                console.print(Text.assemble(("server ", "bold"), f"runyard dev at {url}"))
                messages = asyncio.run(
                    asyncio.wait_for(show_run(url, (state / "token").read_text().strip()), RUN_SECONDS)
                )
            show_end(messages)
    except DemoError as error:
        console.print(f"\nThe demo failed. {error}", style="red", markup=False, soft_wrap=True)
        return 1
    except TimeoutError:
        console.print(f"\nThe demo failed. The run did not end within {RUN_SECONDS} seconds.", style="red")
        return 1
    console.print(f"\nDone in {time.monotonic() - began:.1f} s.", style="green")
    return 0


if __name__ == "__main__":
    sys.exit(main())

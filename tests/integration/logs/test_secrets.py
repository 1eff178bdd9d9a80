"""No prompt, key, token or password is in any line that the services log, at level debug, whatever goes wrong."""

import asyncio
import contextlib
import os
import re
import sys
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.integration.logs.conftest import Installed
from tests.integration.operator.harness import START_PATIENCE, free_port, until
from tests.support.manifests import hand_written_run

from runyard_kube.resources import RUNS

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]


async def _thread(of: Installed) -> str:
    made = await of.http.post("/threads", json={"metadata": {"note": of.marks.text}})
    return str(made.json()["thread_id"])


async def _wait(of: Installed, thread: str, graph: str, **body: Any) -> Any:
    body = {"input": {"text": of.marks.text}} | body
    path = f"/threads/{thread}/runs/wait"
    return (await of.http.post(path, json={"assistant_id": graph, "config": {"tags": [of.marks.text]}, **body})).json()


async def _good(of: Installed) -> None:
    thread = await _thread(of)
    assert (await _wait(of, thread, "told"))["answer"] == f"{of.marks.text} with {of.marks.model_key}"
    asked = await _wait(of, await _thread(of), "asking")
    assert asked["__interrupt__"][0]["value"]["question"] == of.marks.text
    await of.http.post(f"/threads/{thread}/state", json={"values": {"text": of.marks.text}})
    await of.http.get(f"/threads/{thread}/state")
    by_hand = hand_written_run("by-hand", graphId="told", payload={"input": {"text": of.marks.text}})
    await of.kube.create(RUNS, of.namespace, by_hand)
    await of.until_logged("operator", "run admitted")


async def _failing(of: Installed) -> str:
    thread = await _thread(of)
    failed = await _wait(of, thread, "failing")
    assert failed["__error__"]["error"] == "ValueError"
    path = f"/threads/{thread}/runs"
    made = (await of.http.post(path, json={"assistant_id": "slow", "input": {"text": of.marks.text}})).json()
    await of.until_logged("runtime", "Task exception was never retrieved")
    await of.http.post(f"{path}/{made['run_id']}/cancel", params={"wait": "true"})
    return str(made["run_id"])


async def _refused(of: Installed) -> None:
    http, marks, thread = of.http, of.marks, await _thread(of)
    path = f"/threads/{thread}/runs/wait"
    wrong: list[dict[str, Any]] = [
        {"headers": {"x-api-key": marks.wrong_key}, "json": {"assistant_id": "told"}},
        {"headers": {"x-api-key": "", "authorization": f"Bearer {marks.wrong_key}"}, "json": {}},
        {"content": b'{"input": "' + marks.text.encode()},
        {"json": {"assistant_id": marks.text}},
        {"json": {"assistant_id": "told", "stream_mode": marks.text}},
        {"json": {"assistant_id": "told", "durability": {"x": marks.text}}},
        {"json": {"assistant_id": "told", marks.text: 1}},
        {"json": {"assistant_id": "told", "input": marks.text, "command": {"resume": marks.text}}},
    ]
    for request in wrong:
        answer = await http.post(path, **request)
        assert answer.status_code in (400, 401, 404, 422), (request, answer.text)
    by_hand = hand_written_run("wrong", graphId=marks.text[:40], payload={"input": {"text": marks.text}})
    await of.kube.create(RUNS, of.namespace, by_hand)


async def _without_database(of: Installed) -> None:
    """Services that are started while there is no database say so, and how they log in is not said."""
    url = f"postgresql://postgres:{of.marks.password}@127.0.0.1:1/none"
    environment = of.environment | {"RUNYARD_DATABASE_URL": url, "RUNYARD_TOKEN_SHA256": "a" * 64}
    environment |= {"RUNYARD_PROBE_PORT": str(free_port()), "RUNYARD_PORT": str(free_port())}
    async with httpx.AsyncClient(headers={"x-api-key": of.marks.api_key}, timeout=30) as http:

        async def asked() -> bool:
            with contextlib.suppress(httpx.ConnectError):
                answer = await http.post(f"http://127.0.0.1:{environment['RUNYARD_PORT']}/threads", json={})
                assert (answer.status_code, of.marks.password in answer.text) == (503, False)
                return True
            return False

        for service in ("operator", "runtime", "gateway"):
            with (of.folder / f"no-database-{service}.log").open("ab") as log:
                command = (sys.executable, "-m", f"runyard_{service}")
                process = await asyncio.create_subprocess_exec(
                    *command, env=os.environ | environment, stdout=log, stderr=log
                )
            if service == "gateway":
                await until(asked, "the gateway answers without its database", START_PATIENCE)
            await of.until_logged(f"no-database-{service}", "database" if service == "gateway" else "for the database")
            process.kill()
            await process.wait()


async def test_nothing_secret_is_logged_and_every_line_names_its_run_or_request(installed: Installed) -> None:
    of = installed
    await _good(of)
    stopped = await _failing(of)
    await _refused(of)
    await _without_database(of)
    await of.until_logged("runtime", "run over", stopped)

    for mark in of.marks.all():
        found = [line for line in of.logged().splitlines() if mark in line]
        assert not found, found[0]
    assert len(of.marks.pod_tokens) >= 1

    for service in ("operator", "runtime"):
        about = [
            line for line in of.logged(service).splitlines() if re.search(r'event="run (over|ended|running)', line)
        ]
        assert about
        assert all(re.search(r" run=\S+ thread=\S+ attempt=\d+ ", line) for line in about), about
    created = await of.until_logged("gateway", 'event="run created"', stopped)
    assert re.search(r" thread=\S+ .*request=\S+", created)


async def test_a_request_is_found_by_the_id_that_its_caller_gave(installed: Installed) -> None:
    name = uuid4().hex
    await installed.http.get("/threads/none", headers={"x-request-id": name})
    line = await installed.until_logged("gateway", f"request={name}")
    assert "method=GET path=/threads/none status=422" in line

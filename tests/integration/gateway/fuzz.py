"""Requests made up from our own OpenAPI, route by route, against a running gateway; run by test_fuzz.py, and longer by
`make fuzz`. What answers must be: declared, in the declared form, never a failure of ours, and there in time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.result import Ok

CONFORM = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
SECONDS = 20.0
"""How long any answer may take."""


@dataclass
class Target:
    """Where and as whom. `threads` are the user's, with finished runs: half of all requests name one of them."""

    url: str
    key: str
    threads: list[tuple[str, str]] = field(default_factory=list)
    _turn: int = 0

    def prepare(self, number: int = 3) -> None:
        """Makes threads with a run each."""
        with httpx.Client(base_url=self.url, headers={"x-api-key": self.key}, timeout=SECONDS) as http:
            for _ in range(number):
                thread = http.post("/threads", json={}).json()["thread_id"]
                done = http.post(f"/threads/{thread}/runs/wait", json={"assistant_id": "stub", "input": {}})
                self.threads.append((thread, done.headers["content-location"].rpartition("/")[2]))

    def aim(self, case: Case[Any]) -> None:
        """Makes every second request one that gets past the look-ups."""
        self._turn += 1
        if self._turn % 2:
            return
        thread, run = self.threads[self._turn // 2 % len(self.threads)]
        for name, value in (("thread_id", thread), ("run_id", run)):
            if name in (case.path_parameters or {}):
                case.path_parameters[name] = value
        bodies: Any = case.body if isinstance(case.body, list) else [case.body]
        for body in bodies:
            if isinstance(body, dict) and "assistant_id" in body:
                body["assistant_id"] = "stub"


def operations(target: Target) -> Iterator[Any]:
    """Every route with its methods."""
    schema = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        yield found.ok()


def fuzz(target: Target, operation: Any, mode: GenerationMode, *, examples: int, number: int = 1) -> None:
    """Sends so many requests to one operation, as its schema allows or as it doesn't; the same for the same number.

    Raises schemathesis' failures, each with the request as a curl command.
    """
    checks: Any = [CHECKS.get_one(name) for name in CONFORM]

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case[Any]) -> None:
        target.aim(case)
        began = time.monotonic()
        answer = case.call(headers={"x-api-key": target.key}, timeout=SECONDS)
        assert time.monotonic() - began < SECONDS
        if answer.status_code == 503:  # declared, and what a dependency is for
            assert answer.headers.get("retry-after"), case.as_curl_command()
            return
        case.validate_response(answer, checks=checks)
        assert "Traceback" not in answer.text

    check()

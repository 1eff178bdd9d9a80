"""Which requests count as streams, and what is let in while there is no room for more of them."""

import pytest
from starlette.responses import Response
from starlette.types import Message, Scope

from runyard_gateway.load import Admission, Load, is_live

RUN = "/threads/t/runs/r"


@pytest.mark.parametrize(
    ("path", "query", "live"),
    [
        (f"{RUN}/stream", b"", True),
        (f"{RUN}/join", b"", True),
        ("/runs/wait", b"", True),
        (f"{RUN}/cancel", b"wait=1&action=interrupt", True),
        (f"{RUN}/cancel", b"wait=True", True),
        (f"{RUN}/cancel", b"wait=0&action=interrupt", False),
        (f"{RUN}/cancel", b"wait=False", False),
        (f"{RUN}/cancel", b"", False),
        ("/runs/cancel", b"", False),
        ("/threads/search", b"wait=1", False),
    ],
)
def test_a_request_that_may_last_as_long_as_a_run_is_a_stream(path: str, query: bytes, live: bool) -> None:
    assert is_live(path, query) is live


async def status_of(admission: Admission, path: str, query: bytes = b"") -> int:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope: Scope = {"type": "http", "path": path, "query_string": query, "method": "POST", "headers": []}
    await admission(scope, receive, send)
    status: int = sent[0]["status"]
    return status


async def test_runs_can_be_cancelled_while_all_streams_are_taken() -> None:
    load = Load(max_requests=2, max_streams=1, streams=1)
    admission = Admission(Response(status_code=202), load=load)
    assert await status_of(admission, f"{RUN}/cancel", b"wait=0") == 202
    assert await status_of(admission, f"{RUN}/cancel", b"wait=1") == 503
    assert await status_of(admission, f"{RUN}/stream") == 503
    assert await status_of(admission, "/threads/search") == 202
    assert (load.working, load.streams, load.refused) == (0, 1, 2)

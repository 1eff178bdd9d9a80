"""`python -m hack.bench.raw_server FILE PORT`: uvicorn and nothing else, sending a file's SSE frames one by one.

The ceiling for a server that writes each event as it comes. Started by relayed.py.
"""

import sys
from pathlib import Path

import uvicorn
from hack.bench.load import FRAME_END
from starlette.types import ASGIApp, Receive, Scope, Send


def app_of(frames: list[bytes]) -> ASGIApp:
    """An app that answers every request with these frames."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in frames:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


if __name__ == "__main__":
    parts = Path(sys.argv[1]).read_bytes().split(FRAME_END)
    uvicorn.run(
        app_of([part + FRAME_END for part in parts if part]),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        log_level="error",
        access_log=False,
        lifespan="off",
    )

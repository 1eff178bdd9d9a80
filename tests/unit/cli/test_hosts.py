"""Which Host headers the embedded server answers."""

import httpx
import pytest
from starlette.responses import PlainTextResponse

from runyard_cli.embedded.hosts import LoopbackHostsOnly, is_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost:2024", True),
        ("LOCALHOST:2024", True),
        ("localhost.:2024", True),
        ("127.0.0.1", True),
        ("127.0.0.1:1", True),
        ("[::1]", True),
        ("[::1]:2024", True),
        ("", False),
        ("evil.example", False),
        ("evil.example:2024", False),
        ("localhost.evil.example:2024", False),
        ("localhost:2024@evil.example", False),
        ("127.0.0.1.nip.example", False),
        ("192.168.1.7:2024", False),
        ("0.0.0.0:2024", False),
    ],
)
def test_only_names_of_the_loopback_are_answered(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


async def test_another_host_is_refused_in_one_sentence() -> None:
    transport = httpx.ASGITransport(app=LoopbackHostsOnly(PlainTextResponse("ok")))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:2024") as client:
        assert (await client.get("/ok")).text == "ok"
        refused = await client.get("/ok", headers={"host": "evil.example"})
    assert refused.status_code == 403
    assert "evil.example" in refused.json()["detail"]

"""What the embedded server answers: by Host, Origin, token and content type."""

import httpx
import pytest
from starlette.responses import PlainTextResponse

from runyard_cli.embedded.guard import Guard, Rules, host_name, refusal

HERE = {"host": "localhost:2024"}
JSON = {"content-type": "application/json", "content-length": "2"}
TOKEN = "t" * 43


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("localhost:2024", "localhost"),
        ("LOCALHOST:2024", "localhost"),
        ("localhost.:2024", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::1]:2024", "::1"),
        ("localhost:2024@evil.example", "localhost:2024@evil.example"),
    ],
)
def test_the_name_in_a_host_header(host: str, name: str) -> None:
    assert host_name(host) == name


def status(headers: dict[str, str], rules: Rules | None = None, *, method: str = "POST", path: str = "/threads") -> int:
    error = refusal(rules or Rules(), method, path, headers)
    return error.status if error else 200


@pytest.mark.parametrize("host", ["localhost:2024", "127.0.0.1", "[::1]:2024", "Localhost."])
def test_names_of_the_loopback_are_answered(host: str) -> None:
    assert status({"host": host}) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example:2024",
        "localhost:2024@evil.example",
        "127.0.0.1.nip.example",
        "192.168.1.7:2024",
        "0.0.0.0:2024",
    ],
)
def test_others_are_refused(host: str) -> None:
    assert status({"host": host}) == 403


def test_more_names_may_be_allowed_and_addresses_beyond_the_loopback() -> None:
    assert status({"host": "Dev.example:1"}, Rules(hosts=frozenset({"dev.example"}))) == 200
    assert status({"host": "192.168.1.7:2024"}, Rules(addresses=True)) == 200
    assert status({"host": "[fd00::7]:2024"}, Rules(addresses=True)) == 200
    assert status({"host": "evil.example"}, Rules(addresses=True)) == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:5173"])
def test_pages_of_the_loopback_may_call(origin: str) -> None:
    assert status(HERE | JSON | {"origin": origin}) == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://localhost.evil.example",
        "file://",
        "http://[",
        "chrome-extension://x",
    ],
)
def test_pages_of_others_may_not(origin: str) -> None:
    assert status(HERE | JSON | {"origin": origin}) == 403
    assert status(HERE | {"origin": origin}, method="OPTIONS") == 403


def test_an_origin_may_be_allowed() -> None:
    rules = Rules(origins=frozenset({"https://studio.example"}))
    assert status(HERE | JSON | {"origin": "https://studio.example"}, rules) == 200
    assert status(HERE | JSON | {"origin": "https://studio.example:8443"}, rules) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"content-length": "9"},
        {"content-length": "9", "content-type": "text/plain"},
        {"content-length": "9", "content-type": "application/x-www-form-urlencoded"},
        {"transfer-encoding": "chunked", "content-type": "multipart/form-data; boundary=x"},
        {"content-length": "9", "content-type": "text/plain, application/json"},
    ],
)
def test_a_body_must_be_sent_as_json(headers: dict[str, str]) -> None:
    assert status(HERE | headers) == 415


def test_json_may_name_its_charset_and_no_body_needs_no_type() -> None:
    assert status(HERE | {"content-length": "2", "content-type": "Application/JSON; charset=utf-8"}) == 200
    assert status(HERE | {"content-length": "0"}) == 200
    assert status(HERE, method="DELETE") == 200


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, 401),
        ({"x-api-key": TOKEN}, 200),
        ({"authorization": f"Bearer {TOKEN}"}, 200),
        ({"x-api-key": TOKEN[1:]}, 401),
        ({"authorization": TOKEN}, 401),
        ({"x-api-key": "\u00fc"}, 401),
    ],
)
def test_with_a_token_all_callers_send_it(sent: dict[str, str], expected: int) -> None:
    rules = Rules(token=TOKEN)
    assert status(HERE | JSON | sent, rules) == expected
    assert status(HERE | sent, rules, method="GET", path="/docs") == expected
    assert status(HERE | sent, rules, method="GET", path="/ok") == 200


def test_a_preflight_of_a_page_that_may_call_needs_no_token() -> None:
    rules, page = Rules(token=TOKEN), {"origin": "http://localhost:3000"}
    assert status(HERE | page, rules, method="OPTIONS") == 200
    assert status(HERE, rules, method="OPTIONS") == 401


async def test_a_refusal_is_one_sentence_that_says_what_to_do_and_pages_that_may_call_can_read_it() -> None:
    transport = httpx.ASGITransport(app=Guard(PlainTextResponse("ok"), Rules(token=TOKEN)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:2024") as client:
        assert (await client.get("/ok")).text == "ok"
        host = await client.get("/ok", headers={"host": "evil.example"})
        page = await client.get("/ok", headers={"origin": "https://evil.example"})
        token = await client.get("/threads", headers={"origin": "http://localhost:3000"})
    assert [answer.status_code for answer in (host, page, token)] == [403, 403, 401]
    assert "--allow-host" in host.json()["detail"]
    assert "--allow-origin" in page.json()["detail"]
    assert "access-control-allow-origin" not in page.headers
    assert "x-api-key" in token.json()["detail"]
    assert token.headers["access-control-allow-origin"] == "http://localhost:3000"

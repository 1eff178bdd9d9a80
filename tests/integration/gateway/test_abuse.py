"""A gateway process under clients that mean harm: huge, endless, slow and malformed requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.integration.gateway.process import Gateway, gateway_process, prepare_database
from tests.support.apiserver import ApiServer

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]
MIB = 2**20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a database."""
    folder = tmp_path_factory.mktemp("gateway")
    prepare_database(database(folder))
    return folder


def database(folder: Path) -> str:
    return f"sqlite:///{folder / 'gateway.db'}"


@pytest.fixture(scope="module")
def gateway(folder: Path, api_server: ApiServer) -> Iterator[Gateway]:
    """One process for all: each abuse must leave it as it was."""
    with gateway_process(folder, database(folder), api_server.kubeconfig, "default") as gateway:
        yield gateway


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.client() as http:
        yield http


async def connected(gateway: Gateway, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(data)
    return reader, writer


HEAD = b"POST /threads HTTP/1.1\r\nhost: a\r\nx-api-key: secret\r\n"


async def chunks(size: int) -> AsyncIterator[bytes]:
    """A body without a length."""
    yield b'{"metadata":{"a":"'
    for _ in range(size // MIB):
        yield b"x" * MIB
    yield b'"}}'


async def test_twenty_bodies_of_60_mb_at_once_are_stored_or_put_off_in_bounded_memory(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    body = b'{"metadata":{"a":"' + b"x" * (60 * MIB) + b'"}}'
    before = gateway.memory()
    answers = await asyncio.gather(*(http.post("/threads", content=body, timeout=100) for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert sum(answer.status_code == 200 for answer in answers) >= 1
    assert gateway.memory("VmHWM") - before < 650
    assert (await http.post("/threads", json={})).status_code == 200


async def test_a_body_that_is_too_large_is_413_with_a_length_and_without(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    before = gateway.memory("VmHWM")
    announced = await http.post("/threads", content=b"x" * (65 * MIB))
    endless = await http.post("/threads", content=chunks(300 * MIB))
    assert [announced.status_code, endless.status_code] == [413, 413]
    assert announced.json() == {"detail": "Request body is larger than 64 MiB"}
    assert gateway.memory("VmHWM") - before < 200


async def test_a_large_body_is_refused_before_it_has_come(gateway: Gateway) -> None:
    reader, writer = await connected(gateway, HEAD + b"content-length: 99999999999\r\n\r\n{")
    assert b" 413 " in await asyncio.wait_for(reader.readline(), 20)
    writer.close()


MALFORMED = {
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length that is none": HEAD + b"content-length: x\r\n\r\n{}",
    "a negative length": HEAD + b"content-length: -1\r\n\r\n{}",
    "length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    "a broken chunk": HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "a NUL in the path": b"GET /threads/%00 HTTP/1.1\r\nhost: a\r\nx-api-key: secret\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_no_request_is_4xx(gateway: Gateway, data: bytes) -> None:
    reader, writer = await connected(gateway, data)
    status = int((await asyncio.wait_for(reader.readline(), 20)).split()[1])
    assert 400 <= status < 500
    writer.close()


async def test_a_length_that_is_too_short_leaves_no_json(gateway: Gateway) -> None:
    reader, writer = await connected(gateway, HEAD + b"content-length: 5\r\n\r\n" + b'{"metadata": {}}')
    # 422 for the JSON, or 400 if what comes after it is already here and no request.
    assert (await asyncio.wait_for(reader.readline(), 20)).split()[1] in (b"400", b"422")
    writer.close()


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    for _ in range(50):
        _, writer = await connected(gateway, HEAD + b"content-length: 60000000\r\n\r\n{")
        writer.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            while (await http.post("/threads", content=chunks(MIB))).status_code != 200:
                pass
    assert (await http.post("/threads", content=chunks(MIB))).status_code == 200


async def test_a_head_without_end_is_refused_and_a_slow_one_is_dropped(gateway: Gateway) -> None:
    before = gateway.memory()
    reader, writer = await connected(gateway, b"GET /ok HTTP/1.1\r\n")
    sent, answer = 0, b""
    with contextlib.suppress(ConnectionError):  # it may be broken before the answer is read
        async with asyncio.timeout(20):
            while not reader.at_eof() and sent < 100 * MIB:
                writer.write(b"x-a: " + b"b" * 2**14 + b"\r\n")
                await writer.drain()
                sent += 2**14
        answer = await reader.readline()
    assert sent < 20 * MIB
    assert answer in (b"", b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    writer.close()
    slow, writer = await connected(gateway, b"GET /ok HTTP/1.1\r\n")
    assert await asyncio.wait_for(slow.read(), 60) == b""
    writer.close()
    assert gateway.memory() - before < 50


DOCUMENTS = {
    "deep": b"[" * 1000 + b"]" * 1000,
    "very deep": b"[" * 10_000_000,
    "NUL": b'{"metadata": {"a": "\\u0000"}}',
    "no UTF-8": b'{"metadata": {"a": "\xff\xfe"}}',
    "a lone surrogate": b'{"metadata": {"a": "\\ud800"}}',
    "NaN": b'{"metadata": {"a": NaN}}',
    "infinity": b'{"metadata": {"a": 1e999}}',
    "a key twice": b'{"metadata": {}, "metadata": {"a": 1}}',
    "a huge integer": b'{"metadata": {"a": ' + b"9" * 1_000_000 + b"}}",
    "millions of lists": b'{"metadata": {"a": [' + b"[]," * 10_000_000 + b"[]]}}",
}


@pytest.mark.parametrize("body", DOCUMENTS.values(), ids=DOCUMENTS.keys())
async def test_json_that_cannot_be_kept_is_422(gateway: Gateway, http: httpx.AsyncClient, body: bytes) -> None:
    before = gateway.memory("VmHWM")
    answer = await http.post("/threads", content=body)
    assert answer.status_code == 422, answer.text
    assert set(answer.json()) == {"detail"}
    assert gateway.memory("VmHWM") - before < 200


async def test_more_requests_than_allowed_are_503_at_once(folder: Path, api_server: ApiServer) -> None:
    limits = {"RUNYARD_MAX_REQUESTS": "2", "RUNYARD_MAX_STREAMS": "1"}
    with gateway_process(folder, database(folder), api_server.kubeconfig, "default", **limits) as gateway:
        async with gateway.client() as http:
            held = [await connected(gateway, HEAD + b"content-length: 9\r\n\r\n") for _ in range(2)]
            async with asyncio.timeout(30):
                while (refused := await http.get("/threads/x")).status_code != 503:
                    pass
            assert refused.headers["retry-after"] == "1"
            assert (await http.get("/ok")).status_code == 503
            assert (await http.get("/info")).status_code == 200
            for _, writer in held:
                writer.close()
            async with asyncio.timeout(30):
                while (await http.get("/ok")).status_code != 200:
                    pass
            assert (await http.post("/threads", json={})).status_code == 200

"""Event envelopes to SSE, byte for byte."""

import pytest

from runyard_api.events import Event, EventId
from runyard_gateway.render import HEARTBEAT, Renderer, Wanted, end_frame, error_frame, frame, metadata_frame

ID = EventId.of(1700000000000, 1, 7)
TEXT = "1700000000000-1000000007"


def event(mode: str, data: bytes = b"{}", ns: tuple[str, ...] = ()) -> Event:
    return Event(ID, mode, ns, data)


def rendered(mode: str, asked: tuple[str, ...] = (), ns: tuple[str, ...] = (), data: bytes = b"{}") -> bytes:
    return Renderer(Wanted.of(asked, ("values",))).render(event(mode, data, ns))


def test_a_frame_is_event_data_id_with_crlf() -> None:
    assert frame("values", b'{"a":1}', TEXT) == b'event: values\r\ndata: {"a":1}\r\nid: ' + TEXT.encode() + b"\r\n\r\n"
    assert frame("end", b"null") == b"event: end\r\ndata: null\r\n\r\n"


def test_the_frames_of_a_run_that_no_pod_held() -> None:
    assert metadata_frame("r", 1) == b'event: metadata\r\ndata: {"run_id":"r","attempt":1}\r\n\r\n'
    assert error_frame("X", 'says "no"') == b'event: error\r\ndata: {"error":"X","message":"says \\"no\\""}\r\n\r\n'
    assert end_frame() == b"event: end\r\ndata: null\r\n\r\n"
    assert HEARTBEAT == b": heartbeat\r\n\r\n"


NAMES = {
    "values stay values": ("values", (), "values"),
    "updates stay updates": ("updates", (), "updates"),
    "tokens are messages": ("messages", (), "messages"),
    "the tuple mode is messages on the wire": ("messages-tuple", (), "messages"),
    "custom stays custom": ("custom", (), "custom"),
    "debug stays debug": ("debug", (), "debug"),
    "tasks stay tasks": ("tasks", (), "tasks"),
    "checkpoints stay checkpoints": ("checkpoints", (), "checkpoints"),
    "a subgraph's event has its namespace": ("updates", ("inner:1",), "updates|inner:1"),
    "a nested subgraph's event has the whole path": ("updates", ("a:1", "b:2"), "updates|a:1|b:2"),
    "a subgraph's tokens have the namespace": ("messages", ("a:1",), "messages|a:1"),
    "metadata stays bare": ("metadata", (), "metadata"),
    "error stays bare": ("error", (), "error"),
    "end stays bare": ("end", (), "end"),
    "gap stays bare": ("gap", (), "gap"),
}


@pytest.mark.parametrize(("mode", "ns", "want"), NAMES.values(), ids=NAMES.keys())
def test_event_names(mode: str, ns: tuple[str, ...], want: str) -> None:
    assert rendered(mode, (), ns, b'["x"]') == frame(want, b'["x"]', TEXT)


FILTERS = {
    "no filter means everything": ((), "updates", (), True),
    "the mode asked for": (("updates",), "updates", (), True),
    "a mode not asked for": (("updates",), "values", (), False),
    "the base of a namespaced event matches": (("updates",), "updates", ("a:1",), True),
    "messages asked for as tuple": (("messages-tuple",), "messages", (), True),
    "only a mode that selects nothing": (("tools",), "values", (), False),
    "metadata comes with every filter": (("tools",), "metadata", (), True),
    "errors come with every filter": (("tools",), "error", (), True),
    "the end comes with every filter": (("values",), "end", (), True),
    "a gap comes with every filter": (("values",), "gap", (), True),
}


@pytest.mark.parametrize(("asked", "mode", "ns", "want"), FILTERS.values(), ids=FILTERS.keys())
def test_the_filter_of_a_join(asked: tuple[str, ...], mode: str, ns: tuple[str, ...], want: bool) -> None:
    assert bool(rendered(mode, asked, ns)) is want


LEGACY = {
    "messages alone is the trio": (("messages",), ("values",), True),
    "the tuple form wins": (("messages", "messages-tuple"), (), False),
    "an empty filter takes the run's modes": ((), ("messages",), True),
    "an empty filter with both of the run's modes": ((), ("messages", "messages-tuple"), False),
    "a filter decides against the run's modes": (("messages-tuple",), ("messages",), False),
    "no messages at all": (("values",), ("values",), False),
}


@pytest.mark.parametrize(("asked", "run_modes", "want"), LEGACY.values(), ids=LEGACY.keys())
def test_which_form_of_messages_a_reader_gets(asked: tuple[str, ...], run_modes: tuple[str, ...], want: bool) -> None:
    assert Wanted.of(asked, run_modes).legacy is want


def test_the_trio_has_its_id_on_the_last_frame_alone() -> None:
    renderer = Renderer(Wanted.of(("messages",), ()))
    data = b'[{"type":"AIMessageChunk","id":"m","content":"He"},{"langgraph_node":"n"}]'
    frames = renderer.render(event("messages", data, ("inner:1",)))
    first, second, rest = frames.split(b"\r\n\r\n")
    assert first == b'event: messages/metadata\r\ndata: {"m":{"metadata":{"langgraph_node":"n"}}}'
    assert second.startswith(b'event: messages/partial\r\ndata: [{"type":"ai"')
    assert second.endswith(b"\r\nid: " + TEXT.encode())
    assert rest == b""


def test_data_is_passed_on_as_the_bytes_it_came_in() -> None:
    odd = b'{"b" : 1,  "a":1.0, "u":"\xe2\x80\xa8"}'
    assert rendered("values", data=odd) == frame("values", odd, TEXT)

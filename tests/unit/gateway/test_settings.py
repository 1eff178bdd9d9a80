"""The gateway's settings: defaults, what is read, and what stops the start."""

from pathlib import Path

import pytest

from runyard_gateway.settings import read_environment


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, str]:
    """The least that a gateway must be told."""
    key = tmp_path / "key"
    key.write_text("k" * 32)
    return {
        "RUNYARD_DATABASE_URL": "postgresql://db/runyard",
        "RUNYARD_AGENTS_NAMESPACE": "agents",
        "RUNYARD_TOKEN_KEY_FILE": str(key),
    }


def test_settings_have_defaults(whole: dict[str, str]) -> None:
    settings = read_environment(whole)
    assert (settings.port, settings.app.auth, settings.app.cors_origins, settings.app.heartbeat_seconds) == (
        8000,
        "api-key",
        ("*",),
        5.0,
    )


def test_settings_are_read(whole: dict[str, str]) -> None:
    more = {"RUNYARD_PORT": "9", "RUNYARD_AUTH": "none", "RUNYARD_CORS_ORIGINS": "https://a, https://b"}
    seconds = {"RUNYARD_HEARTBEAT_SECONDS": "0.5", "RUNYARD_TEMPORARY_THREAD_SECONDS": "300"}
    settings = read_environment({**whole, **more, **seconds})
    assert settings.app.temporary_thread_seconds == 300
    assert (settings.port, settings.app.auth, settings.app.cors_origins, settings.app.heartbeat_seconds) == (
        9,
        "none",
        ("https://a", "https://b"),
        0.5,
    )


BAD_SETTINGS = {
    "no database": ("RUNYARD_DATABASE_URL", ""),
    "no namespace": ("RUNYARD_AGENTS_NAMESPACE", " "),
    "a port that is no number": ("RUNYARD_PORT", "x"),
    "a port out of range": ("RUNYARD_PORT", "70000"),
    "another way to authenticate": ("RUNYARD_AUTH", "magic"),
    "no heartbeat": ("RUNYARD_HEARTBEAT_SECONDS", "0"),
    "threads that go before those who wait have read them": ("RUNYARD_TEMPORARY_THREAD_SECONDS", "5"),
    "no key": ("RUNYARD_TOKEN_KEY_FILE", "/nowhere"),
    "no origins": ("RUNYARD_CORS_ORIGINS", ","),
}


@pytest.mark.parametrize(("name", "value"), BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
def test_bad_settings_stop_the_start_naming_the_variable(whole: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        read_environment({**whole, name: value})

"""Settings from the environment: defaults, and one line that names the variable for what is missing or wrong."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runyard_process.environment import BadSetting, Environment, settings_or_exit


def test_what_is_not_set_or_blank_has_its_default() -> None:
    env = Environment({"RUNYARD_A": "  "})
    assert env.optional("RUNYARD_A") is None
    assert env.text("RUNYARD_A", "x") == "x"
    assert env.whole("RUNYARD_A", 7, 0, 9) == 7
    assert env.number("RUNYARD_A", 0.5, 0, 1) == 0.5
    assert env.choice("RUNYARD_A", 1, {"one": 1}) == 1
    assert env.listed("RUNYARD_A", ("*",)) == ("*",)


def test_values_lose_the_spaces_around_them() -> None:
    env = Environment({"RUNYARD_A": " 8 ", "RUNYARD_L": " a, b ,"})
    assert (env.required("RUNYARD_A"), env.whole("RUNYARD_A", 7, 0, 9), env.number("RUNYARD_A", 7, 0, 9)) == ("8", 8, 8)
    assert env.listed("RUNYARD_L", ()) == ("a", "b")


Read = Callable[[Environment], object]
BAD: dict[str, tuple[str, Read, str]] = {
    "missing": ("", lambda env: env.required("RUNYARD_A"), "RUNYARD_A must be set"),
    "no number": (
        "many",
        lambda env: env.whole("RUNYARD_A", 1, 0, 9),
        "RUNYARD_A must be a whole number from 0 to 9, not 'many'",
    ),
    "too much": (
        "10",
        lambda env: env.whole("RUNYARD_A", 1, 0, 9),
        "RUNYARD_A must be a whole number from 0 to 9, not '10'",
    ),
    "digits of another script": (
        "\u0663",
        lambda env: env.whole("RUNYARD_A", 1, 0, 9),
        "RUNYARD_A must be a whole number from 0 to 9, not '\u0663'",
    ),
    "not a number": (
        "nan",
        lambda env: env.number("RUNYARD_A", 1, 0, 9),
        "RUNYARD_A must be a number from 0 to 9, not 'nan'",
    ),
    "another word": (
        "x",
        lambda env: env.choice("RUNYARD_A", 1, {"one": 1, "two": 2, "three": 3}),
        "RUNYARD_A must be one, two or three, not 'x'",
    ),
    "commas alone": (",", lambda env: env.listed("RUNYARD_A", ()), "RUNYARD_A must hold values separated by commas"),
    "no file": (
        "/nowhere/key",
        lambda env: env.key_file("RUNYARD_A"),
        "RUNYARD_A /nowhere/key can't be read: No such file or directory",
    ),
}


@pytest.mark.parametrize(("value", "read", "sentence"), BAD.values(), ids=BAD.keys())
def test_a_wrong_value_is_told_in_one_line(value: str, read: Read, sentence: str) -> None:
    with pytest.raises(BadSetting) as told:
        read(Environment({"RUNYARD_A": value}))
    assert str(told.value) == sentence


def test_a_key_must_be_long(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("k" * 31 + "\n")
    with pytest.raises(BadSetting, match="must hold at least 32 bytes"):
        Environment({"RUNYARD_KEY_FILE": str(file)}).key_file("RUNYARD_KEY_FILE")
    file.write_text("k" * 32 + "\n")
    assert Environment({"RUNYARD_KEY_FILE": str(file)}).key_file("RUNYARD_KEY_FILE") == b"k" * 32


def test_a_misspelled_name_is_refused_and_a_strange_one_left_alone() -> None:
    env = Environment({"RUNYARD_HEARTBEAT_SECOND": "5", "RUNYARD_OF_SOMEBODY": "x", "HEARTBEAT_SECONDS": "1"})
    env.number("RUNYARD_HEARTBEAT_SECONDS", 5, 0.1, 60)
    with pytest.raises(BadSetting, match=r"^RUNYARD_HEARTBEAT_SECOND is no setting; RUNYARD_HEARTBEAT_SECONDS is$"):
        env.refuse_misspelled()
    Environment({"RUNYARD_OF_SOMEBODY": "x"}).refuse_misspelled()


def test_a_process_ends_with_2_and_one_line_when_a_setting_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def read(_: Mapping[str, str]) -> None:
        raise BadSetting("RUNYARD_A must be set")

    with pytest.raises(SystemExit) as ended:
        settings_or_exit("runyard-thing", read)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "runyard-thing: RUNYARD_A must be set\n"

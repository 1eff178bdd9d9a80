"""The lock of a state folder."""

import os
from pathlib import Path

import pytest

from runyard_cli.embedded.lock import owned
from runyard_cli.failure import CommandError


def test_a_second_owner_is_told_who_the_first_is_and_what_to_do(tmp_path: Path) -> None:
    refused = pytest.raises(CommandError, match=rf"process {os.getpid()}.*--state")
    with owned(tmp_path / "state"), refused, owned(tmp_path / "state"):
        pass


def test_the_lock_is_free_after_its_owner_has_left(tmp_path: Path) -> None:
    for _ in range(2):
        with owned(tmp_path / "state"):
            assert (tmp_path / "state" / "lock").read_text() == str(os.getpid())


def test_an_owner_learns_whether_the_one_before_was_killed(tmp_path: Path) -> None:
    for _ in range(2):
        with owned(tmp_path / "state") as killed:
            assert not killed
    with pytest.raises(KeyboardInterrupt), owned(tmp_path / "state"):
        raise KeyboardInterrupt
    with owned(tmp_path / "state") as killed:
        assert not killed
    (tmp_path / "state" / "lock").write_text("4242")
    with owned(tmp_path / "state") as killed:
        assert killed


def test_a_state_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(CommandError, match="can't be used"), owned(tmp_path / "state"):
        pass

"""The token of a state folder."""

from pathlib import Path

import pytest

from runyard_cli.embedded.token_file import state_token
from runyard_cli.failure import CommandError


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    token = state_token(tmp_path)
    assert len(token) >= 32
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert state_token(tmp_path) == token


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    state_token(tmp_path)
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(CommandError, match="Others can read the token"):
        state_token(tmp_path)


def test_a_file_without_a_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").touch(mode=0o600)
    with pytest.raises(CommandError, match="holds no token"):
        state_token(tmp_path)


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"token can't be used: No such file or directory\.$"):
        state_token(tmp_path / "none")

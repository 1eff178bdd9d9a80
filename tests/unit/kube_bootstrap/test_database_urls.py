"""Passwords are made once; URLs follow from them and from where the database is."""

import itertools
from collections.abc import Callable

import pytest

from runyard_kube.database_urls import DatabasePlace, database_secret

BUNDLED = DatabasePlace("yard-postgres.prod.svc")


def counted() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"pw{next(numbers)}"


def test_the_bundled_database_gives_every_principal_a_role_of_its_own() -> None:
    assert database_secret({}, BUNDLED, counted()) == {
        "owner-password": "pw1",
        "gateway-password": "pw2",
        "operator-password": "pw3",
        "runtime-password": "pw4",
        "owner-url": "postgresql://runyard_owner:pw1@yard-postgres.prod.svc:5432/runyard",
        "gateway-url": "postgresql://runyard_gateway:pw2@yard-postgres.prod.svc:5432/runyard",
        "operator-url": "postgresql://runyard_operator:pw3@yard-postgres.prod.svc:5432/runyard",
        "runtime-url": "postgresql://runyard_runtime:pw4@yard-postgres.prod.svc:5432/runyard",
    }


def test_what_is_there_stays_and_nothing_changes_the_second_time() -> None:
    first = database_secret({}, BUNDLED, counted())

    def no_more() -> str:
        raise AssertionError("a password was made again")

    assert database_secret(first, BUNDLED, no_more) == first


def test_a_missing_password_is_made_and_the_others_stay() -> None:
    first = database_secret({}, BUNDLED, counted())
    del first["runtime-password"]
    again = database_secret(first, BUNDLED, lambda: "new")
    assert again["runtime-password"] == "new"
    assert again["gateway-password"] == "pw2"


def test_an_external_database_keeps_the_owners_url_and_its_options() -> None:
    place = DatabasePlace("unused", owner_url="postgresql://me:s%40crt@db.example:6432/app?sslmode=require")
    found = database_secret({}, place, counted())
    assert "owner-password" not in found
    assert found["owner-url"] == place.owner_url
    assert found["gateway-url"] == "postgresql://runyard_gateway:pw1@db.example:6432/app?sslmode=require"


def test_releases_on_one_server_have_roles_of_their_own() -> None:
    found = database_secret({}, DatabasePlace("h", role_prefix="team_a"), counted())
    assert found["runtime-url"] == "postgresql://team_a_runtime:pw4@h:5432/runyard"


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "postgresql://h/d", "postgresql://u:secret@h", "secret"])
def test_a_wrong_owner_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="must look like postgresql://user:password@host:5432/database") as caught:
        database_secret({}, DatabasePlace("h", owner_url=url), counted())
    assert "secret" not in str(caught.value)

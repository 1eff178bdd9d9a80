"""The data of the Secret with the database's passwords and URLs, one URL per principal. Pure; called by `bootstrap`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

from runyard_api.names import PRINCIPALS

OWNER = "owner"
BUNDLED_PORT, BUNDLED_DATABASE = 5432, "runyard"


@dataclass(frozen=True)
class DatabasePlace:
    """Where the database is."""

    host: str
    """Host of the bundled server; unused with an owner's URL."""
    owner_url: str | None = None
    """The owner's URL of an external database; None: the bundled one, whose owner gets a password here."""
    role_prefix: str = "runyard"
    """Begins the names of the roles: `<prefix>_<principal>`."""


def database_secret(
    existing: Mapping[str, str], place: DatabasePlace, new_password: Callable[[], str]
) -> dict[str, str]:
    """The Secret's data: `<principal>-password`, kept where there is one, and `<principal>-url`.

    With an external database the owner has a URL and no password of ours. Raises ValueError for a URL that isn't
    `postgresql://user…@host/database`; the message holds no password.
    """
    owners = () if place.owner_url else (OWNER,)
    passwords = {f"{who}-password": existing.get(f"{who}-password") or new_password() for who in (*owners, *PRINCIPALS)}
    owner_url = place.owner_url or _bundled_owner_url(place, passwords[f"{OWNER}-password"])
    _check(owner_url)
    urls = {f"{OWNER}-url": owner_url}
    for who in PRINCIPALS:
        urls[f"{who}-url"] = _as_role(owner_url, f"{place.role_prefix}_{who}", passwords[f"{who}-password"])
    return passwords | urls


def _bundled_owner_url(place: DatabasePlace, password: str) -> str:
    user = f"{place.role_prefix}_{OWNER}:{quote(password, safe='')}"
    return f"postgresql://{user}@{place.host}:{BUNDLED_PORT}/{BUNDLED_DATABASE}"


def _as_role(owner_url: str, role: str, password: str) -> str:
    """The same URL, options such as sslmode included, for another user."""
    parts = urlsplit(owner_url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(role, safe='')}:{quote(password, safe='')}@{place}"))


def _check(url: str) -> None:
    parts = urlsplit(url)
    complete = parts.username and parts.hostname and len(parts.path) > 1
    if parts.scheme not in ("postgresql", "postgres") or not complete:
        raise ValueError("the database owner's URL must look like postgresql://user:password@host:5432/database")

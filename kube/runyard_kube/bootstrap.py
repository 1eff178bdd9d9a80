"""Makes the Secrets that a release needs, once: the token key, the database's passwords and URLs, the first API key.

Run by the chart's Jobs as `python -m runyard_kube.bootstrap`, before anything else of the release:
`keys` in the release's namespace, `agent-database` for the copy of one URL that agent pods read in theirs.
What is there stays; only URLs, which follow from passwords and places, are written again when they differ.
"""

import argparse
import asyncio
import base64
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runyard_api.crd import Manifest
from runyard_api.names import LABEL_MANAGED_BY, MANAGED_BY
from runyard_kube.client import KubeClient
from runyard_kube.database_urls import DatabasePlace, database_secret
from runyard_kube.errors import AlreadyExists, KubeError, NotFound
from runyard_kube.passwords import first_api_key, password, token_key
from runyard_kube.resources import SECRETS, Resource

Data = dict[str, str]


@dataclass(frozen=True)
class SecretName:
    """Where a Secret is."""

    namespace: str
    name: str


class SecretsApi(Protocol):
    """What this module needs of KubeClient."""

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest: ...
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest: ...
    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest: ...


async def ensure(client: SecretsApi, where: SecretName, wanted: Callable[[Mapping[str, str]], Data]) -> str:
    """Brings one Secret to what `wanted` makes of its present data ({} when there is none).

    Returns "created", "updated" or "unchanged". Keys that `wanted` leaves out stay. Raises the errors of the client.
    """
    existing = await _read(client, where)
    if existing is None:
        try:
            await client.create(SECRETS, where.namespace, _manifest(where, wanted({})))
            return "created"
        except AlreadyExists:  # another Job was faster: its values count
            existing = await _read(client, where) or {}
    changed = {key: value for key, value in wanted(existing).items() if existing.get(key) != value}
    if not changed:
        return "unchanged"
    await client.patch(SECRETS, where.namespace, where.name, {"data": _encode(changed)})
    return "updated"


def missing_only(**makers: Callable[[], str]) -> Callable[[Mapping[str, str]], Data]:
    """For `ensure`: keeps what is there and makes what is missing. `_` in a name stands for `-`."""

    def wanted(existing: Mapping[str, str]) -> Data:
        named = {name.replace("_", "-"): make for name, make in makers.items()}
        return {key: existing.get(key) or make() for key, make in named.items()}

    return wanted


async def make_keys(client: SecretsApi, options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """`keys`: the three Secrets of the release's namespace."""
    owner_url = environ.get("RUNYARD_OWNER_URL") or None
    place = DatabasePlace(options.database_host, owner_url=owner_url, role_prefix=options.role_prefix)
    plan: list[tuple[str, Callable[[Mapping[str, str]], Data]]] = [
        (options.keys_secret, missing_only(token_key=token_key)),
        (options.api_key_secret, missing_only(key=first_api_key)),
        (options.database_secret, lambda existing: database_secret(existing, place, password)),
    ]
    for name, wanted in plan:
        _say(name, await ensure(client, SecretName(options.namespace, name), wanted))


async def copy_agent_database(client: SecretsApi, options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """`agent-database`: the Secret that the operator puts into agent pods, key `url`."""
    url = environ.get("RUNYARD_RUNTIME_URL")
    if not url:
        raise ValueError("RUNYARD_RUNTIME_URL is not set")
    _say(options.secret, await ensure(client, SecretName(options.namespace, options.secret), lambda _: {"url": url}))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command; ends with 1 and one sentence when the API server refuses or doesn't answer."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(_run(options))
    except (KubeError, ValueError) as error:
        sys.exit(f"runyard-bootstrap: {error}")


async def _run(options: argparse.Namespace) -> None:
    async with await KubeClient.open() as client:
        await options.command(client, options, os.environ)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="runyard-bootstrap", description=__doc__)
    commands = parser.add_subparsers(required=True)
    keys = commands.add_parser("keys", help="the Secrets of the control plane")
    for name in ("namespace", "keys-secret", "api-key-secret", "database-secret", "database-host"):
        keys.add_argument(f"--{name}", required=True)
    keys.add_argument("--role-prefix", default="runyard", help="begins the names of the database roles")
    keys.set_defaults(command=make_keys)
    agents = commands.add_parser(
        "agent-database", help="the Secret that agent pods read; RUNYARD_RUNTIME_URL is the URL"
    )
    agents.add_argument("--namespace", required=True)
    agents.add_argument("--secret", required=True)
    agents.set_defaults(command=copy_agent_database)
    return parser


async def _read(client: SecretsApi, where: SecretName) -> Data | None:
    try:
        found = await client.get(SECRETS, where.namespace, where.name)
    except NotFound:
        return None
    return {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}


def _manifest(where: SecretName, data: Data) -> Manifest:
    # No owner and no Helm labels: the Secrets outlive `helm uninstall`, as the database's volume does.
    metadata = {"name": where.name, "namespace": where.namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": _encode(data)}


def _encode(data: Data) -> Data:
    return {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}


def _say(name: str, outcome: str) -> None:
    print(f"secret={name} {outcome}", flush=True)


if __name__ == "__main__":
    main()

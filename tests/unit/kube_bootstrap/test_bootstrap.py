"""Secrets are made once, completed when a key is missing, and left alone otherwise."""

import argparse
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from runyard_api.crd import Manifest
from runyard_kube.bootstrap import SecretName, copy_agent_database, ensure, make_keys, missing_only
from runyard_kube.errors import AlreadyExists, NotFound
from runyard_kube.resources import Resource

WHERE = SecretName("prod", "yard-keys")
OPTIONS = argparse.Namespace(
    namespace="prod",
    keys_secret="yard-keys",
    api_key_secret="yard-api-key",
    database_secret="yard-database",
    database_host="yard-postgres.prod.svc",
    role_prefix="runyard",
)


class Secrets:
    """Secrets in memory; `rival` is created by another writer just before our create arrives."""

    def __init__(self, rival: dict[str, str] | None = None) -> None:
        self.data: dict[tuple[str | None, str], dict[str, str]] = {}
        self.calls: list[str] = []
        self.rival = rival

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        self.calls.append("create")
        name = (namespace, body["metadata"]["name"])
        if self.rival is not None:
            self.data[name] = self.rival
        if name in self.data:
            raise AlreadyExists("exists", code=409)
        self.data[name] = decoded(body["data"])
        return body

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        if (namespace, name) not in self.data:
            raise NotFound("no such secret", code=404)
        data = self.data[(namespace, name)]
        return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest:
        self.calls.append("patch")
        self.data[(namespace, name)] |= decoded(body["data"])
        return body


def decoded(data: Mapping[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


async def test_a_missing_secret_is_created() -> None:
    secrets = Secrets()
    assert await ensure(secrets, WHERE, missing_only(token_key=lambda: "K")) == "created"
    assert secrets.data == {("prod", "yard-keys"): {"token-key": "K"}}


async def test_a_secret_that_is_there_stays_as_it_is() -> None:
    secrets = Secrets()
    secrets.data[("prod", "yard-keys")] = {"token-key": "old"}
    assert await ensure(secrets, WHERE, missing_only(token_key=lambda: "new")) == "unchanged"
    assert secrets.calls == []
    assert secrets.data[("prod", "yard-keys")] == {"token-key": "old"}


async def test_a_key_that_is_missing_is_added_beside_the_others() -> None:
    secrets = Secrets()
    secrets.data[("prod", "yard-keys")] = {"mine": "stays"}
    assert await ensure(secrets, WHERE, missing_only(token_key=lambda: "K")) == "updated"
    assert secrets.data[("prod", "yard-keys")] == {"mine": "stays", "token-key": "K"}


async def test_two_jobs_at_once_end_with_the_values_of_one() -> None:
    secrets = Secrets(rival={"token-key": "theirs"})
    assert await ensure(secrets, WHERE, missing_only(token_key=lambda: "ours")) == "unchanged"
    assert secrets.data[("prod", "yard-keys")] == {"token-key": "theirs"}


async def test_the_keys_of_a_release_are_made_once() -> None:
    secrets = Secrets()
    await make_keys(secrets, OPTIONS, {})
    made = {name: dict(data) for (_, name), data in secrets.data.items()}
    assert made.keys() == {"yard-keys", "yard-api-key", "yard-database"}
    assert len(bytes.fromhex(made["yard-keys"]["token-key"])) == 32
    assert made["yard-api-key"]["key"].startswith("ry_")
    await make_keys(secrets, OPTIONS, {})
    assert {name: data for (_, name), data in secrets.data.items()} == made
    assert secrets.calls == ["create"] * 3


async def test_a_changed_external_url_reaches_every_principals_url() -> None:
    secrets = Secrets()
    for host in ("old", "new"):
        await make_keys(secrets, OPTIONS, {"RUNYARD_OWNER_URL": f"postgresql://me:pw@{host}/app"})
    urls = {key: url for key, url in secrets.data[("prod", "yard-database")].items() if key.endswith("-url")}
    assert len(urls) == 4
    assert all("@new/app" in url for url in urls.values())


async def test_agent_pods_get_the_runtimes_url_alone() -> None:
    secrets = Secrets()
    options = argparse.Namespace(namespace="yard-agents", secret="yard-runtime-database")
    await copy_agent_database(secrets, options, {"RUNYARD_RUNTIME_URL": "postgresql://r:p@h/d"})
    assert secrets.data == {("yard-agents", "yard-runtime-database"): {"url": "postgresql://r:p@h/d"}}
    with pytest.raises(ValueError, match="RUNYARD_RUNTIME_URL is not set"):
        await copy_agent_database(secrets, options, {})

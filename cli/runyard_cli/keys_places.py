"""Where `runyard keys` does its work: on a database, or in the gateway's pod of an installed release, by the person's
own kubectl. Called by `keys`; calls runyard_store.keys_command."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from runyard_api.errors import RunyardError
from runyard_cli.failure import CommandError

Place = Callable[[Sequence[str]], list[dict[str, Any]]]
"""Does one command of runyard_store.keys_command and gives the keys it names. Raises CommandError."""
KUBECTL_SECONDS = 60
ENTRY = ("python", "-m", "runyard_store.keys_command")


def in_database(url: str) -> Place:
    """Works on the database at `url`."""

    def place(arguments: Sequence[str]) -> list[dict[str, Any]]:
        from runyard_store.keys_command import perform

        try:
            return asyncio.run(perform(url, arguments))
        except RunyardError as error:
            raise CommandError(_sentence(error.detail)) from error
        except ValueError as error:
            raise CommandError(_sentence(f"--database: {error}")) from error

    return place


def in_release(release: str, *, namespace: str | None, context: str | None) -> Place:
    """Works in the gateway's pod of the release: needs the rights to get its Deployment and pods, and to exec."""
    options = [f"--namespace={namespace}"] if namespace else []
    options += [f"--context={context}"] if context else []
    target = ("exec", f"deployment/{release}-gateway", "--container=gateway")

    def place(arguments: Sequence[str]) -> list[dict[str, Any]]:
        done = _kubectl([*options, *target, "--", *ENTRY, *arguments])
        answer = _json(done.stdout)
        if isinstance(answer, list):
            return answer
        if isinstance(answer, dict) and "detail" in answer:
            raise CommandError(_sentence(str(answer["detail"])))
        raise CommandError(_refusal(done.stderr, release))

    return place


def _kubectl(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["kubectl", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise CommandError(
            "kubectl isn't installed, and is needed to reach a release; to work on a database directly give --database."
        ) from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"The cluster didn't answer within {KUBECTL_SECONDS} s.") from None


def _refusal(said: str, release: str) -> str:
    """One sentence from what kubectl printed on stderr."""
    lines = [line for line in said.strip().splitlines() if line and not line.startswith(("Defaulted", "command term"))]
    reason = (lines or ["kubectl said nothing"])[-1].removeprefix("error: ").removeprefix("Error from server ")
    if "NotFound" in said and "deployments" in said:
        return (
            f"There is no gateway of a release {release!r} in this namespace; say where it is by --release, "
            "--namespace and --context."
        )
    return _sentence(f"kubectl: {reason}")


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."

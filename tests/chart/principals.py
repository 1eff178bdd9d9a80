"""What each principal of a rendered release holds, in the words of the table in docs/security.md."""

from collections.abc import Iterator
from typing import Any

from tests.chart.conftest import Rendered, containers

NAMESPACES = {"runyard": "release", "runyard-agents": "agents"}
PRINCIPALS = {
    "gateway": "gateway",
    "operator": "operator",
    "database": "postgres",
    "keys Job": "keys",
    "migration Job": "migration",
    "cleanup Job": "cleanup",
}
"""Name in the table -> component."""


def rows(rendered: Rendered) -> dict[str, str]:
    """Principal -> its row."""
    found = {}
    for principal, component in PRINCIPALS.items():
        pod = _pod(rendered, component)
        rights = "; ".join(_rights(rendered, pod.get("serviceAccountName"))) or "none"
        secrets = ", ".join(f"`{text}`" for text in sorted(_secrets(pod)))
        found[principal] = f"| {principal} | {rights} | {secrets or 'none'} |"
    return found


def _pod(rendered: Rendered, component: str) -> dict[str, Any]:
    (pod,) = [
        found["spec"]["template"]["spec"]
        for found in rendered
        if "template" in found.get("spec", {})
        and found["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    return dict(pod)


def _rights(rendered: Rendered, account: str | None) -> Iterator[str]:
    """`agents: `runs` get list`, for each Role that is bound to the account."""
    for binding in rendered:
        if binding["kind"] == "RoleBinding" and any(s["name"] == account for s in binding["subjects"]):
            namespace = binding["metadata"]["namespace"]
            (role,) = [
                found
                for found in rendered
                if (found["kind"], found["metadata"]["name"]) == ("Role", binding["roleRef"]["name"])
                and found["metadata"]["namespace"] == namespace
            ]
            yield f"{NAMESPACES[namespace]}: " + ", ".join(_rule(rule) for rule in role["rules"])


def _rule(rule: dict[str, Any]) -> str:
    resources = "`, `".join(rule["resources"])
    only = (
        " of these names: " + " ".join(f"`{_short(name)}`" for name in names)
        if (names := rule.get("resourceNames"))
        else ""
    )
    return f"`{resources}` {' '.join(rule['verbs'])}{only}"


def _secrets(pod: dict[str, Any]) -> set[str]:
    found = set()
    for volume in pod.get("volumes", ()):
        if "secret" in volume:
            name = _short(volume["secret"]["secretName"])
            items = [item["key"] for item in volume["secret"].get("items", ())]
            found |= {f"{name}: {key}" for key in items} or {f"{name}: all"}
    for container in containers(pod):
        for variable in container.get("env", ()):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                found.add(f"{_short(reference['name'])}: {reference['key']}")
    return found


def _short(name: str) -> str:
    return name.removeprefix("runyard-")

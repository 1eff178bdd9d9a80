"""Kubernetes' rules for NetworkPolicies, evaluated on what the chart renders. Pure."""

import ipaddress
from dataclasses import dataclass, field
from typing import Any

Policy = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """A pod (namespace, labels) or an address outside the cluster (`namespace` empty), and the port it serves."""

    namespace: str
    labels: dict[str, str] = field(default_factory=dict)
    address: str = "10.244.1.9"
    port: int = 0


def may_reach(policies: list[Policy], source: Endpoint, target: Endpoint) -> bool:
    """Whether both ends let a TCP connection through."""
    out = _open(policies, source, "Egress", target, target.port)
    return out and (not target.namespace or _open(policies, target, "Ingress", source, target.port))


def _open(policies: list[Policy], subject: Endpoint, direction: str, other: Endpoint, port: int) -> bool:
    """Policies only open: a pod that none selects is open to all, any other to what one of them lets through."""
    key, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    relevant = [
        found["spec"]
        for found in policies
        if found["metadata"]["namespace"] == subject.namespace
        and direction in found["spec"]["policyTypes"]
        and _selects(found["spec"]["podSelector"], subject.labels)
    ]
    rules = [rule for spec in relevant for rule in spec.get(key, ())]
    return not relevant or any(_port_fits(rule, port) and _peer_fits(rule.get(peers), other) for rule in rules)


def _port_fits(rule: dict[str, Any], port: int) -> bool:
    return "ports" not in rule or any(p["port"] == port and p.get("protocol", "TCP") == "TCP" for p in rule["ports"])


def _peer_fits(peers: list[dict[str, Any]] | None, other: Endpoint) -> bool:
    return not peers or any(_matches(peer, other) for peer in peers)


def _matches(peer: dict[str, Any], other: Endpoint) -> bool:
    if "ipBlock" in peer:
        block, address = peer["ipBlock"], ipaddress.ip_address(other.address)
        ranges = [ipaddress.ip_network(text) for text in block.get("except", ())]
        return address in ipaddress.ip_network(block["cidr"]) and not any(address in found for found in ranges)
    if not other.namespace:
        return False
    namespace_labels = {"kubernetes.io/metadata.name": other.namespace}
    in_namespace = "namespaceSelector" in peer and _selects(peer["namespaceSelector"], namespace_labels)
    return in_namespace and _selects(peer.get("podSelector", {}), other.labels)


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", ())
    assert all(found["operator"] == "Exists" for found in expressions), "only Exists is used"
    return selector.get("matchLabels", {}).items() <= labels.items() and all(e["key"] in labels for e in expressions)

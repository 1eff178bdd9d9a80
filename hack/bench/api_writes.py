"""How many writes the API server answered, by verb, for one kind of resource; read from its own metrics."""

import re
from collections import Counter

_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")


def writes(metrics: str, resource: str) -> Counter[str]:
    """Successful writes so far, by verb; `metrics` is the text of the API server's /metrics."""
    found: Counter[str] = Counter()
    for line in metrics.splitlines():
        match = _LINE.match(line)
        if not match:
            continue
        labels = dict(_LABEL.findall(match["labels"]))
        if labels.get("resource") == resource and labels["verb"] in WRITES and labels["code"].startswith("2"):
            found[labels["verb"]] += int(float(match["count"]))
    return found

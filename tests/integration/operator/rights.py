"""The operator's own identity: a service account with exactly the rights that the chart gives it, and a kubeconfig."""

from pathlib import Path

import yaml
from tests.support.apiserver import ROOT, ApiServer

ROLE = ROOT / "charts" / "runyard" / "templates" / "operator" / "role.yaml"
NAME = "runyard-operator"


def operator_kubeconfig(api_server: ApiServer, namespace: str, folder: Path) -> Path:
    """Makes the account in `namespace` and returns a kubeconfig that logs in as it."""
    api_server.kubectl("create", "serviceaccount", NAME, "-n", namespace)
    api_server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([_role(namespace), _binding(namespace)]))
    token = api_server.kubectl("create", "token", NAME, "-n", namespace, "--duration=2h").strip()
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    file = folder / "operator-kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def _role(namespace: str) -> dict[str, object]:
    text = ROLE.read_text().replace('{{ include "runyard.operator.name" . }}', NAME)
    rules = yaml.safe_load(text[text.index("\nrules:") :])["rules"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": NAME, "namespace": namespace},
        "rules": rules,
    }


def _binding(namespace: str) -> dict[str, object]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": NAME, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }

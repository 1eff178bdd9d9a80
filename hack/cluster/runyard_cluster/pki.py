"""Certificates, keys and kubeconfigs, made with openssl. Called by `up` and `standalone`."""

import base64
import json
from pathlib import Path

from runyard_cluster.settings import CONTROL_PLANE_ADDRESS, KUBERNETES_SERVICE
from runyard_cluster.shell import run

KEY_OPTIONS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
SERVER_NAMES = (
    "IP:127.0.0.1",
    f"IP:{CONTROL_PLANE_ADDRESS}",
    f"IP:{KUBERNETES_SERVICE}",
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
)
DAYS = "365"


def make_pki(folder: Path) -> None:
    """Write ca, apiserver, admin (each .crt and .key) and the service accounts' sa.key and sa.pub into `folder`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca = ("-x509", "-subj", "/CN=runyard-cluster-ca", "-days", DAYS)
    run(["openssl", "req", *ca, *KEY_OPTIONS, "-keyout", folder / "ca.key", "-out", folder / "ca.crt"])
    _sign(folder, "apiserver", "/CN=kube-apiserver", f"subjectAltName={','.join(SERVER_NAMES)}")
    _sign(folder, "admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth")
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "sa.key"])
    run(["openssl", "pkey", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub"])


def _sign(folder: Path, name: str, subject: str, extension: str) -> None:
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    run(["openssl", "req", *KEY_OPTIONS, "-subj", subject, "-keyout", folder / f"{name}.key", "-out", request])
    extensions.write_text(extension + "\n")
    authority = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial")
    certificate = folder / f"{name}.crt"
    run(
        [
            "openssl",
            "x509",
            "-req",
            "-in",
            request,
            *authority,
            "-days",
            DAYS,
            "-extfile",
            extensions,
            "-out",
            certificate,
        ]
    )
    request.unlink()
    extensions.unlink()


def kubeconfig(server: str, folder: Path, name: str = "runyard") -> str:
    """Return the administrator's kubeconfig with everything in it, as JSON (which is YAML too)."""

    def data(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    user = {"client-certificate-data": data("admin.crt"), "client-key-data": data("admin.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": data("ca.crt")}}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        "current-context": name,
    }
    return json.dumps(document, indent=2) + "\n"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_text(text)

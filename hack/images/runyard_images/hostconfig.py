"""What a build needs of this machine to reach its package sources: pip's and apt's settings and the certificate bundle.

They are given to the build as secrets, that is as files that exist during one RUN and are in no layer.
Called by `builders`, calls `shell`.
"""

import configparser
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from runyard_images.shell import run

PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "no-index")
CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CA_INSIDE = "/run/secrets/ca.pem"


def write_secrets(folder: Path, env: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Write pip.conf, apt.conf and ca.pem into `folder` and return them by name; ca.pem only where one is set."""
    pip, cert = pip_settings(env)
    bundle = next((env[name] for name in CA_VARIABLES if env.get(name)), cert)
    secrets = {"pip.conf": folder / "pip.conf", "apt.conf": folder / "apt.conf"}
    if bundle and Path(bundle).is_file():
        secrets["ca.pem"] = folder / "ca.pem"
        shutil.copyfile(bundle, secrets["ca.pem"])
        pip["cert"] = CA_INSIDE
    lines = "".join(f"{name} = {value.replace(chr(10), ' ')}\n" for name, value in pip.items())
    secrets["pip.conf"].write_text(f"[global]\n{lines}")
    secrets["apt.conf"].write_text(_apt_settings())
    return secrets


def pip_settings(env: Mapping[str, str], machine: Path = Path("/etc/pip.conf")) -> tuple[dict[str, str], str | None]:
    """Return pip's settings that say where packages come from, and its certificate bundle.

    As in pip the variables win over the files, and the user's file over the `machine`'s.
    """
    home = Path(env.get("HOME") or "/")
    files = [machine, home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf"]
    if own := env.get("PIP_CONFIG_FILE"):
        files.append(Path(own))
    parser = configparser.RawConfigParser()
    parser.read([file for file in files if file.is_file()])
    merged = {name.replace("_", "-"): value for name, value in _options(parser)}
    merged |= {
        name: env[variable] for name in PIP_SETTINGS if env.get(variable := f"PIP_{name.upper().replace('-', '_')}")
    }
    if value := env.get("PIP_DEFAULT_TIMEOUT"):
        merged["timeout"] = value
    return {name: merged[name] for name in PIP_SETTINGS if name in merged}, merged.get("cert")


def _options(parser: configparser.RawConfigParser) -> Iterator[tuple[str, str]]:
    for section in ("global", "install"):  # the later one wins, as in pip
        if parser.has_section(section):
            yield from parser.items(section)


def _apt_settings() -> str:
    """This machine's apt settings on fetching (proxy, checks), as apt.conf; empty where there is no apt."""
    if not shutil.which("apt-config"):
        return ""
    wanted = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv4")
    lines = run(["apt-config", "dump"], timeout=30).splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith(wanted))

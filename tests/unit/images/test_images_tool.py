"""The pure parts of the image tool: which images, what a build learns of the machine, and refusals in one sentence."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "hack" / "images"
sys.path.insert(0, str(TOOL))

from runyard_images.errors import ImagesError  # noqa: E402
from runyard_images.hostconfig import CA_INSIDE, pip_settings, write_secrets  # noqa: E402
from runyard_images.settings import IMAGES, ROOT, cache_dir, chosen, default_tag  # noqa: E402


def tool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, timeout=20, check=False
    )


def test_runtime_is_built_before_hello_whatever_the_order_asked_for() -> None:
    assert chosen(["hello", "runtime"]) == ["runtime", "hello"]
    assert chosen([]) == list(IMAGES)


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ImagesError, match=r"no image worker; the images are operator, gateway, runtime"):
        chosen(["worker"])


def test_every_image_has_its_dockerfile_and_the_tag_is_the_charts() -> None:
    for name in IMAGES:
        assert (ROOT / "images" / name / "Dockerfile").is_file()
    assert default_tag().count(".") == 2


def test_every_image_runs_as_a_user_that_is_not_root() -> None:
    for name in IMAGES:
        lines = (ROOT / "images" / name / "Dockerfile").read_text().splitlines()
        users = [line for line in lines if line.startswith("USER")]
        assert users == ([] if name == "hello" else ["USER 10001:10001"]), name


def test_what_dockerfiles_copy_is_not_left_out_of_the_context() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in IMAGES:
        for line in (ROOT / "images" / name / "Dockerfile").read_text().splitlines():
            if line.startswith("COPY") and "--from" not in line:
                sources = [word for word in line.split()[1:-1] if not word.startswith("--")]
                for source in sources:
                    known = {source, source.split("/")[0], f"{Path(source).parent}/*{Path(source).suffix}"}
                    assert known & allowed, f"{name} copies {source}"


def test_pip_settings_come_from_files_and_variables_as_in_pip(tmp_path: Path) -> None:
    machine = tmp_path / "pip.conf"
    machine.write_text(
        "[global]\nindex-url = https://machine.example/simple\ncert = /machine.pem\nprefer-binary = yes\n"
    )
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text("[install]\ntrusted_host = user.example\n")
    env = {"HOME": str(tmp_path), "PIP_INDEX_URL": "https://env.example/simple", "PIP_DEFAULT_TIMEOUT": "60"}
    settings, cert = pip_settings(env, machine)
    assert settings == {
        "index-url": "https://env.example/simple",
        "trusted-host": "user.example",
        "timeout": "60",
    }
    assert cert == "/machine.pem"


def test_a_certificate_bundle_is_given_at_a_path_of_its_own(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("certificates")
    out = tmp_path / "secrets"
    out.mkdir()
    secrets = write_secrets(out, {"HOME": str(tmp_path), "SSL_CERT_FILE": str(bundle)})
    assert secrets["ca.pem"].read_text() == "certificates"
    assert f"cert = {CA_INSIDE}\n" in secrets["pip.conf"].read_text()


def test_the_cache_can_be_put_elsewhere() -> None:
    assert cache_dir({"RUNYARD_IMAGES_CACHE": "/big"}) == Path("/big")
    assert cache_dir({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/runyard/images")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "worker"], "There is no image worker"),
        (["app", "/nowhere", "--name", "x:1"], "There is no Dockerfile /nowhere/Dockerfile."),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(arguments: list[str], said: str) -> None:
    done = tool(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_entrypoint_of_postgres_is_executable_and_refuses_an_empty_volume_without_a_password(
    tmp_path: Path,
) -> None:
    script = ROOT / "images" / "postgres" / "entrypoint.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    env = {"PATH": "/usr/bin:/bin", "PGDATA": str(tmp_path / "data"), "RUNYARD_PASSWORD_FILE": str(tmp_path / "none")}
    done = subprocess.run([script], env=env, capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 1
    assert f"there is no password in {tmp_path}/none" in done.stderr

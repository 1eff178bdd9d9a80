"""The command line. Called by `__main__`; calls `builders`."""

import argparse
import sys
from pathlib import Path

from runyard_images.builders import Build, Builder, choose_builder
from runyard_images.errors import ImagesError
from runyard_images.settings import IMAGES, PREFIX, ROOT, Settings, cache_dir, chosen, default_tag
from runyard_images.shell import say, timed


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        settings = Settings(
            prefix=options.prefix,
            tag=options.tag or default_tag(),
            out=Path(options.out).absolute(),
            cache=cache_dir(),
            base=options.base,
        )
        options.command(settings, options)
    except ImagesError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `list | head`: what reads us has left, so there is nobody to tell
        sys.stderr.close()
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 hack/images", description="Build images without an image registry.")
    parser.add_argument("--builder", choices=("auto", "buildah", "docker"), default="auto")
    parser.add_argument("--prefix", default=PREFIX, help="before an image's short name (default: %(default)s)")
    parser.add_argument("--tag", help="default: appVersion of charts/runyard/Chart.yaml")
    parser.add_argument("--out", default=ROOT / "out" / "images", help="folder of the archives (default: out/images)")
    parser.add_argument("--from", dest="base", metavar="IMAGE", help="image of the builder to use instead of the base")
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build", help="build images and write their archives")
    build.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(IMAGES)}; default: all")
    build.set_defaults(command=_build)
    app = commands.add_parser("app", help="build an agent's image from a folder with a Dockerfile FROM runyard-runtime")
    app.add_argument("folder", type=Path)
    app.add_argument("--name", required=True, metavar="IMAGE", help="its full name, e.g. docker.io/example/my-agent:1")
    app.add_argument("--file", type=Path, metavar="DOCKERFILE", help="default: Dockerfile in the folder")
    app.set_defaults(command=_app)
    commands.add_parser("list", help="print names and archives").set_defaults(command=_list)
    commands.add_parser("clean", help="remove what the builder keeps; the base stays").set_defaults(command=_clean)
    return parser


def _build(settings: Settings, options: argparse.Namespace) -> None:
    names = chosen(options.names)
    builder = choose_builder(options.builder, settings.cache)
    builder.prepare(settings.base)
    for name in names:
        dockerfile = ROOT / "images" / name / "Dockerfile"
        args = {"VERSION": settings.tag} | ({"RUNTIME": settings.reference("runtime")} if name == "hello" else {})
        _one(builder, Build(settings.reference(name), dockerfile, ROOT, args), settings.archive(name))


def _app(settings: Settings, options: argparse.Namespace) -> None:
    folder: Path = options.folder.absolute()
    dockerfile: Path = options.file or folder / "Dockerfile"
    if not dockerfile.is_file():
        raise ImagesError(f"There is no Dockerfile {dockerfile}.")
    builder = choose_builder(options.builder, settings.cache)
    if not builder.image_id(settings.reference("runtime")):
        raise ImagesError("The runtime's image isn't built yet; run `python3 hack/images build runtime` first.")
    name = options.name.rpartition("/")[2].replace(":", "-")
    _one(builder, Build(options.name, dockerfile.absolute(), folder), settings.archive(name))


def _one(builder: Builder, build: Build, archive: Path) -> None:
    """Build one image; its archive is written again only when the image is another than the archive's."""
    with timed(f"{build.reference}: build"):
        builder.build(build)
    mark = archive.with_suffix(".id")
    identity = f"{build.reference} {builder.image_id(build.reference)}"
    if archive.exists() and mark.exists() and mark.read_text() == identity:
        say(f"{archive}: up to date")
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    with timed(f"{build.reference}: archive"):
        builder.save(build.reference, archive)
    mark.write_text(identity)
    say(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")


def _list(settings: Settings, _: argparse.Namespace) -> None:
    for name in IMAGES:
        archive = settings.archive(name)
        size = f"{archive.stat().st_size / 1e6:.0f} MB" if archive.exists() else "not built"
        print(f"{settings.reference(name)}\t{archive}\t{size}")


def _clean(settings: Settings, options: argparse.Namespace) -> None:
    choose_builder(options.builder, settings.cache).clean()
    for name in IMAGES:
        for path in (settings.archive(name), settings.archive(name).with_suffix(".id")):
            path.unlink(missing_ok=True)

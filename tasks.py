"""The tasks build, push, render, demo, stage and test, and the collections `image`, `job`, `dev` and `testbed`.

Every error of a task becomes one message and exit code 1 in this module.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, NoReturn

from invoke import Collection, Context, Exit, Task, task

from images import tasks as image_tasks
from images.builds import build_all, site_settings
from images.builds.build import BuildRequest, build, show_plan
from images.builds.site import Site
from images.catalog import docs_tables
from images.catalog.catalog import Catalog
from images.context import render
from images.errors import ImageError
from images.export import export
from images.host import paths
from images.registry.push import Push
from images.report import progress as displays
from images.tasks import testbed_base
from slurm import testbed
from slurm.errors import SlurmError
from slurm.jobs import check, container
from slurm.jobs import stage as staging
from slurm.jobs import tasks as job_tasks
from slurm.testbed import demo as rehearsal
from slurm.testbed import tasks as testbed_tasks
from tests import tasks as dev_tasks

# Names of before 0.2, which the next release removes.
MOVED_TASKS = """image.site image.lock image.pins image.bundle image.diff image.export image.prune image.sbom
    image.verify job.check job.doctor job.explain dev.lint dev.chaos"""
OLD_NAMES = {"images": "image.list", "troubleshooting": "dev.pages"}
OLD_NAMES |= {name.partition(".")[2]: name for name in MOVED_TASKS.split()}

# A terminated task stops what it started. Set here since a shell starts background tasks with INT ignored.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler)

ENGINES = ("docker", "podman")  # pull from a registry
FILE_RUNTIMES = ("apptainer", "enroot")  # start a squashfs

echo = partial(print, flush=True)  # a line at once, also into a pipe


@task(help={"runtime": "VERLJOB_RUNTIME of the job: docker, podman, apptainer, or enroot with VERLJOB_SOURCES"})
def demo(_: Context, runtime: str = "docker") -> None:
    """Build verl.cpu and train with it on a two-node rehearsal cluster, through sbatch."""
    by_file = runtime in FILE_RUNTIMES
    if runtime not in (*ENGINES, *FILE_RUNTIMES):
        raise Exit(f"There is no demo with {runtime}: --runtime is {', '.join((*ENGINES, *FILE_RUNTIMES))}.", code=1)
    if runtime == "enroot" and not os.environ.get("VERLJOB_SOURCES"):
        text = f"export VERLJOB_SOURCES=a folder with {testbed.SOURCES} (docs/rehearsal.md)"
        raise Exit(f"The nodes' enroot is built from its sources: {text}.", code=1)
    if by_file:
        os.environ.setdefault("VERLJOB_TESTBED_DEBIAN", "trixie")
    catalog = Catalog.read()
    variant = catalog.find(platform="cpu")
    tags = catalog.names(variant)
    echo(f"build      {tags[0]}")
    build(BuildRequest(variant, tags), Site.read())
    base = testbed_base(testbed.debian())
    image = next(iter(export.export(tags[0], ["squashfs"], paths.EXPORTS / variant.name))) if by_file else tags[0]
    code = rehearsal.run(image, base, paths.DEMO, runtime=runtime, print_line=echo)
    raise Exit(code=code)


@task(
    positional=["recipe"],
    help={
        "recipe": "a name of slurm/recipes/ or a .yaml file; overrides follow after --",
        "image": "a local image (else VERLJOB_IMAGE, verl.PLATFORM:latest)",
        "no_image": "bring data and model only: the nodes reach the image's registry",
    },
)
def stage(_: Context, recipe: str, *, image: str = "", no_image: bool = False) -> None:
    """Bring a recipe's data, model and image to folders that the nodes see: for nodes without internet."""
    file = check.find(recipe)
    chosen = image or check.image_of(file, os.environ)
    staging.bring(file, job_tasks.after_dashes(), chosen, os.environ, echo)
    if no_image or chosen.startswith(("/", "./")):
        return
    runtime = os.environ.get("VERLJOB_RUNTIME") or "docker"
    kind = "docker-archive" if runtime in ("docker", "podman") else "squashfs"
    for path in export.export(chosen, [kind], container.data_folder(os.environ) / "images"):
        echo(f"{'image':<10} {path}: export VERLJOB_IMAGE={shlex.quote(str(path))}")


@task(name="render", help={"stdout": "print instead of writing dockerfiles/rendered/"})
def render_dockerfiles(_: Context, platform: str = "", variant: str = "", stdout: bool = False) -> None:
    """Render the Dockerfiles, all or one, from the catalog and the templates."""
    catalog = Catalog.read()
    one = [catalog.find(platform, variant)] if platform or variant else []
    if stdout:
        echo("\n".join(map(render.dockerfile, one or catalog.variants.values())))
    else:
        written = [render.write(one[0])] if one else [*render.write_all(catalog), *docs_tables.write(catalog)]
        echo("\n".join(map(str, written)))


@task(
    name="build",
    auto_shortflags=False,  # there are more flags than letters
    help={
        "all": "all variants, or all of --platform",
        "jobs": "with --all, the number of builds in parallel",
        "force": "run the build even if no input changed",
        "anyway": "old name of --force",
        "progress": "auto, live, plain or quiet",
        "rollout": "hf, vllm or sglang: the variant of the platform with this engine",
        "gpus": "GPU architectures to compile for, by comma, such as gfx942; default all that the base has code for",
        "tag": "NAME:TAG or TAG instead of the default names",
        "verl": "source of verl instead of the release: a checkout, git+URL@REF or git:REF",
        "editable": "with a checkout: link to it, at the same path in the container",
        "base": "another base, such as a mirror's copy",
        "reproducible": "build with buildah: the same inputs give the same bytes",
        "bundle": "folder made by `invoke image.bundle`: the build downloads nothing, and has no network",
        "site": "site file instead of the one that VERLJOB_SITE names",
        "dry_run": "only print the plan of the build; the base is not fetched",
        **{name: site_settings.KEYS[name].purpose for name in site_settings.FLAGS},
    },
)
def build_image(
    _: Context,
    *,
    platform: str = "",
    variant: str = "",
    rollout: str = "",
    gpus: str = "",
    all: bool = False,
    jobs: int = build_all.JOBS,
    force: bool = False,
    anyway: bool = False,
    progress: str = "auto",
    tag: str = "",
    verl: str = "",
    editable: bool = False,
    base: str = "",
    bundle: str = "",
    site: str = "",
    base_mirror: str = "",
    wheelhouse: str = "",
    pip_index: str = "",
    apt_mirror: str = "",
    ca: str = "",
    proxy: str = "",
    no_proxy: str = "",
    reproducible: bool = False,
    dry_run: bool = False,
) -> None:
    """Build an image and print its ID; with --all build the whole catalog or platform."""
    flags = {name: str(value) for name, value in locals().items() if name in site_settings.FLAGS}
    if anyway:
        echo("--anyway is called --force now.", file=sys.stderr)
    settings, force = Site.read(site, **flags), force or anyway
    single = {
        "variant": variant,
        "rollout": rollout,
        "gpus": gpus,
        "tag": tag,
        "base": base,
        "verl": verl,
        "bundle": bundle,
    }
    if all:
        build_all.refuse_single_image_flags(**single, dry_run=dry_run)
        _build_all(platform, settings, jobs=jobs, force=force, reproducible=reproducible, progress=progress)
    request = BuildRequest.from_flags(
        settings, platform=platform, editable=editable, reproducible=reproducible, **single
    )
    if request.variant.advice and not (variant or bundle):
        echo(request.variant.advice)
    if dry_run:
        echo(show_plan(request, settings))
        return
    with displays.choose(progress, request.tags[:1]) as display:
        image_id = build(request, settings, force=force, progress=display)
    echo(image_id)


def _build_all(platform: str, site: Site, **settings: Any) -> NoReturn:
    """Build all variants, or all of a platform; exit with 1 if one failed."""
    catalog = Catalog.read()
    outcomes = build_all.build_all(build_all.buildable(catalog.of_platform(platform)), site, catalog, **settings)
    echo(build_all.summary(outcomes))
    raise Exit(code=int(any(outcome.error for outcome in outcomes)))


@task(
    name="push",
    help={
        "registry": "HOST[:PORT][/PATH], several by comma",
        "gpus": "the --gpus of the build",
        "image": "local image instead of the one that build names",
        "tag": "tags by comma instead of the default ones",
        "force": "move a release's tag that names another image in the registry",
        "attest": "attach SBOM and provenance to the image's digest",
        "key": "private key that signs image, SBOM and provenance",
    },
)
def push_image(
    _: Context,
    *,
    registry: str,
    platform: str,
    variant: str = "",
    rollout: str = "",
    gpus: str = "",
    image: str = "",
    tag: str = "",
    force: bool = False,
    attest: bool = True,
    key: str = "",
) -> None:
    """Push a local image with its SBOM and provenance, and print the digests to pull it by."""
    catalog = Catalog.read()
    chosen = catalog.find(platform, variant, rollout, gpus)
    push = Push.from_flags(chosen, catalog, registry, image=image, tags=tag, force=force)
    uploaded = push.upload()
    if attest or key:
        from images.provenance.attest import attach  # spdx-tools and protobuf take half a second

        for path in attach(uploaded, key=Path(key) if key else None):
            echo(f"attached {path}")
    for reference, digest in push.tag(uploaded).items():
        echo(f"{reference} {digest}")
    for path in push.write_digest_files(uploaded):
        echo(f"wrote {path}")


@task(name="up", help={"nodes": "compute nodes, 1 to 8", "debian": "bookworm, trixie or sid"})
def cluster_up(_: Context, nodes: int = 2, debian: str = "") -> None:
    """Start a rehearsal cluster: a login node, a registry, and compute nodes with their own engines."""
    if debian:
        os.environ["VERLJOB_TESTBED_DEBIAN"] = debian
    cluster, release = testbed.Cluster(nodes), testbed.debian()
    cluster.up(testbed_base(release))
    echo(f"The rehearsal cluster {cluster.name!r}, Debian {release}, accepts jobs on {', '.join(cluster.nodes)}.")


def with_error_message(body: Callable[..., None]) -> Callable[..., None]:
    """Wrap the body of a task: an error becomes one message and exit code 1."""

    @wraps(body)
    def run(*arguments: Any, **flags: Any) -> None:
        try:
            body(*arguments, **flags)
        except (ImageError, SlurmError) as error:
            raise Exit(f"{type(error).__name__}: {error}", code=1) from error

    return run


def old_name(name: str, new_name: str, new: Task[Any]) -> Task[Any]:
    """Return a task under its old name, which prints the new one."""

    @wraps(new.body)
    def run(*arguments: Any, **flags: Any) -> None:
        echo(f"`invoke {name}` is called `invoke {new_name}` now.", file=sys.stderr)
        new.body(*arguments, **flags)

    run.__doc__ = f"The old name of {new_name}."
    return Task(run, name=name, help=new.help, positional=new.positional, auto_shortflags=new.auto_shortflags)


_testbed = Collection.from_module(testbed_tasks, name="testbed")
_testbed.add_task(cluster_up)
namespace = Collection(
    build_image,
    push_image,
    render_dockerfiles,
    demo,
    stage,
    dev_tasks.run_tests,
    job_tasks.show_profile,
    Collection.from_module(image_tasks, name="image"),
    Collection.from_module(job_tasks, name="job"),
    Collection.from_module(dev_tasks, name="dev"),
    _testbed,
)
for _collection in (namespace, *namespace.collections.values()):
    for _task in _collection.tasks.values():
        _task.body = with_error_message(_task.body)
for _name, _new in OLD_NAMES.items():
    namespace.add_task(old_name(_name, _new, namespace[_new]))

"""Invoke tasks: each parses its flags, calls one function and prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from invoke import Collection, Context, Exit, task

from images.builds import build as images_build
from images.builds import build_all, site_settings
from images.builds import build_request as images_request
from images.builds import make_bundle as images_bundle
from images.builds import prune as images_prune
from images.builds import site as images_site
from images.catalog import catalog as images_catalog
from images.catalog import docs_tables
from images.contents import diff, table
from images.context import render
from images.engine import base_image as images_base
from images.engine import client as images_engine
from images.errors import ImageError
from images.export import export as images_export
from images.host import paths
from images.pins import locks as images_locks
from images.pins import pins as images_pins
from images.registry import push as images_push
from slurm import testbed
from slurm.errors import SlurmError
from slurm.jobs import check as slurm_check
from slurm.jobs import doctor as slurm_doctor
from slurm.jobs import explain as slurm_explain
from slurm.testbed import demo as slurm_demo

STAGES = [
    (["lint", "unit", "shell"], ["--numprocesses=4", "--dist=loadfile"]),
    # In the order of their names: the build of verl.cpu is asked for first, and beside it what does not wait for it.
    (["image"], ["--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder"]),
    (["cluster"], []),
]
SUITES = [suite for stage, _ in STAGES for suite in stage]
PYTEST = [sys.executable, "-m", "pytest"]

# A task that is asked to end takes down what it started. Set here since a shell starts background tasks deaf to INT.
for asked_to_end in (signal.SIGINT, signal.SIGTERM):
    signal.signal(asked_to_end, signal.default_int_handler)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what went wrong into one message and exit code 1: the only place on the host that does."""
    try:
        yield
    except (ImageError, SlurmError) as error:
        raise Exit(f"{type(error).__name__}: {error}", code=1) from error


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


def after_dashes() -> list[str]:
    """Return what stands after --: Invoke joins it with blanks, here words with blanks of their own are kept."""
    return sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []


def _debian() -> str:
    """Return a Debian 12 for the rehearsal cluster's containers, and make one docker client the choice of all parts."""
    os.environ["VERLJOB_DOCKER"] = images_engine.choose().client
    return images_base.ensure()


@task
def demo(_: Context) -> None:
    """Build verl.cpu and train with it on a two-node rehearsal cluster, through sbatch."""
    with reported():
        catalog = images_catalog.Catalog.read()
        variant = catalog.find(platform="cpu")
        tags = catalog.names(variant)
        say(f"build      {tags[0]}")
        images_build.build(variant, images_site.Site.here(), tags)
        code = slurm_demo.run(tags[0], _debian(), paths.DEMO, say=say)
    raise Exit(code=code)


@task(name="images", help={"space": "an image: what takes its space"})
def show_images(_: Context, space: str = "") -> None:
    """Show the variants with their pins, and what is built here."""
    with reported():
        say(table.space(space) if space else table.table(images_catalog.Catalog.read()))


@task(name="render", help={"stdout": "print instead of writing dockerfiles/rendered/"})
def render_dockerfiles(_: Context, platform: str = "", variant: str = "", stdout: bool = False) -> None:
    """Render the Dockerfiles from the catalog and the templates: all of them, or one."""
    with reported():
        catalog = images_catalog.Catalog.read()
        one = [catalog.find(platform, variant)] if platform or variant else []
        if stdout:
            say("\n".join(map(render.dockerfile, one or catalog.variants.values())))
        else:
            written = [render.write(one[0])] if one else [*render.write_all(catalog), *docs_tables.write(catalog)]
            say("\n".join(map(str, written)))


@task(name="lock", help={"variant": "one variant; all of them without it"})
def lock_variant(_: Context, variant: str = "") -> None:
    """Resolve again what the packages of a variant, or of all, pull, after a pin changed; needs a package index."""
    with reported():
        catalog = images_catalog.Catalog.read()
        chosen = [images_locks.write(catalog.find(variant=variant))] if variant else images_locks.write_all(catalog)
        say("\n".join(map(str, chosen)))


@task(name="site", help={"site": "a site file in place of the one that VERLJOB_SITE names"})
def show_site(_: Context, site: str = "") -> None:
    """Show what this place has of its own, and who says so: flags of `build`, the environment, the site file."""
    with reported():
        found = site_settings.settings(site)
        site_settings.refuse_missing(found)
        say(site_settings.table(found))


@task(name="pins", help={"check": "read files alone", "update": "ask indexes, registries and mirrors again"})
def show_pins(_: Context, check: bool = False, update: bool = False) -> None:
    """Tell what is pinned and what is not known yet; 1 where something should be and is not."""
    with reported():
        catalog = images_catalog.Catalog.read()
        for line in images_pins.update(catalog) if update else ():
            say(line)
        say(images_pins.check(catalog) if check or not update else "review: git diff images/, then invoke render")


@task(
    name="build",
    auto_shortflags=False,  # Invoke would run out of letters
    help={
        "all": "all variants, or all of --platform",
        "jobs": "with --all, how many builds go on at a time",
        "anyway": "ask the engine even where nothing changed",
        "progress": "auto, live, plain or quiet",
        "rollout": "hf or vllm: the variant of the platform with this engine",
        "tag": "NAME:TAG or TAG in place of the usual names",
        "verl": "verl's source in place of the release: a checkout, git+URL@REF or git:REF",
        "editable": "with a checkout: the image links to it, which must be seen at the same path",
        "base": "another base, such as a mirror's copy",
        "reproducible": "by buildah: the same inputs give the same bytes",
        "bundle": "a folder that `invoke bundle` made: nothing is downloaded, and the build has no network",
        "site": "a site file in place of the one that VERLJOB_SITE names",
        **{name: site_settings.KEYS[name].purpose for name in site_settings.FLAGS},
    },
)
def build_image(
    _: Context,
    *,
    platform: str = "",
    variant: str = "",
    rollout: str = "",
    all: bool = False,
    jobs: int = build_all.JOBS,
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
) -> None:
    """Build an image, and print its ID; with --all the whole catalog or platform."""
    flags = {name: str(value) for name, value in locals().items() if name in site_settings.FLAGS}
    with reported():
        here = images_site.Site.here(site, **flags)
        how: dict[str, Any] = {"anyway": anyway, "same_bytes": reproducible, "progress": progress}
        if all:
            build_all.refuse_alone(variant=variant, rollout=rollout, tag=tag, verl=verl, base=base, bundle=bundle)
            _build_all(platform, here, jobs=jobs, **how)
        asked: dict[str, Any] = {"tag": tag, "verl": verl, "editable": editable, "bundle": bundle}
        order = images_request.Order.of(platform, variant, rollout, here, **asked)
        say(order.build(here, from_base=base, **how))


def _build_all(platform: str, site: images_site.Site, **settings: Any) -> NoReturn:
    """Build a platform, or all; 1 where one failed."""
    catalog = images_catalog.Catalog.read()
    outcomes = build_all.build_all(build_all.buildable(catalog.of(platform)), site, catalog, **settings)
    say(build_all.summary(outcomes))
    raise Exit(code=int(any(outcome.error for outcome in outcomes)))


@task(
    name="bundle",
    help={
        "output": "an empty folder, or a new one",
        "base": "another base, such as a mirror's copy",
        "site": "a site file in place of the one that VERLJOB_SITE names",
    },
)
def make_bundle(_: Context, *, variant: str, output: str, base: str = "", site: str = "") -> None:
    """Write all that the build of a variant downloads into a folder, for `build --bundle` where there is no network."""
    with reported():
        chosen, here = images_catalog.Catalog.read().find(variant=variant), images_site.Site.here(site)
        say(str(images_bundle.make(chosen, here, Path(output), from_base=base)))


@task(name="diff", help={"output": "a file for all of it, as JSON where it ends so"})
def compare_images(_: Context, a: str, b: str, output: str = "") -> None:
    """Show what differs between two images of this machine: packages, files, sizes."""
    with reported():
        found = diff.between(a, b)
        if output:
            diff.write(found, Path(output))
        say(diff.text(found))


@task(
    name="push",
    help={
        "registry": "HOST[:PORT][/PATH], several by comma",
        "image": "an image of this machine in place of what build names",
        "tag": "tags by comma in place of the usual ones",
        "force": "move a release's tag that names another image there",
        "attest": "attach SBOM and provenance under the image's digest",
        "key": "private key that signs image and statements",
    },
)
def push_image(
    _: Context,
    *,
    registry: str,
    platform: str,
    variant: str = "",
    rollout: str = "",
    image: str = "",
    tag: str = "",
    force: bool = False,
    attest: bool = True,
    key: str = "",
) -> None:
    """Push an image that was built here with what is stated of it, and print the digests by which to pull it."""
    with reported():
        catalog = images_catalog.Catalog.read()
        chosen = catalog.find(platform, variant, rollout)
        push = images_push.Push.of(chosen, catalog, registry, image=image, tags=tag, force=force)
        uploaded = push.upload()
        if attest or key:
            _attest(uploaded, key)
        say("\n".join(f"{reference} {digest}" for reference, digest in push.tag(uploaded).items()))
        say("\n".join(f"named in {path}" for path in push.note(uploaded)))


def _attest(uploaded: Mapping[str, str], key: str) -> None:
    """Attach what is stated of images to them, and tell the files."""
    from images.provenance import (
        attest as provenance_attest,  # spdx-tools and protobuf are not asked for by the other tasks
    )

    for path in provenance_attest.attach(uploaded, key=Path(key) if key else None):
        say(f"stated in {path}")


@task(
    name="export",
    help={
        "format": "by comma: docker-archive, oci-archive, squashfs",
        "image": "an image of this machine in place of what build names",
        "output": "a folder in place of .build/export/VARIANT",
    },
)
def export_image(
    _: Context,
    *,
    format: str,
    platform: str = "",
    variant: str = "",
    rollout: str = "",
    image: str = "",
    output: str = "",
) -> None:
    """Write an image as files that other tools take, and print their names."""
    with reported():
        catalog = images_catalog.Catalog.read()
        chosen, formats = catalog.find(platform, variant, rollout), images_export.parse_formats(format)
        folder = Path(output) if output else paths.EXPORTS / chosen.name
        for path in images_export.export(image or catalog.names(chosen)[0], formats, folder):
            say(str(path))


@task(name="prune", help={"yes": "remove what is shown"})
def prune_images(_: Context, yes: bool = False) -> None:
    """Show images and build cache of this toolkit that nothing of the catalog names any more, or remove them."""
    with reported():
        old = images_prune.find(images_catalog.Catalog.read())
        say(images_prune.remove(old) if yes else images_prune.shown(old))


@task(name="sbom", help={"image": "an image of this machine", "output": "a folder in place of .build/attestations"})
def state_image(_: Context, image: str = "verl.cpu:latest", output: str = "") -> None:
    """Write the SBOM of an image, and its provenance where it was built here, and print the files."""
    from images.provenance import attest as provenance_attest

    with reported():
        for path in provenance_attest.write(image, Path(output) if output else paths.ATTESTATIONS):
            say(str(path))


@task(name="verify", help={"image": "REGISTRY/NAME:TAG, or with @DIGEST", "key": "public key of who must have signed"})
def verify_image(_: Context, image: str, key: str = "") -> None:
    """Check what is stated of an image in its registry against what is in it; 1 and a sentence where it is not so."""
    from images.provenance import verify

    with reported():
        say(verify.verify(image, Path(key) if key else None))


@task(
    name="explain",
    positional=["job"],
    help={
        "job": "a job's number, a log or a folder",
        "json": "one JSON object",
        "failed": "the job failed, whatever its log says (of a number Slurm is asked)",
    },
)
def explain_job(_: Context, job: str, json: bool = False, failed: bool = False) -> None:
    """Find the first failure of a job in its logs: its class, where it stands, and the fix."""
    with reported():
        say(slurm_explain.explain(job, folder=Path.cwd(), as_json=json, failed=failed))


@task(name="troubleshooting")
def write_troubleshooting(_: Context) -> None:
    """Write the rules' part of docs/troubleshooting.md anew, after a rule was changed."""
    with reported():
        say(str(slurm_explain.write_page(paths.ROOT / "docs" / "troubleshooting.md")))


@task(
    name="check",
    positional=["recipe"],
    help={
        "recipe": "a name of slurm/recipes/ or a .yaml file; overrides follow after --",
        "nodes": "as for sbatch, like the next four",
        "gpus_per_node": "of one node",
        "time": "the time limit, as sbatch takes it",
        "node_memory": "of one node, in GiB",
        "gpu_memory": "of one GPU, in GiB",
        "image": "an image of this machine (else VERLJOB_IMAGE, verl.PLATFORM:latest)",
        "print": "print the command of the training and end",
    },
)
def check_configuration(
    _: Context,
    recipe: str,
    *,
    nodes: int = 2,
    gpus_per_node: int = 8,
    time: str = "",
    node_memory: float = 0.0,
    gpu_memory: float = 0.0,
    image: str = "",
    print: bool = False,
) -> None:
    """Look at a training's configuration before it is submitted: check RECIPE -- trainer.total_epochs=3"""
    with reported():
        limit = slurm_check.minutes(time)
        memory = (gpu_memory, node_memory)
        job = slurm_check.Job(recipe, after_dashes(), nodes, gpus_per_node, image, *memory, limit, print)
        code = slurm_check.run(job, os.environ)
    raise Exit(code=code)


@task
def lint(_: Context) -> None:
    """Run ruff, mypy --strict, shellcheck and hadolint."""
    _pytest(["lint"])


@task(name="test", help={"only": "suites, by comma: lint, unit, shell, image, cluster"})
def run_tests(_: Context, only: str = ",".join(SUITES)) -> None:
    """Run the linters and every test, the cluster's own last."""
    _pytest(only.split(","))


@task(
    help={
        "only": "kinds of tests/faults/kinds.py, by comma; crowd: eight jobs at once",
        "runtime": "a file of slurm/runtimes/",
        "rounds": "how often each is made",
    }
)
def chaos(_: Context, only: str = "", runtime: str = "docker", rounds: int = 1) -> None:
    """Make every kind of fault on a rehearsal cluster of its own, and print the matrix of what came of them."""
    from tests.faults import chaos as faults  # docker, Slurm and Ray are not asked for by the other tasks

    with reported():
        catalog = images_catalog.Catalog.read()
        variant = catalog.find(platform="cpu")
        tags = catalog.names(variant)
        images_build.build(variant, images_site.Site.here(), tags)
        failed = faults.run(tags[0], _debian(), only=only, runtime=runtime, rounds=rounds, say=say)
    raise Exit(code=min(failed, 1))


def _pytest(suites: list[str]) -> None:
    """Run pytest over the suites in stages: what can share the machine does, file beside file.

    The cluster's tests have limits of time and the machine for themselves. A stage starts where the one before passed;
    this process becomes the last, so that an interrupt reaches its fixtures once.
    """
    if unknown := set(suites) - set(SUITES):
        raise Exit(f"There is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}.", code=2)
    os.chdir(paths.ROOT)
    chosen = [([suite for suite in stage if suite in suites], flags) for stage, flags in STAGES]
    stages = [[*PYTEST, *flags, *(f"tests/{suite}" for suite in stage)] for stage, flags in chosen if stage]
    for argv in stages[:-1]:
        with subprocess.Popen(argv) as child:
            try:
                code = child.wait()
            except KeyboardInterrupt:  # it takes down what its fixtures started
                child.terminate()
                raise
        if code:
            raise Exit(code=code)
    os.execv(sys.executable, stages[-1])  # noqa: S606


@task(
    name="doctor",
    help={
        "json": "for machines",
        "show_env": "what would be set for NCCL and Gloo on this machine, and why",
        "exclude_bad": "a job or its run directory: print sbatch's flag that leaves its bad nodes out",
    },
)
def check_machine(_: Context, json: bool = False, show_env: bool = False, exclude_bad: str = "") -> None:
    """Check this machine; an allocation by `sbatch slurm/launch.sh doctor`. 69: not fit."""
    with reported():
        if exclude_bad:
            say(slurm_doctor.exclusion(exclude_bad))
            return
        code = slurm_doctor.here([flag for flag, on in (("--json", json), ("--show-env", show_env)) if on])
    raise Exit(code=code)


@task(help={"nodes": "compute nodes, 1 to 8"})
def cluster_up(_: Context, nodes: int = 2) -> None:
    """Start a rehearsal cluster: a login node, a registry and compute nodes with engines of their own."""
    with reported():
        cluster = testbed.Cluster(nodes)
        cluster.up(_debian())
    say(f"The rehearsal cluster {cluster.name!r} takes jobs on {', '.join(cluster.nodes)}.")


@task
def cluster_sbatch(_: Context) -> None:
    """Submit as submitter, from a copy of this checkout: testbed.sbatch -- --nodes=2 slurm/launch.sh demo_cpu"""
    with reported():
        cluster = testbed.Cluster.running()
        cluster.sync_checkout()
        say(str(cluster.sbatch(after_dashes(), environment=testbed.handed_on(os.environ))))


@task(help={"host": "login or a node", "user": "submitter, neighbour or root"})
def cluster_shell(_: Context, host: str = "login", user: str = "submitter") -> None:
    """Open a shell on a host of the rehearsal cluster."""
    with reported():
        argv = testbed.Cluster.running().shell(host, user)
    os.execvp(argv[0], argv)  # noqa: S606


@task(help={"image": "an image of this machine"})
def cluster_push(_: Context, image: str = "verl.cpu:latest") -> None:
    """Push an image to the rehearsal cluster's registry and print the name by which its nodes pull it."""
    with reported():
        say(testbed.Cluster.running().push(image))


@task(help={"caches": "also remove the cluster's images and what was pushed, which make the next start quick"})
def cluster_down(_: Context, caches: bool = False) -> None:
    """Remove the rehearsal cluster."""
    with reported():
        testbed.Cluster(testbed.MAX_NODES).down(caches=caches)


_testbed = Collection("testbed")
for _verb, _task in {
    "up": cluster_up,
    "sbatch": cluster_sbatch,
    "shell": cluster_shell,
    "push": cluster_push,
    "down": cluster_down,
}.items():
    _testbed.add_task(_task, name=_verb)

namespace = Collection(
    show_images,
    show_site,
    render_dockerfiles,
    lock_variant,
    show_pins,
    build_image,
    make_bundle,
    compare_images,
    push_image,
    export_image,
    prune_images,
    state_image,
    verify_image,
    demo,
    explain_job,
    write_troubleshooting,
    check_configuration,
    lint,
    run_tests,
    chaos,
    check_machine,
    _testbed,
)

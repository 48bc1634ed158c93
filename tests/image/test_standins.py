"""verl.rocm and verl.cuda, built on stand-ins for their bases; standins/README.md explains what that proves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import standin
from docker import DockerClient

from images.builds.build import BuildRequest, build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.errors import BaseUnreachable, CommandFailed
from images.report import store
from tests.image.conftest import small, small_lock

CATALOG = Catalog.read()
PREFIX = {"rocm6.2": "/opt/conda/envs/py_3.9", "cu130": "/usr/local"}
FACTS = """
import importlib.metadata as m, json, sys
facts = {n: [m.version(n), str(m.distribution(n).locate_file("")), m.metadata(n)["Summary"]] for n in sys.argv[1:]}
print(json.dumps({**facts, "python": ["%d.%d" % sys.version_info[:2]]}))
"""


@pytest.fixture(scope="module", params=list(PREFIX))
def built(request: pytest.FixtureRequest, build_on_standin: Callable[..., str]) -> tuple[str, str]:
    return request.param, build_on_standin(request.param)


def facts(daemon: DockerClient, image: str, *names: str) -> dict[str, list[str]]:
    output = daemon.containers.run(image, ["python3", "-c", FACTS, *names], remove=True, user="41234:41235")
    found: dict[str, list[str]] = json.loads(output)
    return found


def test_the_packages_of_the_base_are_unchanged(daemon: DockerClient, built: tuple[str, str]) -> None:
    variant, image = built
    replaced = CATALOG.variants[variant].replaces
    kept = {name: version for name, version in standin.stubs(variant).items() if name not in replaced}

    inside = facts(daemon, image, *kept)

    assert {name: inside[name][0] for name in kept} == kept
    assert all(inside[name][1].startswith(PREFIX[variant]) for name in kept)


def test_ray_and_verl_have_the_catalogs_versions_in_the_bases_python(
    daemon: DockerClient, built: tuple[str, str]
) -> None:
    variant, image = built
    chosen = CATALOG.variants[variant]

    inside = facts(daemon, image, "ray", "verl")

    assert {name: inside[name][0] for name in ("ray", "verl")} == {n: chosen.installs[n] for n in ("ray", "verl")}
    assert inside["ray"][1].startswith(PREFIX[variant])
    if standin.interpreter(chosen.python):
        assert inside["python"] == [chosen.python]


def test_ray_starts_from_that_python(daemon: DockerClient, built: tuple[str, str]) -> None:
    _, image = built
    output = daemon.containers.run(image, ["ray", "--version"], remove=True, user="41234:41235")

    assert b"version" in output


def test_the_toolkit_replaces_the_bases_entrypoint_and_is_on_its_path(
    daemon: DockerClient, built: tuple[str, str]
) -> None:
    _, image = built
    program = "import verl_node; print(verl_node.__path__[0], open('/proc/1/comm').read().strip())"

    output = daemon.containers.run(image, ["python3", "-c", program], remove=True, user="41234:41235")

    assert output.decode().split() == ["/opt/verljob/python/verl_node", "tini"]


def test_masks_preset_by_the_base_do_not_reach_a_job(
    daemon: DockerClient, build_on_standin: Callable[..., str]
) -> None:
    program = (
        "import os; from verl_node.gpu import visible_devices as gpus; names = (*gpus.MASKS, *gpus.NOSET)\n"
        "cleaned = gpus.with_one_mask(os.environ, platform='rocm', gpus=8, visible=8, ray=(2, 44))\n"
        "print(sum(name in os.environ for name in names), sum(name in cleaned for name in names))"
    )

    output = daemon.containers.run(build_on_standin("rocm6.2"), ["python3", "-c", program], remove=True)

    assert output.split() == [b"3", b"0"]


def test_rocm6_2_sets_rocm_path_and_starts_outside_the_bases_folder(
    daemon: DockerClient, build_on_standin: Callable[..., str]
) -> None:
    program = "import os; print(os.environ['ROCM_PATH'], os.getcwd())"

    output = daemon.containers.run(build_on_standin("rocm6.2"), ["python3", "-c", program], remove=True)

    assert output.split() == [b"/opt/rocm", b"/"]


def test_the_replaced_vllm_is_built_in_the_base_for_the_catalogs_architectures(
    daemon: DockerClient, build_on_standin: Callable[..., str]
) -> None:
    version, _, summary = facts(daemon, build_on_standin("rocm6.2"), "vllm")["vllm"]

    assert version == "0.6.3+rocm621"
    assert summary == f"built by {PREFIX['rocm6.2']}/bin/python3 for gfx90a;gfx942"


def test_pip_would_replace_torch_without_the_constraint(daemon: DockerClient) -> None:
    argv = ["-m", "pip", "install", "--dry-run", "--no-index", "wants-newer-torch"]

    output = daemon.containers.run(standin.ensure("cu130"), argv, entrypoint="python3", remove=True)

    assert b"Would install torch-99.0 wants-newer-torch-1.0" in output


@pytest.mark.parametrize(
    ("offender", "messages"),
    [
        (
            "wants-newer-torch",
            ["guard: this image is not as expected", "wants-newer-torch 1.0 has requirement torch>=99"],
        ),
        ("overwrites-torch", ["guard: this image is not as expected", "another package overwrote its files"]),
    ],
)
def test_a_package_that_would_replace_torch_fails_the_build(
    build_on_standin: Callable[..., str], capfd: pytest.CaptureFixture[str], offender: str, messages: Sequence[str]
) -> None:
    # On the finished image, so that only the offender is left to install.
    build_on_standin("cu130")
    with pytest.raises(CommandFailed):
        build_on_standin("cu130", base="verljob-test-cu130:plain", **{offender: "1.0"})

    log = capfd.readouterr().err
    assert [message for message in messages if message not in log] == []


def test_an_image_adds_few_and_small_layers_to_a_base_with_all_packages(
    daemon: DockerClient, build_on_standin: Callable[..., str], tmp_path: Path
) -> None:
    below = daemon.images.get(build_on_standin("cu130"))
    variant, lock = small(CATALOG.variants["cu130"]), small_lock(CATALOG.variants["cu130"], tmp_path)
    tags, plain = ["verljob-test-cu130:over"], "verljob-test-cu130:plain"
    image = daemon.images.get(build(BuildRequest(variant, tags, plain, lock), Site.read()))

    added = len(image.attrs["RootFS"]["Layers"]) - len(below.attrs["RootFS"]["Layers"])
    last = store.read(plain)
    assert last
    verl_bytes = sum(step["size"] for step in last["steps"] if "verl.txt" in step["text"])  # the base has verl already
    assert 0 < added <= 8
    assert verl_bytes > 1e6
    assert image.attrs["Size"] - below.attrs["Size"] + verl_bytes < 60e6


def test_an_unreachable_base_is_reported_before_anything_is_built(daemon: DockerClient) -> None:
    variant = CATALOG.variants["rocm6.2"]

    with pytest.raises(BaseUnreachable, match=r"registry\.invalid/rocm:1 is not on this machine.*--base"):
        build(BuildRequest(variant, ["verljob-test:none"], "registry.invalid/rocm:1"), Site.read())

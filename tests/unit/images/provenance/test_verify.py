"""`invoke image.verify` on a registry in memory and an image of folders: whatever differs is said, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from docker.models.images import Image

from images.contents import packages, rootfs
from images.errors import NotTrusted
from images.provenance import sbom, slsa
from images.provenance import verify as provenance_verify
from images.registry import client, referrers
from images.registry.client import Repository
from images.registry.referrers import PROVENANCE, SBOM
from images.report.record import BUILD_TYPE
from tests.support.images.fake_registry import SUBJECT, FakeRegistry

FILES = {
    "opt/venv/ray-2.60.0.dist-info/METADATA": b"Name: ray\nVersion: 2.60.0\n",
    "opt/venv/verl-0.9.1.dist-info/METADATA": b"Name: verl\nVersion: 0.9.1\n",
    "opt/verljob/entrypoint.sh": b"exec",
    "opt/verljob/guard/constraints.txt": b"made by a step",
}
LAYERS = ["sha256:base", "sha256:ours"]
DIGEST = client.digest_of(SUBJECT)


def predicate() -> dict[str, Any]:
    toolkit = {"name": "toolkit/entrypoint.sh", "digest": {"sha256": hashlib.sha256(b"exec").hexdigest()}}
    base = {
        "name": "base",
        "uri": "docker-image://debian",
        "digest": {"sha256": "1"},
        "annotations": {"layers": LAYERS[:1]},
    }
    return {"buildDefinition": {"buildType": BUILD_TYPE, "resolvedDependencies": [base, toolkit]}}


@pytest.fixture
def stated(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., str]:
    """State an image of ``FILES`` in the registry, with what of it is given otherwise; then what verify says."""

    def verify(
        *,
        files: dict[str, bytes] = FILES,
        layers: list[str] = LAYERS,
        image_id: str = "sha256:" + "c" * 64,
        about: str = DIGEST,
        kinds: tuple[referrers.Kind, ...] = (SBOM, PROVENANCE),
    ) -> str:
        made = Image(attrs={"Id": image_id, "RootFS": {"Layers": layers}})
        engine = SimpleNamespace(images=SimpleNamespace(get=lambda _: made))
        monkeypatch.setattr(provenance_verify, "daemon", lambda: engine)
        monkeypatch.setattr(rootfs, "read", lambda _, wanted: {p: files[p] for p in files if wanted(p)})
        found = packages.listed({path: FILES[path] for path in FILES if packages.is_database(path)})
        contents = {
            SBOM: sbom.document("x", about, datetime(2026, 11, 21), found),
            PROVENANCE: slsa.statement(predicate(), "x", about),
        }
        with Repository(f"{server.host}/x") as repository:
            for kind in kinds:
                referrers.attach(repository, referrers.image(repository, "1"), kind, contents[kind])
        return provenance_verify.verify(f"{server.host}/x:1")

    return verify


def test_an_image_that_is_what_is_stated_of_it_passes(stated: Callable[..., str], server: FakeRegistry) -> None:
    assert stated() == (
        f"{server.host}/x@{DIGEST}: 2 packages, all stated and no other; base and toolkit as stated; not signed"
    )


def test_a_package_that_is_not_stated_and_one_that_is_not_there_are_named(stated: Callable[..., str]) -> None:
    files = {**FILES, "opt/venv/ray-2.60.0.dist-info/METADATA": b"Name: ray\nVersion: 2.60.1\n"}

    with pytest.raises(NotTrusted) as refused:
        stated(files=files)

    assert "the SBOM states ray 2.60.0 in /opt/venv that the image does not have" in str(refused.value)
    assert "the image has ray 2.60.1 in /opt/venv that the SBOM does not state" in str(refused.value)


def test_of_many_packages_a_few_are_named(stated: Callable[..., str]) -> None:
    more = {f"opt/{n}/p{n}.dist-info/METADATA": f"Name: p{n}\nVersion: 1\n".encode() for n in range(9)}

    with pytest.raises(NotTrusted, match=r"has p0 1 in /opt/0, p1 1 in /opt/1, p2 1 in /opt/2 and 6 more that"):
        stated(files={**FILES, **more})


@pytest.mark.parametrize(
    "files",
    [
        {**FILES, "opt/verljob/entrypoint.sh": b"exec something else"},
        {path: content for path, content in FILES.items() if path != "opt/verljob/entrypoint.sh"},
    ],
)
def test_a_toolkit_that_is_not_the_stated_one_is_named(stated: Callable[..., str], files: dict[str, bytes]) -> None:
    with pytest.raises(NotTrusted, match=r"not the stated toolkit: /opt/verljob/entrypoint\.sh"):
        stated(files=files)


@pytest.mark.parametrize("name", ["extra.py", "verl_node/__pycache__/cli.cpython-311.pyc"])
def test_a_file_more_in_the_toolkit_is_named(stated: Callable[..., str], name: str) -> None:
    with pytest.raises(NotTrusted, match=f"not the stated toolkit: /opt/verljob/python/{name}"):
        stated(files={**FILES, f"opt/verljob/python/{name}": b""})


def test_another_base_is_said(stated: Callable[..., str]) -> None:
    with pytest.raises(NotTrusted, match="does not stand on the stated base docker-image://debian"):
        stated(layers=["sha256:other", "sha256:ours"])


def test_statements_about_another_image_are_refused(stated: Callable[..., str]) -> None:
    with pytest.raises(NotTrusted, match=f"the SBOM is about sha256:{'0' * 64}; the provenance is about sha256:0"):
        stated(about="sha256:" + "0" * 64)


def test_an_image_here_that_the_manifest_does_not_name_is_refused(stated: Callable[..., str]) -> None:
    with pytest.raises(NotTrusted, match="which its manifest does not name"):
        stated(image_id="sha256:" + "d" * 64)


@pytest.mark.parametrize(("kinds", "lacks"), [((), "SBOM"), ((SBOM,), "provenance"), ((PROVENANCE,), "SBOM")])
def test_what_is_not_attached_is_said(stated: Callable[..., str], kinds: Any, lacks: str) -> None:
    with pytest.raises(NotTrusted, match=f"has no {lacks}; `invoke push` attaches it"):
        stated(kinds=kinds)

"""`invoke image.verify` with a registry in memory and an image of folders: each difference is reported."""

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
def verify_image(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Attach statements of ``FILES`` in the registry, then verify an image that differs by the arguments."""

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
                referrers.attach(repository, referrers.find_image(repository, "1"), kind, contents[kind])
        return provenance_verify.verify(f"{server.host}/x:1")

    return verify


def test_image_that_matches_its_statements_passes(verify_image: Callable[..., str], server: FakeRegistry) -> None:
    assert verify_image() == (
        f"{server.host}/x@{DIGEST}: 2 packages, same as in the SBOM; base and toolkit as stated; not signed"
    )


def test_unlisted_and_absent_packages_are_named(verify_image: Callable[..., str]) -> None:
    files = {**FILES, "opt/venv/ray-2.60.0.dist-info/METADATA": b"Name: ray\nVersion: 2.60.1\n"}

    with pytest.raises(NotTrusted) as refused:
        verify_image(files=files)

    assert "the SBOM lists ray 2.60.0 in /opt/venv, which the image does not have" in str(refused.value)
    assert "the image has ray 2.60.1 in /opt/venv, which the SBOM does not list" in str(refused.value)


def test_message_names_a_few_of_many_packages(verify_image: Callable[..., str]) -> None:
    more = {f"opt/{n}/p{n}.dist-info/METADATA": f"Name: p{n}\nVersion: 1\n".encode() for n in range(9)}

    with pytest.raises(NotTrusted, match=r"has p0 1 in /opt/0, p1 1 in /opt/1, p2 1 in /opt/2 and 6 more, which"):
        verify_image(files={**FILES, **more})


@pytest.mark.parametrize(
    "files",
    [
        {**FILES, "opt/verljob/entrypoint.sh": b"exec something else"},
        {path: content for path, content in FILES.items() if path != "opt/verljob/entrypoint.sh"},
    ],
)
def test_changed_or_missing_file_of_the_toolkit_is_named(
    verify_image: Callable[..., str], files: dict[str, bytes]
) -> None:
    with pytest.raises(NotTrusted, match=r"files of the toolkit differ: /opt/verljob/entrypoint\.sh"):
        verify_image(files=files)


@pytest.mark.parametrize("name", ["extra.py", "verl_node/__pycache__/cli.cpython-311.pyc"])
def test_extra_file_in_the_toolkit_is_named(verify_image: Callable[..., str], name: str) -> None:
    with pytest.raises(NotTrusted, match=f"files of the toolkit differ: /opt/verljob/python/{name}"):
        verify_image(files={**FILES, f"opt/verljob/python/{name}": b""})


def test_another_base_fails(verify_image: Callable[..., str]) -> None:
    with pytest.raises(NotTrusted, match="does not start with the layers of the stated base, docker-image://debian"):
        verify_image(layers=["sha256:other", "sha256:ours"])


def test_statements_about_another_image_are_refused(verify_image: Callable[..., str]) -> None:
    with pytest.raises(NotTrusted, match=f"the SBOM is about sha256:{'0' * 64}; the provenance is about sha256:0"):
        verify_image(about="sha256:" + "0" * 64)


def test_local_image_with_another_id_than_the_manifest_is_refused(verify_image: Callable[..., str]) -> None:
    with pytest.raises(NotTrusted, match="which its manifest does not name"):
        verify_image(image_id="sha256:" + "d" * 64)


@pytest.mark.parametrize(("kinds", "missing"), [((), "SBOM"), ((SBOM,), "provenance"), ((PROVENANCE,), "SBOM")])
def test_missing_statement_is_named(verify_image: Callable[..., str], kinds: Any, missing: str) -> None:
    with pytest.raises(NotTrusted, match=f"has no {missing}; `invoke push` attaches it"):
        verify_image(kinds=kinds)

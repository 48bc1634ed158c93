"""torch wheels: CPU builds only, and only the pinned bytes; pip is a fake executable."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import pytest

from images.builds.site import Site
from images.errors import TorchUnavailable
from images.pins import torch_wheels

CPU = ["filelock", "sympy>=1.13.3", "jinja2"]
# From the METADATA of PyPI's torch 2.11.0 for Linux.
CUDA = [*CPU, 'nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"', 'triton==3.6.0; platform_system == "Linux"']


@pytest.fixture(autouse=True)
def no_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the real pins: wheels of these tests have real names."""
    (tmp_path / "pins.txt").touch()
    monkeypatch.setattr(torch_wheels, "TORCH_PINS", tmp_path / "pins.txt")


def torch(folder: Path, requires: list[str], version: str = "2.13.0", python: str = "cp311") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"torch-{version}-{python}-{python}-manylinux_2_28_x86_64.whl"
    lines = [
        "Metadata-Version: 2.4",
        "Name: torch",
        f"Version: {version}",
        *(f"Requires-Dist: {requirement}" for requirement in requires),
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"torch-{version}.dist-info/METADATA", "\n".join(lines) + "\n")
    return path


def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: list[str], *, pytorch_answers: bool) -> Path:
    """A python that logs its calls and whose pip chooses a torch with these requirements."""
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"install": [{"metadata": {"requires_dist": choice}}]}))
    offered = torch(tmp_path / "index", CPU, "2.13.0+cpu")
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {tmp_path}/calls; echo "$PIP_INDEX_URL $PIP_CERT" > {tmp_path}/environment\n'
        f'case "$*" in *--report*) cat {report}; exit ;; esac\n'
        f'case "$*" in *{torch_wheels.PYTORCH_CPU_INDEX}*) {"true" if pytorch_answers else "exit 1"} ;; esac\n'
        'for word; do [ "$before" != --dest ] || dest=$word; before=$word; done\n'
        f'cp {offered} "$dest"\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return tmp_path / "calls"


def test_cpu_build_chosen_by_pip_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip(tmp_path, monkeypatch, CPU, pytorch_answers=False)

    found = torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path / "cache")

    assert found.name.startswith("torch-2.13.0+cpu-cp311")
    assert torch_wheels.PYTORCH_CPU_INDEX not in calls.read_text()
    assert "--python-version 3.11" in calls.read_text()


def test_pytorchs_index_is_used_if_pip_chooses_the_cuda_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip(tmp_path, monkeypatch, CUDA, pytorch_answers=True)

    torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path / "cache")

    download = calls.read_text().splitlines()[1]
    assert f"--index-url {torch_wheels.PYTORCH_CPU_INDEX}" in download


def test_password_of_an_index_reaches_pip_but_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip(tmp_path, monkeypatch, CPU, pytorch_answers=False)
    site = Site(pip_index="https://me:secret@index/simple", ca=Path("/ca.pem"))

    torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path / "cache", environment=site.pip_environment())

    assert "secret" not in calls.read_text()
    assert (tmp_path / "environment").read_text().split() == ["https://me:secret@index/simple", "/ca.pem"]


def test_cuda_build_is_never_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(tmp_path, monkeypatch, CUDA, pytorch_answers=False)

    with pytest.raises(TorchUnavailable, match="--wheelhouse DIR"):
        torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path / "cache")


def test_cached_wheel_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip(tmp_path, monkeypatch, CPU, pytorch_answers=False)
    fetched = torch(tmp_path / "cache", CPU)

    assert torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path / "cache") == fetched
    assert not calls.exists()


def test_named_wheelhouse_is_the_only_source(tmp_path: Path) -> None:
    wheel = torch(tmp_path / "house", CPU)

    assert torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path / "cache", wheelhouse=tmp_path / "house") == wheel


@pytest.mark.parametrize(
    ("requires", "version", "python", "message"),
    [
        (CUDA, "2.13.0", "cp311", "without CUDA requirements"),
        (CPU, "2.12.0", "cp311", "it has torch-2.12.0-cp311"),
        (CPU, "2.13.0", "cp312", "it has torch-2.13.0-cp312"),
    ],
)
def test_error_lists_the_wheels_of_a_wheelhouse_without_the_right_torch(
    tmp_path: Path, requires: list[str], version: str, python: str, message: str
) -> None:
    torch(tmp_path / "house", requires, version, python)

    with pytest.raises(TorchUnavailable, match=message.replace(".", r"\.")):
        torch_wheels.from_wheelhouse("2.13.0", "3.11", tmp_path / "house")


def test_another_file_with_a_pinned_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = torch(tmp_path, CPU, "2.13.0+cpu")
    pins = tmp_path / "wheels.txt"
    monkeypatch.setattr(torch_wheels, "TORCH_PINS", pins)

    pins.write_text(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n")
    assert torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path, tmp_path) == wheel

    pins.write_text(f"{64 * '0'}  {wheel.name}\n")
    with pytest.raises(TorchUnavailable, match="for a file of this name"):
        torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path, tmp_path)


def test_update_replaces_a_pin_by_the_digest_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(tmp_path, monkeypatch, CPU, pytorch_answers=False)
    url = "https://i/torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    choice = {"metadata": {}, "download_info": {"url": url, "archive_info": {"hashes": {"sha256": "new"}}}}
    (tmp_path / "report.json").write_text(json.dumps({"install": [choice]}))
    pins = tmp_path / "wheels.txt"
    pins.write_text(
        "old  torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl\nkept  torch-2.12.0-cp311-cp311-linux_x86_64.whl\n"
    )

    torch_wheels.update("2.13.0", "3.11", "x86_64", pins=pins)

    assert pins.read_text().splitlines() == [
        "kept  torch-2.12.0-cp311-cp311-linux_x86_64.whl",
        "new  torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    ]


def test_download_of_other_bytes_is_refused_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(tmp_path, monkeypatch, CPU, pytorch_answers=False)
    torch_wheels.TORCH_PINS.write_text(f"{64 * '0'}  torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl\n")

    for _ in range(2):
        with pytest.raises(TorchUnavailable, match="for a file of this name"):
            torch_wheels.torch_cpu("2.13.0", "3.11", tmp_path / "cache")

"""Base images: an unreachable one is reported with its fixes, Debian's is made by debootstrap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from images.engine import base_image
from images.engine.client import Engine
from images.errors import BaseUnreachable, ImageError

ROCM = "docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4"
# Output of docker 20.10 on a machine without a route to the registry.
OUTPUT = (
    'Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: '
    "no such host"
)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """A docker that cannot pull, and that records imports."""
    script = tmp_path / "docker"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {tmp_path}/argv\n'
        f"case $1 in pull) echo '{OUTPUT}' >&2; exit 1 ;; import) tar -t > {tmp_path}/imported ;; esac\n"
    )
    script.chmod(0o755)
    return Engine(str(script), "20.10.24", buildx=False)


def fake_debootstrap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A debootstrap that records its arguments, and keys for it."""
    script = folder / "bin/debootstrap"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$*" > {folder}/args\nmkdir -p "$5/etc" && echo 12 > "$5/etc/debian_version"\n')
    script.chmod(0o755)
    (folder / "keys.gpg").touch()
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")


def set_keyring(monkeypatch: pytest.MonkeyPatch, suite: str, keyring: Path) -> None:
    monkeypatch.setitem(base_image.SUITES, suite, replace(base_image.SUITES[suite], keyring=keyring))


def test_an_unreachable_base_is_reported_with_the_reason_and_every_fix(engine: Engine) -> None:
    with pytest.raises(BaseUnreachable) as error:
        base_image.pull(engine, ROCM)

    for word in (ROCM, "no such host", "--base REGISTRY/NAME:TAG", "mirror", "docker load -i"):
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_present_debian_is_used_without_querying_a_registry(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_image, "present", lambda reference: reference == base_image.MADE)

    assert base_image.ensure(engine=engine) == base_image.MADE
    assert not Path(engine.client).with_name("argv").exists()


@pytest.mark.parametrize("suite", ["bookworm", "trixie", "sid"])
def test_debootstrap_makes_debian_if_no_registry_answers(
    suite: str, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(base_image, "present", lambda _: False)
    fake_debootstrap(tmp_path, monkeypatch)
    set_keyring(monkeypatch, suite, tmp_path / "keys.gpg")

    made = base_image.ensure(*base_image.debian(suite), mirror="http://mirror/debian", engine=engine)
    assert made == f"verljob-base:{suite}"
    assert "./etc/debian_version" in (tmp_path / "imported").read_text().split()
    args = (tmp_path / "args").read_text()
    assert args.startswith(f"--force-check-gpg --keyring={tmp_path}/keys.gpg --variant=minbase {suite} ")
    assert args.split()[-2:] == ["http://mirror/debian", "/usr/share/debootstrap/scripts/sid"]
    pulled = Path(engine.client).with_name("argv").read_text().splitlines()[0]
    assert pulled == f"pull --quiet docker.io/library/debian:{suite}-slim"


def test_debootstrap_makes_ubuntu_with_its_keys_and_its_updates(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(base_image, "present", lambda _: False)
    fake_debootstrap(tmp_path, monkeypatch)
    set_keyring(monkeypatch, "noble", tmp_path / "keys.gpg")
    script = Path(engine.client)
    script.write_text(script.read_text().replace("tar -t >", f"tar -xO ./etc/apt/sources.list > {tmp_path}/sources; :"))
    made = tmp_path / "bin/debootstrap"
    made.write_text(made.read_text() + 'mkdir -p "$5/etc/apt"\n')

    assert (
        base_image.ensure("docker.io/library/ubuntu:24.04", "verljob-base:noble", engine=engine) == "verljob-base:noble"
    )
    args = (tmp_path / "args").read_text().split()
    assert args[1] == f"--keyring={tmp_path}/keys.gpg"
    assert args[3] == "noble"
    assert args[5:] == ["http://archive.ubuntu.com/ubuntu", "/usr/share/debootstrap/scripts/gutsy"]
    assert (tmp_path / "sources").read_text().splitlines() == [
        "deb http://archive.ubuntu.com/ubuntu noble main universe",
        "deb http://archive.ubuntu.com/ubuntu noble-updates main universe",
    ]


def test_no_base_is_made_without_debians_keys(engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(base_image, "present", lambda _: False)
    monkeypatch.setattr(base_image.shutil, "which", lambda _: "/bin/false")
    set_keyring(monkeypatch, "bookworm", tmp_path / "none.gpg")

    with pytest.raises(ImageError, match=r"none\.gpg is missing.*apt-get install debian-archive-keyring"):
        base_image.ensure(engine=engine)


def test_both_fixes_are_named_without_registry_and_debootstrap(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(base_image, "present", lambda _: False)
    monkeypatch.setattr(base_image.shutil, "which", lambda _: None)

    with pytest.raises(ImageError, match=r"--base.*apt-get install debootstrap"):
        base_image.ensure(engine=engine)

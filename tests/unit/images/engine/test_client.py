"""The choice of the docker client that builds; the fakes on PATH answer as the real clients do."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.engine import client as engine_client
from images.errors import EngineMissing


def client(folder: Path, version: str, *, buildx: bool = False, daemon: bool = True) -> Path:
    """A fake docker of a version; without a daemon `docker version` exits with 1, as in 20.10 and 28."""
    folder.mkdir(exist_ok=True)
    script = folder / "docker"
    script.write_text(
        "#!/bin/sh\n"
        'case "$1 $2" in\n'
        f'    "version --format") {f"echo {version}" if daemon else "echo no daemon >&2; exit 1"} ;;\n'
        f'    "--version ") echo "Docker version {version}, build 0123456" ;;\n'
        f'    "buildx version") {"echo github.com/docker/buildx v0.17.1" if buildx else "exit 1"} ;;\n'
        "    *) exit 64 ;;\n"
        "esac\n"
    )
    script.chmod(0o755)
    return script


def chosen(*folders: Path) -> engine_client.Engine:
    return engine_client.choose({"PATH": ":".join(map(str, folders))})


def test_a_client_without_buildkit_does_not_shadow_one_with_it(tmp_path: Path) -> None:
    client(tmp_path / "a", "28.2.2")
    able = client(tmp_path / "b", "20.10.24+dfsg1")

    assert chosen(tmp_path / "a", tmp_path / "b").client == str(able)


def test_the_first_client_with_buildx_is_chosen(tmp_path: Path) -> None:
    first = client(tmp_path / "a", "27.3.1", buildx=True)
    client(tmp_path / "b", "20.10.24")

    engine_ = chosen(tmp_path / "a", tmp_path / "b")

    assert engine_.client == str(first)
    assert engine_.build_argv(["."])[1:] == ["buildx", "build", "--load", "."]


def test_an_old_client_uses_buildkit_through_its_variable(tmp_path: Path) -> None:
    client(tmp_path / "a", "20.10.24")

    engine_ = chosen(tmp_path / "a")

    assert engine_.build_argv(["."])[1:] == ["build", "."]
    assert engine_.environment == {"DOCKER_BUILDKIT": "1"}
    assert "20.10.24" in str(engine_)
    assert "DOCKER_BUILDKIT=1" in str(engine_)


def test_a_client_is_chosen_without_a_daemon(tmp_path: Path) -> None:
    client(tmp_path / "a", "20.10.24", daemon=False)

    assert chosen(tmp_path / "a").version == "20.10.24"


def test_verljob_docker_skips_the_search(tmp_path: Path) -> None:
    client(tmp_path / "a", "27.3.1", buildx=True)
    named = client(tmp_path / "b", "20.10.24")

    found = engine_client.choose({"PATH": str(tmp_path / "a"), "VERLJOB_DOCKER": str(named)})

    assert found.client == str(named)


def test_a_link_to_a_client_is_not_probed_twice(tmp_path: Path) -> None:
    script = client(tmp_path / "a", "28.2.2")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/docker").symlink_to(script)

    with pytest.raises(EngineMissing) as missing:
        chosen(tmp_path / "a", tmp_path / "b")
    assert str(missing.value).count("28.2.2") == 1


def test_every_rejected_client_is_named_with_its_reason(tmp_path: Path) -> None:
    client(tmp_path / "a", "28.2.2")

    with pytest.raises(EngineMissing, match=r"a/docker 28\.2\.2 \(without the buildx plugin\).*VERLJOB_DOCKER"):
        chosen(tmp_path / "a")
    with pytest.raises(EngineMissing, match="no docker on PATH"):
        chosen(tmp_path / "empty")

"""Pushing: the registry's digest comes back, hiccups are tried again, a refused login is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from images import push
from images.engine import Engine
from images.errors import PushFailed

DIGEST = "sha256:" + "ab" * 32
# What docker 20.10 prints at the end of a push.
SAID = f"latest: digest: {DIGEST} size: 1994"
DENIED = "unauthorized: authentication required"
REFUSED = "Get http://r:5000/v2/: dial tcp 127.0.0.1:5000: connect: connection refused"


def docker(tmp_path: Path, answers: list[tuple[int, str]]) -> Engine:
    """A docker that answers its calls one after the other."""
    for number, (code, text) in enumerate(answers):
        (tmp_path / f"{number}").write_text(text + "\n")
        (tmp_path / f"{number}.code").write_text(str(code))
    script = tmp_path / "docker"
    script.write_text(
        "#!/bin/sh\n"
        f"cd {tmp_path}; n=$(cat calls 2>/dev/null || echo 0); echo $((n + 1)) > calls\n"
        'echo "$*" >> argv; [ "$(cat $n.code)" = 0 ] && cat $n || { cat $n >&2; exit 1; }\n'
    )
    script.chmod(0o755)
    return Engine(str(script), "20.10.24", buildx=False)


def calls(tmp_path: Path) -> int:
    return int((tmp_path / "calls").read_text())


def test_a_push_returns_the_digest_by_which_to_pull(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(0, SAID)])

    assert push.push_reference(engine, "r:5000/verl.cpu:latest") == DIGEST
    assert (tmp_path / "argv").read_text().split() == ["push", "r:5000/verl.cpu:latest"]


def test_a_registry_that_hiccups_is_asked_again(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(1, REFUSED), (1, REFUSED), (0, SAID)])

    assert push.push_reference(engine, "r:5000/verl.cpu:latest", pause_s=0.001) == DIGEST
    assert calls(tmp_path) == 3


def test_a_registry_that_stays_away_ends_with_what_docker_said(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(1, REFUSED)] * push.ATTEMPTS)

    with pytest.raises(PushFailed, match=r"(?s)is the registry there.*connection refused"):
        push.push_reference(engine, "r:5000/verl.cpu:latest", pause_s=0.001)
    assert calls(tmp_path) == push.ATTEMPTS


def test_a_refused_login_is_said_and_not_tried_again(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(1, DENIED)])

    with pytest.raises(PushFailed, match="docker login` first"):
        push.push_reference(engine, "r:5000/verl.cpu:latest")
    assert calls(tmp_path) == 1


def test_a_push_without_a_digest_is_no_push(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(0, "The push refers to repository [r:5000/verl.cpu]")])

    with pytest.raises(PushFailed, match="named no digest"):
        push.push_reference(engine, "r:5000/verl.cpu:latest")

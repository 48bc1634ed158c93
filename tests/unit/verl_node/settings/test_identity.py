from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from verl_node.errors import BadSettings, CheckFailed, NodeError
from verl_node.settings.identity import (
    Identity,
    checkout_commit,
    checkout_version,
    require_equal,
    require_own_addresses,
)

HEAD = Identity(0, "n1", 8, 28, "sha256:1", "3.12.3", "2.60.0", "0.9.1", "abc", "10.0.0.1")
COMMIT = "1dda039b9f1d9f8c6a6f0a6a4f3d9d1d0c1b2a3f"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"gpus": 4}, BadSettings, "n2 has 4 GPUs for the job, n1 has 8"),
        ({"image_digest": "sha256:2"}, CheckFailed, "n2 runs image sha256:2"),
        ({"ray": "2.59.0"}, CheckFailed, "n2 runs Ray 2.59.0"),
        ({"python": "3.12.4"}, CheckFailed, "n2 runs Python 3.12.4"),
        ({"verl": ""}, CheckFailed, "n2 runs verl none"),
        ({"verl_commit": "def"}, CheckFailed, "n2 runs verl checkout def, n1 runs abc"),
    ],
)
def test_a_node_that_differs_from_the_head_is_named(
    change: dict[str, object], error: type[NodeError], words: str
) -> None:
    other = replace(HEAD, node_id=1, host="n2", **change)  # type: ignore[arg-type]

    with pytest.raises(error, match=words) as caught:
        require_equal([HEAD, other])

    assert caught.value.host == "n2"


def test_nodes_may_differ_in_cpus_but_not_share_an_address() -> None:
    other = replace(HEAD, node_id=1, host="n2", cpus=4)
    require_equal([HEAD, other])

    with pytest.raises(CheckFailed, match=r"n2 and n1 both have the address 10\.0\.0\.1"):
        require_own_addresses([HEAD, other])


@pytest.mark.parametrize("layout", ["detached", "loose", "packed", "worktree"])
def test_the_commit_of_a_checkout_is_read_without_git(tmp_path: Path, layout: str) -> None:
    git = tmp_path / "checkout" / ".git"
    common = tmp_path / "main.git" if layout == "worktree" else git
    folder = tmp_path / "main.git" / "worktrees" / "w" if layout == "worktree" else git
    folder.mkdir(parents=True)
    if layout == "worktree":
        git.parent.mkdir()
        git.write_text(f"gitdir: {folder}\n")
        (folder / "commondir").write_text("../..\n")
    (folder / "HEAD").write_text(f"{COMMIT}\n" if layout == "detached" else "ref: refs/heads/main\n")
    if layout == "packed":
        (common / "packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    elif layout != "detached":
        (common / "refs" / "heads").mkdir(parents=True)
        (common / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")

    assert checkout_commit(git.parent) == COMMIT


def test_a_checkout_without_git_has_no_commit_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    assert checkout_commit(tmp_path) == ""

    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/gone\n")
    with pytest.raises(BadSettings, match="refs/heads/gone is neither"):
        checkout_commit(tmp_path)
    with pytest.raises(BadSettings, match="is not a verl checkout"):
        checkout_version(tmp_path)

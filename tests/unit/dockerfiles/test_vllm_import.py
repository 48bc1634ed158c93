"""vLLM 0.6.3 is imported without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import vllm_import


def source(folder: Path, line: str) -> Path:
    """Write the module that has the line."""
    path = folder / vllm_import.FILE
    path.parent.mkdir(parents=True)
    path.write_text(f"import torch\n{line}\n")
    return path


def test_the_tensor_stays_on_the_cpu(tmp_path: Path) -> None:
    path = source(tmp_path, "IDENTITY = torch.ones(1).cuda() if is_hip() else None")

    vllm_import.main([str(tmp_path)])

    assert path.read_text().splitlines()[1] == "IDENTITY = torch.ones(1) if is_hip() else None"


def test_an_installed_vllm_is_found_and_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = source(tmp_path, "IDENTITY = torch.ones(1).cuda()")
    (tmp_path / "vllm" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    vllm_import.main([])

    assert "cuda" not in path.read_text()
    assert list(path.parent.glob("__pycache__/*.pyc"))


@pytest.mark.parametrize("line", ["IDENTITY = torch.ones(1)", "a = torch.ones(1).cuda(), torch.ones(1).cuda()"])
def test_another_vllm_is_refused(line: str, tmp_path: Path) -> None:
    source(tmp_path, line)

    with pytest.raises(SystemExit, match=r"is not of vLLM 0\.6\.3"):
        vllm_import.main([str(tmp_path)])

"""bench/images/real_base.py makes only bases that its Ubuntu can be."""

from __future__ import annotations

import sys

import pytest

from bench.images import real_base


@pytest.mark.parametrize("variant", ["cpu", "rocm6.2", "cu12-vllm0.8", "cu130-wheels"])
def test_a_variant_without_a_cuda_base_of_this_python_is_refused(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["real_base.py", "cu130", variant])
    monkeypatch.setattr(real_base, "measure", lambda *_: pytest.fail("a base was made"))

    with pytest.raises(SystemExit, match=f"{variant} has no CUDA base with Python 3.12"):
        real_base.main()

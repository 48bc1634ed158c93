"""Twenty packages that require another torch than the base's, tried on a finished ROCm image: none can install it.

Name, version and requirement are from the packages' METADATA on PyPI, read on 2026-11-22; the wheels are stubs with no
other requirement, beside stubs of the versions of torch that they would install.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import stub_wheel
from docker import DockerClient

OFFENDERS = {
    "allennlp": ("2.10.1", "torch<1.13.0,>=1.10.0"),
    "axolotl": ("0.21.0", "torch<2.15.0,>=2.13.0"),
    "chatterbox-tts": ("0.1.7", "torch==2.6.0"),
    "kornia": ("0.9.0", "torch>=2.5.1"),
    "llmcompressor": ("0.14.0.1", "torch<=2.14.0,>=2.10.0"),
    "marker-pdf": ("2.0.0", "torch<3,>=2.7.0"),
    "megatron-bridge": ("0.6.2", "torch>=2.6.0"),
    "megatron-core": ("0.19.2", "torch>=2.6.0"),
    "monai": ("1.6.1", "torch>=2.8.0"),
    "nemo-toolkit": ("3.0.0", "torch>=2.6.0"),
    "optimum-quanto": ("0.2.7", "torch>=2.6.0"),
    "pyannote-audio": ("4.0.7", "torch>=2.8.0"),
    "sglang": ("0.5.12", "torch==2.11.0"),
    "speechbrain": ("1.1.2", "torch>=2.7.1"),
    "torch-tensorrt": ("2.14.0", "torch<2.15.0,>=2.14.0"),
    "torchaudio": ("2.9.0", "torch==2.9.0"),
    "torchvision": ("0.29.2", "torch>=2.14.0"),
    "vllm": ("0.33.0", "torch==2.14.0"),
    "whisperx": ("3.8.6", "torch~=2.8.0"),
    "xformers": ("0.0.35", "torch>=2.10"),
}
TORCHES = ["1.12.1", "2.6.0", "2.8.0", "2.9.0", "2.11.0", "2.14.0"]
TRIAL = """
import contextlib, io, json, os, sys
from pip._internal.cli.main import main
outputs = {}
for constraint in (os.environ["PIP_CONSTRAINT"], ""):
    os.environ["PIP_CONSTRAINT"] = constraint
    for pin in sys.argv[1:]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main(["install", "--dry-run", "--no-index", "--find-links", "/offenders", pin])
        outputs.setdefault(pin, []).append(output.getvalue())
json.dump(outputs, sys.stdout)
"""


@pytest.fixture(scope="module")
def pip_outputs(
    daemon: DockerClient, build_on_standin: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """The output of pip for each package, with the image's constraint and without it."""
    folder = tmp_path_factory.mktemp("offenders")
    folder.chmod(0o755)
    for name, (version, requirement) in OFFENDERS.items():
        stub_wheel.write(folder, name, version, requires=[requirement])
    for version in TORCHES:
        stub_wheel.write(folder, "torch", version)
    for path in Path(folder).iterdir():
        path.chmod(0o644)
    pins = [f"{name}=={version}" for name, (version, _) in OFFENDERS.items()]
    volumes = {str(folder): {"bind": "/offenders", "mode": "ro"}}
    image = build_on_standin("rocm6.2")
    container = daemon.containers.run(image, ["python3", "-c", TRIAL, *pins], volumes=volumes, detach=True, user="0")
    try:
        container.wait()
        output = container.logs(stdout=True, stderr=False)  # the output of `run` is sometimes cut off at 16 KB
    finally:
        container.remove(force=True)
    outputs: dict[str, list[str]] = json.loads(output)
    return outputs


def test_there_are_twenty_packages() -> None:
    assert len(OFFENDERS) == 20


@pytest.mark.parametrize("name", OFFENDERS)
def test_another_torch_is_installed_only_without_the_constraint(pip_outputs: dict[str, list[str]], name: str) -> None:
    version, _ = OFFENDERS[name]
    held, free = pip_outputs[f"{name}=={version}"]

    assert "Would install" not in held
    assert "ResolutionImpossible" in held or "conflict" in held
    assert f" {name}-{version}" in free.replace("_", "-")
    assert " torch-" in free.partition("Would install")[2]

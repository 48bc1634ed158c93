"""Guard of a build: it protects packages of the base, and detects changes of them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import training_import

from images.context.render import TEMPLATES
from images.host.paths import STEPS

SITE = "/opt/base/lib/site-packages"
BASE = {"torch": "2.5.0+rocm6.2", "numpy": "1.26.4", "pip": "24.0"}
HASH = "--hash=sha256:" + 64 * "0"
LOCK = ["# python: 3.9", *(f"{pin} {HASH}" for pin in ("numpy==2.0.2", "ray==2.44.1", "verl==0.4.1", "aiohttp==3.9.0"))]


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, in the environment that `have` sets."""
    spec = importlib.util.spec_from_file_location("guard", TEMPLATES / "guard.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(training_import, "STUBBED", tmp_path / "cannot-import")
    monkeypatch.setattr(training_import, "DEVICES", (str(tmp_path / "kfd"),))
    return module


@pytest.fixture
def have(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the installed packages and the complaints of `pip check`."""

    def set_environment(
        packages: dict[str, str], conflicts: list[str] | None = None, location: str = SITE, files: str = "hash"
    ) -> None:
        found = {name: {"version": version, "location": location} for name, version in packages.items()}
        monkeypatch.setattr(guard, "installed", lambda: found)
        monkeypatch.setattr(guard, "hash_files", lambda _: files)
        monkeypatch.setattr(guard, "conflicts", lambda: conflicts or [])

    return set_environment


@pytest.fixture
def recorded(guard: ModuleType, have: Callable[..., None], tmp_path: Path) -> Path:
    (tmp_path / "lock.txt").write_text("\n".join(LOCK))
    have(BASE, ["oldpkg 1.0 requires gone, which is not installed."])
    guard.record(["torch", "aiter"], tmp_path / "lock.txt", ["ray==2.44.1", "verl==0.4.1"], ["torch==2.5.0"])
    return tmp_path


@pytest.fixture
def pip(guard: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The requirements of each call of pip."""
    calls: list[list[str]] = []

    def install(arguments: list[str]) -> None:
        wheels_only = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
        assert arguments[:6] == ["install", "--no-compile", *wheels_only]
        assert arguments[-2:] == ["-r", str(tmp_path / "requirements.txt")]
        calls.append((tmp_path / "requirements.txt").read_text().splitlines())

    monkeypatch.setattr(guard, "pip", install)
    return calls


def test_protected_packages_are_pinned_at_the_bases_version_in_the_finished_image(recorded: Path) -> None:
    assert (recorded / "protected.txt").read_text().splitlines() == ["torch==2.5.0+rocm6.2"]


def test_what_the_base_has_stays_and_of_the_rest_the_lock_decides_version_and_hash(recorded: Path) -> None:
    left = (recorded / "requirements.txt").read_text().splitlines()

    assert left == [f"{pin} {HASH}" for pin in ("ray==2.44.1", "verl==0.4.1", "aiohttp==3.9.0")]


def test_requested_version_replaces_another_one_of_the_base(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "lock.txt").write_text("\n".join(LOCK))
    have({**BASE, "ray": "2.40.0", "verl": "0.4.1"})

    guard.record([], tmp_path / "lock.txt", ["ray==2.44.1", "verl==0.4.1"], [])

    assert (tmp_path / "requirements.txt").read_text().split()[::2] == ["ray==2.44.1", "aiohttp==3.9.0"]


def test_requested_package_without_a_lock_line_fails(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "lock.txt").write_text("\n".join(LOCK))
    have(BASE)

    with pytest.raises(SystemExit, match=r"trl is required but not in the lock: `invoke image.lock`"):
        guard.record([], tmp_path / "lock.txt", ["trl==0.9.6"], [])


def test_package_of_the_base_changes_if_an_installed_one_needs_it(
    guard: ModuleType, have: Callable[..., None], recorded: Path, pip: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints = ["verl 0.4.1 has requirement numpy>=2.0.0, but you have numpy 1.26.4."]
    old = ["oldpkg 1.0 requires gone, which is not installed."]
    monkeypatch.setattr(guard, "conflicts", lambda: old if len(pip) > 1 else old + complaints)

    guard.install(recorded / "lock.txt")

    assert [[line.split()[0] for line in call] for call in pip] == [
        ["ray==2.44.1", "verl==0.4.1", "aiohttp==3.9.0"],
        ["numpy==2.0.2"],
    ]


def test_package_of_an_earlier_step_changes_the_base_at_once(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path, pip: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock.txt").write_text("\n".join(LOCK))
    have(BASE, ["torch 2.13.0+cpu has requirement numpy>=2, but you have numpy 1.26.4."])
    guard.record(["torch"], tmp_path / "lock.txt", [], [], ["torch"])
    monkeypatch.setattr(guard, "conflicts", list)

    guard.install(tmp_path / "lock.txt")

    assert [[line.split()[0] for line in call] for call in pip] == [
        ["numpy==2.0.2", "ray==2.44.1", "verl==0.4.1", "aiohttp==3.9.0"]
    ]


def test_package_of_an_earlier_step_changes_no_protected_package(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "lock.txt").write_text("\n".join(LOCK))
    have(BASE, ["torch 2.13.0+cpu has requirement numpy>=2, but you have numpy 1.26.4."])

    guard.record(["torch", "numpy"], tmp_path / "lock.txt", [], [], ["torch"])

    assert "numpy" not in (tmp_path / "requirements.txt").read_text()


def test_all_installed_packages_are_listed_for_the_compilation(
    guard: ModuleType, have: Callable[..., None], recorded: Path, pip: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints = ["verl 0.4.1 has requirement numpy>=2.0.0, but you have numpy 1.26.4."]
    monkeypatch.setattr(guard, "conflicts", lambda: [] if len(pip) > 1 else complaints)

    guard.install(recorded / "lock.txt")

    names = [line.split("==")[0] for line in (recorded / "requirements.txt").read_text().splitlines()]
    assert names == ["ray", "verl", "aiohttp", "numpy"]


def test_pip_check_runs_again_only_after_a_change(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def run(*_: object, **__: object) -> SimpleNamespace:
        calls.append("")
        return SimpleNamespace(returncode=1, stdout="a 1.0 requires b, which is not installed.\nsomething else\n")

    packages = {"a": {"version": "1.0", "location": SITE}}
    monkeypatch.setattr(guard, "installed", lambda: packages)
    monkeypatch.setattr(guard.subprocess, "run", run)

    assert guard.conflicts() == guard.conflicts() == ["a 1.0 requires b, which is not installed."]
    assert len(calls) == 1

    packages["b"] = {"version": "2.0", "location": SITE}
    guard.conflicts()
    assert len(calls) == 2


def test_pip_check_that_fails_itself_ends_the_build(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(returncode=2, stdout="", stderr="ERROR: Exception:\nInvalidVersion: '1.0-dirty'\n")
    monkeypatch.setattr(guard, "installed", dict)
    monkeypatch.setattr(guard.subprocess, "run", lambda *_, **__: failed)

    with pytest.raises(SystemExit, match=r"pip check exited with 2: (?s:.*)InvalidVersion"):
        guard.conflicts()


def test_protected_package_never_changes_and_nothing_is_installed_twice(
    guard: ModuleType, have: Callable[..., None], recorded: Path, pip: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = recorded / "lock.txt"
    lock.write_text(lock.read_text() + f"\ntorch==99.0 {HASH}")
    wrong = [
        "verl 0.4.1 has requirement torch>=99, but you have torch 2.5.0.",
        "ray 2.44.1 requires aiohttp, which is not installed.",
    ]
    monkeypatch.setattr(guard, "conflicts", lambda: wrong)

    guard.install(lock)

    assert len(pip) == 1


def test_base_with_other_versions_than_the_catalog_gets_a_warning(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lock.txt").write_text("")
    have({"torch": "2.6.0"})

    guard.record(["torch"], tmp_path / "lock.txt", [], ["torch==2.5.0", "vllm==0.6.4"])

    output = capsys.readouterr().out
    assert "this base has torch 2.5.0, it has 2.6.0" in output
    assert "this base has vllm 0.6.4, it has none" in output


def test_unchanged_base_with_the_pins_passes(guard: ModuleType, have: Callable[..., None], recorded: Path) -> None:
    have({**BASE, "ray": "2.44.1"}, ["oldpkg 1.0 requires gone, which is not installed."])

    guard.verify(["ray==2.44.1"], ["json"], [])


@pytest.mark.parametrize("changed", [{"torch": "2.5.0"}, {"torch": "2.11.0+cu130"}])
def test_another_version_of_a_protected_package_fails(
    guard: ModuleType, have: Callable[..., None], recorded: Path, changed: dict[str, str]
) -> None:
    have({**BASE, **changed})

    with pytest.raises(SystemExit, match=r"torch was 2\.5\.0\+rocm6\.2 in /opt/base"):
        guard.verify([], [], [])


def test_the_same_version_in_another_place_ends_the_build(
    guard: ModuleType, have: Callable[..., None], recorded: Path
) -> None:
    have(BASE, location="/usr/local/lib")

    with pytest.raises(SystemExit, match=r"torch was .* now it is .*/usr/local/lib"):
        guard.verify([], [], [])


def test_overwritten_files_of_a_protected_package_fail(
    guard: ModuleType, have: Callable[..., None], recorded: Path
) -> None:
    have(BASE, files="another hash")

    with pytest.raises(SystemExit, match=r"torch 2\.5\.0\+rocm6\.2: another package overwrote its files"):
        guard.verify([], [], [])


def test_removed_protected_package_fails(guard: ModuleType, have: Callable[..., None], recorded: Path) -> None:
    have({"numpy": "1.26.4"})

    with pytest.raises(SystemExit, match="now it is None"):
        guard.verify([], [], [])


def test_installed_version_that_differs_from_its_pin_fails(
    guard: ModuleType, have: Callable[..., None], recorded: Path
) -> None:
    have({**BASE, "ray": "2.45.0"})

    with pytest.raises(
        SystemExit, match=r"(?s)ray should be 2\.44\.1, it is 2\.45\.0.*vllm should be 0\.6\.3, it is missing"
    ):
        guard.verify(["ray==2.44.1", "vllm==0.6.3"], [], [])


def test_pin_without_a_local_version_matches_any_build(
    guard: ModuleType, have: Callable[..., None], recorded: Path
) -> None:
    have({**BASE, "vllm": "0.6.3+rocm621"})

    guard.verify(["vllm==0.6.3"], [], [])


def test_new_conflict_fails_unless_tolerated(guard: ModuleType, have: Callable[..., None], recorded: Path) -> None:
    have(BASE, ["tensordict 0.6.2 has requirement torch>=2.5.0, but you have torch 2.5.0a0+git1234567."])

    guard.verify([], [], ["tensordict:torch"])
    with pytest.raises(SystemExit, match="pip check: tensordict"):
        guard.verify([], [], ["tensordict:numpy"])


BRIDGE = "megatron-bridge 0.5.0 has requirement transformers<5.9.0,>=5.8.1, but you have transformers {}."


def test_conflict_of_the_base_is_a_warning_also_with_another_version_of_the_required_package(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lock.txt").write_text("")
    have({**BASE, "megatron-bridge": "0.5.0", "transformers": "5.3.0"}, [BRIDGE.format("5.3.0")])
    guard.record([], tmp_path / "lock.txt", [], [])
    have({**BASE, "megatron-bridge": "0.5.0", "transformers": "5.9.0"}, [BRIDGE.format("5.9.0")])

    guard.verify([], [], [])

    assert f"WARNING: the base has this conflict without the build: {BRIDGE.format('5.9.0')}" in capsys.readouterr().out


def test_the_same_conflict_is_new_if_the_base_did_not_have_it(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "lock.txt").write_text("")
    have({**BASE, "megatron-bridge": "0.5.0", "transformers": "5.8.1"})
    guard.record([], tmp_path / "lock.txt", [], [])
    have({**BASE, "megatron-bridge": "0.5.0", "transformers": "5.9.0"}, [BRIDGE.format("5.9.0")])

    with pytest.raises(SystemExit) as failure:
        guard.verify([], [], [])

    assert str(failure.value).splitlines()[1].strip() == (
        f"pip check: {BRIDGE.format('5.9.0')} The cause is transformers 5.9.0, which this build installed in place of "
        "5.8.1. Mend: add a version of transformers that meets `transformers<5.9.0,>=5.8.1` to `installs`, then "
        "`invoke image.lock`. If a source says that the two work together: "
        'tolerates = ["megatron-bridge:transformers"].'
    )


def test_conflict_of_the_base_does_not_change_its_packages(
    guard: ModuleType, have: Callable[..., None], tmp_path: Path, pip: list[list[str]]
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"ray==2.58.1 {HASH}\ntransformers==5.8.3 {HASH}\n")
    have({"megatron-bridge": "0.5.0", "transformers": "5.3.0"}, [BRIDGE.format("5.3.0")])
    guard.record([], lock, ["ray==2.58.1"], [])
    have({"megatron-bridge": "0.5.0", "transformers": "5.9.0"}, [BRIDGE.format("5.9.0")])

    guard.install(lock)

    assert [[line.split()[0] for line in call] for call in pip] == [["ray==2.58.1"]]


def test_failing_import_fails_with_its_reason(guard: ModuleType, have: Callable[..., None], recorded: Path) -> None:
    have(BASE)

    with pytest.raises(SystemExit, match="import no_such_module: ModuleNotFoundError"):
        guard.verify([], ["json", "no_such_module"], [])


def test_import_that_a_stand_in_does_not_have_is_reported_as_untried(
    guard: ModuleType, have: Callable[..., None], recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    have(BASE)
    (recorded / "cannot-import").write_text("no_such_module\n")

    guard.verify([], ["no_such_module"], [])

    assert "NOT TRIED: import no_such_module" in capsys.readouterr().out


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write modules by name, and forget them after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            path = tmp_path.joinpath(*name.split("__"))
            path.parent.mkdir(parents=True, exist_ok=True)
            for parent in path.relative_to(tmp_path).parents:
                (tmp_path / parent / "__init__.py").touch()
            path.with_suffix(".py").write_text(source)
            for loaded in [each for each in sys.modules if each.partition(".")[0] == name.split("__")[0]]:
                monkeypatch.delitem(sys.modules, loaded)
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    "source", ["raise RuntimeError('No HIP GPUs are available')", "raise ImportError('libcuda.so.1: cannot open it')"]
)
def test_training_import_that_may_need_a_gpu_is_reported_as_not_proved(
    guard: ModuleType, recorded: Path, modules: Callable[..., None], capsys: pytest.CaptureFixture[str], source: str
) -> None:
    modules(fake_worker=source)

    guard.verify([], [], [], ["fake_worker"])

    assert "NOT PROVED: import fake_worker: " in capsys.readouterr().out
    (recorded / "kfd").touch()
    with pytest.raises(SystemExit, match="import fake_worker: "):
        guard.verify([], [], [], ["fake_worker"])


@pytest.mark.parametrize(
    "source", ["import gone", "from json import gone", "raise AttributeError('verl expects another vLLM')"]
)
def test_training_import_that_fails_on_every_machine_fails(
    guard: ModuleType, recorded: Path, modules: Callable[..., None], source: str
) -> None:
    modules(fake_worker=source)

    with pytest.raises(SystemExit, match="import fake_worker: "):
        guard.verify([], [], [], ["fake_worker"])


ROLLOUT = "verl__workers__rollout__vllm_rollout"
INTERFACE = """
import enum
class PlatformEnum(enum.Enum):
    CUDA = 1
    ROCM = 2
class Platform:
    _enum = None
    def is_sleep_mode_available(self):
        return self._enum in (PlatformEnum.CUDA, {})
"""


@pytest.mark.parametrize(("also", "answer"), [("PlatformEnum.ROCM", True), ("None", False)])
def test_sleep_mode_of_rocm_is_reported_without_a_gpu(
    guard: ModuleType, modules: Callable[..., None], also: str, answer: bool
) -> None:
    interface, needs_gpu = INTERFACE.format(also), "raise RuntimeError('no GPU')"
    modules(
        **{"vllm__platforms__interface": interface, "vllm__platforms__rocm": needs_gpu, ROLLOUT: "vllm_mode = 'spmd'"}
    )

    assert list(training_import.rocm_facts()) == [
        f"vLLM on ROCm: current_platform.is_sleep_mode_available() is {answer}",
        "verl's vllm_mode: spmd",
    ]


def test_vllm_without_a_sleep_mode_says_so(guard: ModuleType, modules: Callable[..., None]) -> None:
    modules(**{"vllm__platforms__interface": INTERFACE.format("").replace("is_sleep_mode_available", "other")})

    assert "this version has no sleep mode" in next(training_import.rocm_facts())


def test_another_vllm_mode_fails(
    guard: ModuleType, have: Callable[..., None], recorded: Path, modules: Callable[..., None]
) -> None:
    have(BASE)
    modules(**{ROLLOUT: "vllm_mode = 'spmd'"})

    guard.verify([], [], [], [], "spmd")
    with pytest.raises(SystemExit, match="vllm_mode is spmd, not customized: check ROCM_PATH and vLLM's version"):
        guard.verify([], [], [], [], "customized")


def test_stand_in_is_asked_for_neither(
    guard: ModuleType, have: Callable[..., None], recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    have(BASE)
    (recorded / "cannot-import").write_text("verl\n")

    guard.verify([], [], [], ["verl.workers.fsdp_workers"], "customized")

    assert "NOT TRIED: import verl.workers.fsdp_workers" in capsys.readouterr().out
    assert "NOT TRIED: vLLM's sleep mode" in next(training_import.rocm_facts())


@pytest.mark.parametrize("step", [name for name in STEPS if name.endswith(".py")])
def test_a_step_of_a_build_runs_on_python_3_8(step: str) -> None:
    tree = ast.parse((TEMPLATES / step).read_text(encoding="utf-8"), feature_version=(3, 8))

    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [ast.unparse(each) for each in called if isinstance(each, ast.Subscript)] == []  # list[str]() is of 3.9
    assert "from __future__ import annotations" in ast.unparse(tree)

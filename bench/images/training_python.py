"""verl's training path under the Python of rocm6.2: compiled, imported, its annotations evaluated, its workers run.

    python -m bench.images.training_python [RELEASE]...

Makes an environment for each release of verl (0.4.0 and 0.4.1) with Python 3.9, torch 2.5, Ray 2.44.1, transformers
4.46.3 and vLLM 0.6.3, and runs this file in it. It has no GPU and no ROCm: torch and vLLM are PyPI's CUDA builds, the
kernels of vLLM are not loaded, and flash-attn is a package of names alone. Downloads 3 GB; needs uv and a Python 3.9.
"""

from __future__ import annotations
import __future__

import ast
import compileall
import contextlib
import importlib
import inspect
import io
import os
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

ENVIRONMENTS = Path(__file__).parents[2] / ".build" / "training-python3.9"
RELEASES = ("0.4.0", "0.4.1")
VLLM = "0.6.3"
PACKAGES = [
    "torch==2.5.1",
    "ray[default]==2.44.1",
    "transformers==4.46.3",
    "tensordict==0.6.2",
    "numpy<2",
    "cachetools==5.5.2",
    "setuptools<81",
]
FLASH_ATTN = "index_first_axis = pad_input = rearrange = unpad_input = None\n"
# What verl.trainer.main_ppo imports for FSDP with vLLM 0.6.3, on the driver and in the workers.
ENTRIES = [
    "verl.trainer.main_ppo",
    "verl.trainer.ppo.ray_trainer",
    "verl.trainer.ppo.reward",
    "verl.single_controller.ray",
    "verl.workers.fsdp_workers",
    "verl.workers.actor.dp_actor",
    "verl.workers.critic.dp_critic",
    "verl.workers.rollout.vllm_rollout",
    "verl.workers.sharding_manager.fsdp_vllm",
    "verl.workers.sharding_manager.fsdp_ulysses",
    "verl.workers.reward_manager",
    "verl.third_party.vllm.vllm_v_0_6_3.llm",
    "verl.third_party.vllm.vllm_v_0_6_3.worker",
    "verl.third_party.vllm.vllm_v_0_6_3.spmd_gpu_executor",
    "verl.utils.checkpoint.fsdp_checkpoint_manager",
    "verl.utils.dataset.rl_dataset",
    "verl.utils.reward_score.gsm8k",
    "verl.utils.tracking",
]


def main() -> None:
    """Make each release's environment and run `examine` in it."""
    for release in sys.argv[1:] or RELEASES:
        python = environment(release)
        variables = {**os.environ, "ROCM_PATH": "/opt/rocm", "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "ERROR"}
        argv = [str(python), __file__, "examine"]
        done = subprocess.run(argv, env=variables, cwd=ENVIRONMENTS, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"exited with {done.returncode}: {done.stderr[-800:]}")


def environment(release: str) -> Path:
    """Return the Python of a release's environment; make it if it is missing."""
    from tests.support.node import oldest_python  # not in the environment itself

    folder = ENVIRONMENTS / release
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    uv = [sys.executable, "-m", "uv"]
    install = [*uv, "pip", "install", "--quiet", "--native-tls", "--python", str(python)]
    base = oldest_python.interpreter() or sys.exit("this machine has no Python 3.9")
    subprocess.run([base, "-m", "venv", "--without-pip", "--clear", str(folder)], check=True)
    subprocess.run([*install, "--no-deps", f"vllm=={VLLM}"], check=True)
    site = folder / "lib" / "python3.9" / "site-packages"
    (site / "flash_attn").mkdir()
    (site / "flash_attn" / "__init__.py").touch()
    (site / "flash_attn" / "bert_padding.py").write_text(FLASH_ATTN)
    lines = next(site.glob("vllm-*.dist-info/METADATA")).read_text().splitlines()
    required = [
        line.split(": ", 1)[1] for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    # Its torch is an older one; the rest of these have CUDA kernels.
    needs = [
        need
        for need in required
        if not need.startswith(("torch", "ray", "numpy", "vllm-flash-attn", "xformers", "nvidia"))
    ]
    subprocess.run([*install, *PACKAGES, f"verl=={release}", *needs], check=True)
    (folder / "complete").touch()
    return python


def examine() -> None:
    """Print what compiles, imports, evaluates and runs; inside the environment."""
    from importlib import metadata

    import verl

    names = ("verl", "vllm", "torch", "ray", "transformers", "tensordict")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    print(f"\nPython {sys.version.split()[0]}, {versions}")
    folder = Path(verl.__file__).parent
    with contextlib.redirect_stdout(io.StringIO()) as output:
        compiled = compileall.compile_dir(str(folder), quiet=1, force=True)
    print(f"compiles: {len(list(folder.rglob('*.py')))} files, {'all' if compiled else output.getvalue()}")
    for entry in ENTRIES:
        if failure := failure_of(entry):
            print(f"  does not import: {entry}: {failure}")
    of_path = sorted(name for name in sys.modules if name.partition(".")[0] == "verl")
    print(f"imports: the {len(ENTRIES)} entries of FSDP with vLLM load {len(of_path)} modules of verl")
    mode = sys.modules.get("verl.workers.rollout.vllm_rollout")
    print(f"vllm_mode: {getattr(mode, 'vllm_mode', 'unknown')}")
    print("annotations of these modules that raise:", report(of_path))
    others = [each.name for each in pkgutil.walk_packages([str(folder)], "verl.", onerror=lambda _: None)]
    failures = {name: failure for name in others if name not in sys.modules and (failure := failure_of(name))}
    print(f"imports: {len(others) - len(failures)} of all {len(others)} modules; the others:")
    for failure in dict.fromkeys(failures.values()):
        print(f"  {failure}: {' '.join(name for name, each in failures.items() if each == failure)}")
    print("annotations of all modules that raise:", report(sorted(set(others) & set(sys.modules))))
    for title, call in (("actor", run_actor), ("critic", run_critic)):
        try:
            print(f"{title}: {call()}")
        except Exception as failure:
            print(f"{title}: {type(failure).__name__}: {failure}")
    sys.stdout.flush()
    os._exit(0)


def failure_of(module: str) -> str:
    """Return why a module cannot be imported, or an empty string."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module(module)
    except BaseException as failure:
        return f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}"
    return ""


def report(names: list[str]) -> str:
    """Return the annotations of modules that cannot be evaluated, or `none` with the number of evaluated ones."""
    counts, wrong = Counter[str](), list[str]()
    for name in names:
        module = sys.modules[name]
        for where, failure in [*outer_annotations(module), *inner_annotations(module)]:
            counts[type(failure).__name__] += 1
            if isinstance(failure, (TypeError, SyntaxError)):
                wrong.append(f"\n  {where}: {type(failure).__name__}: {failure}")
    return (
        "".join(wrong)
        or f"none of {sum(counts.values())} (not resolvable: {counts['NameError']} names of other scopes)"
    )


def outer_annotations(module: ModuleType) -> Iterator[tuple[str, Exception | None]]:
    """Yield every function and class of a module, and the error of its annotations."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__ or not (
            inspect.isclass(value) or inspect.isfunction(value)
        ):
            continue
        members = [each for each in vars(value).values() if inspect.isfunction(each)] if inspect.isclass(value) else []
        for each in (value, *members):
            try:
                get_type_hints(each)
                yield f"{module.__name__}.{name}", None
            except Exception as failure:
                yield f"{module.__name__}.{name}", failure


def inner_annotations(module: ModuleType) -> Iterator[tuple[str, Exception | None]]:
    """Yield the annotations of functions inside functions, which are evaluated at each call, and their errors."""
    if vars(module).get("annotations") is __future__.annotations:
        return
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    outer = [node for node in ast.walk(tree) if isinstance(node, functions)]
    inner = {each for node in outer for each in ast.walk(node) if isinstance(each, functions) and each is not node}
    for function in inner:
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        for node in filter(None, [function.returns, *(argument.annotation for argument in arguments)]):
            where = f"{module.__file__}:{node.lineno}, in {function.name}"
            try:
                eval(compile(ast.Expression(node), where, "eval"), vars(module))  # noqa: S307
                yield where, None
            except Exception as failure:
                yield where, failure


def batch(**more: Any) -> Any:
    """Two prompts of 4 tokens with answers of 4."""
    import torch
    from verl import DataProto

    tokens = torch.randint(0, 64, (2, 8))
    tensors = {
        "input_ids": tokens,
        "responses": tokens[:, 4:],
        "attention_mask": torch.ones_like(tokens),
        "position_ids": torch.arange(8).repeat(2, 1),
        **{name: torch.rand(2, 4) for name in more.pop("random", ())},
    }
    meta = {"micro_batch_size": 1, "temperature": 1.0, "use_dynamic_bsz": False, "max_token_len": 64, **more}
    return DataProto.from_dict(tensors=tensors, meta_info=meta)


def prepared(kind: str) -> Any:
    """A process group of one, and a Qwen2 of two layers."""
    import torch
    import transformers
    from verl.utils.debug import performance

    performance._get_current_mem_info = lambda *_, **__: ("0", "0", "0", "0")  # of a GPU
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:29591", rank=0, world_size=1)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.Qwen2Config(vocab_size=64, num_key_value_heads=2, num_labels=1, **sizes)
    return getattr(transformers, f"Qwen2For{kind}")(config)


def composed(role: str) -> Any:
    """Return the configuration of a role."""
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    sizes = [f"{role}.{name}" for name in ("ppo_mini_batch_size=2", "ppo_micro_batch_size_per_gpu=1")]
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        config = compose("ppo_trainer", overrides=[*sizes, "actor_rollout_ref.actor.use_torch_compile=False"])
    part = OmegaConf.select(config, role)
    OmegaConf.set_struct(part, False)
    return part


def run_actor() -> str:
    """Run what ActorRolloutRefWorker runs of its actor in a step."""
    import torch
    from verl.workers.actor import DataParallelPPOActor

    model = prepared("CausalLM")
    actor = DataParallelPPOActor(
        composed("actor_rollout_ref.actor"), model, torch.optim.AdamW(model.parameters(), 1e-3)
    )
    output = actor.compute_log_prob(batch())
    metrics = actor.update_policy(batch(random=("old_log_probs", "advantages")))
    return f"compute_log_prob and update_policy ran ({len(output)} outputs, {len(metrics)} metrics)"


def run_critic() -> str:
    """Run what CriticWorker runs of its critic in a step."""
    import torch
    from verl.workers.critic import DataParallelPPOCritic

    model = prepared("TokenClassification")
    critic = DataParallelPPOCritic(composed("critic"), model, torch.optim.AdamW(model.parameters(), 1e-3))
    output = critic.compute_values(batch())
    metrics = critic.update_critic(batch(random=("values", "returns")))
    return f"compute_values and update_critic ran ({len(output)} outputs, {len(metrics)} metrics)"


if __name__ == "__main__":
    examine() if sys.argv[1:] == ["examine"] else main()

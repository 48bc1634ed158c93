"""A rollout that cannot be imported ends a job with 66 and the name of the module, whichever node it is."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.node.supervised import Job

RECIPE = """\
platform: cpu
accelerator: true
module: verl.trainer.tiny
data: []
model: null
overrides: {trainer.save_freq: 1}
"""
TRAINER = "@hydra.main(config_path='conf', config_name='job')\ndef main(config): ...\n"
CONFIGURATION = """\
trainer: {nnodes: 1, n_gpus_per_node: 8, save_freq: -1, total_epochs: 3, logger: [console], default_local_dir: null,
          resume_mode: auto, resume_from_path: null}
ray_kwargs: {ray_init: {runtime_env: {}}}
actor_rollout_ref: {model: {path: null, external_lib: null}, actor: {ppo_micro_batch_size_per_gpu: 1},
                    rollout: {name: vllm, mode: async, log_prob_micro_batch_size_per_gpu: 1}}
"""
REGISTRY = """\
def get_rollout_class(name, mode):
    import vllm.engine
"""
ENGINE = """\
import os
if os.environ["SLURM_NODEID"] == os.environ.get("FAKE_LACKS", ""):
    import xgrammar
"""


@pytest.fixture
def trained(job: Job) -> Job:
    """A job with a small trainer in verl's package; on the node FAKE_LACKS the engine misses a package."""
    files = {
        "verl/verl/__init__.py": "",
        "verl/verl/trainer/__init__.py": "",
        "verl/verl/trainer/tiny.py": TRAINER,
        "verl/verl/trainer/conf/job.yaml": CONFIGURATION,
        "verl/verl/workers/__init__.py": "",
        "verl/verl/workers/rollout/__init__.py": "",
        "verl/verl/workers/rollout/base.py": REGISTRY,
        "verl/verl/workers/rollout/vllm_rollout/__init__.py": "",
        "verl/verl/workers/rollout/vllm_rollout/vllm_async_server.py": "",
        "site/vllm/__init__.py": "",
        "site/vllm/engine.py": ENGINE,
    }
    for name, text in files.items():
        (job.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (job.folder / name).write_text(text)
    (job.folder / "stub.yaml").write_text(RECIPE)
    return job


@pytest.mark.parametrize("node", [0, 1])
def test_a_missing_package_ends_the_job_with_66_and_its_name(trained: Job, node: int) -> None:
    began = time.monotonic()
    trained.start(FAKE_MODULE="verl.trainer.tiny", FAKE_TRAINING="echo trains; sleep 60", FAKE_LACKS=str(node))

    assert trained.end(0, 30) == 66, trained.output(0)
    trained.end(1)
    result = trained.result()
    assert (result["code"], result["stage"], result["host"]) == (66, "rollout", f"n{node}")
    assert "The rollout vllm needs the module xgrammar, which cannot be imported on " in result["cause"]
    assert result["class"] == "image"
    assert f"{trained.folder}/site/vllm/engine.py:3" in result["cause"]
    assert time.monotonic() - began < 30
    assert trained.leftovers() == []


def test_a_complete_rollout_does_not_end_the_training(trained: Job) -> None:
    trained.start(FAKE_MODULE="verl.trainer.tiny")

    assert (trained.end(0), trained.end(1)) == (0, 0)
    assert "could not be imported" not in trained.output(0)


def test_a_slow_import_delays_nothing(trained: Job) -> None:
    (trained.folder / "site/vllm/engine.py").write_text("import time\ntime.sleep(60)\n")
    trained.start(FAKE_MODULE="verl.trainer.tiny")

    assert (trained.end(0), trained.end(1)) == (0, 0)
    assert trained.leftovers() == []


def test_another_import_error_is_reported_and_ends_nothing(trained: Job) -> None:
    (trained.folder / "site/vllm/engine.py").write_text("raise RuntimeError('no driver')\n")
    trained.start(FAKE_MODULE="verl.trainer.tiny", FAKE_TRAINING="sleep 5")

    assert trained.end(0) == 0, trained.output(0)
    warned = "warning: the rollout vllm could not be imported; training may fail: RuntimeError: no driver"
    told = [json.loads(line) for line in (trained.run_dir / "events.jsonl").read_text().splitlines()]
    assert {event["host"] for event in told if warned in event["message"]} == {"n0", "n1"}

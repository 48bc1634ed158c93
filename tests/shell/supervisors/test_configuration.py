"""A wrong configuration ends a job before training; a valid one is saved."""

from __future__ import annotations

import json

import pytest

from tests.support.node.supervised import Job

RECIPE = """\
platform: cpu
accelerator: true
module: tiny.train
data: []
model: null
overrides: {trainer.save_freq: 1}
"""
TRAINER = "@hydra.main(config_path='conf', config_name='job')\ndef main(config): ...\n"
CONFIGURATION = """\
trainer: {nnodes: 1, n_gpus_per_node: 8, save_freq: -1, total_epochs: 3, logger: [console], default_local_dir: null,
          resume_mode: auto, resume_from_path: null}
ray_kwargs: {ray_init: {runtime_env: {}}}
"""


@pytest.fixture
def trained(job: Job) -> Job:
    """A job whose trainer uses Hydra; the trainer is a stand-in, its configuration is real."""
    package = job.folder / "site" / "tiny"
    (package / "conf").mkdir(parents=True)
    (package / "train.py").write_text(TRAINER)
    (package / "conf" / "job.yaml").write_text(CONFIGURATION)
    (job.folder / "stub.yaml").write_text(RECIPE)
    return job


def test_a_misspelt_key_ends_every_node_with_65_and_a_suggestion(trained: Job) -> None:
    trained.start(VERLJOB_OVERRIDES="trainer.total_epoch=2\ntrainer.save_freq=often")

    assert trained.end(0) == 65
    trained.end(1)
    result = trained.result()
    assert result["code"] == 65
    assert "no trainer.total_epoch." in result["cause"]
    assert "trainer.save_freq is 'often'; an integer is required." in result["cause"]
    assert "Use trainer.total_epochs." in result["fix"]
    assert "train" not in result["phases"]


def test_a_valid_configuration_is_saved_and_trains(trained: Job) -> None:
    trained.start(FAKE_MODULE="tiny.train", VERLJOB_OVERRIDES="trainer.total_epochs=2")

    assert (trained.end(0), trained.end(1)) == (0, 0)
    kept = json.loads((trained.run_dir / "configuration.json").read_text())["configuration"]
    assert kept["trainer"]["total_epochs"] == 2
    assert kept["trainer"]["nnodes"] == 2

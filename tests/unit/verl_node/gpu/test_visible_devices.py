from __future__ import annotations

import itertools

import pytest
from verl_node.errors import BadSettings, CheckFailed
from verl_node.gpu import visible_devices


@pytest.mark.parametrize("preset", list(itertools.product(["", "0,1,2,3,4,5,6,7", "4,5,6,7"], repeat=3)))
def test_all_masks_are_removed_if_only_the_jobs_gpus_are_visible(preset: tuple[str, str, str]) -> None:
    given = {name: value for name, value in zip(visible_devices.MASKS, preset) if value}
    noset = dict.fromkeys(visible_devices.NOSET, "0")

    assert visible_devices.with_one_mask(
        {**given, **noset, "A": "b"}, platform="rocm", gpus=8, visible=8, ray=(2, 60)
    ) == {"A": "b"}


@pytest.mark.parametrize(
    ("platform", "ray", "name"),
    [
        ("rocm", (2, 44), "ROCR_VISIBLE_DEVICES"),
        ("rocm", (2, 45), "HIP_VISIBLE_DEVICES"),
        ("cuda", (2, 60), "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_one_mask_is_kept_under_rays_name_if_more_gpus_are_visible(
    platform: str, ray: tuple[int, int], name: str
) -> None:
    given = {"ROCR_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "4,5"}

    assert visible_devices.with_one_mask(given, platform=platform, gpus=2, visible=8, ray=ray) == {name: "4,5"}


@pytest.mark.parametrize(
    "given", [{"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "2,3"}, {"CUDA_VISIBLE_DEVICES": "0,1,2"}]
)
def test_contradicting_masks_are_rejected(given: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match="do not name the same 2 of the 8 visible GPUs"):
        visible_devices.with_one_mask(given, platform="rocm", gpus=2, visible=8, ray=(2, 60))


def test_empty_mask_is_kept_for_a_job_without_gpus() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}

    assert visible_devices.with_one_mask(given, platform="cuda", gpus=0, visible=8, ray=(2, 60)) == given


@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        ({}, 4),
        ({"CUDA_VISIBLE_DEVICES": "2"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a,GPU-2b", "HIP_VISIBLE_DEVICES": "GPU-1a,GPU-2b"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, 4),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
    ],
)
def test_mask_gives_the_number_of_gpus_if_no_setting_does(
    given: dict[str, str], gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible_devices, "visible_devices", lambda _: 4)

    assert visible_devices.offered_gpus(given, platform="cuda") == gpus


def test_differing_masks_without_a_gpu_count_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_devices, "visible_devices", lambda _: 4)

    with pytest.raises(BadSettings, match="CUDA_VISIBLE_DEVICES=1, ROCR_VISIBLE_DEVICES=0 differ"):
        visible_devices.offered_gpus({"ROCR_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, platform="cuda")


ALL = "0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    ("platform", "ray", "seen"),
    [
        ("rocm", (2, 60), {"HIP_VISIBLE_DEVICES": ALL}),
        ("rocm", (2, 44), {"ROCR_VISIBLE_DEVICES": ALL}),
        ("cuda", (2, 60), {"CUDA_VISIBLE_DEVICES": ALL}),
        ("cpu", (2, 60), {"CUDA_VISIBLE_DEVICES": ALL}),
    ],
)
def test_actor_with_rays_mask_and_every_gpu_passes(platform: str, ray: tuple[int, int], seen: dict[str, str]) -> None:
    visible_devices.require_one_mask(seen, platform=platform, gpus=8, ray=ray, host="n1")


@pytest.mark.parametrize(
    "seen",
    [
        {},
        {"HIP_VISIBLE_DEVICES": ALL, "CUDA_VISIBLE_DEVICES": ALL},
        {"CUDA_VISIBLE_DEVICES": ALL},
        {"HIP_VISIBLE_DEVICES": "0,1,2,3"},
        {"HIP_VISIBLE_DEVICES": "0,0,1,2,3,4,5,6"},
    ],
)
def test_actor_with_wrong_masks_fails_with_its_node(seen: dict[str, str]) -> None:
    with pytest.raises(CheckFailed, match="expected: only HIP_VISIBLE_DEVICES, with 8 entries") as caught:
        visible_devices.require_one_mask(seen, platform="rocm", gpus=8, ray=(2, 60), host="n1")

    assert caught.value.host == "n1"

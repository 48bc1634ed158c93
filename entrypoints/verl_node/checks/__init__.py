"""Health checks of one node.

To add one: write ``name(settings, gpus[, threshold]) -> Result`` under ``@check`` in a module of checks/node/, and list
it in CHECKS. docs/checks.md is generated from this list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_node.checks.check import Check
from verl_node.checks.node import cache, clock, debug, folders, gpu_work, gpus, limits, nccl, network, rdma, vllm
from verl_node.checks.result import Outcome
from verl_node.errors import CheckFailed, NodeError, PermissionMissing

# The order of a table's rows: node, network, services, data.
CHECKS: tuple[Check, ...] = (
    folders.run_directory_is_writable,
    folders.run_directory_is_shared,
    folders.home_is_writable,
    folders.temporary_folder_is_writable,
    folders.folders_have_room,
    limits.shared_memory_is_large,
    limits.open_files_suffice,
    limits.processes_suffice,
    limits.memory_can_be_locked,
    limits.memory_suffices,
    limits.cgroup_holds_the_memory,
    limits.processes_can_be_traced,
    gpus.gpus_are_visible,
    gpus.driver_answers,
    gpus.memory_is_free,
    gpus.memory_is_sound,
    gpus.clocks_are_not_held_down,
    gpus.driver_fits_the_image,
    gpus.architecture_fits_the_image,
    network.head_name_resolves,
    network.own_address_is_reachable,
    network.head_port_is_open,
    rdma.ports_are_up,
    nccl.hcas_that_are_named_exist,
    nccl.gid_index_fits,
    nccl.interfaces_that_are_named_exist,
    rdma.devices_are_in_the_container,
    rdma.nothing_falls_back_to_tcp,
    nccl.amd_settings_are_made,
    vllm.allocator_settings_fit,
    debug.one_debugger_is_on,
    debug.debugger_has_what_it_needs,
    clock.clock_is_after_the_image,
    clock.certificates_are_here,
    cache.cache_is_one_place,
    cache.cache_is_writable,
    cache.cache_has_locks,
    cache.cache_is_kept,
    cache.cache_has_room,
    cache.gated_model_has_a_token,
    gpu_work.training_can_be_imported,
    gpu_work.gpus_are_counted_alike,
    gpu_work.gpus_compute_alike,
    gpu_work.gpus_sum_together,
    vllm.engine_generates,
)
BY_NAME = {check.name: check for check in CHECKS}


def require_passed(outcomes: Sequence[Outcome], *, log: Callable[[str], None]) -> None:
    """Log each warning, and raise if a check failed.

    Raises CheckFailed with all failures, PermissionMissing if all of them are missing permissions.
    """
    for outcome in outcomes:
        if outcome.severity == "warn":
            log(f"warning, {outcome.sentence()} {outcome.fix}")
    failures = [outcome for outcome in outcomes if outcome.bad]
    if failures:
        error: type[NodeError] = CheckFailed
        if all(outcome.severity == "permission" for outcome in failures):
            error = PermissionMissing
        raise error(
            " ".join(outcome.sentence() for outcome in failures),
            fix=" ".join(outcome.fix for outcome in failures),
            host=failures[0].host,
            stage="checks",
        )

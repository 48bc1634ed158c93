"""The matrix of faults: what is done to a job, the outcome that it must have, and what detects it.

docs/faults.md is generated from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurm.errors import SlurmError
from tests.faults.injections import (
    GCS,
    INIT,
    LAUNCH_SH,
    NODE_SH,
    RAYLET,
    SRUN,
    SUPERVISOR,
    TRAINING,
    await_oom_kill,
    cancel,
    cut,
    end_under_a_stopped_engine,
    fill_disk,
    freeze,
    kill,
    kill_client,
    kill_engine,
    kill_engine_with_live_restore,
    nothing,
    remove_run_directory,
    requeue,
    signal_job,
    stop,
    stop_client,
)
from tests.faults.preparations import (
    allowed_to_requeue,
    both_debuggers,
    cache_closed_on_the_worker,
    driver_killed_at_once,
    engine_closed,
    few_processes,
    gcs_port_behind_a_firewall,
    hca_of_elsewhere,
    head_name_leads_nowhere,
    head_name_leads_to_the_worker,
    head_port_taken,
    image_on_the_head_only,
    little_memory,
    on_a_full_disk,
    on_a_small_disk,
    other_ray_on_the_worker,
    run_directory_closed,
    run_directory_closed_on_the_worker,
    short_time,
)
from tests.faults.scene import HEAD, WORKER, Injection, Scene

SOON_S = 10.0
VANISHED_S = 20.0
SILENCE, STALL = "VERLJOB_SILENCE_S", "VERLJOB_STALL_S"


@dataclass(frozen=True)
class Patience:
    """Timeouts for silence, in seconds: between nodes and within one."""

    silence_s: int = 60
    stall_s: int = 20

    def environment(self) -> dict[str, str]:
        return {SILENCE: str(self.silence_s), STALL: str(self.stall_s)}

    def seconds(self, name: str) -> int:
        return {SILENCE: self.silence_s, STALL: self.stall_s, "": 0}[name]


DEFAULT, SHORTEST = Patience(), Patience(8, 8)


@dataclass(frozen=True)
class Kind:
    """One fault. The cause has to match all of ``causes``; ``limit_s`` is from the fault to the end of the job.

    A fault that is detected by silence has the time of the setting that ``patience`` names in addition.
    """

    name: str
    fault: str
    code: int
    stage: str
    host: str
    causes: tuple[str, ...]
    seen_by: str
    inject: Injection = nothing
    prepare: Callable[[Scene], None] = nothing
    starts: bool = True
    """Whether the training runs before ``inject``; otherwise the fault ends the job before the training."""
    nodes: int = 2
    limit_s: float = SOON_S
    patience: str = ""
    state: str = "FAILED"
    job_code: str = ""
    """Slurm's exit code if it is not ``code``; several by `|`."""
    reported_in: str = "output and result.json"
    logs: bool = True
    """Whether Ray ran, and its logs have to be in the run directory."""
    spares: bool = True
    """Whether the neighbour's Ray has to survive: an engine that dies ends all its containers."""
    runtimes: tuple[str, ...] = ("docker", "podman", "bare")
    quick: bool = False

    def due_s(self, patience: Patience) -> float:
        """Return the seconds within which the job has to end."""
        return patience.seconds(self.patience) + self.limit_s


ENGINE = ("docker",)
"""Also of faults by a limit: podman leaves limits to Slurm, and the rehearsal cluster sets none (docs/runtimes.md)."""
CONTAINERS = ("docker", "podman")

KINDS: tuple[Kind, ...] = (
    # --- the training and its supervisor ---
    Kind("training-killed", "SIGKILL of the training", 137, "train", HEAD, ("killed by signal 9",),
         "supervisor: its child ended", kill(HEAD, TRAINING), nodes=1, quick=True),
    Kind("training-stopped", "SIGSTOP of the training", 76, "cluster", HEAD, ("python3", "was stopped"),
         "supervisor: the state of its processes", stop(HEAD, TRAINING), nodes=1, patience=STALL),
    Kind("supervisor-killed-head", "SIGKILL of verl_node on the head", 76, "container", HEAD, ("n1 was killed",),
         "node.sh: the container ended", kill(HEAD, SUPERVISOR)),
    Kind("supervisor-killed-worker", "SIGKILL of verl_node on a worker", 76, "container", WORKER, ("n2 was killed",),
         "node.sh: the container ended", kill(WORKER, SUPERVISOR)),
    Kind("supervisor-stopped-head", "SIGSTOP of verl_node on the head", 76, "container", HEAD,
         ("no heartbeat|was stopped",), "node.sh: the heartbeat", stop(HEAD, SUPERVISOR), nodes=1, patience=STALL),
    Kind("supervisor-stopped-worker", "SIGSTOP of verl_node on a worker", 76, "container", WORKER,
         ("no heartbeat|was stopped",), "node.sh: the heartbeat", stop(WORKER, SUPERVISOR), patience=STALL,
         quick=True),
    Kind("driver-killed", "SIGKILL of the driver that checks the cluster", 69, "cluster|join", HEAD,
         ("driver", "137"), "supervisor: its child ended", prepare=driver_killed_at_once, starts=False,
         limit_s=60, logs=False),
    # --- Ray ---
    Kind("raylet-killed-head", "SIGKILL of the raylet on the head", 76, "cluster", HEAD, ("Ray on n1 is gone",),
         "supervisor: its processes, 0.5 s", kill(HEAD, RAYLET)),
    Kind("raylet-killed-worker", "SIGKILL of the raylet on a worker", 76, "cluster", WORKER, ("Ray on n2 is gone",),
         "supervisor: its processes, 0.5 s", kill(WORKER, RAYLET), quick=True),
    Kind("raylet-stopped-head", "SIGSTOP of the raylet on the head", 76, "cluster", HEAD, ("raylet", "was stopped"),
         "supervisor: the state of its processes", stop(HEAD, RAYLET), nodes=1, patience=STALL),
    Kind("raylet-stopped-worker", "SIGSTOP of the raylet on a worker", 76, "cluster", WORKER,
         ("raylet", "was stopped"), "supervisor: the state of its processes", stop(WORKER, RAYLET), patience=STALL),
    Kind("gcs-killed", "SIGKILL of the GCS", 76, "cluster", HEAD, ("Ray on n1 is gone",),
         "supervisor: `ray start --block` ended", kill(HEAD, GCS), nodes=1, quick=True),
    Kind("gcs-stopped", "SIGSTOP of the GCS", 76, "cluster", HEAD, ("gcs_server", "was stopped"),
         "supervisor: the state of its processes", stop(HEAD, GCS), nodes=1, patience=STALL),
    # --- the launch ---
    Kind("init-killed-head", "SIGKILL of the container's init on the head", 76, "container", HEAD,
         ("n1 was killed",), "node.sh: the container ended", kill(HEAD, INIT), runtimes=CONTAINERS),
    Kind("init-killed-worker", "SIGKILL of the container's init on a worker", 76, "container", WORKER,
         ("n2 was killed",), "node.sh: the container ended", kill(WORKER, INIT), runtimes=CONTAINERS),
    Kind("init-stopped", "SIGSTOP of the container's init", 76, "cluster", HEAD, ("tini", "was stopped"),
         "supervisor: the state of its parent", stop(HEAD, INIT), nodes=1, patience=STALL, runtimes=CONTAINERS),
    Kind("node-sh-killed-head", "SIGKILL of node.sh on the head", 76, "launch", HEAD, ("node.sh was killed on n1",),
         "supervisor: the lease ended; launch.sh: no verdict", kill(HEAD, NODE_SH), quick=True),
    Kind("node-sh-killed-worker", "SIGKILL of node.sh on a worker", 76, "launch|cluster", f"{HEAD}|{WORKER}",
         ("node.sh was killed on n2|n2 was lost: The lease .* ended",),
         "supervisor: the lease ended; launch.sh: no verdict", kill(WORKER, NODE_SH)),
    Kind("node-sh-stopped-head", "SIGSTOP of node.sh on the head", 76, "cluster", HEAD,
         ("node.sh", "no heartbeat|was stopped"), "supervisor: the lease (bare: or its parent's state)",
         stop(HEAD, NODE_SH), patience=STALL),
    Kind("node-sh-stopped-worker", "SIGSTOP of node.sh on a worker", 76, "cluster", WORKER,
         ("node.sh", "no heartbeat|was stopped"), "supervisor: the lease (bare: or its parent's state)",
         stop(WORKER, NODE_SH), patience=STALL),
    Kind("launch-sh-killed", "SIGKILL of launch.sh", 143, "container|train", HEAD, ("launch.sh was killed",),
         "Slurm: the batch script ended", kill(HEAD, LAUNCH_SH), job_code="0", reported_in="result.json", quick=True),
    Kind("launch-sh-stopped", "SIGSTOP of launch.sh", 76, "container", HEAD, ("launch.sh", "was stopped"),
         "node.sh on the head: its state", stop(HEAD, LAUNCH_SH), patience=STALL),
    Kind("srun-killed", "SIGKILL of srun", 76, "launch", HEAD, ("srun was killed on n1",),
         "launch.sh: its child ended", kill(HEAD, SRUN)),
    Kind("srun-stopped", "SIGSTOP of srun", 76, "launch", HEAD, ("srun was stopped on n1",),
         "launch.sh: its state", stop(HEAD, SRUN), patience=STALL),
    # --- the runtime ---
    Kind("client-killed", "SIGKILL of the runtime's client on a worker", 76, "container", WORKER,
         ("ended from outside",), "node.sh: its child ended", kill_client, runtimes=CONTAINERS, quick=True),
    Kind("client-stopped", "SIGSTOP of the runtime's client on a worker", 76, "container", WORKER,
         ("client of docker", "was stopped"), "node.sh: its state", stop_client, patience=STALL, runtimes=ENGINE),
    Kind("engine-killed", "SIGKILL of dockerd on a worker", 76, "container", WORKER, ("ended from outside",),
         "node.sh: the client ended", kill_engine, spares=False, runtimes=ENGINE),
    Kind("engine-killed-live-restore", "SIGKILL of dockerd with live-restore on a worker", 76, "container", WORKER,
         ("ended from outside",), "node.sh: the client ended", kill_engine_with_live_restore, runtimes=ENGINE,
         quick=True),
    Kind("engine-stopped", "SIGSTOP of dockerd on a worker, then the end of the training", 137, "train", HEAD,
         ("killed by signal 9",), "launch.sh: the worker's node.sh does not end, 6 s", end_under_a_stopped_engine,
         limit_s=VANISHED_S, runtimes=ENGINE),
    # --- a machine ---
    Kind("worker-frozen", "all processes of a worker are frozen", 76, "cluster", WORKER,
         ("n2 was lost", "no heartbeat"), "the head: the control channel",
         freeze(WORKER), patience=SILENCE, logs=False, quick=True),
    Kind("head-frozen", "all processes of the first node are frozen", 76, "cluster", HEAD,
         ("n1 was lost", "no heartbeat"),
         "a worker: the control channel; Slurm: SlurmdTimeout", freeze(HEAD), patience=SILENCE,
         state="NODE_FAIL", reported_in="nodes/1-n2/verdict", logs=False),
    Kind("network-cut", "a worker's network is gone", 76, "cluster", WORKER, ("n2 was lost", "no heartbeat"),
         "the head: the control channel", cut(WORKER), patience=SILENCE),
    # --- what a job depends on ---
    Kind("image-missing", "the image is missing on one node", 66, "image", WORKER, ("n2 has no image only-there:1",),
         "node.sh", prepare=image_on_the_head_only, starts=False, logs=False, runtimes=CONTAINERS, quick=True),
    Kind("ray-differs", "one node has another version of Ray", 69, "join", WORKER, ("n2 runs Ray 2.59.9",),
         "the head: the nodes' hello messages", prepare=other_ray_on_the_worker, starts=False, logs=False,
         runtimes=CONTAINERS, quick=True),
    Kind("head-port-taken", "another process binds the GCS port before Ray does", 71, "head", HEAD,
         ("port .* was taken on n1",), "supervisor: before it starts Ray", prepare=head_port_taken,
         starts=False, limit_s=30, logs=False, runtimes=ENGINE),
    Kind("head-name-loops", "the head's name resolves to the worker itself", 69, "join|checks", WORKER,
         ("n1 resolves to 127.0.1.1 on n2",), "supervisor: a check, or before it connects",
         prepare=head_name_leads_to_the_worker, starts=False, logs=False, quick=True),
    Kind("head-name-leads-nowhere", "the head's name resolves to an unused address", 75, "join", "n1|n2",
         ("within 10 s|after 10 s",), "the head and the worker: VERLJOB_JOIN_TIMEOUT_S",
         prepare=head_name_leads_nowhere, starts=False, limit_s=25, logs=False),
    Kind("firewall", "a firewall drops packets to the head's GCS port", 69, "checks", WORKER,
         ("head_port_is_open", "firewall drops"), "a worker's check", prepare=gcs_port_behind_a_firewall,
         starts=False, limit_s=30, logs=False, runtimes=ENGINE),
    Kind("debuggers-exclude-each-other", "RAY_DEBUG=legacy and RAY_DEBUG_POST_MORTEM=1 are exported", 69, "checks",
         "n1|n2", ("one_debugger_is_on",), "every node's checks", prepare=both_debuggers, starts=False,
         logs=False, quick=True),
    Kind("hca-missing", "NCCL_IB_HCA names a device that no node has", 69, "checks", "n1|n2",
         ("hcas_that_are_named_exist", "mlx5_9 is not here"), "every node's checks", prepare=hca_of_elsewhere,
         starts=False, logs=False),
    Kind("cache-closed", "the hub's cache belongs to another account on one node", 77, "checks", WORKER,
         ("cache_is_writable", "/var/hub"), "a worker's check", prepare=cache_closed_on_the_worker,
         starts=False, logs=False, runtimes=CONTAINERS),
    Kind("run-directory-closed", "the run directory cannot be made", 77, "launch", HEAD, ("/var/closed/run",),
         "launch.sh", prepare=run_directory_closed, starts=False, reported_in="output", logs=False, quick=True),
    Kind("run-directory-closed-on-one-node", "the run directory cannot be made on one node", 77, "image", WORKER,
         ("/var/half/run",), "node.sh", prepare=run_directory_closed_on_the_worker, starts=False,
         reported_in="output", logs=False),
    Kind("run-directory-removed", "the run directory is removed, then the training ends", 137, "train", HEAD,
         ("killed by signal 9",), "supervisor: its child ended", remove_run_directory, nodes=1, quick=True),
    Kind("disk-full", "no space for the job's node-local folder", 69, "container", "n1|n2", ("no room", "/small"),
         "node.sh", prepare=on_a_full_disk, starts=False, logs=False, quick=True),
    Kind("disk-full-later", "the temp dir's disk fills up, then the training ends", 137, "train", HEAD,
         ("killed by signal 9",), "supervisor: its child ended", fill_disk, on_a_small_disk, nodes=1),
    Kind("out-of-memory", "the training uses more memory than the job has", 137, "train", HEAD,
         ("killed by signal 9", "lack of memory", "--mem"), "supervisor: its child ended, and the cgroup's counter",
         await_oom_kill, little_memory, nodes=1, runtimes=ENGINE, quick=True),
    Kind("pids-limit", "too few processes are allowed", 71, "head|join", HEAD, ("limit of processes",),
         "supervisor: `ray start` or its GCS ended, and the cgroup's counter", prepare=few_processes,
         starts=False, nodes=1, logs=False, limit_s=60, runtimes=ENGINE),
    Kind("engine-closed", "the account may not use the engine on one node", 77, "image", WORKER, ("group project",),
         "node.sh", prepare=engine_closed, starts=False, logs=False, runtimes=ENGINE, quick=True),
    # --- Slurm ---
    Kind("cancelled", "scancel", 143, "container|train", HEAD, ("scancel or preemption",), "Slurm: TERM to all",
         cancel, state="CANCELLED", job_code="0|143"),
    Kind("signalled", "scancel --signal=TERM, as at the start of a preemption", 143, "container|train", HEAD,
         ("signal from outside|SIGTERM",), "every node: TERM", signal_job("TERM")),
    Kind("step-killed", "scancel --signal=KILL", 143, "container|train", HEAD, ("scancel or preemption",),
         "Slurm: the job is cancelled", signal_job("KILL"), state="CANCELLED", job_code="0|143"),
    Kind("requeued", "scontrol requeue, as at the end of a preemption", 143, "container|train", HEAD,
         ("scancel or preemption|SIGTERM|launch.sh was killed",), "Slurm: TERM to all", requeue,
         allowed_to_requeue, state="PENDING|CANCELLED", job_code="0", reported_in="result.json"),
    Kind("time-limit", "the wall time is reached", 143, "container|train", HEAD, ("time limit",), "Slurm: TERM to all",
         prepare=short_time, nodes=1, limit_s=150, state="TIMEOUT", job_code="0|143"),
)  # fmt: skip


def named(name: str) -> Kind:
    """Return the kind of this name. Raises SlurmError, which lists all names."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise SlurmError(f"unknown fault {name!r}; choose from: {', '.join(kind.name for kind in KINDS)}")

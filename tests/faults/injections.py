"""Faults of a running job, as functions that make them."""

from __future__ import annotations

import time

from docker.errors import APIError
from docker.models.containers import Container

from tests.faults.scene import HEAD, WORKER, Injection, Scene
from tests.support.cluster.launches import wait_until

# Arguments of pgrep: the name of a process if it is unique, else its command line.
TRAINING = ("-f", "[-]m stub_training")
SUPERVISOR = ("-f", "[-]m verl_node$")
INIT = ("-x", "tini")
RAYLET = ("-x", "raylet")
GCS = ("-x", "gcs_server")
NODE_SH = ("-f", "^bash /.*slurm/node.sh")
LAUNCH_SH = ("-f", "[s]lurm_script")
SRUN = ("-x", "srun")

FREEZES_S = 15
TAKES_S = 60


def kill(node: str, selection: tuple[str, ...]) -> Injection:
    return lambda scene: scene.signal("KILL", node, selection)


def stop(node: str, selection: tuple[str, ...]) -> Injection:
    return lambda scene: scene.signal("STOP", node, selection)


def await_oom_kill(scene: Scene) -> None:
    """Wait until the kernel kills the training: allocating the memory takes time, and the fault is the kill."""
    deadline = time.monotonic() + TAKES_S
    while time.monotonic() < deadline and scene.on(HEAD, "pgrep", *TRAINING, check=False).code == 0:
        scene.happened = time.monotonic()
        time.sleep(0.1)


def kill_client(scene: Scene) -> None:
    scene.signal("KILL", WORKER, ("-f", scene.runtime.client))


def stop_client(scene: Scene) -> None:
    scene.signal("STOP", WORKER, ("-f", scene.runtime.client))


def kill_engine(scene: Scene) -> None:
    """Kill dockerd; runsv starts it again a second later, as systemd does on real nodes."""
    scene.on(WORKER, "pkill", "-KILL", "-x", "dockerd")


def kill_engine_with_live_restore(scene: Scene) -> None:
    scene.sh(WORKER, """echo '{"live-restore": true}' > /etc/docker/daemon.json && pkill -HUP -x dockerd""")
    scene.undo_by(WORKER, "rm /etc/docker/daemon.json && pkill -HUP -x dockerd")
    deadline = time.monotonic() + 10
    while "true" not in scene.on(WORKER, "docker", "info", "--format", "{{.LiveRestoreEnabled}}").stdout:
        assert time.monotonic() < deadline, "dockerd did not apply live-restore"
        time.sleep(0.2)
    kill_engine(scene)


def end_under_a_stopped_engine(scene: Scene) -> None:
    """Stop the engine, which leaves running containers alone but reports no end; then kill the training."""
    scene.on(WORKER, "pkill", "-STOP", "-x", "dockerd")
    scene.undo_by(WORKER, "pkill -CONT -x dockerd")
    scene.frozen.add(WORKER)  # only a running engine can list what is left on the node
    kill(HEAD, TRAINING)(scene)


def freeze(node: str) -> Injection:
    """Freeze all processes of a machine, whose kernel still answers: from outside it looks like a hang of the host."""

    def inject(scene: Scene) -> None:
        container = scene.cluster.host(node).container
        wait_until(lambda: pause(container), FREEZES_S, f"pause of {node}")
        scene.undo.callback(container.unpause)
        scene.frozen.add(node)

    return inject


def pause(container: Container) -> bool:
    """Freeze a container; return False if the engine timed out.

    It thaws all processes again if one of them does not stop within a fraction of a second.
    """
    try:
        container.pause()
    except APIError as refused:
        if "unable to freeze" not in str(refused):
            raise
        return False
    return True


def cut(node: str) -> Injection:
    def inject(scene: Scene) -> None:
        gateway = scene.sh(node, "ip route show default").stdout.strip()
        scene.undo_by(node, f"ip link set eth0 up && ip route add {gateway}")  # removed with the link
        scene.on(node, "ip", "link", "set", "eth0", "down")

    return inject


def remove_run_directory(scene: Scene) -> None:
    scene.on("login", "rm", "-rf", scene.job.run_dir)
    kill(HEAD, TRAINING)(scene)


def fill_disk(scene: Scene) -> None:
    """Fill up the small disk that `on_a_small_disk` gave to the job, then kill the training."""
    scene.sh(HEAD, "head -c 1G /dev/zero > /small/full", check=False)
    kill(HEAD, TRAINING)(scene)


def cancel(scene: Scene) -> None:
    scene.job.cancel()


def signal_job(name: str) -> Injection:
    def inject(scene: Scene) -> None:
        scene.on("login", "scancel", f"--signal={name}", str(scene.job.id))

    return inject


def requeue(scene: Scene) -> None:
    scene.on("login", "scontrol", "requeue", str(scene.job.id))
    scene.undo.callback(scene.job.cancel)


def nothing(scene: Scene) -> None:
    """Do nothing: the fault was prepared before the job."""

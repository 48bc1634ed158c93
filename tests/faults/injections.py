"""Faults of a running job, as functions that make them."""

from __future__ import annotations

import time

from docker.errors import APIError
from docker.models.containers import Container

from tests.faults.scene import HEAD, WORKER, Injection, Scene
from tests.support.cluster.launches import wait_until

# As pgrep takes them: by name where a process has one of its own, else by its command line.
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


def kill(node: str, what: tuple[str, ...]) -> Injection:
    return lambda scene: scene.signal("KILL", node, what)


def stop(node: str, what: tuple[str, ...]) -> Injection:
    return lambda scene: scene.signal("STOP", node, what)


def await_the_kernel(scene: Scene) -> None:
    """Taking the memory takes its time, the longer where the machine has to find it first: the fault is the kill."""
    deadline = time.monotonic() + TAKES_S
    while time.monotonic() < deadline and scene.on(HEAD, "pgrep", *TRAINING, check=False).code == 0:
        scene.happened = time.monotonic()
        time.sleep(0.1)


def kill_client(scene: Scene) -> None:
    scene.signal("KILL", WORKER, ("-f", scene.runtime.client))


def stop_client(scene: Scene) -> None:
    scene.signal("STOP", WORKER, ("-f", scene.runtime.client))


def kill_engine(scene: Scene) -> None:
    """Its supervisor (runsv here, systemd elsewhere) starts it again a second later."""
    scene.on(WORKER, "pkill", "-KILL", "-x", "dockerd")


def kill_engine_with_live_restore(scene: Scene) -> None:
    scene.sh(WORKER, """echo '{"live-restore": true}' > /etc/docker/daemon.json && pkill -HUP -x dockerd""")
    scene.later(WORKER, "rm /etc/docker/daemon.json && pkill -HUP -x dockerd")
    deadline = time.monotonic() + 10
    while "true" not in scene.on(WORKER, "docker", "info", "--format", "{{.LiveRestoreEnabled}}").stdout:
        assert time.monotonic() < deadline, "dockerd does not take live-restore"
        time.sleep(0.2)
    kill_engine(scene)


def end_under_a_stopped_engine(scene: Scene) -> None:
    """A stopped engine does a running container no harm; its end goes untold."""
    scene.on(WORKER, "pkill", "-STOP", "-x", "dockerd")
    scene.later(WORKER, "pkill -CONT -x dockerd")
    scene.frozen.add(WORKER)  # what is left there, only a living engine tells
    kill(HEAD, TRAINING)(scene)


def freeze(node: str) -> Injection:
    """All of a machine stands still, but its kernel still answers: what a hang of the host looks like from outside."""

    def inject(scene: Scene) -> None:
        container = scene.cluster.host(node).container
        wait_until(lambda: pause(container), FREEZES_S, f"pause of {node}")
        scene.undo.callback(container.unpause)
        scene.frozen.add(node)

    return inject


def pause(container: Container) -> bool:
    """Freeze a container; False where it has to be tried again.

    The engine gives up, and thaws all, where a process does not stop within a fraction of a second.
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
        scene.later(node, f"ip link set eth0 up && ip route add {gateway}")  # which went with the link
        scene.on(node, "ip", "link", "set", "eth0", "down")

    return inject


def remove_run_directory(scene: Scene) -> None:
    scene.on("login", "rm", "-rf", scene.job.run_dir)
    kill(HEAD, TRAINING)(scene)


def fill_disk(scene: Scene) -> None:
    """The rest of the small disk that `on_a_small_disk` gave to the job; then the job ends."""
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
    """What was prepared is the fault."""

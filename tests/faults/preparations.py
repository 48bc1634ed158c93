"""Faults that exist before the job is submitted, as functions that make them."""

from __future__ import annotations

from tests.faults.scene import ACCOUNT, HEAD, WORKER, Scene
from tests.support.cluster.launches import WORK

ELSEWHERE = "192.0.2.1"  # RFC 5737: an unused address


def image_on_the_head_only(scene: Scene) -> None:
    client = _client(scene)
    scene.sh(HEAD, f"{client} tag $1 only-there:1", scene.runtime.image)
    scene.undo_by(HEAD, f"{client} rmi only-there:1")
    scene.environment["VERLJOB_IMAGE"] = "only-there:1"


def other_ray_on_the_worker(scene: Scene) -> None:
    """Change the version of Ray in the metadata of the worker's copy of the image."""
    client = _client(scene)
    limits = "--cgroups=disabled" if scene.runtime.name == "podman" else "--cgroupns=host"
    for node, script in ((HEAD, f"{client} tag $1 differs:1"), (WORKER, _DERIVE)):
        scene.sh(node, script, scene.runtime.image, client, limits)
        scene.undo_by(node, f"{client} rmi differs:1")
    scene.environment["VERLJOB_IMAGE"] = "differs:1"


def _client(scene: Scene) -> str:
    """Return the command of the client that the job uses: podman runs as the account, whose images it has."""
    account = f"runuser --user {ACCOUNT} -- env --chdir /home/{ACCOUNT} HOME=/home/{ACCOUNT} USER={ACCOUNT} podman"
    return account if scene.runtime.name == "podman" else "docker"


_DERIVE = r"""
set -e
entrypoint=$($2 image inspect --format '{{json .Config.Entrypoint}}' "$1")
$2 run "$3" --network=host --name derive --user 0:0 --entrypoint bash "$1" -c '
    folder=$(python3 -c "import importlib.metadata as m; print(m.distribution(\"ray\")._path)")
    sed -i "s/^Version: .*/Version: 2.59.9/" "$folder/METADATA"'
$2 commit --change "ENTRYPOINT $entrypoint" --change 'CMD ["node"]' derive differs:1
$2 rm derive
"""


def head_port_taken(scene: Scene) -> None:
    """Let a process of the neighbour bind the head's GCS port, known by the block's lock, before Ray does."""
    script = """python3 -c '
import glob, socket, time
held = []
end = time.monotonic() + 60
while time.monotonic() < end:
    for lock in glob.glob("/tmp/verljob-ports/*-*"):
        first, last = map(int, lock.rpartition("/")[2].partition(".")[0].split("-"))
        if last - first == 2 and not held:
            taken = socket.socket()
            taken.bind(("", first + 1))
            taken.listen()
            held.append(taken)
    time.sleep(0.02)
'"""
    run = 'docker run --detach --rm --name squatter --network host --volume /tmp:/tmp $1 bash -c "$2"'
    scene.sh(HEAD, run, scene.runtime.image, script)
    scene.undo_by(HEAD, "docker rm --force squatter")


def gcs_port_behind_a_firewall(scene: Scene) -> None:
    """Drop packets from other machines to the second port of the head's block, as soon as the block is locked.

    A job that was killed leaves its block's folder, so only locks that are newer than this call count.
    """
    script = """touch /run/before
for _ in {1..600}; do
    for lock in /tmp/verljob-ports/*-*; do
        [[ $lock -nt /run/before ]] || continue
        first=${lock##*/} last=${lock##*-} && first=${first%-*} last=${last%.*}
        [[ $((last - first)) != 2 ]] || exec iptables -I INPUT ! -i lo -p tcp --dport $((first + 1)) -j DROP
    done
    sleep 0.1
done"""
    scene.sh(HEAD, 'nohup bash -c "$1" > /dev/null 2>&1 &', script)
    scene.undo_by(HEAD, "iptables -F INPUT")


def both_debuggers(scene: Scene) -> None:
    scene.environment.update(RAY_DEBUG="legacy", RAY_DEBUG_POST_MORTEM="1")


def hca_of_elsewhere(scene: Scene) -> None:
    scene.environment["NCCL_IB_HCA"] = "=mlx5_9"


def cache_closed_on_the_worker(scene: Scene) -> None:
    _closed_on_the_worker(scene, "/var/hub")
    scene.environment["HF_HOME"] = "/var/hub"


def head_name_leads_to_the_worker(scene: Scene) -> None:
    _hosts(scene, "127.0.1.1")


def head_name_leads_nowhere(scene: Scene) -> None:
    scene.environment["VERLJOB_JOIN_TIMEOUT_S"] = "10"
    _hosts(scene, ELSEWHERE)


def _hosts(scene: Scene, address: str) -> None:
    """Overwrite /etc/hosts in place: the machine's engine has mounted this very file."""
    scene.sh(
        WORKER,
        'cp /etc/hosts /etc/hosts.before && printf "%s n1\\n" "$1" | cat - /etc/hosts.before > /etc/hosts',
        address,
    )
    scene.undo_by(WORKER, "cat /etc/hosts.before > /etc/hosts && rm /etc/hosts.before")


def run_directory_closed(scene: Scene) -> None:
    scene.on(HEAD, "install", "-d", "-m", "755", "/var/closed")
    scene.undo_by(HEAD, "rmdir /var/closed")
    scene.environment["VERLJOB_RUN_DIR"] = "/var/closed/run"


def run_directory_closed_on_the_worker(scene: Scene) -> None:
    _closed_on_the_worker(scene, "/var/half")
    scene.environment["VERLJOB_RUN_DIR"] = "/var/half/run"


def _closed_on_the_worker(scene: Scene, folder: str) -> None:
    scene.on(HEAD, "install", "-d", "-o", ACCOUNT, folder)
    scene.on(WORKER, "install", "-d", "-m", "755", folder)
    for node in (HEAD, WORKER):
        scene.undo_by(node, f"rm -rf {folder}")


def on_a_small_disk(scene: Scene, size: str = "256m") -> None:
    for node in (HEAD, WORKER)[: scene.nodes]:
        scene.sh(node, "mkdir /small && mount -t tmpfs -o size=$1,mode=1777 small /small", size)
        scene.undo_by(node, "umount -l /small && rmdir /small")
    scene.environment["VERLJOB_LOCAL"] = "/small"


def on_a_full_disk(scene: Scene) -> None:
    on_a_small_disk(scene, "1m")


def little_memory(scene: Scene) -> None:
    scene.flags.append("--mem=3G")
    scene.overrides.append("stub.mib=4096")


def few_processes(scene: Scene) -> None:
    profile = f"{WORK}/few.toml"
    write = 'printf "[container]\\npids = \\"40\\"\\n" > "$1"'
    scene.cluster.host("login").run(["bash", "-c", write, "few", profile], user=ACCOUNT)
    scene.environment["VERLJOB_PROFILE"] = profile


def engine_closed(scene: Scene) -> None:
    scene.sh(WORKER, "chgrp project /var/run/docker.sock && chmod 600 /var/run/docker.sock")
    scene.undo_by(WORKER, "chgrp docker /var/run/docker.sock && chmod 660 /var/run/docker.sock")


def short_time(scene: Scene) -> None:
    scene.flags += ["--time=1"]


def allowed_to_requeue(scene: Scene) -> None:
    scene.flags.append("--requeue")


def driver_killed_at_once(scene: Scene) -> None:
    """Kill the driver that checks the cluster as soon as it has started."""
    script = 'until pkill -KILL -f "[-]m verl_node.ray_node.driver_main" || ((SECONDS > 90)); do sleep 0.05; done'
    scene.sh(HEAD, f"nohup bash -c '{script}' > /dev/null 2>&1 &")

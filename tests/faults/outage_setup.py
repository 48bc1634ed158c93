"""Sets up on each node what outages need: a disk and a shared folder that can hang, and a clock that can be changed."""

from __future__ import annotations

from slurm.testbed import Cluster
from tests.faults.scene import ACCOUNT
from tests.support.cluster.cluster_setup import STUB

DISK = "/outage/disk"
FOLDER = f"/home/{ACCOUNT}/outage"
_CLOCK = "/outage/clock"

# bindfs mounts the folder over itself: a FUSE process on each node serves it, and can be stopped.
_READY = r"""set -e
mkdir -p "$1" "$3"
for number in {0..31}; do [[ -e /dev/loop$number ]] || mknod "/dev/loop$number" b 7 "$number"; done
[[ -e /dev/loop-control ]] || mknod /dev/loop-control c 10 237
[[ -e /dev/fuse ]] || mknod -m 666 /dev/fuse c 10 229
if ! mountpoint --quiet "$1"; then
    truncate --size=8G /outage/disk.img
    mkfs.ext4 -q -F /outage/disk.img
    mount -o loop /outage/disk.img "$1"
    chmod 1777 "$1"
fi
mountpoint --quiet "$2" || bindfs "$2" "$2"
cp /usr/local/lib/testbed-clock.so "$3/clock.so"
echo "$3/clock.so" > "$3/ld.so.preload"
chmod -R a+rX "$3"
"""


def prepare_nodes(cluster: Cluster) -> None:
    """Set all of it up on every node; safe to call again."""
    cluster.host("login").put(sorted(STUB.glob("*.*")), FOLDER, user=ACCOUNT)
    for node in cluster.nodes:
        cluster.host(node).run(["bash", "-c", _READY, "ready", DISK, FOLDER, _CLOCK])
        set_clock(cluster, node, 0)


def set_clock(cluster: Cluster, node: str, offset_s: int) -> None:
    """Set the offset of the clock in the node's container, which slurm/testbed/clock.c reads every second.

    The file is overwritten in place, since the container has mounted it.
    """
    script = 'printf "%+d\n" "$2" > "$1/offset" && chmod a+r "$1/offset"'
    cluster.host(node).run(["bash", "-c", script, "clock", _CLOCK, str(offset_s)])


def environment(runtime: str) -> dict[str, str]:
    """Return the environment with which a job uses disk and clock.

    All processes in the container, and none outside, get the clock by /etc/ld.so.preload.
    """
    variables = {"VERLJOB_LOCAL": DISK}
    if runtime != "bare":
        variables["VERLJOB_MOUNTS"] = f"{_CLOCK}:ro,{_CLOCK}/ld.so.preload:/etc/ld.so.preload:ro"
    return variables

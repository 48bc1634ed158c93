#!/bin/bash
# Sets up a container of the rehearsal cluster as a login or a compute node, then supervises its services: runsv restarts
# one that dies, as systemd would.
set -Eeuo pipefail

readonly KEY=/run/testbed/munge.key

# usage: munge_key WAIT_S
# The login node creates the key; the compute nodes read it from a volume. No image or environment contains it.
munge_key() {
    local -r deadline=$((SECONDS + $1))
    if [[ $HOSTNAME == login && ! -e $KEY ]]; then
        (umask 077 && head --bytes=1024 /dev/urandom > "$KEY.new" && mv "$KEY.new" "$KEY")
    fi
    until [[ -e $KEY ]]; do
        ((SECONDS < deadline)) || { echo "no munge key in $KEY after $1 s: is the login node up?" >&2; exit 1; }
        sleep 0.2
    done
    install -o munge -g munge -m 0400 "$KEY" /etc/munge/munge.key
    install -d -o munge -g munge -m 0755 /run/munge
}

slurm_config() {
    local file
    for file in slurm.conf cgroup.conf gres.conf; do
        sed "s/@NODES@/n[1-$VERLJOB_TESTBED_NODES]/" "/usr/share/testbed/$file" > "/etc/slurm/$file"
    done
    install -d -o slurm -g slurm -m 0755 /var/spool/slurmctld
    install -d -m 0755 /var/spool/slurmd
}

# /home is one volume for all nodes.
homes() {
    local account
    for account in submitter neighbour; do
        [[ -d /home/$account ]] || install -d -o "$account" -g "$account" -m 0750 "/home/$account"
    done
}

# Devices with the number of /dev/null (1, 3): open, read and write succeed.
stand_in_gpus() {
    local index
    for index in {0..7}; do
        [[ -e /dev/standin-gpu$index ]] || mknod --mode=0660 "/dev/standin-gpu$index" c 1 3
        chgrp video "/dev/standin-gpu$index"
    done
}

# Apptainer mounts images by FUSE.
fuse() { [[ -e /dev/fuse ]] || mknod --mode=0666 /dev/fuse c 10 229; }

# In memory, since deleting an image's 40 000 files took 2 s, and half a minute on a virtual disk.
store_in_memory() {
    [[ $VERLJOB_TESTBED_STORE_GIB == 0 ]] || mount -t tmpfs -o "size=${VERLJOB_TESTBED_STORE_GIB}g,mode=0711" store /var/lib/docker
}

# Lets an engine limit its containers under cgroup v2, where this container has its own root: moves all processes out of the
# root and delegates its controllers. Does nothing under v1 or with the host's view (a path other than /).
own_cgroup() {
    local -r root=/sys/fs/cgroup
    local process
    [[ -e $root/cgroup.controllers && $(< /proc/self/cgroup) == 0::/ ]] || return 0
    umount "$root" # the kernel refuses a second mount of one file system
    mount -t cgroup2 cgroup2 "$root"
    mkdir -p "$root/init"
    while read -r process < "$root/cgroup.procs"; do # reads the first line again: each move shortens the list
        echo "$process" > "$root/init/cgroup.procs"
    done
    sed 's/[^ ][^ ]*/+&/g' "$root/cgroup.controllers" > "$root/cgroup.subtree_control"
}

# For rootless podman: a folder for its images, as it may not enter the engine's; a complete /proc, without which a user
# namespace may not mount one, and Docker covers parts of this container's; no cgroup v2 beside v1, which crun refuses; and
# a shared /, as with systemd.
rootless_podman() {
    mount --make-rshared /
    install -d -m 1777 /var/lib/docker/podman
    mkdir -p /var/lib/containers /run/testbed-proc
    mount --bind /var/lib/docker/podman /var/lib/containers
    mount -t proc proc /run/testbed-proc
    ! mountpoint --quiet /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
}

_main() {
    munge_key 60
    slurm_config
    if [[ $HOSTNAME == login ]]; then
        homes
    else
        stand_in_gpus
        fuse
        store_in_memory
        own_cgroup
        rootless_podman
    fi
    exec runsvdir -P /etc/testbed/service
}

_main "$@"

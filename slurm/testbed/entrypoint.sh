#!/bin/bash
# Makes a container of the rehearsal cluster into a login or a compute node, then supervises its services:
# runsv starts one that dies again, as systemd would.
set -Eeuo pipefail

readonly KEY=/run/testbed/munge.key

# usage: munge_key WAIT_S
# The key is made by the login node and meets the compute nodes in a volume: it is in no image and no environment.
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

# /home is one volume for all nodes; the login node makes the homes.
homes() {
    local account
    for account in submitter neighbour; do
        [[ -d /home/$account ]] || install -d -o "$account" -g "$account" -m 0750 "/home/$account"
    done
}

# Major 1, minor 3 is /dev/null's: opening, reading and writing work, and nothing is there.
stand_in_gpus() {
    local index
    for index in {0..7}; do
        [[ -e /dev/standin-gpu$index ]] || mknod --mode=0660 "/dev/standin-gpu$index" c 1 3
        chgrp video "/dev/standin-gpu$index"
    done
}

# Deleting an image's 40 000 files took half a minute on a virtual disk, and 2 s in memory.
store_in_memory() {
    [[ $VERLJOB_TESTBED_STORE_GIB == 0 ]] || mount -t tmpfs -o "size=${VERLJOB_TESTBED_STORE_GIB}g,mode=0711" store /var/lib/docker
}

# Under cgroup v2 this container has a view of its own, with itself as the root. An engine can limit its containers
# there once the root holds no process and hands its controllers down. Under v1, or with the host's view (a path other
# than / below), nothing is to do.
own_cgroup() {
    local -r root=/sys/fs/cgroup
    local process
    [[ -e $root/cgroup.controllers && $(< /proc/self/cgroup) == 0::/ ]] || return 0
    umount "$root" # the kernel refuses one file system twice in one place
    mount -t cgroup2 cgroup2 "$root"
    mkdir -p "$root/init"
    while read -r process < "$root/cgroup.procs"; do # from its beginning each time: who moves shortens the list
        echo "$process" > "$root/init/cgroup.procs"
    done
    sed 's/[^ ][^ ]*/+&/g' "$root/cgroup.controllers" > "$root/cgroup.subtree_control"
}

# Podman of an account without root: its images beside the engine's, whose folder it may not enter. A container in a namespace of the account's may mount
# a /proc of its own only where a whole one is seen, and Docker covers parts of this container's; crun refuses a cgroup
# v2 beside v1 that has controllers. A shared / is what systemd makes.
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
        store_in_memory
        own_cgroup
        rootless_podman
    fi
    exec runsvdir -P /etc/testbed/service
}

_main "$@"

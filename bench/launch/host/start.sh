#!/bin/bash
# usage: bench-host NODES
# Starts a Slurm cluster in this container: munged, slurmctld and NODES slurmd. Each slurmd has its own network, PID and
# mount namespace with its own /tmp, like a node: an address by route, free ports, a short /proc.
set -Eeuo pipefail

[[ ${1:-} =~ ^[1-9][0-9]{0,2}$ ]] || { echo "usage: ${0##*/} NODES" >&2; exit 64; }
readonly NODES=$1 BRIDGE=nodes NET=10.99.0

munge() {
    (umask 077 && head --bytes=1024 /dev/urandom > /etc/munge/munge.key)
    chown munge:munge /etc/munge/munge.key
    install -d -o munge -g munge -m 0755 /run/munge
    chpst -u munge:munge munged
}

# The rehearsal cluster's slurm.conf without its stand-in GPUs; %n separates the nodes' files.
slurm_config() {
    install -d -o slurm -g slurm -m 0755 /var/spool/slurmctld
    sed -e "s/@NODES@/n[1-$NODES]/" -e '/^GresTypes/d' -e 's/ Gres=[^ ]*//' -e 's|^\(SlurmdSpoolDir=.*\)|\1/%n|' \
        /usr/share/testbed/slurm.conf > /etc/slurm/slurm.conf
    cp /usr/share/testbed/cgroup.conf /etc/slurm/
    echo 'SlurmdPidFile=/run/slurmd.%n.pid' >> /etc/slurm/slurm.conf
}

network() {
    local id
    ip link set lo up
    ip link add "$BRIDGE" type bridge
    ip address add "$NET.1/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    {
        printf '127.0.0.1 localhost\n%s.1 login\n' "$NET"
        for ((id = 1; id <= NODES; id++)); do printf '%s.%d n%d\n' "$NET" $((id + 100)) "$id"; done
    } > /etc/hosts
}

# usage: node ID
node() {
    local -r name=n$1
    ip netns add "$name"
    ip link add "$name" type veth peer name eth0 netns "$name"
    ip link set "$name" master "$BRIDGE" up
    ip -n "$name" link set lo up
    ip -n "$name" address add "$NET.$(($1 + 100))/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" route add default via "$NET.1"
    mkdir -p "/var/spool/slurmd/$name"
    # shellcheck disable=SC2016 # expands in the namespace
    nsenter --net="/run/netns/$name" unshare --mount --uts --pid --fork --mount-proc bash -c \
        'hostname "$0" && mount -t tmpfs -o mode=1777 tmp /tmp && exec tini -- slurmd -D -N "$0"' "$name" &
}

_main() {
    local id
    munge
    slurm_config
    network
    install -d -o submitter -g submitter -m 0755 /home/submitter
    chpst -u slurm:slurm slurmctld -D &
    for ((id = 1; id <= NODES; id++)); do node "$id"; done
    wait
}

_main "$@"

# shellcheck shell=bash # PODMAN_PAUSE is podman.sh's, CONMON_OTHERS conmon.sh's
# What podman keeps on a node between two commands, and would outlive the job.

# Nothing while another container of the account's is there, which joins that process.
runtime::leave() {
    conmon::look ''
    [[ -z $CONMON_OTHERS ]] || return 0
    ((UID == 0)) || podman_leave::_end_pause
    podman_leave::_remove_mount_points
}

# The process that holds the account's namespaces between two commands; a later command starts another.
podman_leave::_end_pause() {
    [[ -n ${PODMAN_PAUSE:-} ]] || podman::_look || return 0
    ! conmon::pid "$PODMAN_PAUSE" || kill -KILL "$CONMON_PID" 2> /dev/null || : # it has just ended
}

# Empty files over which crun mounts itself for a moment when it starts (try_bindfd in its cloned_binary.c); one that Slurm's
# signal ended just then left its own. A crun that misses it makes a copy of itself instead.
podman_leave::_remove_mount_points() {
    local file
    for file in /tmp/crun.??????; do
        [[ ! -f $file || -L $file || ! -O $file || -s $file ]] || rm -f -- "$file"
    done
}

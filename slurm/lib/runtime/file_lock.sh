# shellcheck shell=bash
# A lock between nodes on a file of a shared folder, which the kernel or the file server releases when its holder dies.
# Descriptors: 5 the lock.

# usage: file_lock::acquire FILE TIMEOUT_S
# Waits for the lock. Returns 1 after the timeout or a signal. A file system without locks (Lustre without the mount option
# flock) is reported, and the caller goes on: the lock only saves work.
file_lock::acquire() {
    local code=0
    { exec 5>> "$1"; } 2> /dev/null || return 1
    process::run flock --timeout "$2" 5 2> /dev/null || code=$?
    case $code in
        0) ;;
        1 | 143) exec 5>&- && return 1 ;;
        *) log::warn "the file system of $1 has no locks (flock ended with $code): each node does the same work" ;;
    esac
}

file_lock::release() { exec 5>&-; }

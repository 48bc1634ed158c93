# shellcheck shell=bash disable=SC2034 # its variables are read by the runtimes
# Processes that are marked by an inherited descriptor: 62, open on a file of the job. For programs that leave processes
# without environment or parent, such as the FUSE helpers of a killed Apptainer.
# Sets: FOUND_PROCESSES, RUNTIME_ERROR.

# For `bash -c WRAPPER FILE COMMAND…`: runs COMMAND with the mark, and without the descriptors of node.sh: a process that
# outlives it would keep the locks of the job's folder and of its ports.
# shellcheck disable=SC2016 # expands in the inner shell
readonly PROCESS_MARK_WRAPPER='exec 3>&- 4<&- 7<&- 62< "$0" && exec "$@"'

# usage: process_mark::find FILE
# Sets FOUND_PROCESSES to this account's processes that have FILE open as descriptor 62; returns 1 without any. Reads links
# only: another process may have a file there whose server hangs.
process_mark::find() {
    local link file
    local -a links=(/proc/[0-9]*/fd/62)
    FOUND_PROCESSES=()
    file=$(realpath -- "$1") || return 1
    [[ $'\n'$(readlink -- "${links[@]}")$'\n' == *$'\n'"$file"$'\n'* ]] || return 1
    for link in "${links[@]}"; do
        [[ -O ${link%/fd/*} && $(readlink -- "$link") == "$file" ]] || continue
        link=${link#/proc/}
        FOUND_PROCESSES+=("${link%%/*}")
    done
    ((${#FOUND_PROCESSES[@]}))
}

# usage: process_mark::kill FILE
# Kills them until a search finds none.
process_mark::kill() {
    process::kill_found process_mark::find "$1" || { RUNTIME_ERROR="processes ${FOUND_PROCESSES[*]} do not end"; return 1; }
}

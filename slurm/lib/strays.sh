# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# Processes of a job that ran in no container, found when those who knew them were killed. The kernel keeps no mark that a
# process cannot lose: Ray's overwrite their environment with their titles, but hold their logs open.

# usage: strays::find FOLDER
# Sets STRAYS to this account's processes that belong to the job's node-local FOLDER: by its lease in their environment,
# by an open file below its tmp, or by a parent that does.
strays::find() {
    local folder pid grew=1
    local -A parents=() ours=()
    for folder in /proc/[0-9]*; do
        pid=${folder##*/}
        if [[ ! -O $folder || $pid == "$$" ]] || ! strays::_parent "$folder"; then continue; fi
        parents[$pid]=$STRAYS_PARENT
        ! strays::_belongs "$folder" "$1" || ours[$pid]=1
    done
    while ((grew)); do
        grew=0
        for pid in "${!parents[@]}"; do
            [[ -z ${ours[$pid]:-} && -n ${ours[${parents[$pid]}]:-} ]] || continue
            ours[$pid]=1 grew=1
        done
    done
    STRAYS=(${ours[@]+"${!ours[@]}"})
}

# usage: strays::_parent PROC-FOLDER
# Sets STRAYS_PARENT; returns 1 for a process that has ended.
strays::_parent() {
    local stat
    { read -r stat < "$1/stat"; } 2> /dev/null || return 1
    # shellcheck disable=SC2086 # its fields, after a name that may hold blanks and brackets
    set -- ${stat##*) }
    STRAYS_PARENT=$2
    [[ $1 != Z ]]
}

# usage: strays::_belongs PROC-FOLDER FOLDER
# What is another's, or has ended meanwhile, cannot be read and does not belong.
strays::_belongs() {
    local item
    while IFS= read -r -d '' item; do
        [[ $item != "VERLJOB_LEASE=$2/lease" ]] || return 0
    done 2> /dev/null < "$1/environ"
    while IFS= read -r item; do
        [[ $item != "$2/tmp/"* ]] || return 0
    done < <(readlink -- "$1"/fd/* 2> /dev/null)
    return 1
}

# usage: strays::end FOLDER
# Kills them and sees them gone. They are stopped first, until a look finds no more: a child that was forked meanwhile
# is known by its parent alone.
strays::end() {
    local -r deadline=$((SECONDS + 5))
    local known=0
    strays::find "$1"
    while ((${#STRAYS[@]} > known)); do
        known=${#STRAYS[@]}
        kill -STOP "${STRAYS[@]}" 2> /dev/null || : # some may just have ended
        strays::find "$1"
    done
    while ((${#STRAYS[@]})); do
        if ((SECONDS >= deadline)); then
            RUNTIME_SAID="processes ${STRAYS[*]} do not end"
            return 1
        fi
        kill -KILL "${STRAYS[@]}" 2> /dev/null || : # some may just have ended
        sleep 0.1
        strays::find "$1"
    done
}

# shellcheck shell=bash
# Ownership checks: no other account may write the files that a job writes, reads and runs. See docs/security.md.

# usage: ownership::set_umask
# Removes write permission for others from the umask, unless a group shares the job's folders.
ownership::set_umask() {
    case ${VERLJOB_SHARED_FOLDERS:-} in
        1) ;;
        '' | 0) umask g-w,o-w ;;
        *)
            fail 64 "VERLJOB_SHARED_FOLDERS is '$VERLJOB_SHARED_FOLDERS'" \
                "set it to 1 if a group shares the job's folders on purpose, else unset it"
            ;;
    esac
}

# usage: ownership::make_folders RUN_DIR [FOLDER-IN-IT]...
# Creates the missing ones of RUN_DIR, the job's folders above it and the folders in it. Before that, ends with 77 if the
# submit folder or an existing folder is not this account's own.
ownership::make_folders() {
    local folder
    local -a folders=("$@") present=() missing=()
    if [[ $1 == */verljob/"$SLURM_JOB_ID/attempt-$VERLJOB_ATTEMPT" ]]; then
        folders=("${1%/*/*}" "${1%/*}" "$@")
    elif [[ $VERLJOB_ATTEMPT != 1 ]]; then
        folders=("${1%/*}" "$@")
    fi
    [[ ! -d $SLURM_SUBMIT_DIR ]] || present=("$SLURM_SUBMIT_DIR/.") # Python searches it for modules first
    for folder in "${folders[@]}"; do
        if [[ -e $folder || -L $folder ]]; then present+=("$folder"); else missing+=("$folder"); fi
    done
    ((${#present[@]} == 0)) || ownership::require "${present[@]}"
    [[ -d ${folders[0]%/*} ]] || mkdir -p -- "${folders[0]%/*}" || ownership::_cannot_write "$1"
    if ((${#missing[@]})) && ! mkdir -- "${missing[@]}"; then # another node may have created some meanwhile
        [[ -d $folder ]] || ownership::_cannot_write "$1"
        ownership::require "${missing[@]}"
    fi
    [[ -w $folder ]] || ownership::_cannot_write "$1"
}

# usage: ownership::_cannot_write RUN_DIR
ownership::_cannot_write() {
    fail 77 "cannot write to the run directory $1 on $HOST" "export VERLJOB_RUN_DIR=a folder that every node can write"
}

# usage: ownership::require FOLDER...
# Ends with 77 if another account owns a folder or can write it. Follows links of this account and of root only.
ownership::require() {
    local -a stats
    local -r count=$#
    local i owner group mode
    mapfile -t stats < <(stat --format='%u %g %A' -- "$@" && stat --dereference --format='%u %g %A' -- "$@")
    ((${#stats[@]} == 2 * count)) \
        || fail 77 "cannot stat $* on $HOST" "read the line above, and check the permissions of the folders above it"
    for ((i = 0; i < count; i++)); do
        read -r owner group mode <<< "${stats[i]}"
        [[ $mode != l* || $owner == "$UID" || $owner == 0 ]] \
            || ownership::_refuse "$1" "is a link that belongs to $(ownership::_account "$owner")"
        read -r owner group mode <<< "${stats[i + count]}"
        ownership::_check_mode "$1" "$owner" "$group" "$mode"
        shift
    done
}

# usage: ownership::_check_mode FOLDER UID GID MODE
ownership::_check_mode() {
    [[ $4 == d* ]] || ownership::_refuse "$1" "is not a folder, and belongs to $(ownership::_account "$2")"
    [[ ${VERLJOB_SHARED_FOLDERS:-} != 1 ]] || return 0
    [[ $2 == "$UID" || $2 == 0 ]] || ownership::_refuse "$1" "belongs to $(ownership::_account "$2")"
    if [[ ${4:8:1} == w ]] || { [[ ${4:5:1} == w ]] && ! ownership::_is_private_group "$3"; }; then
        ownership::_refuse "$1" "can be written by other accounts ($4, owner $(ownership::_account "$2"))"
    fi
}

# usage: ownership::_is_private_group GID
# A private group has the account's name and no other member; umask 002 is usual with it.
ownership::_is_private_group() {
    local name
    name=$(id -un) && [[ $1 == "$(id -g)" && $(getent group "$1") =~ ^"$name":[^:]*:[0-9]+:("$name")?$ ]]
}

# usage: ownership::_account UID
ownership::_account() {
    local name
    name=$(getent passwd "$1") && printf '%s (uid %s)' "${name%%:*}" "$1" || printf 'uid %s' "$1"
}

# usage: ownership::_refuse FOLDER REASON
ownership::_refuse() {
    local -r folder=${1%/.}
    local fix="chmod go-w $folder, if it is yours, or use a folder of your own (to submit from, or as VERLJOB_RUN_DIR and"
    fix+=' VERLJOB_CHECKPOINTS); a group that shares it on purpose exports VERLJOB_SHARED_FOLDERS=1'
    fail 77 "$folder on $HOST $2: another account may have put files into it" "$fix"
}

# usage: ownership::is_file FILE
# Tests for a readable regular file of this account: no link, and no FIFO, which would block the reader.
ownership::is_file() {
    [[ -f $1 && ! -L $1 && -r $1 ]] && [[ -O $1 || ${VERLJOB_SHARED_FOLDERS:-} == 1 ]]
}

# usage: ownership::write FILE COMMAND...
# Replaces FILE with COMMAND's output by rename, so that readers on other nodes see the whole file or none.
ownership::write() {
    local -r new=$1.$RANDOM$RANDOM$RANDOM
    (set -o noclobber && "${@:2}" > "$new") && mv -f -T -- "$new" "$1"
}

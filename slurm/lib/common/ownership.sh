# shellcheck shell=bash
# Whose the job's folders and files are: no other account may put anything into what a job writes, reads and runs.
# See docs/security.md.

# usage: ownership::begin
# Takes the right to write from others in all that is made from now on. A group that shares its folders keeps its umask.
ownership::begin() {
    case ${VERLJOB_SHARED_FOLDERS:-} in
        1) ;;
        '' | 0) umask g-w,o-w ;;
        *)
            fail 64 "VERLJOB_SHARED_FOLDERS is '$VERLJOB_SHARED_FOLDERS'" \
                "set it to 1 where a group shares the job's folders on purpose, or unset it"
            ;;
    esac
}

# usage: ownership::make RUN_DIR [FOLDER-IN-IT]...
# Makes what is missing of them and of the folders above RUN_DIR that are the job's. Before anything is made in it, the
# submit folder and whatever is there already are required to be the account's own. Ends with 77.
ownership::make() {
    local folder
    local -a folders=("$@") present=() missing=()
    if [[ $1 == */verljob/"$SLURM_JOB_ID/attempt-$VERLJOB_ATTEMPT" ]]; then
        folders=("${1%/*/*}" "${1%/*}" "$@")
    elif [[ $VERLJOB_ATTEMPT != 1 ]]; then
        folders=("${1%/*}" "$@")
    fi
    [[ ! -d $SLURM_SUBMIT_DIR ]] || present=("$SLURM_SUBMIT_DIR/.") # Python looks for modules there first
    for folder in "${folders[@]}"; do
        if [[ -e $folder || -L $folder ]]; then present+=("$folder"); else missing+=("$folder"); fi
    done
    ((${#present[@]} == 0)) || ownership::require "${present[@]}"
    [[ -d ${folders[0]%/*} ]] || mkdir -p -- "${folders[0]%/*}" || ownership::_cannot_write "$1"
    if ((${#missing[@]})) && ! mkdir -- "${missing[@]}"; then # another node may have made some meanwhile
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
# Ends with 77 unless each is a folder of this account or of root that nobody else may write. A link counts as the folder
# that it leads to where it is this account's own or root's.
ownership::require() {
    local -a seen
    local -r count=$#
    local i owner group mode
    mapfile -t seen < <(stat --format='%u %g %A' -- "$@" && stat --dereference --format='%u %g %A' -- "$@")
    ((${#seen[@]} == 2 * count)) \
        || fail 77 "cannot look at $* on $HOST" "see the line above, and who may enter the folders that lead there"
    for ((i = 0; i < count; i++)); do
        read -r owner group mode <<< "${seen[i]}"
        [[ $mode != l* || $owner == "$UID" || $owner == 0 ]] \
            || ownership::_refuse "$1" "is a link that belongs to $(ownership::_name "$owner")"
        read -r owner group mode <<< "${seen[i + count]}"
        ownership::_judge "$1" "$owner" "$group" "$mode"
        shift
    done
}

# usage: ownership::_judge FOLDER UID GID MODE
ownership::_judge() {
    [[ $4 == d* ]] || ownership::_refuse "$1" "is no folder, and belongs to $(ownership::_name "$2")"
    [[ ${VERLJOB_SHARED_FOLDERS:-} != 1 ]] || return 0
    [[ $2 == "$UID" || $2 == 0 ]] || ownership::_refuse "$1" "belongs to $(ownership::_name "$2")"
    if [[ ${4:8:1} == w ]] || { [[ ${4:5:1} == w ]] && ! ownership::_private "$3"; }; then
        ownership::_refuse "$1" "can be written by other accounts ($4, owner $(ownership::_name "$2"))"
    fi
}

# usage: ownership::_private GID
# Whether it is the account's private group, which has its name and nobody else in it; with it goes umask 002.
ownership::_private() {
    local name
    name=$(id -un) && [[ $1 == "$(id -g)" && $(getent group "$1") =~ ^"$name":[^:]*:[0-9]+:("$name")?$ ]]
}

# usage: ownership::_name UID
ownership::_name() {
    local name
    name=$(getent passwd "$1") && printf '%s (uid %s)' "${name%%:*}" "$1" || printf 'uid %s' "$1"
}

# usage: ownership::_refuse FOLDER WORDS
ownership::_refuse() {
    local -r folder=${1%/.}
    local fix="chmod go-w $folder, if it is yours, or use a folder of your own (to submit from, or as VERLJOB_RUN_DIR and"
    fix+=' VERLJOB_CHECKPOINTS); a group that shares it on purpose exports VERLJOB_SHARED_FOLDERS=1'
    fail 77 "$folder on $HOST $2: what lies there could be another account's" "$fix"
}

# usage: ownership::file FILE
# Whether it is a file that may be read: no link, and no FIFO that would hang the reader.
ownership::file() {
    [[ -f $1 && ! -L $1 && -r $1 ]] && [[ -O $1 || ${VERLJOB_SHARED_FOLDERS:-} == 1 ]]
}

# usage: ownership::write FILE COMMAND...
# Has COMMAND write the file, by rename of a new one: readers on other nodes see all of it or nothing.
ownership::write() {
    local -r new=$1.$RANDOM$RANDOM$RANDOM
    (set -o noclobber && "${@:2}" > "$new") && mv -f -T -- "$new" "$1"
}

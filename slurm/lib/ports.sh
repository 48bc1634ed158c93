# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh and node.sh
# Blocks of ports, each held by a lock on its own file in one folder of the node, for all jobs of all users.
# The kernel drops the lock when the holder dies, however it dies.

# Sites with a private /tmp for each job name a folder here that all jobs of a node see.
: "${VERLJOB_PORTS_FOLDER:=/tmp/verljob-ports}"

# The top of the range is for the heads' small blocks, so that they do not break up the nodes' large ones.
readonly PORTS_FOR_HEADS=256
# How long to wait for those who look for a block just now: jobs that start together on a busy node.
readonly PORTS_GUARD_S=30

# usage: ports::range
# Sets PORTS_LOW and PORTS_HIGH: the setting, cut off below the ports that this kernel gives to outgoing connections.
ports::range() {
    local ephemeral
    [[ $VERLJOB_PORT_RANGE =~ ^([0-9]+)-([0-9]+)$ ]] \
        || fail 64 "VERLJOB_PORT_RANGE=$VERLJOB_PORT_RANGE is no range" "write it as 20000-32767"
    PORTS_LOW=${BASH_REMATCH[1]} PORTS_HIGH=${BASH_REMATCH[2]}
    read -r ephemeral _ < "${1:-/proc/sys/net/ipv4/ip_local_port_range}"
    ((PORTS_HIGH < ephemeral)) || PORTS_HIGH=$((ephemeral - 1))
    ((PORTS_LOW >= 1024 && PORTS_HIGH - PORTS_LOW + 1 >= VERLJOB_PORTS + PORTS_FOR_HEADS)) || fail 64 \
        "VERLJOB_PORT_RANGE=$VERLJOB_PORT_RANGE leaves too few ports above 1023 and below this node's ephemeral ones, which begin at $ephemeral" \
        "name another range or a smaller VERLJOB_PORTS"
}

# usage: ports::_open FILE DESCRIPTOR-6-OR-7
# Made with O_EXCL and opened without O_CREAT: in a folder of all users the kernel may refuse anything else
# (fs.protected_regular).
ports::_open() {
    (umask 022 && set -o noclobber && : > "$1") 2> /dev/null || [[ -r $1 ]] || return 1
    case $2 in
        6) exec 6< "$1" ;;
        7) exec 7< "$1" ;;
    esac
}

# usage: ports::_held FILE
# Whether somebody holds this block; one that may not be looked at counts as held.
ports::_held() {
    local free=true
    if ! { exec 5< "$1"; } 2> /dev/null; then
        [[ -e $1 ]]
        return
    fi
    flock --nonblock 5 || free=false
    exec 5<&-
    ! $free
}

# Sets PORTS_BUSY to the ports on which something listens, whoever it is.
ports::_listening() {
    local file local_address state port
    PORTS_BUSY=()
    for file in /proc/net/tcp /proc/net/tcp6; do
        [[ -r $file ]] || continue
        while read -r _ local_address _ state _; do
            [[ $state == 0A ]] || continue
            port=$((16#${local_address##*:}))
            ((port < PORTS_LOW || port > PORTS_HIGH)) || PORTS_BUSY+=("$port")
        done < "$file"
    done
}

# usage: ports::_free FIRST LAST
# Asks only of the blocks that overlap: each question is a process, and all jobs of the node may wait for this one.
ports::_free() {
    local port file name
    for port in ${PORTS_BUSY[@]+"${PORTS_BUSY[@]}"}; do
        ((port < $1 || port > $2)) || return 1
    done
    for file in "$VERLJOB_PORTS_FOLDER"/[0-9]*-[0-9]*; do
        name=${file##*/}
        [[ -e $file ]] || continue
        ((${name#*-} < $1 || ${name%-*} > $2)) || ! ports::_held "$file" || return 1
    done
}

# usage: ports::_folder
ports::_folder() {
    [[ -d $VERLJOB_PORTS_FOLDER ]] || mkdir -m 1777 -- "$VERLJOB_PORTS_FOLDER" 2> /dev/null || [[ -d $VERLJOB_PORTS_FOLDER ]] \
        || fail 77 "cannot make the folder $VERLJOB_PORTS_FOLDER for port locks" "name another in VERLJOB_PORTS_FOLDER"
    ports::_open "$VERLJOB_PORTS_FOLDER/guard" 6 \
        || fail 77 "cannot write port locks to $VERLJOB_PORTS_FOLDER" "give that folder mode 1777, or name another in VERLJOB_PORTS_FOLDER"
    flock --timeout "$PORTS_GUARD_S" 6 || fail 69 "$VERLJOB_PORTS_FOLDER/guard was locked for $PORTS_GUARD_S s" "see who holds it: fuser $VERLJOB_PORTS_FOLDER/guard"
}

# usage: ports::reserve FIRST LAST SIZE START
#   ie: ports::reserve 20000 32511 512 "$SLURM_JOB_ID"
# Takes a free block of SIZE ports and sets PORTS_FIRST and PORTS_LAST. Descriptor 7 holds it until this shell ends.
# START spreads jobs over the range, for nodes where two of them cannot see each other's locks.
ports::reserve() {
    local -r first=$1 size=$3 count=$((($2 - $1 + 1) / $3))
    local n
    ports::_listening
    ports::_folder
    for ((n = 0; n < count; n++)); do
        PORTS_FIRST=$((first + ($4 + n) % count * size)) PORTS_LAST=$((first + ($4 + n) % count * size + size - 1))
        ports::_free "$PORTS_FIRST" "$PORTS_LAST" || continue
        ports::_open "$VERLJOB_PORTS_FOLDER/$PORTS_FIRST-$PORTS_LAST" 7 || continue
        flock --nonblock 7 || continue
        exec 6<&-
        return 0
    done
    fail 69 "no $size ports in a row are free between $1 and $2: all $count blocks are taken by jobs or listeners" \
        "wait for another job of the node to end, or set VERLJOB_PORT_RANGE"
}

# Sets PORTS_STALE to our own reservations that nobody holds any more; returns 1 without one.
ports::_stale() {
    local file
    PORTS_STALE=()
    for file in "$VERLJOB_PORTS_FOLDER"/[0-9]*-[0-9]*; do
        [[ ! -O $file ]] || ports::_held "$file" || PORTS_STALE+=("$file")
    done
    ((${#PORTS_STALE[@]}))
}

# Removes our own reservations that nobody holds any more; keeps nobody waiting when there is none.
ports::tidy() {
    ports::_stale || return 0
    ports::_folder
    ! ports::_stale || rm -f -- "${PORTS_STALE[@]}"
    exec 6<&-
}

# Gives the block back; safe to call without one.
ports::release() {
    [[ -n ${PORTS_FIRST:-} ]] || return 0
    rm -f -- "$VERLJOB_PORTS_FOLDER/$PORTS_FIRST-$PORTS_LAST" 2> /dev/null || say::warn "could not remove port lock $PORTS_FIRST"
    exec 7<&-
}

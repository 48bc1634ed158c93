# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh and node.sh
# Blocks of ports, each held by a lock on its own file in one folder of the node, for all jobs of all users.
# The kernel drops the lock when the holder dies, however it dies.

# Sites with a private /tmp for each job name a folder here that all jobs of a node see.
: "${VERLJOB_PORTS_FOLDER:=/tmp/verljob-ports}"

# The top of the range is for the heads' small blocks, so that they do not break up the nodes' large ones.
readonly PORTS_FOR_HEADS=256

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

# Reservations of others as "first last" pairs in PORTS_HELD; our own that nobody holds any more are removed.
ports::_held() {
    local file name
    PORTS_HELD=()
    for file in "$VERLJOB_PORTS_FOLDER"/[0-9]*-[0-9]*; do
        [[ -e $file ]] || continue
        name=${file##*/}
        if ! { exec 5< "$file"; } 2> /dev/null || ! flock --nonblock 5; then
            PORTS_HELD+=("${name%-*} ${name#*-}")
        elif [[ -O $file ]]; then
            rm -f -- "$file"
        fi
        exec 5<&-
    done
}

# Ports on which something listens, whoever it is, as single-port pairs in PORTS_HELD.
ports::_listening() {
    local file local_address state port
    for file in /proc/net/tcp /proc/net/tcp6; do
        [[ -r $file ]] || continue
        while read -r _ local_address _ state _; do
            [[ $state == 0A ]] || continue
            port=$((16#${local_address##*:}))
            ((port < PORTS_LOW || port > PORTS_HIGH)) || PORTS_HELD+=("$port $port")
        done < "$file"
    done
}

# usage: ports::_free FIRST LAST
ports::_free() {
    local pair
    for pair in ${PORTS_HELD[@]+"${PORTS_HELD[@]}"}; do
        ((${pair% *} > $2 || ${pair#* } < $1)) || return 1
    done
}

# usage: ports::_folder
ports::_folder() {
    [[ -d $VERLJOB_PORTS_FOLDER ]] || mkdir -m 1777 -- "$VERLJOB_PORTS_FOLDER" 2> /dev/null || [[ -d $VERLJOB_PORTS_FOLDER ]] \
        || fail 77 "cannot make the folder $VERLJOB_PORTS_FOLDER for port locks" "name another in VERLJOB_PORTS_FOLDER"
    ports::_open "$VERLJOB_PORTS_FOLDER/guard" 6 \
        || fail 77 "cannot write port locks to $VERLJOB_PORTS_FOLDER" "give that folder mode 1777, or name another in VERLJOB_PORTS_FOLDER"
    flock --timeout 10 6 || fail 69 "$VERLJOB_PORTS_FOLDER/guard was locked for 10 s" "see who holds it: fuser $VERLJOB_PORTS_FOLDER/guard"
}

# usage: ports::reserve FIRST LAST SIZE START
#   ie: ports::reserve 20000 32511 512 "$SLURM_JOB_ID"
# Takes a free block of SIZE ports and sets PORTS_FIRST and PORTS_LAST. Descriptor 7 holds it until this shell ends.
# START spreads jobs over the range, for nodes where two of them cannot see each other's locks.
ports::reserve() {
    local -r first=$1 size=$3 count=$((($2 - $1 + 1) / $3))
    local n
    ports::_folder
    ports::_held
    ports::_listening
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

# Removes our own reservations that nobody holds any more.
ports::tidy() {
    ports::_folder
    ports::_held
    exec 6<&-
}

# Gives the block back; safe to call without one.
ports::release() {
    [[ -n ${PORTS_FIRST:-} ]] || return 0
    rm -f -- "$VERLJOB_PORTS_FOLDER/$PORTS_FIRST-$PORTS_LAST" 2> /dev/null || say::warn "could not remove port lock $PORTS_FIRST"
    exec 7<&-
}

# shellcheck shell=bash disable=SC2034 # its variables are read by launch.sh and node.sh
# Locks on blocks of ports for all jobs of all accounts of a node: a flock on a folder named after the block, which the kernel
# releases when the holder dies.
#
# All accounts write to one sticky folder, so nothing in it is trusted: a job locks only folders that it has just created,
# opens only folders (a FIFO would block) and matches a name as digits before it computes with it. Another account can
# occupy blocks, but no lock of its can make a job wait.
# Sets: PORTS_BLOCK, PORTS_BUSY, PORTS_CHECKED, PORTS_CONTESTED, PORTS_FIRST, PORTS_HIGH, PORTS_LAST, PORTS_LAST_HELD,
#   PORTS_LOW.
# Descriptors: 7 the lock of the port block, 5 a block of another job while it is tested.

# With a private /tmp for each job, a site sets it to a folder that all jobs of a node see.
: "${VERLJOB_PORTS_FOLDER:=/tmp/verljob-ports}"

readonly PORTS_FOR_HEADS=256  # at the top of the range, so that the heads' small blocks do not fragment it
readonly PORTS_RETRY_S=8      # while other jobs lock the same blocks
readonly PORTS_MAX_CHECKS=500 # of others' locks, of which an account may create any number
readonly PORTS_FOLDER_S=3     # from mkdir of the folder to the mode that admits other accounts

# usage: ports::read_range
# Sets PORTS_LOW and PORTS_HIGH from VERLJOB_PORT_RANGE, cut off below this kernel's ephemeral ports.
ports::read_range() {
    local ephemeral
    [[ $VERLJOB_PORT_RANGE =~ ^([1-9][0-9]{3,4})-([1-9][0-9]{3,4})$ ]] \
        || fail 64 "VERLJOB_PORT_RANGE=$VERLJOB_PORT_RANGE is not a range of ports" "write it as 20000-32767"
    PORTS_LOW=${BASH_REMATCH[1]} PORTS_HIGH=${BASH_REMATCH[2]}
    [[ $VERLJOB_PORTS =~ ^[1-9][0-9]{0,4}$ ]] || fail 64 "VERLJOB_PORTS=$VERLJOB_PORTS is not a number of ports" "write it as 512"
    read -r ephemeral _ < "${1:-/proc/sys/net/ipv4/ip_local_port_range}"
    [[ $ephemeral =~ ^[0-9]{1,5}$ ]] || fail 69 "this node's ephemeral ports begin at '$ephemeral'" "see /proc/sys/net/ipv4/ip_local_port_range"
    ((PORTS_HIGH < ephemeral)) || PORTS_HIGH=$((ephemeral - 1))
    ((PORTS_LOW >= 1024 && PORTS_HIGH - PORTS_LOW + 1 >= VERLJOB_PORTS + PORTS_FOR_HEADS)) || fail 64 \
        "VERLJOB_PORT_RANGE=$VERLJOB_PORT_RANGE leaves too few ports above 1023 and below this node's ephemeral ones, which begin at $ephemeral" \
        "set another range or a smaller VERLJOB_PORTS"
}

# usage: ports::_overlaps FOLDER FIRST LAST
# Tests whether an entry of the port folder is a block that shares a port with FIRST…LAST.
ports::_overlaps() {
    [[ ${1##*/} =~ ^([1-9][0-9]{3,4})-([1-9][0-9]{3,4})\.[0-9]+$ ]] || return 1
    ((BASH_REMATCH[2] >= $2 && BASH_REMATCH[1] <= $3)) && [[ -d $1 && ! -L $1 ]]
}

# usage: ports::_is_held FOLDER
# Tests a block's lock; one that cannot be opened counts as held. `/.` opens nothing but a folder.
ports::_is_held() {
    local free=true
    ((++PORTS_CHECKED <= PORTS_MAX_CHECKS)) || return 0
    if ! { exec 5< "$1/."; } 2> /dev/null; then
        [[ -d $1 ]]
        return
    fi
    flock --shared --nonblock 5 || free=false # shared: jobs that only test do not exclude each other
    exec 5<&-
    ! $free
}

# Sets PORTS_BUSY to the ports with a listener. Reads each file at once: line by line, the kernel needs time quadratic in the
# connections, of which an account may leave thousands.
ports::_read_listeners() {
    local file line port
    local -a lines
    PORTS_BUSY=()
    for file in /proc/net/tcp /proc/net/tcp6; do
        [[ -r $file ]] || continue
        mapfile -t lines < "$file"
        for line in ${lines[@]+"${lines[@]}"}; do
            [[ $line == *' 0A '* && $line =~ ^\ *[0-9]+:\ [0-9A-F]+:([0-9A-F]{4})\ [0-9A-F:]+\ 0A\  ]] || continue
            printf -v port %d "0x${BASH_REMATCH[1]}"
            ((port < PORTS_LOW || port > PORTS_HIGH)) || PORTS_BUSY+=("$port")
        done
    done
}

# usage: ports::_is_free FIRST LAST
# Tests the block for listeners and for holders of overlapping blocks.
ports::_is_free() {
    local port folder
    for port in ${PORTS_BUSY[@]+"${PORTS_BUSY[@]}"}; do
        ((port < $1 || port > $2)) || return 1
    done
    for folder in "$VERLJOB_PORTS_FOLDER"/[1-9]*-*; do
        if [[ $folder != "$PORTS_BLOCK" ]] && ports::_overlaps "$folder" "$1" "$2" && ports::_is_held "$folder"; then
            PORTS_LAST_HELD=$folder
            return 1
        fi
    done
}

# Creates the folder of all jobs, or requires a sticky one.
ports::_make_folder() {
    local -r folder=$VERLJOB_PORTS_FOLDER deadline=$((SECONDS + PORTS_FOLDER_S))
    local owner
    [[ -e $folder || -L $folder ]] || mkdir -m 1777 -- "$folder" 2> /dev/null || [[ -d $folder ]] \
        || fail 77 "cannot make the folder $folder for port locks" "name another in VERLJOB_PORTS_FOLDER"
    while [[ -d $folder && ! -w $folder ]] && ((SECONDS < deadline)); do sleep 0.1; done
    owner=$(stat -c '%U (uid %u)' -- "$folder") || owner=nobody
    [[ -d $folder && ! -L $folder ]] || fail 77 "$folder, for port locks, is not a folder, or is a link; it belongs to $owner" \
        "have its owner or an operator remove it, or name another folder in VERLJOB_PORTS_FOLDER"
    [[ -w $folder && -x $folder ]] || fail 77 "cannot write port locks to $folder, which belongs to $owner" \
        "have root make it with mode 1777 (docs/runtimes.md), or name another in VERLJOB_PORTS_FOLDER"
    [[ -k $folder || -O $folder || $owner == *'(uid 0)' ]] || fail 77 "$folder, for port locks, belongs to $owner and is not sticky" \
        "have root make it with mode 1777 (docs/runtimes.md), or name another in VERLJOB_PORTS_FOLDER"
}

# usage: ports::_lock FIRST LAST
# Locks the block before it tests it: of two jobs that try at once, at least one sees the other. Until it is locked, no other
# account can open the folder, but ports::remove_stale of this account may remove it.
ports::_lock() {
    ports::_is_free "$1" "$2" || return 1
    PORTS_BLOCK=$VERLJOB_PORTS_FOLDER/$1-$2.$RANDOM$RANDOM
    mkdir -m 700 -- "$PORTS_BLOCK" || fail 69 "cannot make the port lock $PORTS_BLOCK" "see the line above; or name another folder in VERLJOB_PORTS_FOLDER"
    if { exec 7< "$PORTS_BLOCK/." && flock --nonblock 7 && chmod 755 -- "$PORTS_BLOCK"; } 2> /dev/null && ports::_is_free "$1" "$2"; then
        return 0
    fi
    PORTS_CONTESTED=yes
    ports::release
    return 1
}

# usage: ports::reserve FIRST LAST SIZE START
#   ie: ports::reserve 20000 32511 512 "$SLURM_JOB_ID"
# Locks a free block of SIZE ports until this shell ends; sets PORTS_FIRST and PORTS_LAST. START spreads jobs over the range,
# for nodes on which they cannot see each other's locks.
ports::reserve() {
    local -r first=$1 size=$3 count=$((($2 - $1 + 1) / $3)) deadline=$((SECONDS + PORTS_RETRY_S))
    local n
    ports::_make_folder
    PORTS_CONTESTED=yes PORTS_LAST_HELD='' PORTS_BLOCK='' PORTS_CHECKED=0
    while [[ -n $PORTS_CONTESTED ]] && ((SECONDS < deadline)); do
        PORTS_CONTESTED=''
        ports::_read_listeners
        for ((n = 0; n < count; n++)); do
            PORTS_FIRST=$((first + ($4 + n) % count * size)) PORTS_LAST=$((first + ($4 + n) % count * size + size - 1))
            ! ports::_lock "$PORTS_FIRST" "$PORTS_LAST" || return 0
        done
        [[ -z $PORTS_CONTESTED ]] || sleep "0.$((RANDOM % 9 + 1))" # not when the other jobs retry
    done
    fail 69 "no $size ports in a row are free between $1 and $2: all $count blocks are taken by jobs or listeners$(ports::_describe_held)" \
        "wait for another job of the node to end, or set VERLJOB_PORT_RANGE"
}

# Prints the owner of the last lock that was held by another job.
ports::_describe_held() {
    [[ -z $PORTS_LAST_HELD ]] || printf '; %s belongs to %s' "$PORTS_LAST_HELD" \
        "$(stat -c %U -- "$PORTS_LAST_HELD" 2> /dev/null || printf 'a job that has just ended')"
}

# Removes this account's locks that no job holds; locks each first, so that no job can take it meanwhile.
ports::remove_stale() {
    local folder
    for folder in "$VERLJOB_PORTS_FOLDER"/[1-9]*-*; do
        ports::_overlaps "$folder" 0 65535 && [[ -O $folder ]] || continue
        { exec 5< "$folder/."; } 2> /dev/null || continue
        ! flock --nonblock 5 || rmdir -- "$folder" 2> /dev/null || log::warn "could not remove the port lock $folder"
        exec 5<&-
    done
}

# Releases the block, if one is held.
ports::release() {
    [[ -n ${PORTS_BLOCK:-} ]] || return 0
    rmdir -- "$PORTS_BLOCK" 2> /dev/null || [[ ! -e $PORTS_BLOCK ]] || log::warn "could not remove the port lock $PORTS_BLOCK"
    PORTS_BLOCK=''
    exec 7<&-
}

# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh and node.sh
# Blocks of ports, each held by a lock on a folder of its own, for all jobs of all accounts of the node. The kernel drops the
# lock when the holder dies, however it dies.
#
# All accounts write to one sticky folder, so nothing in it is trusted: a job locks only what it has just made, no entry
# is opened that is no folder (a FIFO would hang), and a name is matched before it is counted with. No lock is shared:
# a stranger can occupy blocks, and not keep a job waiting. Descriptor 7 holds the block, 5 is for a look at another's.
# Sets: PORTS_BLOCK, PORTS_BUSY, PORTS_CONTESTED, PORTS_FIRST, PORTS_HIGH, PORTS_LAST, PORTS_LOOKED, PORTS_LOW,
#   PORTS_OTHERS.
# Descriptors: 7 the lock of the port block, 5 a folder that is looked at.

# Sites with a private /tmp for each job name a folder here that all jobs of a node see.
: "${VERLJOB_PORTS_FOLDER:=/tmp/verljob-ports}"

# The top of the range is for the heads' small blocks, so that they do not break up the nodes' large ones.
readonly PORTS_FOR_HEADS=256
# How long to look again where other jobs reach for the same blocks just now.
readonly PORTS_CONTEST_S=8
# How many blocks of others are looked at: an honest node has fewer, and a stranger may make any number.
readonly PORTS_LOOKS=500
# How long a folder may take from mkdir to the mode that lets other accounts in.
readonly PORTS_FOLDER_S=3

# usage: ports::range
# Sets PORTS_LOW and PORTS_HIGH: the setting, cut off below the ports that this kernel gives to outgoing connections.
ports::range() {
    local ephemeral
    [[ $VERLJOB_PORT_RANGE =~ ^([1-9][0-9]{3,4})-([1-9][0-9]{3,4})$ ]] \
        || fail 64 "VERLJOB_PORT_RANGE=$VERLJOB_PORT_RANGE is no range of ports" "write it as 20000-32767"
    PORTS_LOW=${BASH_REMATCH[1]} PORTS_HIGH=${BASH_REMATCH[2]}
    [[ $VERLJOB_PORTS =~ ^[1-9][0-9]{0,4}$ ]] || fail 64 "VERLJOB_PORTS=$VERLJOB_PORTS is no number of ports" "write it as 512"
    read -r ephemeral _ < "${1:-/proc/sys/net/ipv4/ip_local_port_range}"
    [[ $ephemeral =~ ^[0-9]{1,5}$ ]] || fail 69 "this node's ephemeral ports begin at '$ephemeral'" "see /proc/sys/net/ipv4/ip_local_port_range"
    ((PORTS_HIGH < ephemeral)) || PORTS_HIGH=$((ephemeral - 1))
    ((PORTS_LOW >= 1024 && PORTS_HIGH - PORTS_LOW + 1 >= VERLJOB_PORTS + PORTS_FOR_HEADS)) || fail 64 \
        "VERLJOB_PORT_RANGE=$VERLJOB_PORT_RANGE leaves too few ports above 1023 and below this node's ephemeral ones, which begin at $ephemeral" \
        "name another range or a smaller VERLJOB_PORTS"
}

# usage: ports::_overlaps FOLDER FIRST LAST
# Whether this entry of the port folder is a block that shares a port with FIRST…LAST; any other entry is no block.
ports::_overlaps() {
    [[ ${1##*/} =~ ^([1-9][0-9]{3,4})-([1-9][0-9]{3,4})\.[0-9]+$ ]] || return 1
    ((BASH_REMATCH[2] >= $2 && BASH_REMATCH[1] <= $3)) && [[ -d $1 && ! -L $1 ]]
}

# usage: ports::_held FOLDER
# Whether somebody holds this block; one that may not be looked at counts as held. `/.` opens a folder and nothing else.
ports::_held() {
    local free=true
    ((++PORTS_LOOKED <= PORTS_LOOKS)) || return 0
    if ! { exec 5< "$1/."; } 2> /dev/null; then
        [[ -d $1 ]]
        return
    fi
    flock --shared --nonblock 5 || free=false # shared: who only looks is nobody's holder
    exec 5<&-
    ! $free
}

# Sets PORTS_BUSY to the ports on which something listens, whoever it is. A file is read at once: by lines it takes the kernel
# as long as the square of its connections, and any account may leave thousands.
ports::_listening() {
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

# usage: ports::_free FIRST LAST
# Whether nobody but this shell has a port of the block. Only blocks that overlap are asked for: each question is a process.
ports::_free() {
    local port folder
    for port in ${PORTS_BUSY[@]+"${PORTS_BUSY[@]}"}; do
        ((port < $1 || port > $2)) || return 1
    done
    for folder in "$VERLJOB_PORTS_FOLDER"/[1-9]*-*; do
        if [[ $folder != "$PORTS_BLOCK" ]] && ports::_overlaps "$folder" "$1" "$2" && ports::_held "$folder"; then
            PORTS_OTHERS=$folder
            return 1
        fi
    done
}

# Makes the folder of all jobs, or sees that it is one in which nobody but its owner and root removes another's block.
ports::_folder() {
    local -r folder=$VERLJOB_PORTS_FOLDER deadline=$((SECONDS + PORTS_FOLDER_S))
    local owner
    [[ -e $folder || -L $folder ]] || mkdir -m 1777 -- "$folder" 2> /dev/null || [[ -d $folder ]] \
        || fail 77 "cannot make the folder $folder for port locks" "name another in VERLJOB_PORTS_FOLDER"
    while [[ -d $folder && ! -w $folder ]] && ((SECONDS < deadline)); do sleep 0.1; done
    owner=$(stat -c '%U (uid %u)' -- "$folder") || owner=nobody
    [[ -d $folder && ! -L $folder ]] || fail 77 "$folder, for port locks, is no folder or a link; it belongs to $owner" \
        "have its owner or an operator remove it, or name another folder in VERLJOB_PORTS_FOLDER"
    [[ -w $folder && -x $folder ]] || fail 77 "cannot write port locks to $folder, which belongs to $owner" \
        "have root make it with mode 1777 (docs/runtimes.md), or name another in VERLJOB_PORTS_FOLDER"
    [[ -k $folder || -O $folder || $owner == *'(uid 0)' ]] || fail 77 "$folder, for port locks, belongs to $owner and is not sticky" \
        "have root make it with mode 1777 (docs/runtimes.md), or name another in VERLJOB_PORTS_FOLDER"
}

# usage: ports::_take FIRST LAST
# Takes the block, by lock first and look afterwards: of two that reach for it at once, one sees the other, or both do. Others
# may open it when it is locked. Until then it may be removed by a tidying up of our own account.
ports::_take() {
    ports::_free "$1" "$2" || return 1
    PORTS_BLOCK=$VERLJOB_PORTS_FOLDER/$1-$2.$RANDOM$RANDOM
    mkdir -m 700 -- "$PORTS_BLOCK" || fail 69 "cannot make the port lock $PORTS_BLOCK" "see the line above; or name another folder in VERLJOB_PORTS_FOLDER"
    if { exec 7< "$PORTS_BLOCK/." && flock --nonblock 7 && chmod 755 -- "$PORTS_BLOCK"; } 2> /dev/null && ports::_free "$1" "$2"; then
        return 0
    fi
    PORTS_CONTESTED=yes
    ports::release
    return 1
}

# usage: ports::reserve FIRST LAST SIZE START
#   ie: ports::reserve 20000 32511 512 "$SLURM_JOB_ID"
# Takes a free block of SIZE ports and sets PORTS_FIRST and PORTS_LAST. Descriptor 7 holds it until this shell ends.
# START spreads jobs over the range, for nodes where two of them cannot see each other's locks.
ports::reserve() {
    local -r first=$1 size=$3 count=$((($2 - $1 + 1) / $3)) deadline=$((SECONDS + PORTS_CONTEST_S))
    local n
    ports::_folder
    PORTS_CONTESTED=yes PORTS_OTHERS='' PORTS_BLOCK='' PORTS_LOOKED=0
    while [[ -n $PORTS_CONTESTED ]] && ((SECONDS < deadline)); do
        PORTS_CONTESTED=''
        ports::_listening
        for ((n = 0; n < count; n++)); do
            PORTS_FIRST=$((first + ($4 + n) % count * size)) PORTS_LAST=$((first + ($4 + n) % count * size + size - 1))
            ! ports::_take "$PORTS_FIRST" "$PORTS_LAST" || return 0
        done
        [[ -z $PORTS_CONTESTED ]] || sleep "0.$((RANDOM % 9 + 1))" # not at the moment at which the others look again
    done
    fail 69 "no $size ports in a row are free between $1 and $2: all $count blocks are taken by jobs or listeners$(ports::_holder)" \
        "wait for another job of the node to end, or set VERLJOB_PORT_RANGE"
}

# Prints whose block was passed over last, if one was.
ports::_holder() {
    [[ -z $PORTS_OTHERS ]] || printf '; %s belongs to %s' "$PORTS_OTHERS" "$(stat -c %U -- "$PORTS_OTHERS" 2> /dev/null || printf 'a job that has just ended')"
}

# Removes our own reservations that nobody holds any more. The lock is ours when a folder goes, so nobody takes it meanwhile.
ports::tidy() {
    local folder
    for folder in "$VERLJOB_PORTS_FOLDER"/[1-9]*-*; do
        ports::_overlaps "$folder" 0 65535 && [[ -O $folder ]] || continue
        { exec 5< "$folder/."; } 2> /dev/null || continue
        ! flock --nonblock 5 || rmdir -- "$folder" 2> /dev/null || log::warn "could not remove the port lock $folder"
        exec 5<&-
    done
}

# Gives the block back; safe to call without one.
ports::release() {
    [[ -n ${PORTS_BLOCK:-} ]] || return 0
    rmdir -- "$PORTS_BLOCK" 2> /dev/null || [[ ! -e $PORTS_BLOCK ]] || log::warn "could not remove the port lock $PORTS_BLOCK"
    PORTS_BLOCK=''
    exec 7<&-
}

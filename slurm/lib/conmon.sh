# shellcheck shell=bash disable=SC2034 # what it sets is read by podman.sh
# Podman's containers as the processes of this node show them: each has a conmon for a parent.

# usage: conmon::pid FILE
# Sets CONMON_PID to the process that a file of podman's names: -1 would be every process of the account. File, folder and
# process are the account's own, or it returns 1; so nobody else can put a FIFO there, which would hang.
conmon::pid() {
    CONMON_PID=''
    [[ -f $1 && ! -L $1 && -O $1 && -O ${1%/*} ]] || return 1
    { read -r CONMON_PID < "$1"; } 2> /dev/null || [[ -n $CONMON_PID ]] || return 1
    [[ $CONMON_PID =~ ^[1-9][0-9]*$ && -O /proc/$CONMON_PID ]]
}

# usage: conmon::look NAME
# Looks at the account's own processes: anybody may give his any command line. Sets CONMON_BUSY when the container's conmon
# is there, or a podman that tidies up after one (it would start the process of leave again); CONMON_INIT to its first
# process; CONMON_OTHERS when this account has others.
conmon::look() {
    local folder item last name pidfile
    local -a words
    CONMON_BUSY='' CONMON_INIT='' CONMON_OTHERS=''
    for folder in /proc/[1-9]*; do
        [[ -O $folder ]] || continue
        words=() last='' name='' pidfile=''
        while IFS= read -r -d '' item; do words+=("$item"); done 2> /dev/null < "$folder/cmdline" || continue # it has ended
        [[ " ${words[*]-} " != *' container cleanup '* ]] || CONMON_BUSY=yes
        [[ ${words[0]-} == */conmon ]] || continue
        for item in "${words[@]}"; do
            case $last in -n) name=$item ;; -p) pidfile=$item ;; esac
            last=$item
        done
        if [[ $name == "$1" ]]; then
            CONMON_BUSY=yes
            ! conmon::pid "$pidfile" || CONMON_INIT=$CONMON_PID # else it has not started yet
        else
            CONMON_OTHERS=yes
        fi
    done
}

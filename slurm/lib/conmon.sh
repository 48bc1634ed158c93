# shellcheck shell=bash disable=SC2034 # what it sets is read by podman.sh
# Podman's containers as the processes of this node show them: each has a conmon for a parent.

# usage: conmon::look NAME
# Looks at the processes. Sets CONMON_BUSY when the container's conmon is there, or a podman that tidies up after one (it
# would start the process of leave again); CONMON_INIT to its first process; CONMON_OTHERS when this account has others.
conmon::look() {
    local folder item last name pidfile
    local -a words
    CONMON_BUSY='' CONMON_INIT='' CONMON_OTHERS=''
    for folder in /proc/[0-9]*; do
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
            { read -r CONMON_INIT < "$pidfile"; } 2> /dev/null || [[ -n $CONMON_INIT ]] || continue # not started yet
        elif [[ -O $folder ]]; then
            CONMON_OTHERS=yes
        fi
    done
}

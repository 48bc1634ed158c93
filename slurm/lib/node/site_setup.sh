# shellcheck shell=bash disable=SC2153 # HOST is node.sh's
# Prepares a node as its site wants it: loads modules before the runtime is used, and runs the site's own program before and
# after the container. A profile names both (docs/profiles.md).

readonly SITE_HOOK_S=60 SITE_HOOK_ENDING_S=1 # limit of a hook; and after TERM, when node.sh has seconds
readonly -a SITE_MODULE_INITS=(/etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash)

# Loads VERLJOB_MODULES, names separated by blanks, into this shell; ends with 64 or 69.
site_setup::load_modules() {
    local name
    local -a names
    read -r -a names <<< "${VERLJOB_MODULES:-}"
    ((${#names[@]})) || return 0
    for name in "${names[@]}"; do
        [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._+/-]*$ ]] || fail 64 "VERLJOB_MODULES has '$name'" "write names of modules, separated by blanks"
    done
    site_setup::_find_module_command
    for name in "${names[@]}"; do
        site_setup::_load "$name" || fail 69 "the module $name cannot be loaded on $HOST" \
            "see its message above; the profile names it (modules.load), and export VERLJOB_MODULES='' loads none"
        log::note "loaded the module $name"
    done
}

# Defines the shell function `module`, which a login shell exports on most sites.
site_setup::_find_module_command() {
    local file
    for file in "${MODULESHOME:-}/init/bash" "${SITE_MODULE_INITS[@]}"; do
        [[ $(type -t module) != function ]] || return 0
        [[ -r $file ]] || continue
        site_setup::_leniently source "$file" || : # the next line tests it
    done
    [[ $(type -t module) == function ]] \
        || fail 69 "$HOST has no command \`module\`, and the profile loads $VERLJOB_MODULES" "export VERLJOB_MODULES='' if the nodes need no modules"
}

# usage: site_setup::_load NAME
# Old versions of Environment Modules succeed for a module that does not exist: LOADEDMODULES tells.
site_setup::_load() {
    site_setup::_leniently module load "$1" >&2 || return 1
    [[ -z ${LOADEDMODULES+set} || :$LOADEDMODULES: == *":$1"[:/]* ]]
}

# usage: site_setup::_leniently COMMAND...
# Runs it in this shell without -e, -u and the ERR trap, which modules do not expect.
site_setup::_leniently() {
    local code
    set +Eeu
    "$@"
    code=$?
    set -Eeu
    return "$code"
}

# usage: site_setup::run_before
# Runs the program that the profile names for before the container; ends with 64, 69 or 77.
site_setup::run_before() {
    local -r path=${VERLJOB_HOOK_BEFORE:-}
    [[ -n $path ]] || return 0
    site_setup::_require_own "$path"
    process::run env --unset=VERLJOB_TOKEN timeout --kill-after=2 "$SITE_HOOK_S" "$path" >&2 3>&- \
        || { [[ -z $ENDING ]] || exit 143; fail 69 "the site's program $path failed on $HOST (${PROCESS_CODE:-143}; 124 is its limit of $SITE_HOOK_S s)" "see its output above"; }
}

# Runs the program for after the container. Its failure changes nothing.
site_setup::run_after() {
    local -r path=${VERLJOB_HOOK_AFTER:-}
    [[ -n $path && -n ${CONTAINER_CLIENT:-} ]] || return 0
    (site_setup::_require_own "$path") || { log::warn "the site's program $path is not this account's or root's: it was not run"; return 0; }
    env --unset=VERLJOB_TOKEN timeout --kill-after=1 "$((${#ENDING} ? SITE_HOOK_ENDING_S : SITE_HOOK_S))" "$path" >&2 3>&- 4>&- \
        || log::warn "the site's program $path ended with $? after the container"
}

# usage: site_setup::_require_own PATH
site_setup::_require_own() {
    local owner mode
    [[ $1 == /* && -f $1 && -x $1 ]] || fail 64 "the site's program $1 is not one that $HOST can run" "name an executable file by its absolute path"
    read -r owner mode < <(stat --dereference --format='%u %a' -- "$1")
    [[ $owner == 0 || $owner == "$UID" ]] && [[ $mode == *[0145][0145] ]] \
        || fail 77 "the site's program $1 belongs to uid $owner with mode $mode: another account can change it" "use a file of root or your own, chmod go-w"
}

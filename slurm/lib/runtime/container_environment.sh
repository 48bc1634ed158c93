# shellcheck shell=bash
# The script that sets a container's variables, for runtimes whose own ways put values into a command or change them.

# Prints a script that sets the container's variables, after those of the image, and runs its arguments: so no value is in a
# command, and none is replaced by the image's.
container_environment::print() {
    local name
    cat -- "$VERLJOB_HOME/slurm/lib/runtime/image_environment.sh"
    for name in "${CONTAINER_ENV[@]}"; do
        if [[ -n ${!name+set} ]]; then printf 'export %s=%q\n' "$name" "${!name}"; else printf 'unset %s\n' "$name"; fi
    done
    printf 'exec "$@"\n'
}

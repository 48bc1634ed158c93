#!/usr/bin/env bash
# The entrypoint of every image: `node …` runs one node of a job (verl_node), any other command runs unchanged.
set -Eeuo pipefail

readonly SECRETS=${VERLJOB_SECRETS:-/run/verljob/secrets}
HERE=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
PACKAGES=$HERE/python

# shellcheck source=entrypoints/account.sh
source "$HERE/account.sh"

# Exports the `NAME=value` lines of the secrets file, which is a bind mount, so that no value is in an argv. Adds their
# names to VERLJOB_SECRET_NAMES, by which verl_node masks the values.
_export_secrets() {
    local line
    [[ -r $SECRETS ]] || return 0
    while IFS= read -r line || [[ -n $line ]]; do
        [[ $line =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || continue
        export "${line?}" VERLJOB_SECRET_NAMES="${VERLJOB_SECRET_NAMES:+$VERLJOB_SECRET_NAMES,}${line%%=*}"
    done < "$SECRETS"
}

# Adds our packages to PYTHONPATH if Python does not find them: in the image a .pth file adds them to sys.path, a user's
# own interpreter (VERLJOB_… or a venv) has none. Python starts only if PYTHONPATH does not have them: that takes as long
# as the rest of this script.
_export_pythonpath() {
    [[ -d $PACKAGES ]] || PACKAGES=${PACKAGES%/*}
    [[ :${PYTHONPATH:-}: != *":$PACKAGES:"* ]] || return 0
    python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("verl_node") is None)' \
        || export PYTHONPATH=$PACKAGES${PYTHONPATH:+:$PYTHONPATH}
}

_main() {
    [[ $HERE != /opt/verljob ]] || account::switch "$HERE/entrypoint.sh" "$@" # with bare the host has the accounts
    account::set_home
    account::warn_about_devices
    _export_secrets
    [[ ${1:-} == node ]] || exec "$@"
    _export_pythonpath
    exec python3 -m verl_node "${@:2}"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then _main "$@"; fi

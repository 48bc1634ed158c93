#!/usr/bin/env bash
# The entrypoint of every image: `node …` is one node of a job (verl_node), anything else is run as it stands.
set -Eeuo pipefail

readonly SECRETS=${VERLJOB_SECRETS:-/run/verljob/secrets}
HERE=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
PACKAGES=$HERE/python

# shellcheck source=entrypoints/account.sh
source "$HERE/account.sh"

# Exports the `NAME=value` lines of the secrets file, which came by bind mount and never in an argv; prints none. Their
# names are added to VERLJOB_SECRET_NAMES, by which verl_node masks their values.
_export_secrets() {
    local line
    [[ -r $SECRETS ]] || return 0
    while IFS= read -r line || [[ -n $line ]]; do
        [[ $line =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || continue
        export "${line?}" VERLJOB_SECRET_NAMES="${VERLJOB_SECRET_NAMES:+$VERLJOB_SECRET_NAMES,}${line%%=*}"
    done < "$SECRETS"
}

# A .pth file puts our packages on sys.path; an interpreter of the user's own (VERLJOB_… or a venv) has none. Python is
# not asked where PYTHONPATH names them: that takes as long as the rest of this script.
_find_packages() {
    [[ -d $PACKAGES ]] || PACKAGES=${PACKAGES%/*}
    [[ :${PYTHONPATH:-}: != *":$PACKAGES:"* ]] || return 0
    python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("verl_node") is None)' \
        || export PYTHONPATH=$PACKAGES${PYTHONPATH:+:$PYTHONPATH}
}

_main() {
    [[ $HERE != /opt/verljob ]] || account::become "$HERE/entrypoint.sh" "$@" # a host's accounts are its own (bare)
    account::settle
    account::warn_of_devices
    _export_secrets
    [[ ${1:-} == node ]] || exec "$@"
    _find_packages
    exec python3 -m verl_node "${@:2}"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then _main "$@"; fi

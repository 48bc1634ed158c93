# shellcheck shell=bash
# result.json of a job whose head did not get to speak for it. See docs/flow.md.

# usage: result::_json TEXT
result::_json() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//[[:cntrl:]]/ }
    printf '"%s"' "$text"
}

# usage: result::_phases FILE
# Prints the seconds of the phases in the head's result.json; an empty object where it wrote none.
result::_phases() {
    local text=''
    ! ownership::file "$1" || text=$(< "$1")
    if [[ $text =~ \"phases\":[[:space:]]*(\{[^\}]*\}) ]]; then printf '%s' "${BASH_REMATCH[1]}"; else printf '{}'; fi
}

# usage: result::write FILE ATTEMPT NODE...
# Writes it of VERDICT; keeps the phases that the head wrote.
result::write() {
    local phases
    phases=$(result::_phases "$1")
    ownership::write "$1" result::_print "$phases" "${@:2}"
}

# usage: result::_print PHASES ATTEMPT NODE...
result::_print() {
    local key node comma=''
    printf '{"code": %d, "attempt": %d' "${VERDICT[code]}" "$2"
    for key in stage host cause fix; do printf ', "%s": ' "$key"; result::_json "${VERDICT[$key]}"; done
    printf ', "phases": %s, "nodes": [' "$1"
    for node in "${@:3}"; do printf '%s' "$comma"; result::_json "$node"; comma=', '; done
    printf ']}\n'
}

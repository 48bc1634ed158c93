# shellcheck shell=bash
# What is said of a failed job before its last line: what the head found in the logs, or what the verdict tells by itself.

# usage: explanation::print FILE
# FILE is the head's, where its verdict is the job's; a job that ended well has none.
explanation::print() {
    [[ ${VERDICT[code]} != 0 ]] || return 0
    if [[ -s $1 ]] && ownership::file "$1"; then
        log::printable "$(< "$1")"
        return 0
    fi
    explanation::_row 'first failure' "$(explanation::class): ${VERDICT[cause]}"
    explanation::_row where "${VERDICT[host]}"
    explanation::_row fix "${VERDICT[fix]}"
    explanation::_row read docs/faults.md
}

# usage: explanation::_row NAME WORDS
explanation::_row() {
    [[ -z $2 ]] || log::printable "$(printf '%-14s%s' "$1" "${2//$'\n'/ }")"
}

# Prints the class of the failure that the verdict tells; verl_node/explain/outcome.py has the same tables.
explanation::class() {
    case ${VERDICT[cause]} in
        *'want of memory'*) printf 'memory' && return ;;
        *' runs image '*) printf 'image' && return ;;
        *'limit of processes'* | *'time limit'*) printf 'slurm-container' && return ;;
    esac
    [[ ${VERDICT[stage]} != train || ${VERDICT[code]} == 143 ]] || { printf 'unknown' && return; }
    case ${VERDICT[code]} in
        64 | 65) printf 'config' && return ;;
        71 | 75) printf 'ray-gcs' && return ;;
        77 | 143) printf 'slurm-container' && return ;;
    esac
    case ${VERDICT[stage]} in
        image | data) printf '%s' "${VERDICT[stage]}" ;;
        model) printf 'hf-cache' ;;
        checks | container | launch | lead) printf 'slurm-container' ;;
        head | join | cluster) printf 'ray-gcs' ;;
        *) printf 'unknown' ;;
    esac
}

# shellcheck shell=bash
# What some tasks take beside the engine: programs by the packages of Debian that have them.

declare -A TOOL_PACKAGES=([mksquashfs]=squashfs-tools) # where the package is not called as the program
declare -A TOOL_REASONS=(
    [buildah]='builds images of which the same inputs give the same bytes'
    [podman]='the third engine that the tests build with'
    [skopeo]='writes OCI archives'
    [mksquashfs]="writes the squashfs that enroot starts"
)

# usage: tools::of WORD...
# Sets TOOLS to the programs that the task and flags among the words take.
tools::of() {
    local word
    TOOLS=()
    for word in "$@"; do
        case $word in
            --) break ;;
            test) TOOLS=(buildah podman skopeo mksquashfs) ;;
            --reproducible) TOOLS+=(buildah) ;;
        esac
        [[ $word != *oci-archive* ]] || TOOLS+=(skopeo)
        [[ $word != *squashfs* ]] || TOOLS+=(mksquashfs)
    done
}

# Wants the packages that are missing.
tools::want() {
    local tool
    for tool in "${TOOLS[@]}"; do
        command -v "$tool" > /dev/null || packages::want "${TOOL_PACKAGES[$tool]:-$tool}" "${TOOL_REASONS[$tool]}"
    done
}

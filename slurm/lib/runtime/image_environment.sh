#!/bin/bash
# First lines of the script that runs an image's entrypoint (container_environment.sh): the variables of the image, which
# Apptainer has set unless the image is a squashfs for enroot, and enroot has, unless nsenter runs the script.
# Sets: LD_LIBRARY_PATH.
libraries=${LD_LIBRARY_PATH:-} # the driver's, by --nv
if [[ -d /.singularity.d/env ]]; then
    # shellcheck source=/dev/null # the image's
    [[ -n ${APPTAINER_NAME:-${SINGULARITY_NAME:-}} ]] || for file in /.singularity.d/env/*.sh; do . "$file"; done
elif [[ -f /etc/rc ]]; then
    while IFS= read -r line; do [[ ! $line =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || export "${line?}"; done < /etc/environment
    [[ -z $libraries || $libraries == "${LD_LIBRARY_PATH:-}" ]] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries
fi

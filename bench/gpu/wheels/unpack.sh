#!/bin/bash
# usage: unpack.sh PIECES ENVIRONMENT
# Makes the environment of pack.py's pieces, the files PIECES/part*, on top of the packages of this machine's python3, and
# writes bytecode for both.
set -Eeuo pipefail

pieces=$1 environment=$2
machine=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python3 -m venv --without-pip "$environment"
own=$("$environment/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cat "$pieces"/part* | xz -dc -T0 | tar -C "$own" -x
for folder in "$own" "$machine"; do # without bytecode every process compiles what it imports
    [[ ! -w $folder ]] || python3 -m compileall -q -j 0 "$folder" > /dev/null || : # some files are for another Python
done
printf '%s\n' "$machine" > "$own/machine.pth" # behind the packages of the pieces
"$environment/bin/python3" -c 'import ray, torch, transformers, verl, vllm; print(*(f"{m.__name__} {m.__version__}" for m in (ray, torch, transformers, verl, vllm)))'

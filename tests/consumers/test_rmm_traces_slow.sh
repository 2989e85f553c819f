# SPDX-License-Identifier: Apache-2.0
# berm through its resource for RMM against RMM's own allocators on every recording at hand: less
# memory on each, and less time.
. "$(dirname "$0")/../cli/lib.sh"
for library in librmm_baseline.so librmm_berm.so; do
    if [ ! -e "$BERM_SOURCE/build/rmm/$library" ]; then
        echo 'SKIP: RMM is not set up: run ./run rmm-setup'
        exit 77
    fi
done
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is measured here is not sanitized'
    exit 77
fi
if [ -n "${BERM_SHARED:-}" ]; then
    traces=("$BERM_SHARED"/traces/*.gz "$BERM_SHARED"/traces/own/*.gz
        "$BERM_SHARED"/traces/minimalloc_*.csv)
else
    echo 'SKIP: no recordings beside the repository (in ../shared/traces): the shipped ones only'
    traces=("$BERM_SOURCE"/stress/traces/*.pickle.gz)
fi
python3 -B "$BERM_SOURCE/tests/consumers/rmm/traces.py" "$BERM" "${traces[@]}" ||
    fail 'berm is behind RMM'
finish

# SPDX-License-Identifier: Apache-2.0
# The models of PyTorch's allocators against the real ones: the same trace through both, reserved
# bytes within 0.5 % after every event, with room and, for traces that are not long, at the smallest
# capacity, which must be the same. Then RMM's, which have no model: clean runs. Prints the table that
# docs/baselines.md has.
. "$(dirname "$0")/../cli/lib.sh"

# Sanitized builds differ in nothing that is compared here.
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: the real allocators are compared in the plain build'
    exit 77
fi
has_torch=yes has_rmm=yes
[ -e "${BERM_TORCH_BASELINE:-$BERM_SOURCE/build/torch/libtorch_baseline.so}" ] || has_torch=no
[ -e "${BERM_RMM_BASELINE:-$BERM_SOURCE/build/rmm/librmm_baseline.so}" ] || has_rmm=no
export BERM_TORCH_BASELINE=${BERM_TORCH_BASELINE:-$BERM_SOURCE/build/torch/libtorch_baseline.so}
export BERM_RMM_BASELINE=${BERM_RMM_BASELINE:-$BERM_SOURCE/build/rmm/librmm_baseline.so}
if [ "$has_torch$has_rmm" = nono ]; then
    echo 'SKIP: no real allocators are set up: run ./run torch-setup and ./run rmm-setup'
    exit 77
fi

# series ALLOCATOR OUT ARGUMENT...: a clean run that writes OUT.
series() {
    local allocator=$1 out=$2
    shift 2
    expect 0 "$BERM" replay --json --allocator "$allocator" --series "$out" "$@"
}

# The largest relative difference of reserved over all events; fails above 0.5 %.
compare() { # NAME REAL MODEL
    python3 - "$@" "$work/real.csv" "$work/model.csv" <<'PY'
import csv, sys
name, real_name, model_name, real_path, model_path = sys.argv[1:]
def reserved(path):
    return [int(row["reserved_bytes"]) for row in csv.DictReader(open(path))]
real, model = reserved(real_path), reserved(model_path)
if len(real) != len(model) or not real:
    sys.exit(f"FAIL: {name}: {len(real)} events of {real_name}, {len(model)} of {model_name}")
off = [(abs(m - r) / r if r else float(m != 0), i) for i, (r, m) in enumerate(zip(real, model))]
worst, at = max(off)
wrong = sum(o > 0.005 for o, _ in off)
mib = 2**20
print(f"{name:48} {real_name:17} peak {max(real)/mib:9.1f} model {max(model)/mib:9.1f} MiB  "
      f"{len(real):6} events, {sum(o > 0 for o, _ in off):6} differ, worst {100*worst:.3f} %")
if wrong:
    print(f"FAIL: {name}: {model_name} off by more than 0.5 % at {wrong} events, first "
          f"{next(i for o, i in off if o > 0.005)}, worst at {at}: {model[at]} instead of {real[at]}")
    sys.exit(1)
PY
}

both() { # NAME REAL MODEL ARGUMENT...
    series "$2" "$work/real.csv" "${@:4}"
    series "$3" "$work/model.csv" "${@:4}"
    compare "$1" "$2" "$3" || failures=$((failures + 1))
}

# smallest ALLOCATOR PATH: the smallest capacity, in bytes.
smallest() {
    expect 0 "$BERM" fit --json --allocator "$1" "$2" >&2
    python3 -c "import json; print(json.load(open('$work/out'))['min_capacity_bytes'])"
}

# Where memory is short the allocators release, retry and wait: reserved must agree there too.
check_tight() { # PATH REAL MODEL
    local of_real of_model
    of_real=$(smallest "$2" "$1")
    of_model=$(smallest "$3" "$1")
    python3 -c "exit(abs($of_real - $of_model) > 0.005 * $of_real)" ||
        fail "${1##*/}: smallest capacity of $2 $of_real, of $3 $of_model"
    both "${1##*/} at its smallest" "$2" "$3" --capacity "$of_real" "$1"
}

check_trace() { # PATH ARGUMENT...
    while read -r real model; do
        both "${1##*/}" "$real" "$model" "${@:2}" "$1" </dev/null
        case ${1##*/} in
        decoder_infer* | deferred* | opt_zero* | gpt2_fixed* | multi_stream*)
            check_tight "$1" "$real" "$model" </dev/null
            ;;
        esac
    done <<'PAIRS'
torch-native pytorch
torch-expandable expandable
PAIRS
}

check_rmm() { # PATH ARGUMENT...
    local path=$1 name
    shift
    name=${path##*/}
    expect 0 "$BERM" replay --json --allocator rmm-pool "$@" "$path"
    json "r['completed'] and r['hazards'] == 0 and r['leaked_blocks'] == 0"
    python3 - "$work/out" "$name" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
print(f"{sys.argv[2]:48} {r['allocator']:17} peak {r['peak_reserved_bytes']/2**20:9.1f} "
      f"live {r['peak_live_bytes']/2**20:9.1f} MiB  {r['reserved_over_live']:.3f}")
PY
    # An arena is as large as it is made: what it needs is what `berm fit` finds.
    expect 0 "$BERM" replay --json --allocator rmm-arena "$@" "$path"
}

# Three streams and frees that other streams put off: no recording has many.
python3 - >"$work/deferred.csv" <<'PY'
import random
r = random.Random(7)
print("event_index,op,id,size_bytes,stream")
live, waiting, rows, next_id = [], [], 0, 0
def row(op, block):
    global rows
    print(f"{rows},{op},{block[0]},{block[1]},{block[2]}")
    rows += 1
while rows < 6000:
    choice = r.random()
    if waiting and choice < 0.15:
        row("free_done", waiting.pop(r.randrange(len(waiting))))
    elif live and (choice < 0.5 or len(live) > 300):
        block = live.pop(r.randrange(len(live)))
        # A free_done later makes the free a deferred one.
        row("free", block)
        if r.random() < 0.3:
            waiting.append(block)
    else:
        block = (next_id, int(2 ** r.uniform(6, 26)), r.randrange(3))
        next_id += 1
        live.append(block)
        row("alloc", block)
for block in waiting:
    row("free_done", block)
PY

traces=("$work/deferred.csv" "$BERM_SOURCE"/stress/traces/*.gz)
units=()
if [ -n "${BERM_SHARED:-}" ] && [ -d "$BERM_SHARED/traces" ]; then
    traces=("$work/deferred.csv" "$BERM_SHARED"/traces/*.gz "$BERM_SHARED"/traces/own/*.gz)
    units=("$BERM_SHARED"/traces/minimalloc_*.csv)
else
    echo 'no recordings beside the repository (in ../shared/traces): only those of stress/traces'
fi
for trace in "${traces[@]}"; do
    [ "$has_torch" = no ] || check_trace "$trace"
    [ "$has_rmm" = no ] || check_rmm "$trace"
done
# Lifetimes in units, for a device of 64 GiB and more.
for trace in "${units[@]}"; do
    [ "$has_torch" = no ] || check_trace "$trace" --capacity 4T --scale 65536
    [ "$has_rmm" = no ] || check_rmm "$trace" --capacity 4T --scale 65536
done
[ "$has_torch" = yes ] || echo 'SKIP: torch is not set up: run ./run torch-setup'
[ "$has_rmm" = yes ] || echo 'SKIP: RMM is not set up: run ./run rmm-setup'
finish

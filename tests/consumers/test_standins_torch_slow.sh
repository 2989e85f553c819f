# SPDX-License-Identifier: Apache-2.0
# A CUDA build of PyTorch on the simulated device, with stand-ins made for it: the one that
# ./run shadow-setup installs, or that of the Python in BERM_TORCH_PYTHON.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/torch_python.sh"
program=$BERM_SOURCE/tests/consumers/standins_torch.py
export BERM_CACHE_DIR=$work/cache
export SIMCUDA_MEMORY=8G

for settings in '' expandable_segments:True; do
    expect 0 env PYTORCH_ALLOC_CONF=$settings "$python" "$program" imported gpt
    cat "$work/out"
done
expect 0 "$python" "$program" convolution recurrent fourier linear products sparse profile
cat "$work/out"

# Two processes; memory is backed, so that small collectives move values.
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 SIMCUDA_BACKED=1
MASTER_PORT=$("$python" -c 'import socket
with socket.socket() as s: s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_PORT
RANK=1 timeout 200 "$python" "$program" distributed >"$work/one" 2>&1 &
other=$!
expect 0 env RANK=0 timeout 200 "$python" "$program" distributed
wait "$other" || fail "rank 1: $(tail -5 "$work/one")"
finish

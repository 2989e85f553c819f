# SPDX-License-Identifier: Apache-2.0
# An installed tree, moved, with a CUDA build of PyTorch and nothing of the source tree: berm shadow and
# berm.torch.install() by both routes. What is made and compiled goes to the user's cache.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/torch_python.sh"
unset BERM_SIMCUDA BERM_LIBRARY BERM_PYTHON BERM_CACHE_DIR PYTHONPATH

expect 0 cmake --install "$BERM_BUILD" --prefix "$work/made"
mv "$work/made" "$work/moved"
package=$(find "$work/moved" -path '*/berm/python' -type d)
[ -d "$package" ] || fail "no Python package is installed"
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1

cat >program.py <<'PY'
import torch

weight = torch.nn.Linear(300, 300).cuda()
optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
for _ in range(2):
    weight(torch.ones(5, 300, device="cuda")).sum().backward()
    optimizer.step()
print("allocated by", torch.cuda.get_allocator_backend())
PY
for allocator in native berm; do
    expect 0 timeout 400 moved/bin/berm shadow --allocator $allocator -- "$python" program.py
    grep -q "allocated by $allocator" out || fail "$allocator: $(head -c 300 out err)"
    grep -q ' fits$' out || fail "$allocator: no verdict"
done

cat >routes.py <<'PY'
import sys
from berm import _standins

_standins.load(_standins.make(_standins.torch_folder()))
import berm.torch

assert berm.torch.install(route=sys.argv[1]) == sys.argv[1]
import torch

assert torch.ones(1000, device="cuda").numel() == 1000
PY
for route in subclass hooks; do
    PYTHONPATH=$package expect 0 timeout 400 "$python" routes.py $route
done
finish

# SPDX-License-Identifier: Apache-2.0
# simcuda/runtime/stubs.py: a library that imports a function which the stand-in runtime lacks loads
# with the generated one, and the call says "not supported".
. "$(dirname "$0")/../cli/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: what is compiled here is not sanitized'
    exit 77
fi
for tool in gcc nm python3; do
    command -v "$tool" >/dev/null || { echo "SKIP: no $tool"; exit 77; }
done
standins=$BERM_LIBDIR/simcuda
flags=(-std=gnu11 -D_GNU_SOURCE -fPIC -shared)

# A runtime that has the function, to link a consumer with.
cat >"$work/other.c" <<'C'
int cudaSomethingNew(int *out);
int cudaSomethingNew(int *out) { *out = 1; return 0; }
int cudaMalloc(void **out, unsigned long bytes);
int cudaMalloc(void **out, unsigned long bytes) { (void)bytes; *out = 0; return 0; }
C
cat >"$work/consumer.c" <<'C'
int cudaSomethingNew(int *out);
int cudaMalloc(void **out, unsigned long bytes);
int consume(void);
int consume(void) {
    void *addr = 0;
    int out = 0;
    return cudaMalloc(&addr, 1 << 20) == 0 && addr != 0 ? cudaSomethingNew(&out) : -1;
}
C
cat >"$work/program.c" <<'C'
int consume(void);
int main(void) { return consume() == 801 ? 0 : 1; }
C
mkdir "$work/other"
expect 0 gcc "${flags[@]}" "$work/other.c" -Wl,-soname,libcudart.so.13 \
    -Wl,--version-script="$BERM_SOURCE/simcuda/runtime/libcudart.map" -o "$work/other/libcudart.so.13"
expect 0 gcc "${flags[@]}" "$work/consumer.c" "$work/other/libcudart.so.13" -o "$work/libconsumer.so"

expect 0 python3 -B "$BERM_SOURCE/simcuda/runtime/stubs.py" "$standins/libcudart.so.13" \
    "$work/libconsumer.so"
cp "$work/out" "$work/stubs.c"
grep -q 'int cudaSomethingNew(void)' "$work/stubs.c" || fail 'no stub for cudaSomethingNew'
grep -q 'cudaMalloc' "$work/stubs.c" && fail 'a stub for what the stand-in has'

mkdir "$work/mine"
expect 0 gcc "${flags[@]}" -fvisibility=hidden -I"$BERM_SOURCE" -I"$BERM_SOURCE/allocator" \
    -I"$BERM_SOURCE/include" -I"$BERM_SOURCE/simcuda/include" "$BERM_SOURCE"/simcuda/runtime/*.c \
    "$work/stubs.c" -Wl,-soname,libcudart.so.13 \
    -Wl,--version-script="$BERM_SOURCE/simcuda/runtime/libcudart.map" -L"$standins" \
    -l:libcuda.so.1 -lpthread -o "$work/mine/libcudart.so.13"
expect 0 gcc "$work/program.c" "$work/libconsumer.so" -Wl,-rpath,"$work" \
    -Wl,-rpath-link,"$work/mine:$standins" -o "$work/program"
expect 0 env LD_LIBRARY_PATH="$work/mine:$standins" "$work/program"

# Nothing is generated where nothing is missing, and bad usage is one line.
expect 0 python3 -B "$BERM_SOURCE/simcuda/runtime/stubs.py" "$work/mine/libcudart.so.13" \
    "$work/libconsumer.so"
[ -s "$work/out" ] && fail 'stubs for what is there'
expect 1 python3 -B "$BERM_SOURCE/simcuda/runtime/stubs.py"
grep -q usage "$work/err" || fail 'no usage line'
finish

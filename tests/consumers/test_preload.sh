# SPDX-License-Identifier: Apache-2.0
# libberm_preload.so under C programs that know nothing of berm: linked with a shared CUDA runtime,
# with a runtime of their own, and with the driver. Each runs without the library first.
. "$(dirname "$0")/preload_lib.sh"

# --- a shared runtime, of CUDA 13 and 12 -----------------------------------------------------------
build cudart "$simcuda/libcudart.so.13" "$simcuda/libcuda.so.1"
for case in basic edges foreign pitch arrays absurd late one_heap info async threads fork fork_first devices exit reset reset_first \
    in_flight capture peers; do
    alone cudart $case
done
for case in basic edges foreign pitch arrays absurd one_heap info async threads fork fork_first devices reset reset_first \
    in_flight capture peers; do
    served cudart $case
done
mv "$work/cudart" "$work/cudart13"
build cudart -DCUDART_MAJOR=12 "$simcuda/libcudart.so.12" "$simcuda/libcuda.so.1"
for case in basic edges async; do
    served cudart $case
done

# Each request is made under the tag "preload", which the program looks at in the place of libberm.
build tag -rdynamic "$simcuda/libcudart.so.13" "$simcuda/libcuda.so.1"
served tag tagged

# All of basic was served, and every option leaves a program whole.
served cudart basic
[ "$(stat served) $(stat passed) $(stat freed)" = '2000 0 2000' ] || fail "basic: $(cat "$work/err")"
served cudart basic least:64K
[ "$(stat passed)" -gt 100 ] || fail "least:64K passes $(stat passed)"
[ $(($(stat served) + $(stat passed))) = 2000 ] || fail "least:64K: $(cat "$work/err")"
served cudart basic dlsym:off
served cudart basic sync_free:on
served cudart basic ipc:1M
served cudart info cached_is_free:off
preloaded stats:on,async:off cudart basic
BERM_CONF=backing:plain expect 0 env LD_PRELOAD="$preload" timeout 60 "$work/cudart" basic
SIMCUDA_VMM=0 expect 0 env BERM_CONF=log:error LD_PRELOAD="$preload" timeout 60 "$work/cudart" basic

# --- silence, and what is said -----------------------------------------------------------------------
for case in basic edges exit late fork fork_first; do
    preloaded '' cudart $case
    silent "cudart $case"
done
expect 0 env LD_PRELOAD="$preload" sh -c 'true; ls / | sort | head -1'
silent 'programs without CUDA'
preloaded 'nothing:on' cudart exit
says "BERM_PRELOAD: 'nothing:on' is no option"
preloaded 'ipc:x' cudart exit
says "'ipc:x' is no option or has no such value"
expect 0 env BERM_CONF=headroom:many LD_PRELOAD="$preload" timeout 60 "$work/cudart13" foreign
expect 1 env BERM_CONF=headroom:many LD_PRELOAD="$preload" timeout 60 "$work/cudart13" basic
grep -q 'is left to the driver' "$work/err" || fail "no word of a bad BERM_CONF: $(cat "$work/err")"

# --- the driver, called directly ---------------------------------------------------------------------
build driver "$simcuda/libcuda.so.1"
for case in basic context created_only range room ipc ipc_refused peers pool_peers per_thread \
    async_passed; do
    alone driver $case
done
for case in basic context created_only range peers pool_peers per_thread async_passed; do
    served driver $case
done
preloaded '' driver room
preloaded ipc:1M driver ipc
silent driver ipc
preloaded '' driver ipc_refused
says 'with BERM_PRELOAD=ipc:1M'

# --- a runtime in the program ------------------------------------------------------------------------
cat >"$work/first.c" <<'C'
#include <dlfcn.h>
#include <stddef.h>
int which(void);
int which_next(void);
int which_driver(void *handle);
int which(void) { return 1; }
int which_next(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "which");
    return next == NULL ? -1 : next();
}
int which_driver(void *handle) {
    int (*function)(void) = (int (*)(void))dlsym(handle, "cuMemAlloc_v2");
    return function == NULL ? -1 : function();
}
C
cat >"$work/second.c" <<'C'
int which(void);
int cuMemAlloc_v2(void);
int which(void) { return 2; }
int cuMemAlloc_v2(void) { return 7; }
C
cat >"$work/extension.c" <<'C'
#include <stddef.h>
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
void *extension_alloc(size_t bytes);
int extension_free(void *pointer);
void *extension_alloc(size_t bytes) {
    void *pointer = NULL;
    return cudaMalloc(&pointer, bytes) == 0 ? pointer : NULL;
}
int extension_free(void *pointer) { return cudaFree(pointer); }
C
library=(gcc "${preload_flags[@]}" -fPIC -shared)
expect 0 "${library[@]}" "$work/second.c" -o "$work/libsecond.so"
expect 0 "${library[@]}" "$work/first.c" -Wl,--no-as-needed "$work/libsecond.so" \
    -Wl,-rpath,"$work" -o "$work/libfirst.so"
expect 0 "${library[@]}" "$work/extension.c" "$simcuda/libcudart.so.13" \
    -Wl,-rpath,"$simcuda" -o "$work/libextension.so"
build static
export LD_LIBRARY_PATH=$simcuda
for case in basic versions dlsym next opened extension; do
    alone static $case
    preloaded dlsym:off static $case
    silent "static $case with dlsym:off"
done
for case in basic opened extension; do
    served static $case
done
served static basic
[ "$(stat served) $(stat passed)" = '64 0' ] || fail "static: $(cat "$work/err")"
for case in versions dlsym next; do
    preloaded '' static $case
done
LD_LIBRARY_PATH=$work alone static absent
LD_LIBRARY_PATH=$work preloaded stats:on static absent
silent 'a program on a machine without CUDA'
unset LD_LIBRARY_PATH

# --- each driver call fails once ---------------------------------------------------------------------
build fault "$simcuda/libcudart.so.13" "$simcuda/libcuda.so.1"
preloaded '' fault ''
cat "$work/out"

# --- links nothing of CUDA's -------------------------------------------------------------------------
if readelf -d "$preload" | grep NEEDED | grep -v -e libberm -e libc.so -e ld-linux; then
    fail 'it is linked with more than libberm and libc'
fi
printf 'preload: %d requests reached berm, %d frees\n' "$total_served" "$total_freed"
finish

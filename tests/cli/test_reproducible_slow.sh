# SPDX-License-Identifier: Apache-2.0
# Two builds in folders of other names give the same libraries, byte for byte.
. "$(dirname "$0")/lib.sh"
if [ -n "${BERM_SANITIZE:-}" ]; then
    echo 'SKIP: of the release build'
    exit 77
fi
# copy and build FOLDER: what libberm is made of
build() {
    mkdir -p "$1"
    (cd "$BERM_SOURCE" && cp -r CMakeLists.txt CMakePresets.json adapters allocator cmake include \
        simcuda stress cli examples "$1/")
    cmake -S "$1" -B "$1/out" -DCMAKE_BUILD_TYPE=Release -DBERM_TESTS=OFF >"$work/log" 2>&1 &&
        cmake --build "$1/out" --parallel 2 --target libberm berm_preload simcuda >>"$work/log" 2>&1 ||
        fail "build in $1: $(tail -5 "$work/log")"
}
build "$work/a"
build "$work/another folder"
for file in libberm.so libberm.a libberm_preload.so simcuda/libcuda.so.1; do
    cmp "$work/a/out/lib/$file" "$work/another folder/out/lib/$file" || fail "$file differs"
done
grep -q "$work" "$work/a/out/lib/libberm.so" && fail 'libberm.so names the folder it was built in'
finish

# SPDX-License-Identifier: Apache-2.0
"""An installed tree works after it was moved: the example builds by pkg-config and by CMake's
find_package, also with the static library, and runs on the installed simulated device, as does the
command; pages and completions are where shells look. The Python package finds all that it loads and
compiles in the tree."""
import os
import pathlib
import shutil
import sys
import tempfile

import lint

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(berm 0.1 REQUIRED)
add_executable(user ${SOURCE})
target_link_libraries(user berm::berm)
add_executable(user_static ${SOURCE})
target_link_libraries(user_static berm::berm_static)
foreach(target berm::tensorrt berm::rmm)
    if(NOT TARGET ${target})
        message(FATAL_ERROR "no ${target}")
    endif()
endforeach()
file(GENERATE OUTPUT preload CONTENT $<TARGET_FILE:berm::berm_preload>)
"""

SHARED = ["share/man/man1/berm.1", "share/man/man3/libberm.3", "share/man/man5/berm.conf.5",
          "share/man/man7/berm-preload.7", "share/bash-completion/completions/berm",
          "share/zsh/site-functions/_berm", "share/fish/vendor_completions.d/berm.fish"]

FINDS = """import sys
from berm import _lib, _standins
for path in (_lib.library(), _lib.library("libberm_torch.so"), _lib.include() / "berm_share.h",
             _lib.adapters() / "adapters/torch/subclass/allocator.cpp",
             _lib.adapters() / "adapters/torch/cuda/cuda_runtime_api.h",
             _standins._generator() / "cublas.def", _standins._simcuda() / "libcudart.so.13",
             _standins._simcuda() / "libsimcuda_standins.so.0"):
    if not path.exists() or sys.argv[1] not in str(path):
        sys.exit(f"{path} is not in the installed tree")
"""


def build_by_pkg_config(prefix, source, program, *more):
    pc_folder = next(prefix.rglob("berm.pc")).parent
    os.environ["PKG_CONFIG_PATH"] = str(pc_folder)
    status, flags = lint.run(["pkg-config", "--cflags", "--libs", *more, "berm"])
    if status != 0:
        return flags
    if more: # the static library is in the same folder
        flags = flags.replace("-lberm", "-l:libberm.a")
    status, output = lint.run(["cc", str(source), "-o", str(program), *flags.split()])
    return output if status != 0 else None


def needs_library(program):
    status, output = lint.run(["readelf", "-d", str(program)])
    return status != 0 or "libberm" in output


def build_by_cmake(prefix, source, folder):
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT)
    status, output = lint.run(["cmake", "-S", str(folder), "-B", str(folder / "b"),
                               f"-DSOURCE={source}", f"-DCMAKE_PREFIX_PATH={prefix}"])
    if status == 0:
        status, output = lint.run(["cmake", "--build", str(folder / "b")])
    return output if status != 0 else None


def check(folder):
    """Yields None for each step that worked, its output for one that did not."""
    status, output = lint.run(["cmake", "--install", os.environ["BERM_BUILD"], "--prefix",
                               str(folder / "made")])
    yield output if status != 0 else None
    prefix = folder / "moved"
    shutil.move(folder / "made", prefix)
    library_folder = next(prefix.rglob("libberm.so")).parent
    source = lint.ROOT / "examples/three_figures.c"
    yield build_by_pkg_config(prefix, source, folder / "by_pkg_config")
    yield build_by_pkg_config(prefix, source, folder / "by_pkg_config_static", "--static")
    yield build_by_cmake(prefix, source, folder / "by_cmake")
    preload = pathlib.Path((folder / "by_cmake/b/preload").read_text())
    yield None if preload.exists() else f"{preload} is not there"
    for program in ("by_pkg_config_static", "by_cmake/b/user_static"):
        yield f"{program} needs libberm.so" if needs_library(folder / program) else None
    for page in SHARED:
        yield None if (prefix / page).exists() else f"{page} is not installed"
    os.environ["LD_LIBRARY_PATH"] = f"{library_folder}:{library_folder / 'berm/simcuda'}"
    for program in ("by_pkg_config", "by_pkg_config_static", "by_cmake/b/user",
                    "by_cmake/b/user_static"):
        status, output = lint.run([str(folder / program)])
        yield output if status != 0 or "largest" not in output else None
    del os.environ["LD_LIBRARY_PATH"]
    status, output = lint.run([str(prefix / "bin/berm"), "info"])
    yield output if status != 0 else None
    status, output = lint.run([str(prefix / "bin/berm"), "run", "--preload", "--simulated", "--",
                               "sh", "-c", "echo $LD_PRELOAD $LD_LIBRARY_PATH"])
    yield output if status != 0 or str(prefix) not in output else None
    for name in [name for name in os.environ if name.startswith("BERM_") and name != "BERM_BUILD"]:
        del os.environ[name]
    status, output = lint.run([str(prefix / "bin/berm"), "run", "--", sys.executable, "-B", "-c", FINDS,
                               str(prefix.resolve())])
    yield output if status != 0 else None


def main():
    lint.built("lib")
    for tool in ("cmake", "pkg-config", "cc"):
        lint.need_tool(tool)
    if os.environ.get("BERM_SANITIZE"):
        lint.skip("programs without the sanitizer cannot use a library with it")
    with tempfile.TemporaryDirectory() as folder:
        results = list(check(pathlib.Path(folder)))
    lint.finish("steps of install", len(results), [result for result in results if result])


main()

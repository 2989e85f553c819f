#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: make.py FOLDER... SIMCUDA-FOLDER OUT-FOLDER

Makes stand-ins for the NVIDIA libraries that the libraries of the FOLDERs need (the `torch` folder
of an installed CUDA build, or folders of another Python package, such as onnxruntime), and the list
`order` of what is to be loaded before them. SIMCUDA-FOLDER has the built libcuda.so.1,
libnvidia-ml.so.1, libcudart and libsimcuda_standins.so. Needs gcc (or what CC names)."""
import concurrent.futures
import mmap
import os
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import elf  # pylint: disable=wrong-import-position
import emit
import table

# Libraries of NVIDIA's, of which those of the driver and the runtime are built and not generated.
VENDOR = re.compile(r"lib(cu|nv|nccl)[\w-]*\.so(\.\d+)*$")
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
CORE = "libsimcuda_standins.so.0"
CUDART = re.compile(r"libcudart\.so\.(\d+)$")
# Libraries that programs open by name, with the version of each for a version of the runtime.
OPENED = {"cudnn": {12: 9, 13: 9}, "cufft": {12: 11, 13: 12}, "nvrtc": {12: 12, 13: 13}}
CUDART_REFUSE = 801  # cudaErrorNotSupported


class MakeError(Exception):
    """Why no stand-ins could be made, in a line."""


def package_libraries(folder):
    """(path, library) of every shared library of the folder that is read."""
    is_torch = (folder / "version.py").exists() and (folder / "lib").is_dir()
    if is_torch:
        paths = sorted(folder.glob("lib/*.so*")) + sorted(folder.glob("*.so"))
    else:
        paths = [path for path in sorted(folder.rglob("*.so*")) if path.is_file()]
    for path in paths:
        try:
            library = elf.Library(path)
        except elf.NotElf:
            continue  # a linker script, or no library
        library.is_torch = is_torch
        yield path, library


def all_libraries(folders):
    """Of all folders, by file name, or by path where another has the name."""
    libraries = {}
    for folder in folders:
        for path, library in package_libraries(folder):
            libraries[str(path) if path.name in libraries else path.name] = library
    if not any(CUDART.match(name) for library in libraries.values() for name in library.needed):
        raise MakeError(f"{' '.join(map(str, folders))}: no library here needs libcudart: not a "
                        "CUDA build")
    return libraries


def opened(libraries, tables, found):
    """What is opened with dlopen, of NVIDIA's libraries that a library does not need itself: the
    functions whose names it has as text, and where a package has some, all that the tables have,
    since names can be put together. SONAME -> set of (name, None). Torch opens none: of its
    libraries only those that need CUDA's runtime are read, and nothing is added."""
    majors = [int(match[1]) for name in found if (match := CUDART.match(name))]
    asked = {}
    for library in libraries.values() if majors else ():
        if library.is_torch and not any(CUDART.match(name) for name in library.needed):
            continue
        needed = {stem_of(name) for name in library.needed if VENDOR.match(name)}
        with open(library.path, "rb") as file, \
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            for stem in OPENED.keys() - needed:
                soname = next((name for name in found if stem_of(name) == stem),
                              f"lib{stem}.so.{OPENED[stem][max(majors)]}")
                pattern = re.compile(rb"\0(" + tables[stem].prefix.encode() + rb"[A-Z]\w+)(?=\0)")
                for name in pattern.findall(text):
                    asked.setdefault(soname, set()).add((name.decode(), None))
    if not any(library.is_torch for library in libraries.values()):
        for soname in [name for name in found if stem_of(name) == "cublas"]:
            asked.setdefault(soname.replace("cublas", "cublasLt"), set())  # is loaded along with it
        for soname in set(asked) | {name for name in found if stem_of(name) in OPENED}:
            rows = tables[stem_of(soname)].rows
            asked.setdefault(soname, set()).update((name, None) for name in rows)
    return asked


def wanted(libraries, tables):
    """SONAME -> set of (name, node) that must be found, of all NVIDIA libraries needed."""
    found = {name: set() for library in libraries.values() for name in library.needed
             if VENDOR.match(name) and name not in libraries}
    defined = set().union(*(library.exports for library in libraries.values()))
    by_prefix = sorted(((item.prefix, item.stem) for item in tables.values()), reverse=True)
    for library in libraries.values():
        for symbol in library.imports:
            soname = symbol.library
            if soname is None and symbol.name not in defined:
                stem = next((stem for prefix, stem in by_prefix
                             if symbol.name.startswith(prefix)), None)
                soname = next((name for name in found if stem and stem_of(name) == stem), None)
            if soname in found:
                found[soname].add((symbol.name, symbol.node))
    return found


def stem_of(soname):
    return soname[3:].split(".so")[0]


def compile_library(out, core, soname, source, script):
    """The core is needed by each, so that dlsym on one finds what the core has of it."""
    (out / f"{soname}.c").write_text(source)
    (out / f"{soname}.map").write_text(script)
    command = shlex.split(os.environ.get("CC", "gcc")) + [
        "-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=default", "-fno-builtin", "-w",
        str(out / f"{soname}.c"), f"-Wl,-soname,{soname}",
        f"-Wl,--version-script={out / (soname + '.map')}", "-Wl,--no-as-needed", str(core),
        "-Wl,-z,lazy", "-o", str(out / soname)]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise MakeError(f"{command[0]}: {error.strerror}: a C compiler is needed") from None
    if done.returncode != 0:
        raise MakeError(f"{soname} did not compile:\n{done.stderr}")


def version_script(symbols, nodes):
    """All `nodes`, with the symbols of each; those without a node are of the first."""
    names = {node: set() for node in nodes}
    for name, node in symbols:
        names.setdefault(node or min(nodes, default=""), set()).add(name)
    if set(names) <= {""}:
        return "{ global: *; };\n"
    return "".join(f"{node} {{ global: {' '.join(name + ';' for name in sorted(group))} }};\n"
                   for node, group in sorted(names.items())).replace("global:  }", "}")


def source_of(soname, symbols, tables, have, variables):
    declarations = tables.get(stem_of(soname))
    if declarations is None:
        declarations = table.Table(HERE / "unknown.def")
        declarations.stem = stem_of(soname)
    emitter = emit.Emitter(declarations, variables)
    names = sorted({name for name, _ in symbols} - have)
    return emitter.prelude() + "".join(emitter.function(name) for name in names), names


def built(simcuda, soname):
    path = simcuda / soname
    if not path.exists():
        raise MakeError(f"{path} is missing: build berm first (./run build)")
    return path


def versions(folder):
    """What the libraries say of their versions, as values that the tables name: those that this
    torch was built for where it tells, else of late 2026."""
    text = (folder / "version.py").read_text() if (folder / "version.py").exists() else ""
    found = re.search(r"^cuda\b.*?'(\d+)\.(\d+)'", text, re.MULTILINE)
    major, minor = (int(found[1]), int(found[2])) if found else (13, 2)
    cudnn, nccl = wheel_version(folder, "cudnn", (9, 26, 0)), wheel_version(folder, "nccl", (2, 30, 7))
    return {"cuda": major * 1000 + minor * 10, "cuda_major": major, "cuda_minor": minor,
            "cublas": major * 10000 + minor * 100,
            "cudnn": cudnn[0] * 10000 + cudnn[1] * 100 + cudnn[2],
            "cudnn_part": f"(a0 == 0 ? {cudnn[0]} : a0 == 1 ? {cudnn[1]} : {cudnn[2]})",
            "nccl": nccl[0] * 10000 + nccl[1] * 100 + nccl[2]}


def wheel_version(folder, name, otherwise):
    """The version of NVIDIA's wheel of that name which the torch wheel requires."""
    for path in folder.parent.glob("torch-*.dist-info/METADATA"):
        found = re.search(rf"^Requires-Dist: nvidia-{name}-cu\d+==(\d+)\.(\d+)\.(\d+)",
                          path.read_text(errors="replace"), re.MULTILINE)
        if found:
            return tuple(int(part) for part in found.groups())
    return otherwise


def make(folders, simcuda, out):
    """Makes the stand-ins in `out`; returns the lines of `order`."""
    folders = [pathlib.Path(one) for one in folders]
    simcuda, out = pathlib.Path(simcuda).resolve(), pathlib.Path(out)
    tables = {item.stem: item for item in
              (table.Table(path) for path in sorted(HERE.glob("*.def")))}
    libraries = all_libraries(folders)
    asked = wanted(libraries, tables)
    for soname, symbols in opened(libraries, tables, asked).items():
        known = asked.setdefault(soname, set())
        known.update(symbols - {(name, None) for name, _ in known})
    out.mkdir(parents=True, exist_ok=True)
    core = built(simcuda, CORE)
    in_core = elf.Library(core).exports
    variables = versions(folders[0])
    order = [str(built(simcuda, name)) for name in DRIVER]
    jobs = []
    for soname in sorted(asked):
        if soname in DRIVER:
            continue
        have, name, symbols = in_core, soname, asked[soname]
        if CUDART.match(soname):
            order.append(str(built(simcuda, soname)))
            have = elf.Library(simcuda / soname).exports
            symbols = {symbol for symbol in symbols if symbol[0] not in have}
            if not symbols:
                continue
            name = soname.replace("libcudart", "libcudart_rest")
        source, names = source_of(soname, symbols, tables, have, variables)
        symbols = {symbol for symbol in symbols if symbol[0] in names}
        nodes = {node for _, node in asked[soname] if node}
        script = version_script(symbols, nodes)
        jobs.append((name, source, script))
    order.append(str(core))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for job in [pool.submit(compile_library, out, core, *job) for job in jobs]:
            job.result()
    order += [name for name, _, _ in jobs]
    (out / "order").write_text("".join(line + "\n" for line in order))
    return order


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__.splitlines()[0])
    try:
        order = make(sys.argv[1:-2], *sys.argv[-2:])
    except (MakeError, table.TableError, OSError) as error:
        sys.exit(f"make.py: {error}")
    print("\n".join(order))


if __name__ == "__main__":
    main()

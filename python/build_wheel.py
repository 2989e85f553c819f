# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel of the package (PEP 517), with the standard library alone. It carries what was
built in ../build/release (BERM_BUILD names another folder), and builds it where it is missing, with
CMake: libberm and its adapters, the headers, the adapters' sources that are compiled against the
user's torch, the simulated device and the generator of stand-ins. There is no compiled extension: the
wheel is py3-none, for this platform and a C library as old as the libraries ask for."""
import base64
import csv
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent
BUILD = pathlib.Path(os.environ.get("BERM_BUILD", TREE / "build/release"))
NAME = "berm"
DATE = (1980, 1, 1, 0, 0, 0)  # of every file, so that the same files make the same wheel

# Folders of the package: where they come from, and which files.
SOURCES = (("", HERE / "berm", "**/*.py"), ("include", TREE / "include", "*.h*"),
           ("include", TREE / "adapters/ort", "berm_ort.h"),
           ("include", TREE / "adapters/cupy", "berm_cupy.h"),
           ("src/adapters/torch", TREE / "adapters/torch", "**/*.[ch]*"),
           ("standins", TREE / "simcuda/standins", "*.py"),
           ("standins", TREE / "simcuda/standins", "*.def"))
LIBRARIES = (("lib", "lib", ("libberm.so", "libberm_torch.so", "libberm_ort.so", "libberm_cupy.so",
                             "libberm_python.so", "libberm_preload.so")),
             ("simcuda", "lib/simcuda", ("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13",
                                         "libcudart.so.12", "libsimcuda_standins.so.0")))
OPTIONAL = ("libberm_preload.so",)  # where this tree has it


def version():
    text = (TREE / "include/berm.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"#define BERM_VERSION_{part} (\d+)", text)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def build():
    """Builds what is missing. Raises where that fails."""
    if all((BUILD / folder / name).exists() or name in OPTIONAL
           for _, folder, names in LIBRARIES for name in names):
        return
    for command in (["cmake", "--preset", "release"],
                    ["cmake", "--build", str(BUILD), "--parallel", "--target", "programs"]):
        try:
            subprocess.run(command, cwd=TREE, check=True)
        except OSError:
            raise SystemExit("berm: CMake is not found: build berm with ./run build first") from None


def stripped(path):
    """The library's bytes, without what is for debuggers where `strip` is installed."""
    strip = shutil.which("strip")
    if strip is None:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "library")
        subprocess.run([strip, "--strip-debug", "-o", str(copy), str(path)], check=True)
        return copy.read_bytes()


def files():
    """(path in the package, bytes) of all files."""
    found = {}
    for folder, source, pattern in SOURCES:
        for path in sorted(source.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                found[str(pathlib.PurePosixPath(folder, path.relative_to(source)))] = path.read_bytes()
    for folder, source, names in LIBRARIES:
        for name in names:
            path = BUILD / source / name
            if not path.exists() and name in OPTIONAL:
                continue
            # libberm.so is needed by the others as libberm.so.0: one file, or there are two heaps.
            kept = "libberm.so.0" if name == "libberm.so" else name
            found[f"{folder}/{kept}"] = stripped(path.resolve())
    return sorted(found.items())


def platform_tag(libraries):
    """manylinux of the newest C library that any asks for."""
    needed = {tuple(map(int, match)) for data in libraries
              for match in re.findall(rb"GLIBC_(\d+)\.(\d+)(?=\0)", data)}
    major, minor = max(needed | {(2, 17)})
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def metadata():
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    project = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    summary = re.search(r'^description = "(.*)"', project, re.MULTILINE)[1]
    python = re.search(r'^requires-python = "(.*)"', project, re.MULTILINE)[1]
    return (f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version()}\nSummary: {summary}\n"
            f"License: Apache-2.0\nRequires-Python: {python}\n"
            f"Description-Content-Type: text/markdown\n\n{readme}")


def get_requires_for_build_wheel(config_settings=None):
    del config_settings
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: writes the wheel, and returns its file name."""
    del config_settings, metadata_directory
    build()
    contents = files()
    tag = f"py3-none-{platform_tag([data for path, data in contents if '.so' in path])}"
    info = f"{NAME}-{version()}.dist-info"
    entries = [(f"{NAME}/{path}", data) for path, data in contents] + [
        (f"{info}/METADATA", metadata().encode()),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: berm\nRoot-Is-Purelib: false\n"
                          f"Tag: {tag}\n".encode()),
        (f"{info}/licenses/LICENSE", (TREE / "LICENSE").read_bytes())]
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, data in entries:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([f"{info}/RECORD", "", ""])
    entries.append((f"{info}/RECORD", record.getvalue().encode()))
    name = f"{NAME}-{version()}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in entries:
            member = zipfile.ZipInfo(path, DATE)
            member.external_attr = (0o755 if ".so" in path else 0o644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(member, data)
    return name


if __name__ == "__main__":
    print(build_wheel(sys.argv[1] if len(sys.argv) > 1 else "."))

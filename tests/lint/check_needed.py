# SPDX-License-Identifier: Apache-2.0
"""What libberm.so loads: libc and its parts. Never libcuda, never jemalloc (it cannot be dlopened).
Also: its soname, and that it stays loaded (NODELETE)."""
import os
import re

import lint

LIBC = re.compile(r"^(libc|libm|libdl|libpthread|librt)\.so\.\d+$|^ld-linux.*\.so\.\d+$|^libgcc_s\.so\.1$")

if os.environ.get("BERM_SANITIZE"):
    lint.skip("a sanitizer adds its own libraries")
status, output = lint.run(["readelf", "-dW", str(lint.built("lib/libberm.so"))])
needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output)
problems = [output] if status != 0 else []
problems += [f"libberm.so needs {library}" for library in needed if not LIBC.match(library)]
if "[libberm.so.0]" not in output:
    problems.append("the soname is not libberm.so.0")
if "NODELETE" not in output:
    problems.append("libberm.so is not marked NODELETE")
if "STATIC_TLS" in output:
    problems.append("libberm.so has initial-exec TLS: it may fail to load by dlopen")
lint.finish("libraries", len(needed), problems)

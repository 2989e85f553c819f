# SPDX-License-Identifier: Apache-2.0
"""What libberm.so loads: libc and its parts. Never libcuda, never jemalloc (it cannot be dlopened).
Also: its soname, and that it stays loaded (NODELETE)."""
import os
import re

import lint

LIBC = re.compile(r"^(libc|libm|libdl|libpthread|librt)\.so\.\d+$|^ld-linux.*\.so\.\d+$|^libgcc_s\.so\.1$")
STATIC_TLS_MAX = 512  # glibc.rtld.optional_static_tls, by default

if os.environ.get("BERM_SANITIZE"):
    lint.skip("a sanitizer adds its own libraries")
status, output = lint.run(["readelf", "-dlW", str(lint.built("lib/libberm.so"))])
needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output)
problems = [output] if status != 0 else []
problems += [f"libberm.so needs {library}" for library in needed if not LIBC.match(library)]
if "[libberm.so.0]" not in output:
    problems.append("the soname is not libberm.so.0")
if "NODELETE" not in output:
    problems.append("libberm.so is not marked NODELETE")
# Initial-exec TLS comes out of the little that glibc keeps for libraries opened later.
segment = re.search(r"^ +TLS( +0x[0-9a-f]+){4} +(0x[0-9a-f]+)", output, re.MULTILINE)
tls_bytes = int(segment.group(2), 16) if segment else 0
if "STATIC_TLS" in output and tls_bytes > STATIC_TLS_MAX:
    problems.append(f"libberm.so has {tls_bytes} bytes of TLS, some of it initial-exec: "
                    f"above {STATIC_TLS_MAX} bytes dlopen may fail")
lint.finish("libraries", len(needed), problems)

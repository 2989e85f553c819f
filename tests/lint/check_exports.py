# SPDX-License-Identifier: Apache-2.0
"""Export lists: the headers, allocator/berm.map and libberm.so agree; the simulated libcuda.so.1
exports driver names and all of simcuda.h, and nothing else; libberm_preload.so exports what its
entries.def and runtime.h have, and dlsym."""
import re

import lint


def exported(library):
    status, output = lint.run(["nm", "-D", "--defined-only", str(library)])
    if status != 0:
        return set(), [output]
    lines = [line.split() for line in output.splitlines()]
    names = {line[2].split("@")[0] for line in lines if len(line) == 3 and line[1] != "A"}
    # Sanitizers and gcov add names of their own; coverage builds are not shipped.
    return {name for name in names if not name.startswith(("__asan", "__gcov", "__odr_asan"))}, []


def compare(one_name, one, other_name, other):
    return ([f"{item}: in {one_name}, not in {other_name}" for item in sorted(one - other)] +
            [f"{item}: in {other_name}, not in {one_name}" for item in sorted(other - one)])


headers = lint.public_functions()
listed = set(re.findall(r"^\s+(berm_\w+);", (lint.ROOT / "allocator/berm.map").read_text(),
                        re.MULTILINE))
library, problems = exported(lint.built("lib/libberm.so"))
problems += compare("include/", headers, "berm.map", listed)
problems += compare("berm.map", listed, "libberm.so", library)

driver, failures = exported(lint.built("lib/simcuda/libcuda.so.1"))
problems += failures
problems += [f"{item}: exported by libcuda.so.1, not a driver name"
             for item in sorted(driver) if not re.match(r"cu[A-Z]|simcuda_", item)]
controls = set(re.findall(r"\b(simcuda_\w+)\(", re.sub(
    r"//[^\n]*", "", (lint.ROOT / "simcuda/include/simcuda.h").read_text())))
problems += [f"{item}: in simcuda.h, not exported by libcuda.so.1"
             for item in sorted(controls - driver)]
folder = lint.ROOT / "adapters/preload"
rows = re.findall(r"^PRELOAD_ENTRY(_STREAM)?\((\w+),", (folder / "entries.def").read_text(), re.MULTILINE)
wanted = {"dlsym"} | {symbol for _, symbol in rows} | {symbol + "_ptsz" for twin, symbol in rows if twin}
wanted |= set(re.findall(r"^PRELOAD_API (\w+)\(", (folder / "runtime.h").read_text(), re.MULTILINE))
preload, failures = exported(lint.built("lib/libberm_preload.so"))
problems += failures + compare("adapters/preload", wanted, "libberm_preload.so", preload)
lint.finish("exports", len(library) + len(driver) + len(preload), problems)

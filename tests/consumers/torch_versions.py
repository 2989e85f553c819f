# SPDX-License-Identifier: Apache-2.0
"""usage: torch_versions.py [VERSION|PYTHON]...

Runs the tests of a real PyTorch (ctest -R torch, of the release build) once for each version of torch:
a VERSION is fetched into build/torch-VERSION, the wheel and what it imports alone (570 MB, 1.5 GB on
disk); a PYTHON is the path of one that has a torch. Without arguments: the version of ./run
shadow-setup and the two minor versions before it (stress/real/versions.sh). Prints a table; exits with
1 where a test failed or was skipped."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
TESTS = r"^consumers\..*torch"
REQUIREMENTS = """import importlib.metadata, re
for line in importlib.metadata.requires("torch"):
    if not re.match(r"nvidia|cuda|triton", line) and "extra ==" not in line:
        print(line.split(";")[0])
"""


def settings():
    """The variables of versions.sh."""
    done = subprocess.run(["bash", "-c", ". stress/real/versions.sh; echo $TORCH_VERSION "
                           "$TORCH_OLDER_VERSIONS; echo ${TEST_PACKAGES[*]:-}"],
                          cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    versions, packages = done.stdout.splitlines()
    return versions.split(), packages.split()


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"torch-versions: {' '.join(map(str, command[:4]))}: {done.stdout[-2000:]}")
    return done.stdout


def python_of(version, packages):
    """A Python with that torch, fetched where missing."""
    folder = ROOT / f"build/torch-{version}"
    python, stamp = folder / "bin/python", folder / f".torch-{version}"
    if (ROOT / f"build/venv/.torch-{version}").exists():
        return ROOT / "build/venv/bin/python"
    if not stamp.exists():
        print(f"torch-versions: fetching torch {version} for build/{folder.name}", file=sys.stderr)
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        run(sys.executable, "-m", "venv", folder)
        run(*pip, "--no-deps", "--only-binary=:all:", f"torch=={version}")
        imports = run(python, "-c", REQUIREMENTS).splitlines()
        run(*pip, "numpy", *imports, *packages)
        stamp.touch()
    return python


def results_of(python):
    """test: (verdict, seconds) of every test, under the torch of this Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "ctest.xml"
        subprocess.run(["ctest", "--test-dir", BUILD, "-R", TESTS, "--output-on-failure", "--output-junit",
                        report, "-j", str(os.cpu_count())], check=False, stdout=sys.stderr,
                       env={**os.environ, "BERM_TORCH_PYTHON": str(python)})
        cases = list(xml.parse(report).getroot().iter("testcase"))
    results = {}
    for case in cases:
        output = case.findtext("system-out") or ""
        skip = re.search(r"^SKIP: (.*)$", output, re.MULTILINE)
        verdict = ("skipped: " + skip[1] if skip else
                   "passed" if case.get("status") == "run" else "FAILED")
        results[case.get("name").removeprefix("consumers.")] = verdict, float(case.get("time"))
    return results


def version_of(python):
    return run(python, "-c", "import importlib.metadata as m; print(m.version('torch'))").strip()


def main(arguments):
    versions, packages = settings()
    table = {}
    for wanted in arguments or versions:
        python = (wanted if os.sep in wanted else python_of(wanted, packages))
        version = version_of(python)
        print(f"=== torch {version}", file=sys.stderr)
        table[version] = results_of(python)
    names = sorted(set().union(*table.values()))
    print(f"| test | {' | '.join(table)} |\n|---|{'---|' * len(table)}")
    for name in names:
        cells = ["not run" if name not in column else "{}, {:.0f} s".format(*column[name])
                 for column in table.values()]
        print(f"| `{name}` | {' | '.join(cells)} |")
    verdicts = [verdict for column in table.values() for verdict, _ in column.values()]
    return 0 if verdicts and set(verdicts) == {"passed"} else 1


if __name__ == "__main__":
    if any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))

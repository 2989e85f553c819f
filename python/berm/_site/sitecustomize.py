# SPDX-License-Identifier: Apache-2.0
"""What `berm shadow` and `berm run` put before the user's program, through PYTHONPATH: a hook on
`import torch`, and then the sitecustomize that would have run. Harmless in a Python without torch."""
import importlib.util
import os
import sys


def _chain(own):
    """Runs the sitecustomize of the next folder on the path, as if this one were not there."""
    path = [folder for folder in sys.path if os.path.realpath(folder or ".") != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _begin():
    own = os.path.dirname(os.path.realpath(__file__))
    package = os.path.dirname(os.path.dirname(own))
    if package not in sys.path:
        sys.path.append(package)
    if os.environ.get("BERM_SHADOW_FOLDER") or os.environ.get("BERM_RUN"):
        from berm import _hook
        _hook.begin()
    _chain(own)


_begin()

# SPDX-License-Identifier: Apache-2.0
"""From an object to the names by which a person knows it: a walk over Python's referrers, bounded in
time and in objects. It keeps no reference when it is over, and calls nothing of the program's."""
import collections
import functools
import gc
import re
import sys
import threading
import time
import types

from berm import _live

OBJECTS_MAX = 20_000
DEPTH_MAX = 16
PATHS_MAX = 4
_FUNCTION_LOCALS = 0x02  # CO_NEWLOCALS
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_MODULE_PARTS = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")
_HOOKS = re.compile(r"\._(?:forward|backward)(?:_pre)?_hooks\b|_global_forward(?:_pre)?_hooks\b")
_REFERENCES_OF_OWN = 3  # to a frame's dictionary of locals: the frame's, ours, getrefcount's

_PLAIN = (str, bytes, int, float, bool, type(None))
_SEQUENCES = (list, tuple, collections.deque, set, frozenset)

# kind: global, local, class, suspended, exception. text: "module.name[0].x". container: what holds
# the target itself. is_program: the name is of the program rather than of a library.
Path = collections.namedtuple("Path", "text kind container place is_program closure")


def is_a(found, kinds):
    """isinstance(), by the type alone: `__class__` may be a property of the program's."""
    return issubclass(type(found), kinds)


def _locals(frame, before):
    """(name, id) of a running function's variables. Where Python makes a dictionary of them for
    that, it is emptied: it would keep them alive as long as the function runs. One that the program
    has too, by locals(), is left. before: ids of objects that the walk itself refers to once."""
    variables = frame.f_locals
    found = [(name, id(value)) for name, value in list(variables.items())]
    if type(variables) is dict and frame.f_code.co_flags & _FUNCTION_LOCALS and \
            sys.getrefcount(variables) <= _REFERENCES_OF_OWN + (id(variables) in before):
        variables.clear()
    return found


def _place(code, line=None):
    return f"{_live._short(code.co_filename)}:{line or code.co_firstlineno}"


def running(before):
    """Variables of all functions that run, in all threads, callers first: {id: [(function, variable,
    place, whether it is the program's)]}."""
    found, frames = collections.defaultdict(list), []
    own = threading.get_ident()
    for thread, frame in list(sys._current_frames().items()):
        if thread == own:  # this function's own would be in a cycle, and keep all of its callers'
            frame = frame.f_back
        frames.clear()
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        while frames:
            _note(found, frames.pop(), before)
    return dict(found)


def _note(found, frame, before):
    code = frame.f_code
    if code.co_flags & _FUNCTION_LOCALS and not code.co_filename.startswith(_live._HERE):
        for name, number in _locals(frame, before):
            found[number].append((code.co_name, name, _place(code, frame.f_lineno),
                                  _live.rank(code.co_filename) == 2))


def _modules():
    """{id of a module's dictionary: its name}; the program itself is __main__, whatever else it is."""
    found = {id(vars(module)): name for name, module in list(sys.modules.items())
             if is_a(module, types.ModuleType)}
    if "__main__" in sys.modules:
        found[id(vars(sys.modules["__main__"]))] = "__main__"
    return found


def _file(name):
    module = sys.modules.get(name)
    file = vars(module).get("__file__") if is_a(module, types.ModuleType) else None
    return file if type(file) is str else ""


class Walk:
    """One walk from `targets` upwards. before: ids of all objects that the collector tracked before
    the question was asked; what is newer belongs to the answer, and tells nothing."""

    def __init__(self, targets, seconds, before):
        self.is_complete = True
        self._before = before
        self._deadline = time.monotonic() + seconds
        self._modules = _modules()
        self._running = running(before)
        self._known = {}  # id: object
        self._parents = {}  # id: ids of what refers to it
        self._explore(targets)

    def close(self):
        """Drops what the walk saw."""
        self._known.clear()

    # --- upwards ---------------------------------------------------------------------------------

    def _is_root(self, found):
        return id(found) in self._modules or is_a(found, (types.ModuleType, type)) or \
            is_a(found, (types.FrameType, *_SUSPENDED))

    def _explore(self, targets):
        level = list(targets)
        self._known.update((id(each), each) for each in level)
        for _ in range(DEPTH_MAX):
            level = self._level([each for each in level if not self._is_root(each)])
            if not level or not self.is_complete:
                return
        self.is_complete = False

    def _level(self, level):
        """What refers to objects of this level, and was not known."""
        wanted = {id(each) for each in level}
        fresh = []
        for found in gc.get_referrers(*level) if level else ():
            if time.monotonic() > self._deadline or len(self._known) > OBJECTS_MAX:
                self.is_complete = False
                break
            if id(found) not in self._before or found is sys.modules or self._is_ours(found):
                continue
            for child in {id(child) for child in gc.get_referents(found)} & wanted:
                self._parents.setdefault(child, []).append(id(found))
            if id(found) not in self._known:
                self._known[id(found)] = found
                fresh.append(found)
        return fresh

    def _is_ours(self, found):
        if is_a(found, types.FrameType):
            return found.f_code.co_filename.startswith(_live._HERE)
        if type(found).__module__.startswith("berm.") or type(found) is types.ModuleType and \
                found.__name__.startswith("berm."):
            return True
        return self._modules.get(id(found), "").startswith("berm.")

    # --- downwards -------------------------------------------------------------------------------

    def paths(self, target, most=PATHS_MAX):
        """The shortest ways from a name to the target, those of the program first: [Path]."""
        found, queue, seen = [], collections.deque([(id(target), (id(target),))]), {id(target)}
        while queue and len(found) < 8 * most:
            number, chain = queue.popleft()
            for variable in self._running.get(number, ()):
                found.append(self._of_local(variable, chain))
            each = self._known.get(number)
            if each is not None and len(chain) > 1 and self._is_root(each):
                found.append(self._of_root(each, chain))
                continue
            for parent in self._parents.get(number, ()):
                if parent not in seen:
                    # A name is an end, and may be that of several ways.
                    if not self._is_root(self._known[parent]):
                        seen.add(parent)
                    queue.append((parent, (parent, *chain)))
        unique = {path.text: path for path in reversed([path for path in found if path])}
        order = {"global": 0, "class": 1, "suspended": 2, "exception": 3, "local": 4}
        ways = sorted(reversed(unique.values()), key=lambda path: (not path.is_program,
                                                                    order[path.kind]))
        known = [path for path in ways if path.is_program] or ways
        return known[:most]

    def is_referred(self, target):
        """Whether anything that Python knows refers to it."""
        return bool(self._parents.get(id(target)))

    def _steps(self, chain):
        """(text of the way below the first of the chain, the closure it goes through or "")."""
        text, closure = "", ""
        objects = [self._known[number] for number in chain]
        for index, (holder, held) in enumerate(zip(objects, objects[1:])):
            if is_a(holder, types.FunctionType) and is_a(held, tuple):
                closure = _closure(holder, objects[index + 2:index + 3])
            before = objects[index - 1] if index > 0 else None
            text += step(holder, held, before)
        return text, closure

    def _made(self, head, kind, chain, place, is_program):
        text, closure = self._steps(chain)
        text = _MODULE_PARTS.sub(r".\1", head + text)
        is_member = len(chain) > 1 and text.endswith(("]", "}", "cache)"))
        container = self._known.get(chain[-2]) if is_member else None
        return Path(text, kind, describe(container), place, is_program, closure)

    def _of_local(self, variable, chain):
        function, name, place, is_program = variable
        return self._made(name, "local", chain, f"{place} {function}", is_program)

    def _of_root(self, root, chain):
        module = self._modules.get(id(root))
        if module is not None:
            file = _file(module)
            is_program = _live.rank(file) == 2 or module == "__main__"
            key = _key(root, self._known[chain[1]])
            return self._made(f"{module}.{key}", "global", chain[1:], _live._short(file), is_program) \
                if is_a(key, str) else None
        if is_a(root, type):
            file = _file(root.__module__)
            return self._made(f"{root.__module__}.{root.__qualname__}", "class", chain,
                              _live._short(file), _live.rank(file) == 2)
        if is_a(root, types.ModuleType):
            return None  # its dictionary tells
        return self._of_frame(root, chain)

    def _of_frame(self, root, chain):
        frame, kind = root, "exception"
        if not is_a(root, types.FrameType):
            frame = next((getattr(root, name, None) for name in ("gi_frame", "cr_frame", "ag_frame")
                          if hasattr(root, name)), None)
            kind = "suspended"
        if frame is None:
            return None
        names = [name for name, number in _locals(frame, self._before) if number == chain[1]]
        name = names[0] if names else "(a temporary value)"
        place = f"{_place(frame.f_code, frame.f_lineno)} {frame.f_code.co_name}"
        return self._made(name, kind, chain[1:], place,
                          _live.rank(frame.f_code.co_filename) == 2)


# --- steps ---------------------------------------------------------------------------------------


def _pairs(mapping):
    for _ in range(3):
        try:
            return list(dict.items(mapping))
        except RuntimeError:  # another thread changed its size
            continue
    return []


def _key(mapping, held):
    for key, value in _pairs(mapping):
        if value is held:
            return key
    return None


def _shown(key):
    """A key in brackets, not longer than a line; keys that are objects are told by their class."""
    plain = type(key) in _PLAIN or type(key) is tuple and all(type(each) in _PLAIN for each in key)
    text = repr(key) if plain else f"<{type(key).__name__}>"
    return f"[{text if len(text) <= 40 else text[:37] + '...'}]"


def _attribute(holder, held):
    """The name of the attribute, found without calling properties; None: there is none."""
    if is_a(holder, type):
        return "" if is_a(held, dict) else None
    try:
        own = object.__getattribute__(holder, "__dict__")
    except (AttributeError, TypeError):
        own = None
    if own is held:
        return ""
    if is_a(own, dict):
        name = _key(own, held)
        if is_a(name, str):
            return name
    for kind in type(holder).__mro__:
        for name, member in list(vars(kind).items()):
            if is_a(member, types.MemberDescriptorType):
                try:
                    if member.__get__(holder) is held:
                        return name
                except AttributeError:
                    continue
    return None


def _closure(function, cells):
    name = ""
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        if cells and cell is cells[0]:
            name = variable
    return f"variable {name!r} of function {function.__qualname__} ({_place(function.__code__)})"


def _of_function(holder, held):
    if held is holder.__closure__:
        return ""
    if held is holder.__defaults__ or held is holder.__kwdefaults__:
        return "(a default)"
    return None


def _of_kind(container, kinds):
    """The built-in class that it is of, whose methods are not the program's."""
    return next((kind for kind in kinds if is_a(container, kind)), None)


def _in_sequence(holder, held):
    for index, value in enumerate(tuple(_of_kind(holder, _SEQUENCES).__iter__(holder))):
        if value is held:
            return index
    return None


def _of_tuple(holder, held, before):
    index = _in_sequence(holder, held)
    if is_a(before, types.FunctionType) and is_a(held, types.CellType):
        variables = before.__code__.co_freevars
        name = variables[index] if index is not None and index < len(variables) else "?"
        return f".<closure {name}>"
    names = getattr(type(holder), "_fields", ())
    if index is not None and index < len(names):
        return f".{names[index]}"
    return f"[{index}]"


def step(holder, held, before=None):
    """How `held` is reached from `holder`, which was reached from `before`."""
    if is_a(holder, types.CellType):
        return ""
    if is_a(holder, dict):
        key = _key(holder, held)
        if before is not None and is_a(key, str) and not is_a(before, dict) and \
                _attribute(before, holder) == "":
            return f".{key}"
        return "[a key]" if key is None else _shown(key)
    if is_a(holder, tuple):
        return _of_tuple(holder, held, before)
    if is_a(holder, (list, collections.deque)):
        return f"[{_in_sequence(holder, held)}]"
    if is_a(holder, (set, frozenset)):
        return "{...}"
    if is_a(holder, types.MethodType):
        return ".__self__" if holder.__self__ is held else ".__func__"
    if is_a(holder, functools.partial):
        return "(an argument)"
    if is_a(holder, types.FunctionType):
        found = _of_function(holder, held)
        if found is not None:
            return found
    name = _attribute(holder, held)
    if name is not None:
        return f".{name}" if name else ""
    if type(holder).__name__ == "_lru_cache_wrapper":
        return "(an entry of its cache)"
    return f".<{type(holder).__name__}>"


def describe(container):
    """What holds the target, in words."""
    kind, name = _of_kind(container, (*_SEQUENCES, dict)), type(container).__name__
    if kind is dict:
        count = dict.__len__(container)
        return f"a {name} of {count} entr{'y' if count == 1 else 'ies'}"
    if kind is not None and kind is not tuple:
        return f"a {name} of {kind.__len__(container)}"
    if name == "_lru_cache_wrapper":
        return f"a functools cache of {container.cache_info().currsize} entries"
    return ""


def of_callable(function):
    """A function by its name and place; another object by its class."""
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return f"{function.__qualname__}, {_place(code)}" if code is not None else \
        f"a {type(function).__name__}"


def is_hook(text):
    """Whether a way goes through a hook of a module."""
    return _HOOKS.search(text) is not None


def pattern(text):
    """The way without its indices: members of one container have one."""
    return re.sub(r"\[(?:\d+|'[^']*'|\"[^\"]*\"|[^\[\]]*)\]", "[*]", text)

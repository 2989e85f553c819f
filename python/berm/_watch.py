# SPDX-License-Identifier: Apache-2.0
"""Memory around each request or step, and what grows from one to the next: berm.torch.watch()."""
import collections
import functools
import itertools
import statistics
import threading
import time

import torch

from berm import _live, _sites
from berm._lib import BermError

_SETTLED = 2  # requests after which sites are looked at first: what is made on first use is there
_HIGHER = 1.01  # a peak that is so much above the highest is looked into
TOP = 5

Growth = collections.namedtuple("Growth", "bytes_per_request rose requests sites")
Grown = collections.namedtuple("Grown", "site bytes_per_request blocks_per_request bytes")


def mib(size_bytes):
    return f"{size_bytes / 2**20:+.1f} MiB" if size_bytes < 0 else f"{size_bytes / 2**20:.1f} MiB"


class Request:
    """One request or step. Bytes are allocated bytes of live blocks of the device.

    index, name, seconds
    before_bytes, after_bytes, peak_bytes
    operation   what ran when memory was at its peak: the module and the shapes it was given, or,
                with ops=True, the operator; "" unless the peak was higher than all before it
    site        the line of the program that asked for the block that made that peak; "" likewise
    is_shared   another request ran at the same time: the figures are of both
    error       the class of the exception that ended it, or None"""
    __slots__ = ("index", "name", "seconds", "before_bytes", "after_bytes", "peak_bytes", "operation",
                 "site", "is_shared", "error")

    def __init__(self, index, name, before_bytes):
        self.index, self.name, self.before_bytes = index, name, before_bytes
        self.after_bytes = self.peak_bytes = before_bytes
        self.operation = self.site = ""
        self.seconds, self.is_shared, self.error = 0.0, False, None

    def __str__(self):
        text = (f"request {self.index}{f' {self.name}' if self.name else ''}: before "
                f"{mib(self.before_bytes)}, peak {mib(self.peak_bytes)}, after "
                f"{mib(self.after_bytes)}")
        if self.error:
            text += f", ended by {self.error}"
        if self.is_shared:
            text += ", beside others"
        if self.operation or self.site:
            text += f"; peak at {' in '.join(filter(None, (self.operation, self.site)))}"
        return text


def slope(values):
    """Of a line through equidistant values, by Theil and Sen: the median of the slopes of all pairs.
    Up to 29 % of the values may be anything. 0 for fewer than two."""
    pairs = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(enumerate(values), 2)]
    return statistics.median(pairs) if pairs else 0.0


def _peak_event(trace, begin_us):
    """The event at which most was allocated, of those since then; None: there is none."""
    now = most = 0
    found = None
    for event in trace:
        if event.get("time_us", 0) < begin_us:
            continue
        if event["action"] == "alloc":
            now += event["size"]
            if now > most or found is None:
                most, found = now, event
        elif event["action"] == "free_requested":
            now -= event["size"]
    return found


class Watch:
    """What watch() returns. One object may be used by several threads."""

    def __init__(self, last, ops, call_sites, device, entries):
        self._last, self._ops, self._device = last, ops, device
        self._lock = threading.RLock()
        self._local = threading.local()
        self._requests = collections.deque(maxlen=last)
        self._count = itertools.count(1)
        self._active, self._highest, self._done = 0, 0, 0
        self._first_sites = None  # (requests done, {site: (bytes, blocks)})
        self._is_closed = False
        self._handles = []
        is_cuda = torch.backends.cuda.is_built() and torch.cuda.is_available()
        self._is_hooks = is_cuda and _live.is_berm(torch) == "hooks"
        self._sites = self._modules = None
        if is_cuda and call_sites and not self._is_hooks:
            self._sites = _sites.sites(entries)
            if hasattr(torch.cuda.memory, "_set_memory_metadata") and not ops:
                self._modules = _sites.Modules()
        self._has_cuda = is_cuda

    # --- a request -------------------------------------------------------------------------------

    def _where(self):
        return torch.cuda.current_device() if self._device is None else self._device

    def _figure(self):
        if not self._has_cuda or not torch.cuda.is_initialized():
            return 0, 0
        return _live.figures(torch, self._where())["allocated"]

    def _begin(self, name):
        stack = self._local.__dict__.setdefault("stack", [])
        if stack:  # within another of this thread
            stack.append(None)
            return
        with self._lock:
            if self._is_closed:
                raise BermError("berm.torch.watch: it was closed")
            request = Request(next(self._count), name, self._figure()[0])
            request.is_shared = self._active > 0
            if self._active == 0:
                _live.peaks_reset(torch, self._where()) if self._has_cuda else None
            self._active += 1
        mode = None
        if self._has_cuda and (self._ops or self._is_hooks):
            mode = _sites.Operators(functools.partial(self._operator, request))
            mode.__enter__()
        stack.append((request, mode, time.time_ns() // 1000, time.monotonic()))

    def _operator(self, request, text, site):
        """Behind plain hooks, after each operator: whether memory was higher than ever in it."""
        peak = self._figure()[1]
        if peak > request.peak_bytes:
            request.peak_bytes, request.operation, request.site = peak, text, site

    def _end(self, error):
        begun = self._local.stack.pop()
        if begun is None:
            return None
        request, mode, begin_us, begin = begun
        if mode is not None:
            mode.__exit__(None, None, None)
        with self._lock:
            self._active -= 1
            request.is_shared |= self._active > 0
            request.after_bytes, request.peak_bytes = self._figure()
            request.seconds, request.error = time.monotonic() - begin, error
            self._done += 1
            if request.peak_bytes > self._highest * _HIGHER:
                self._highest = request.peak_bytes
                self._look_into(request, begin_us)
            elif not self._is_hooks:
                request.operation = request.site = ""
            if self._done == _SETTLED or self._first_sites is None and self._done > _SETTLED:
                self._first_sites = (self._done, self._by_site())
            self._requests.append(request)
        return request

    def _look_into(self, request, begin_us):
        if self._sites is None or not _sites.is_recorded():
            return
        traces = torch.cuda.memory._snapshot()["device_traces"]
        event = _peak_event(traces[self._where()], begin_us) if traces else None
        if event is not None:
            request.site = _live.site(_live.plain(event.get("frames") or ()))
            request.operation = event.get("user_metadata") or ""

    def __enter__(self):
        self._begin("")
        return self

    def __exit__(self, kind, *_):
        self._end(kind.__name__ if kind else None)

    def request(self, name=""):
        """A context manager for one request, with a name for the record."""
        return _Named(self, name)

    def __call__(self, function):
        """A decorator: each call is a request."""
        @functools.wraps(function)
        def watched(*args, **kwargs):
            with self.request(function.__name__):
                return function(*args, **kwargs)
        return watched

    def attach(self, what):
        """Makes each forward pass of a module, or each step of an optimizer (with all that came since
        the one before), a request, until close(). Raises BermError: it is neither."""
        if isinstance(what, torch.nn.Module):
            self._handles += [
                what.register_forward_pre_hook(lambda *_: self._begin(type(what).__name__)),
                what.register_forward_hook(lambda *_: self._end(None) and None, always_call=True)]
        elif isinstance(what, torch.optim.Optimizer):
            self._begin("step")

            def stepped(*_):
                self._end(None)
                self._begin("step")
            self._handles.append(what.register_step_post_hook(stepped))
        else:
            raise BermError(f"berm.torch.watch: {type(what).__name__} is no module and no optimizer")
        return self

    # --- what it says ----------------------------------------------------------------------------

    @property
    def requests(self):
        """The last ones, oldest first: [Request]."""
        with self._lock:
            return list(self._requests)

    def _by_site(self):
        """{site: (bytes, blocks)} of what lives."""
        found = {}
        if not self._has_cuda:
            return found
        for block in _live.blocks(torch, self._where()).all:
            if block.state == _live.LIVE:
                site = _live.site(_live.plain(block.frames)) if block.frames else \
                    _sites.noted(block.address)
                total, count = found.get(site, (0, 0))
                found[site] = (total + block.size, count + 1)
        return found

    def growth(self):
        """How allocated bytes after a request grow over the last ones: Growth(bytes_per_request: the
        slope by Theil and Sen; rose: how many of the requests ended higher than the one before;
        requests; sites: [Grown(site, bytes_per_request, blocks_per_request, bytes)], those that grew
        since the second request, most first)."""
        with self._lock:
            after = [request.after_bytes for request in self._requests]
            rose = sum(b > a for a, b in zip(after, after[1:]))
            sites = []
            if self._first_sites is not None and self._done > self._first_sites[0]:
                done, first = self._first_sites
                for site, (size, blocks) in self._by_site().items():
                    was, were = first.get(site, (0, 0))
                    if size > was:
                        between = self._done - done
                        sites.append(Grown(site or "(no call site)", (size - was) / between,
                                           (blocks - were) / between, size))
            sites.sort(key=lambda grown: -grown.bytes_per_request)
            return Growth(slope(after), rose, len(after), sites)

    def report(self):
        """All of it, as text."""
        requests, growth = self.requests, self.growth()
        if not requests:
            return "no request was watched\n"
        highest = max(requests, key=lambda request: (request.peak_bytes, bool(request.site)))
        lines = [f"{len(requests)} requests; the last: {requests[-1]}", f"highest peak: {highest}",
                 f"growth: {mib(growth.bytes_per_request)} a request; {growth.rose} of "
                 f"{max(growth.requests - 1, 0)} ended higher than the one before"]
        for grown in growth.sites[:TOP] if growth.bytes_per_request > 0 else ():
            lines.append(f"  {mib(grown.bytes_per_request)} and {grown.blocks_per_request:.1f} blocks "
                         f"a request: {grown.site}, {mib(grown.bytes)} now")
        return "\n".join(lines) + "\n"

    __str__ = report

    def close(self):
        """Ends the watch: hooks go, and the recording of call sites where it was begun here. What was
        seen can still be asked."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for handle in self._handles:
                handle.remove()
            for each in (self._modules, self._sites):
                if each is not None:
                    each.end()


class _Named:
    """One request with a name."""

    def __init__(self, watch, name):
        self._watch, self._name = watch, name

    def __enter__(self):
        self._watch._begin(self._name)
        return self._watch

    def __exit__(self, kind, *_):
        self._watch._end(kind.__name__ if kind else None)


def watch(last=64, ops=False, call_sites=True, device=None, entries=_sites.ENTRIES):
    """Notes memory around each request or step: before, after, peak; what ran at the peak; and what
    grows from one to the next, by line of the program.

        watch = berm.torch.watch()
        for request in requests:
            with watch:                   # or: @watch above the function; watch.attach(model)
                serve(request)
        print(watch.report())

    last        requests that are kept, and over which growth is told; 2 or more
    ops         the operator and its shapes at the peak, by a dispatch mode of the thread (some 7
                microseconds an operator); else the module and its shapes, by hooks on modules
    call_sites  records them meanwhile (sites()); without it neither lines nor operations are told
    device      its ordinal; None: the current one
    entries     events of the trace in which a new highest peak is looked for

    It resets the peaks of torch.cuda and of berm at the start of a request. A request whose peak is
    higher than all before is looked into when it ends, for some ms (a trace and all live blocks);
    the others cost two reads of figures. Requests that run beside others in threads share figures
    (is_shared). Waits for nothing. Behind plain hooks it always uses the dispatch mode.
    Raises BermError: `last` is too small."""
    if last < 2:
        raise BermError(f"berm.torch.watch: last={last}: 2 or more")
    return Watch(last, ops, call_sites, device, entries)

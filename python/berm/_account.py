# SPDX-License-Identifier: Apache-2.0
"""The account of a program's memory from torch's trace of it: peaks, and who held the highest. Pure
functions over plain values, without torch.

A trace is a list of dicts with `action`, `addr`, `size`, `stream`, `time_us`, and where recorded
`frames` and `user_metadata` (the running module); marks are (time_us, {address: category})."""
import gzip
import os
import re

ALLOC, REQUESTED, COMPLETED = "alloc", "free_requested", "free_completed"
BACKWARD = "(backward)"  # allocations of autograd's threads have no line
TOP = 12
_NUMBERS = re.compile(r"\.\d+(?=\.|$)")


def _where(frames, is_users):
    """The line of the program that asked: the innermost of its frames."""
    here = os.getcwd() + os.sep
    for frame in frames or ():
        if is_users(frame["filename"]):
            name = frame["filename"].removeprefix(here)
            return f"{name}:{frame['line']} {frame['name']}"
    return BACKWARD


class _Block:
    """One allocation, and what is known of it."""
    __slots__ = ("size", "where", "module", "category")

    def __init__(self, event, is_users):
        self.size = event["size"]
        self.where = _where(event.get("frames"), is_users)
        self.module = event.get("user_metadata") or ""
        self.category = None


def _sums(blocks, key):
    sums = {}
    for block in blocks:
        name = key(block)
        total, count = sums.get(name, (0, 0))
        sums[name] = (total + block.size, count + 1)
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])[:TOP]
    return [{"name": name, "bytes": total, "blocks": count} for name, (total, count) in ordered]


def _category(block):
    """What an optimizer does not hold is an activation where a module made it, of the backward pass
    where no line of the program did; the rest is what the program made outside its modules."""
    if block.category is not None:
        return block.category
    if block.module:
        return "activations"
    return "backward pass" if block.where == BACKWARD else "outside modules"


def _module(block):
    """The module's name; the members of a list (layers.0, layers.1) are one."""
    return _NUMBERS.sub(".*", block.module) or "(no module)"


class _Run:
    """Goes through the events in order, with the marks and the steps between them."""

    def __init__(self, marks, steps):
        self.live = {}
        self.live_bytes = self.peak_bytes = self.step_peak = 0
        self.peak_index = -1
        self.peak_step = 0
        self.allocations = 0
        self.step_peaks = []
        self._marks, self._mark_at = marks, 0
        self._steps, self._step_at = steps, 0

    def until(self, time_us):
        """Marks and steps that came before that time."""
        while self._mark_at < len(self._marks) and self._marks[self._mark_at][0] <= time_us:
            for addr, category in self._marks[self._mark_at][1].items():
                block = self.live.get(addr)
                if block is not None:
                    block.category = category
            self._mark_at += 1
        while self._step_at < len(self._steps) and self._steps[self._step_at] <= time_us:
            self.step_peaks.append(self.step_peak)
            self.step_peak = self.live_bytes
            self._step_at += 1

    def add(self, index, event, block):
        self.live[event["addr"]] = block
        self.live_bytes += block.size
        self.allocations += 1
        self.step_peak = max(self.step_peak, self.live_bytes)
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_index = self.live_bytes, index
            self.peak_step = self._step_at + 1

    def remove(self, event):
        block = self.live.pop(event["addr"], None)
        if block is not None:
            self.live_bytes -= block.size


def of_trace(trace, marks, steps, is_users):
    """The figures of one device. Bytes are requested bytes of live blocks."""
    run = _Run(marks, steps)
    blocks = []  # every block by the index of its event
    at_peak = None
    for index, event in enumerate(trace):
        run.until(event.get("time_us", 0))
        if event["action"] == ALLOC:
            block = _Block(event, is_users)
            blocks.append((index, event["addr"], block))
            run.add(index, event, block)
        elif event["action"] == REQUESTED:
            run.remove(event)
    run.until(float("inf"))
    at_peak = _live_at(trace, blocks, run.peak_index)
    if run.step_peak > 0 and len(run.step_peaks) == len(steps):
        run.step_peaks.append(run.step_peak)
    return {
        "peak_requested_bytes": run.peak_bytes, "peak_step": run.peak_step,
        "step_of_end": len(steps) + 1, "allocations": run.allocations, "live_end_bytes": run.live_bytes,
        "step_peak_bytes": run.step_peaks[:len(steps)],
        "holders": _sums(at_peak, _category),
        "modules": _sums(at_peak, _module),
        "lines": _sums(at_peak, lambda block: block.where),
    }


def _live_at(trace, blocks, peak):
    """The blocks that lived right after the event with that index."""
    live = {}
    at = 0
    for index in range(peak + 1):
        event = trace[index]
        if event["action"] == ALLOC:
            live[event["addr"]] = blocks[at][2]
            at += 1
        elif event["action"] == REQUESTED:
            live.pop(event["addr"], None)
    return list(live.values())


def write_csv(trace, path):
    """Writes the trace as event CSV (docs/trace-format.md), gzip where the path ends in .gz.

    A free whose end came later than its request is a `free` and a `free_done`."""
    opened = gzip.open if path.endswith(".gz") else open
    ids, next_id, index = {}, 0, 0
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("event_index,op,id,size_bytes,stream\n")

        def put(operation, number, size, stream):
            nonlocal index
            file.write(f"{index},{operation},{number},{size},{stream}\n")
            index += 1

        for at, event in enumerate(trace):
            action, addr = event["action"], event.get("addr")
            if action == ALLOC:
                ids[addr] = next_id
                put("alloc", next_id, event["size"], event["stream"])
                next_id += 1
            elif action == REQUESTED and addr in ids:
                put("free", ids[addr], event["size"], event["stream"])
                follows = trace[at + 1] if at + 1 < len(trace) else {}
                if follows.get("action") == COMPLETED and follows.get("addr") == addr:
                    del ids[addr]
            elif action == COMPLETED and addr in ids:
                put("free_done", ids.pop(addr), event["size"], event["stream"])

# SPDX-License-Identifier: Apache-2.0
"""torch.profiler with profile_memory: the events of device memory under the subclass are those of the
native allocator, also with expandable segments: their number, order, sizes and the totals allocated;
what is reserved covers what is allocated. The tables and the memory timeline that torch makes of them
are the same."""
import json
import os
import pathlib
import sys
import tempfile

import torch_test

CUDA = 1  # "Device Type" of an event


def train(torch, steps, after_step):
    model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.ReLU(),
                                torch.nn.Linear(500, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(7 + step, 300, device="cuda")).sum().backward()
        optimizer.step()
        torch.cuda.synchronize()
        after_step()


def events_of(profile, folder):
    path = folder / "trace.json"
    profile.export_chrome_trace(str(path))
    trace = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [event["args"] for event in sorted((event for event in trace
                                               if event["name"] == "[memory]"),
                                              key=lambda event: event["ts"])
            if event["args"]["Device Type"] == CUDA]


def timeline_of(profile, folder):
    """The most that each category has at a time, or None where this torch cannot."""
    if not hasattr(profile, "export_memory_timeline"):
        return None
    path = folder / "timeline.json"
    profile.export_memory_timeline(str(path), device="cuda:0")
    times, sizes = json.loads(path.read_text(encoding="utf-8"))
    assert times == sorted(times) and len(times) == len(sizes)
    return [max(column) for column in zip(*sizes)]


def program(torch):
    train(torch, 1, lambda: None)  # libraries' workspaces
    begun = torch.cuda.memory_allocated()
    with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
        train(torch, 3, profile.step)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        events, timeline = events_of(profile, folder), timeline_of(profile, folder)
    live, total = {}, begun
    for event in events:
        address, size = event["Addr"], event["Bytes"]
        total += size
        assert event["Total Allocated"] == total, (event, total)
        assert event["Total Reserved"] >= total, event
        if size > 0:
            assert address not in live, event
            live[address] = size
        else:
            assert live.pop(address, -size) == -size, event
    assert total == torch.cuda.memory_allocated() and len(events) > 50, (total, len(events))
    by_name = {event.key.split(" object at 0x")[0]: event.self_device_memory_usage
               for event in profile.key_averages()}
    assert by_name["aten::addmm"] != 0 and "CUDA Mem" in profile.key_averages().table()
    return {"events": [[event["Bytes"], event["Total Allocated"], event["Device Id"]]
                       for event in events],
            "operators": {name: size for name, size in sorted(by_name.items()) if size},
            "timeline": timeline}


def main():
    route = os.environ.get("BERM_TEST_ROUTE")
    if route is not None:
        print(json.dumps(program(torch_test.load(route))))
        return 0
    if os.environ.get("BERM_SANITIZE"):
        torch_test.skip("PyTorch is not sanitized")
    notes = {route: torch_test.child_marks(__file__, route, {})
             for route in ("native", "expandable", "subclass")}
    if None in notes.values():
        return 1
    ours = notes.pop("subclass")
    failed = [(route, key) for route, theirs in notes.items() for key in theirs
              if theirs[key] != ours[key]]
    for route, key in failed:
        print(f"FAIL: {key}: subclass {json.dumps(ours[key])[:700]}\n  {route} "
              f"{json.dumps(notes[route][key])[:700]}")
    if not failed:
        print(f"ok: {len(ours['events'])} memory events, {len(ours['operators'])} operators, most of "
              f"each category {ours['timeline']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

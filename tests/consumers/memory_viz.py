# SPDX-License-Identifier: Apache-2.0
"""A snapshot that berm exported, before the eyes of PyTorch: what torch.cuda._memory_viz makes of it,
and what the viewer on the web needs: taken back from the end, the trace agrees with the segments.

    memory_viz.py SNAPSHOT RECORDING     Python with torch installed; torch itself is not loaded"""
import importlib.util
import json
import pathlib
import pickle
import sys


def module():
    """torch.cuda._memory_viz, without importing torch."""
    folder = importlib.util.find_spec("torch").submodule_search_locations[0]
    path = pathlib.Path(folder) / "cuda/_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def replay_backwards(snapshot):
    """As the viewer does; returns how many blocks lived before the first event."""
    count = 0
    for device, trace in enumerate(snapshot["device_traces"]):
        live, pending = {}, set()
        for segment in (s for s in snapshot["segments"] if s["device"] == device):
            at = segment["address"]
            for block in segment["blocks"]:
                assert block["address"] == at, "blocks tile their segment"
                at += block["size"]
                if block["state"] == "active_allocated":
                    live[block["address"]] = block["requested_size"]
                elif block["state"] == "active_pending_free":
                    pending.add(block["address"])
            assert at == segment["address"] + segment["total_size"]
        for event in reversed(trace):
            action, addr = event["action"], event.get("addr")
            if action == "alloc":
                assert live.pop(addr) == event["size"], event
            elif action == "free_completed":
                assert addr not in live and addr not in pending, event
                pending.add(addr)
            elif action == "free_requested":
                assert addr in pending and addr not in live, event
                pending.remove(addr)
                live[addr] = event["size"]
        assert not pending, "a free was requested for each block that waits"
        count += len(live)
    return count


def main():
    viz = module()
    with open(sys.argv[1], "rb") as file:
        snapshot = pickle.load(file)  # our own
    with open(sys.argv[2], encoding="utf-8") as file:
        recording = json.load(file)
    before = replay_backwards(snapshot)
    events = sum(len(trace) for trace in snapshot["device_traces"])
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    live = sum(block["requested_size"] for segment in snapshot["segments"]
               for block in segment["blocks"] if block["state"] == "active_allocated")
    wanted = [sum(segment[1] for device in recording["devices"] for segment in device["segments"]),
              sum(block[2] for device in recording["devices"] for block in device["blocks"]
                  if block[3] == 1)]
    assert [reserved, live] == wanted, (reserved, live, wanted)
    def plain(lines):
        return lines
    made = {"segsum": viz.segsum(snapshot), "trace": viz.trace(snapshot),
            "segments": viz.segments(snapshot, plain), "memory": viz.memory(snapshot, plain),
            "trace_plot": viz.trace_plot(snapshot), "segment_plot": viz.segment_plot(snapshot)}
    for name, text in made.items():
        assert len(text) > 20, name
    assert made["segsum"].count("\n") > len(snapshot["segments"])
    assert "<script" in made["trace_plot"] and "<script" in made["segment_plot"]
    print(f"ok: {events} events, {len(snapshot['segments'])} segments, {before} blocks from before; "
          + ", ".join(f"{name} {len(text)}" for name, text in made.items()))


main()

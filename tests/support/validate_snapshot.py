# SPDX-License-Identifier: Apache-2.0
"""Checks a snapshot of berm: validate_snapshot.py SCHEMA SNAPSHOT.

The schema is docs/snapshot.schema.json. Checked by the module jsonschema where there is one, and in
any case by the few lines below, which know the keywords that the schema uses and no others. Then
what a schema cannot say: ranges tile, figures are sums, every physical byte is listed once. Last,
broken copies of the snapshot must be refused.

Exit status 0, or 1 with a line."""
import copy
import json
import re
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
         "number": (int, float), "null": type(None)}
NOTES = {"$schema", "$defs", "title", "description"}


class Invalid(Exception):
    pass


def has_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def validate(value, schema, root, path="$"):
    def refuse(why):
        raise Invalid(f"{path}: {why}")

    for keyword, rule in schema.items():
        if keyword in NOTES:
            continue
        if keyword == "$ref":
            validate(value, root["$defs"][rule.removeprefix("#/$defs/")], root, path)
        elif keyword == "type":
            names = rule if isinstance(rule, list) else [rule]
            if not any(has_type(value, name) for name in names):
                refuse(f"{value!r} is not of type {rule}")
        elif keyword == "const":
            if value != rule:
                refuse(f"{value!r} is not {rule!r}")
        elif keyword == "enum":
            if value not in rule:
                refuse(f"{value!r} is not one of {rule}")
        elif keyword == "minimum":
            if has_type(value, "number") and value < rule:
                refuse(f"{value} is below {rule}")
        elif keyword == "pattern":
            if isinstance(value, str) and not re.search(rule, value):
                refuse(f"{value!r} does not match {rule}")
        elif keyword == "required":
            missing = [key for key in rule if key not in value]
            if missing:
                refuse(f"lacks {missing}")
        elif keyword == "properties":
            for key, inner in rule.items():
                if key in value:
                    validate(value[key], inner, root, f"{path}.{key}")
        elif keyword == "additionalProperties":
            for key in value.keys() - schema.get("properties", {}).keys():
                validate(value[key], rule, root, f"{path}.{key}")
        elif keyword == "items":
            for index, item in enumerate(value):
                validate(item, rule, root, f"{path}[{index}]")
        else:
            raise SystemExit(f"validate_snapshot.py does not know the keyword {keyword}")


def same(what, left, right):
    if left != right:
        raise Invalid(f"{what}: {left} and {right}")


def bits(text):
    return bin(int(text, 16)).count("1")


def check_segment(segment, granule_bytes):
    """Returns (physical bytes, handles, live bytes, requested bytes, blocks)."""
    at = live = requested = blocks = free = 0
    for item in segment["ranges"]:
        same("a range begins where the last one ends", item["start_bytes"], at)
        at += item["size_bytes"]
        slab = item.get("slab")
        if slab:
            same("used slots", bits(slab["taken"]), slab["used"])
            live += bits(slab["live"]) * slab["class_bytes"]
            requested += slab["requested_bytes"]
            blocks += bits(slab["live"])
        elif item["state"] == "live":
            live += item["size_bytes"]
            requested += item["requested_bytes"]
            blocks += 1
        free += item["size_bytes"] if item["state"] == "free" else 0
    same("ranges end with the span", at, segment["span_bytes"])
    same("free bytes", free, segment["free_bytes"])
    end = handles = granules = 0
    for run in segment["handles"]:
        if run["first_granule"] < end:
            raise Invalid("runs of handles overlap")
        end = run["first_granule"] + run["granules"] * run["count"]
        granules += run["granules"] * run["count"]
        handles += run["count"]
    return granules * granule_bytes, handles, live, requested, blocks


def check_device(device):
    granule_bytes, statistics = device["granule_bytes"], device["statistics"]
    idle, leaving = device["idle_handles"], device["leaving_handles"]
    exported = sum(item["granules"] for item in leaving) * granule_bytes
    reserved = sum(item["granules"] * item["count"] for item in idle) * granule_bytes + exported
    handles = sum(item["count"] for item in idle) + len(leaving)
    mappings = live = requested = blocks = awaited = span = 0
    for pool in device["pools"]:
        awaited += pool["deferred_bytes"]
        same("deferred bytes", sum(item["size_bytes"] for item in pool["deferred"]),
             pool["deferred_bytes"])
        sums = [check_segment(segment, granule_bytes) for segment in pool["segments"]]
        sums = [sum(column) for column in zip(*sums)] or [0] * 5
        same("a pool's figures", sums[2:],
             [pool["allocated_bytes"], pool["requested_bytes"], pool["blocks"]])
        reserved, handles, mappings = reserved + sums[0], handles + sums[1], mappings + sums[1]
        live, requested, blocks = live + sums[2], requested + sums[3], blocks + sums[4]
        span += sum(segment["span_bytes"] for segment in pool["segments"])
        exported += sum(run["granules"] * run["count"] * granule_bytes for segment in
                        pool["segments"] for run in segment["handles"] if run["is_exported"])
    same("exported bytes", exported, statistics["exported_bytes"])
    same("remap and its mode", device["remap"], device["remap_mode"] != "off")
    imports = [item["size_bytes"] for item in device["imports"] if item["is_mapped"]]
    same("imports", [len(imports), sum(imports)],
         [statistics["imports"], statistics["imported_bytes"]])
    now = {name: statistics[name]["current"] for name in statistics
           if isinstance(statistics[name], dict)}
    same("physical bytes, each once", reserved, now["reserved_bytes"])
    same("handles", handles, statistics["handles"])
    same("mappings", mappings, statistics["mappings"])
    same("allocated bytes", live, now["allocated_bytes"])
    same("requested bytes", requested, now["requested_bytes"])
    same("blocks", blocks, now["blocks"])
    same("active bytes", live + awaited, now["active_bytes"])
    same("cached bytes", now["reserved_bytes"] - now["active_bytes"], statistics["cached_bytes"])
    same("address bytes", span, statistics["address_bytes"])


def check(snapshot, schema, with_module):
    validate(snapshot, schema, schema)
    if with_module:
        try:
            with_module.Draft202012Validator(schema).validate(snapshot)
        except with_module.ValidationError as error:
            raise Invalid(error.message) from None
    for device in snapshot.get("devices", []):
        check_device(device)


def spoil_key(snapshot):
    del snapshot["is_running"]


def spoil_type(snapshot):
    snapshot["host_metadata_bytes"] = "0"


def spoil_sign(snapshot):
    snapshot["host_metadata_bytes"] = -1


def spoil_version(snapshot):
    snapshot["schema"] = 2


def spoil_state(snapshot):
    snapshot["devices"][0]["pools"][0]["segments"][0]["ranges"][0]["state"] = "gone"


def spoil_address(snapshot):
    snapshot["devices"][0]["pools"][0]["segments"][0]["base"] = "12"


def spoil_remap(snapshot):
    snapshot["devices"][0]["remap_mode"] = "off"


def spoil_sum(snapshot):
    snapshot["devices"][0]["statistics"]["reserved_bytes"]["current"] += 1


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        snapshot = json.load(file)
    try:
        import jsonschema as module
    except ImportError:
        module = None
    try:
        check(snapshot, schema, module)
    except Invalid as error:
        raise SystemExit(f"{sys.argv[2]}: {error}") from None
    spoilers = [spoil_key, spoil_type, spoil_sign, spoil_version]
    if snapshot.get("devices"):
        spoilers += [spoil_state, spoil_address, spoil_sum]
        if snapshot["devices"][0]["remap"]:
            spoilers.append(spoil_remap)
    for spoil in spoilers:
        spoiled = copy.deepcopy(snapshot)
        spoil(spoiled)
        try:
            check(spoiled, schema, module)
        except Invalid:
            continue
        raise SystemExit(f"{spoil.__name__} goes unnoticed")


main()

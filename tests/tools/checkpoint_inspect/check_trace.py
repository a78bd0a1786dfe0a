#!/usr/bin/env python3
"""Holds a file against the rules of the trace event format, as far as `checkpoint-inspect trace` uses it.

  check_trace.py FILE

Prints {"processes": {pid: name}, "threads": {"pid/tid": name}, "complete": number of complete events} and exits with 0,
or says what is wrong and exits with 1. Written from the format's description, "Trace Event Format", and not from the
code that writes it.
"""

import json
import sys

METADATA = {"process_name": ("name", str), "thread_name": ("name", str),
            "process_sort_index": ("sort_index", int), "thread_sort_index": ("sort_index", int)}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def require(condition, event, what):
    if not condition:
        raise ValueError(f"{what}: {json.dumps(event)}")


def no_name_twice(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError(f"a name stands twice in one object: {names}")
    return dict(pairs)


def refuse_constant(text):
    raise ValueError(f"{text} is no JSON")


def check_metadata(event, processes, threads):
    name = event["name"]
    require(name in METADATA, event, "unknown metadata")
    key, kind = METADATA[name]
    require(set(event["args"]) == {key} and isinstance(event["args"][key], kind), event, f"args are no {key}")
    named = processes if name == "process_name" else threads if name == "thread_name" else None
    if named is not None:
        place = event["pid"] if name == "process_name" else (event["pid"], event["tid"])
        require(place not in named, event, "named twice")
        named[place] = event["args"]["name"]


def check_complete(event):
    for field in ("ts", "dur"):
        require(field in event and is_number(event[field]), event, f"no {field}")
        require(event[field] >= 0, event, f"{field} is negative")
    require(isinstance(event.get("cat"), str), event, "no category")


def check_lane(events):
    """Of two complete events of a thread one lies in the other, or one ends before the other begins."""
    open_until = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        end = event["ts"] + event["dur"]
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        require(not open_until or end <= open_until[-1], event, "overlaps an event of its thread")
        open_until.append(end)


def check(document):
    require(isinstance(document, dict) and isinstance(document.get("traceEvents"), list), None, "no traceEvents")
    require(document.get("displayTimeUnit") in ("ms", "ns"), None, "displayTimeUnit is neither ms nor ns")
    processes, threads, lanes = {}, {}, {}
    for event in document["traceEvents"]:
        require(isinstance(event, dict), event, "no object")
        require(isinstance(event.get("name"), str) and event["name"], event, "no name")
        for field in ("pid", "tid"):
            require(isinstance(event.get(field), int), event, f"no {field}")
        require(isinstance(event.get("args"), dict), event, "no args")
        if event.get("ph") == "M":
            check_metadata(event, processes, threads)
        else:
            require(event.get("ph") == "X", event, "unknown phase")
            check_complete(event)
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
    for (pid, tid), events in lanes.items():
        require(pid in processes, events[0], "a process without a name")
        require((pid, tid) in threads, events[0], "a thread without a name")
        check_lane(events)
    return {"processes": processes, "threads": {f"{pid}/{tid}": name for (pid, tid), name in threads.items()},
            "complete": sum(len(events) for events in lanes.values())}


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            found = check(json.load(file, object_pairs_hook=no_name_twice, parse_constant=refuse_constant))
    except ValueError as error:
        print(error)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The figures of python/bench/peers.py: medians, goals, the table and the plot."""

import statistics

from . import OURS, PEERS

COLUMNS = {
    "blocked": "blocked s", "durable": "durable s", "restore": "restore s", "bytes": "MB on disk", "cpu": "CPU s",
    "memory": "memory", "first_blocked": "first blocked s", "first_durable": "first durable s", "flip": "flipped byte",
    "truncation": "truncation", "equal": "equal",
}
# column, and the largest ratio to the best of the other peers.
AGAINST_BEST = (("blocked", 1 / 5), ("durable", 1 / 2), ("restore", 1 / 5), ("bytes", 1.0), ("cpu", 1 / 2))
MEMORY_STATES_MAX = 1.1
FIRST_TO_LATER_MAX = 1.5


def median(values):
    return statistics.median(values) if values else None


def columns(result, state_bytes):
    """The medians of a peer, under the names of COLUMNS."""
    saves = result["rounds"]
    peaks = [peak for peak in saves[0]["peaks"] if peak is not None]
    different = [name for save in saves for name in save["different"]]
    found = {name: median([save["warm"][name] for save in saves]) for name in ("blocked", "durable", "cpu")}
    found.update({f"first_{name}": median([save["first"][name] for save in saves]) for name in ("blocked", "durable")})
    found["restore"] = median([save["restore"]["seconds"] for save in saves])
    found["bytes"] = median([save["stored_bytes"] for save in saves])
    found["memory"] = max(peaks) / state_bytes if peaks else None
    found["flip"], found["truncation"] = (result.get(kind, {}).get("outcome") for kind in ("flip", "truncation"))
    found["equal"] = not different
    return {name: found[name] for name in COLUMNS}


def best_of_others(peers, column):
    """Of those that were measured, for blocked time only of those that copy."""
    return min((peer for peer in peers if peer["name"] not in OURS and peer["columns"] and
                (column != "blocked" or peer["copies"])), key=lambda peer: peer["columns"][column], default=None)


def ratio(value, to):
    """None where the noise is larger than what was measured: a loop with a save may have taken less time than one without."""
    return value / to if value > 0 and to > 0 else None


def goals(peers, ours):
    found = []

    def add(goal, measured, limit, against=None):
        found.append({"peer": ours["name"], "goal": goal, "measured": measured, "limit": limit, "against": against,
                      "met": measured is not None and measured <= limit})

    values = ours["columns"]
    for column, limit in AGAINST_BEST:
        best = best_of_others(peers, column)
        if best:
            add(column, ratio(values[column], best["columns"][column]), limit, best["name"])
    add("memory", values["memory"], MEMORY_STATES_MAX)
    for column in ("blocked", "durable"):
        add(f"first_{column}", ratio(values[f"first_{column}"], values[column]), FIRST_TO_LATER_MAX)
    return found


def summary(conditions, results):
    peers = []
    for name, result in results.items():
        measured = not {"unavailable", "failed"} & result.keys()
        peers.append({"name": name, "title": PEERS[name].title, "copies": PEERS[name].copies,
                      "columns": columns(result, conditions["state"]["bytes"]) if measured else None,
                      **{key: result[key] for key in ("version", "unavailable", "failed") if key in result}, "samples": result})
    ours = [peer for peer in peers if peer["name"] in OURS and peer["columns"]]
    return {"conditions": conditions, "peers": peers, "goals": [goal for peer in ours for goal in goals(peers, peer)]}


def cell(name, value):
    if value is None:
        return ""
    if name in ("flip", "truncation"):
        return value
    if name == "equal":
        return "yes" if value else "NO"
    if name == "bytes":
        return f"{value / 1e6:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.0995 else f"{value:.3f}"


def table_of(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def markdown(found):
    lines = [["peer", "version", *COLUMNS.values()]]
    for peer in found["peers"]:
        if peer["columns"] is None:
            why = f"not installed: {peer['unavailable']}" if "unavailable" in peer else f"failed: {peer['failed']}"
            lines.append([peer["title"], peer.get("version", ""), why.replace("|", "/"), *[""] * (len(COLUMNS) - 1)])
            continue
        lines.append([peer["title"], peer["version"],
                      *(cell(name, peer["columns"][name]) for name in COLUMNS)])
    goals_met = [["peer", "goal", "measured", "at most", "best other", "met"]]
    for goal in found["goals"]:
        measured = "noise" if goal["measured"] is None else f"{goal['measured']:.3f}"
        goals_met.append([PEERS[goal["peer"]].title, goal["goal"], measured, f"{goal['limit']:.2f}", goal["against"] or "",
                          "met" if goal["met"] else "not met"])
    described = "".join(f"{name:8} {value}\n" for name, value in found["conditions"].items())
    return f"{described}\n{table_of(lines)}\n\n{table_of(goals_met)}"


def plot(found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    peers = [peer for peer in found["peers"] if peer["columns"]][::-1]
    if not peers:
        return
    shown = (("blocked", "blocked, s"), ("durable", "durable, s"), ("restore", "restore, cold, s"), ("bytes", "bytes ÷ state"),
             ("cpu", "CPU, s"), ("memory", "memory of a save ÷ state"))
    figure, panels = pyplot.subplots(2, 3, figsize=(13, 0.5 + 0.62 * len(peers)), sharey=True)
    for panel, (column, title) in zip(panels.flat, shown):
        divisor = found["conditions"]["state"]["bytes"] if column == "bytes" else 1
        values = [max(peer["columns"][column] or 0, 0) / divisor for peer in peers]
        bars = panel.barh([peer["title"] for peer in peers], values,
                          color=["#1668a8" if peer["name"] in OURS else "#b9c0c7" for peer in peers])
        panel.bar_label(bars, [cell(column + " shown", value) for value in values], padding=3, fontsize=8)
        panel.set_title(title, fontsize=10, loc="left")
        panel.set_xlim(0, max(values) * 1.18 or 1)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=80)

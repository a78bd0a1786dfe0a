#!/usr/bin/env python3
"""Draws what tidemark-bench --growth --json has measured: a panel for each axis, both directions logarithmic.

  plot_growth.py GROWTH.json PLOT.png
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def main(source, target):
    with open(source, encoding="utf-8") as file:
        series = json.load(file)["series"]
    axes = list(dict.fromkeys(one["axis"] for one in series))
    figure, panels = pyplot.subplots(2, len(axes), figsize=(3.6 * len(axes), 6), squeeze=False)
    for column, axis in enumerate(axes):
        for row, (unit, label) in enumerate((("s", "seconds"), ("B", "bytes of memory"))):
            panel = panels[row][column]
            shown = [one for one in series if one["axis"] == axis and one["unit"] == unit]
            if not shown:
                panel.axis("off")
                continue
            for one in shown:
                panel.plot(one["sizes"], one["values"], marker="o", markersize=3,
                           label=f"{one['quantity']} (exponent {one['last_exponent']:.2f})")
            # What a straight line through the first point of the uppermost series would be.
            top = max(shown, key=lambda one: one["values"][-1])
            panel.plot(top["sizes"], [top["values"][0] * size / top["sizes"][0] for size in top["sizes"]],
                       color="#b9c0c7", linestyle="--", linewidth=1, label="a straight line")
            panel.set_xscale("log", base=2 if axis in ("state bytes", "ranks") else 10)
            panel.set_yscale("log")
            panel.set_xlabel(axis, fontsize=9)
            panel.set_ylabel(label, fontsize=9)
            panel.tick_params(labelsize=8)
            panel.legend(fontsize=7, frameon=False)
            panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, dpi=80)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

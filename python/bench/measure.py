"""Pairs of measurements taken in turn, and the table of the rows, as those of bench/ are."""

import dataclasses
import statistics
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Row:
    """`compared`: "numerator ÷ denominator". `goal`: the ratio is at most that. `unit`: "s" or "B"."""

    name: str
    compared: str
    goal: float
    unit: str = "s"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Of every pair, in the order in which they were taken."""

    numerators: list[float]
    denominators: list[float]

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.numerators, self.denominators)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def in_pairs(pairs: int, numerator: Callable[[], float], denominator: Callable[[], float]) -> Measurement:
    """Calls both, one after the other; every other pair begins with the denominator."""
    measured = Measurement([], [])
    for pair in range(pairs):
        sides = [(numerator, measured.numerators), (denominator, measured.denominators)]
        for call, values in sides if pair % 2 == 0 else sides[::-1]:
            values.append(call())
    return measured


def quantity(value: float, unit: str) -> str:
    scales = {"s": [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")], "B": [(2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")]}[unit]
    size, name = next((scale for scale in scales if value >= scale[0]), scales[-1])
    scaled = value / size
    return f"{scaled:.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {name}"


def table(outcomes: list[tuple[Row, "Measurement | str | Exception"]]) -> str:
    """Rows of Markdown. A string in the place of a measurement says why this machine has none; an exception, what failed."""
    lines = [["row", "compared", "ratio", "goal", "met", "measured"]]
    for row, outcome in outcomes:
        cells = [row.name, row.compared, "", f"≤ {row.goal:g}", "skipped" if isinstance(outcome, str) else "failed",
                 str(outcome)]
        if isinstance(outcome, Measurement):
            cells[2] = f"{outcome.ratio:.3f}"
            cells[4] = "met" if outcome.ratio <= row.goal else "not met"
            cells[5] = " ÷ ".join(quantity(statistics.median(side), row.unit)
                                  for side in (outcome.numerators, outcome.denominators))
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)

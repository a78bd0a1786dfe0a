#!/usr/bin/env python3
"""Runs commands on a terminal and draws what they print as an SVG picture, for the README.

  docs/draw_terminal.py --columns 110 -o docs/terminal.svg -- 'checkpoint-inspect ls --last 8'

Each command is run by a shell with the store in $TIDEMARK_STORE; its line is drawn before its output. Knows the colours that
checkpoint-inspect uses.
"""

import argparse
import fcntl
import html
import os
import pty
import re
import struct
import sys
import termios

CELL_WIDTH = 8.4  # of a 14 px monospaced font
LINE_HEIGHT = 19
MARGIN = 16
BACKGROUND = "#1b1f27"
PLAIN = "#d8dee9"
COLOURS = {"31": "#f07178", "32": "#9ccc65", "33": "#ffcb6b", "34": "#82aaff", "35": "#c792ea", "36": "#89ddff"}


def run(command, columns):
    """What the command writes to a terminal of that width."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.environ["COLUMNS"] = str(columns)
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    output = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the last writer is gone
            break
        if not part:
            break
        output += part
    os.waitpid(child, 0)
    return output.decode("utf-8", "replace").replace("\r\n", "\n")


def spans(line):
    """The line as (text, colour, bold)."""
    result = []
    colour, bold = PLAIN, False
    for part in re.split(r"(\x1b\[[0-9;]*[A-Za-z])", line.split("\r")[-1]):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if code:
            for number in code[1].split(";"):
                if number in ("", "0"):
                    colour, bold = PLAIN, False
                elif number == "1":
                    bold = True
                else:
                    colour = COLOURS.get(number, colour)
        elif part and not part.startswith("\x1b"):
            result.append((part, colour, bold))
    return result


def draw(lines, columns):
    width = columns * CELL_WIDTH + 2 * MARGIN
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        '<g font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">',
    ]
    for row, line in enumerate(lines):
        column = 0
        for part, colour, bold in spans(line):
            weight = ' font-weight="bold"' if bold else ""
            # Word by word, for runs of blanks do not survive everywhere; the length holds the columns together whatever
            # the font.
            for word in re.finditer(r"\S+", part):
                x = MARGIN + (column + word.start()) * CELL_WIDTH
                text.append(f'<text x="{x:.1f}" y="{MARGIN + row * LINE_HEIGHT + 14}" fill="{colour}"{weight} '
                            f'textLength="{len(word[0]) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs">'
                            f"{html.escape(word[0])}</text>")
            column += len(part)
    return "\n".join(text + ["</g>", "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=110, help="of the terminal (%(default)s)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.svg")
    parser.add_argument("commands", nargs="+", metavar="COMMAND")
    flags = parser.parse_args()
    lines = []
    for command in flags.commands:
        if lines:
            lines.append("")
        lines.append(f"\x1b[36m$\x1b[0m \x1b[1m{command}\x1b[0m")
        lines += run(command, flags.columns).rstrip("\n").split("\n")
    with open(flags.output, "w", encoding="utf-8") as picture:
        picture.write(draw(lines, flags.columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())

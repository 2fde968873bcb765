"""draw_runs.py - runs of high_rate.py side by side: what loss, entropy and alarms did, and when.

    python3 bench/torch/draw_runs.py doc/training.svg "no penalty" a1.jsonl a2.jsonl ... \
        -- "with a penalty" b1.jsonl b2.jsonl ...

A column for every group of runs, a line for every run; rows are the loss, the entropy of heads over
what uniform attention would have (mean and, thin, the lowest head), and the share of heads that have
collapsed.  Marks under the axis are steps with an alarm.  Only needs Python.
"""
import json
import sys

COLOURS = ("#0f7594", "#c2571a", "#5b4a9c")
INK, GREY, LINE = "#1c1e24", "#5c606a", "#e4e6eb"
WIDTH, PANEL, LEFT, TOP, GAP = 480, 84.0, 40.0, 52.0, 26.0
COLLAPSED = 0.05  # a head's normalised entropy, as the monitor's


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def heads(line):
    return [x for layer in line["normalised"] for x in layer if x is not None]


def series(run):
    """What the rows show, a value a step."""
    per_step = [heads(line) for line in run]
    return {"loss": [line["loss"] for line in run],
            "mean": [sum(x) / len(x) if x else None for x in per_step],
            "lowest": [min(x) if x else None for x in per_step],
            "share": [sum(h < COLLAPSED for h in x) / len(x) if x else None for x in per_step],
            "alarms": [[alarm["kind"] for alarm in line["alarms"]] for line in run]}


class Panel:
    """One picture: steps to the right, values up."""

    def __init__(self, x, y, width, n_steps, low, high):
        self.x, self.y, self.width = x, y, width
        self.n_steps, self.low, self.high = n_steps, low, high

    def at(self, step, value):
        value = min(max(value, self.low), self.high)
        return (self.x + self.width * step / max(1, self.n_steps - 1),
                self.y + PANEL * (1 - (value - self.low) / (self.high - self.low)))

    def line(self, values, colour, width):
        points = [self.at(step, value) for step, value in enumerate(values) if value is not None]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'

    def frame(self, ticks, with_labels):
        out = []
        for value in ticks:
            _, y = self.at(0, value)
            out.append(f'<path d="M{self.x} {y:.1f}h{self.width}" stroke="{LINE}" stroke-width="0.5"/>')
            if with_labels:
                out.append(text(self.x - 4, y + 2.5, f"{value:g}", anchor="end"))
        return "".join(out)


def text(x, y, words, size=7, colour=GREY, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{words}</text>\n')


def column(title, runs, x, width, loss_range, with_labels):
    n_steps = max(len(run["loss"]) for run in runs)
    out = [text(x, TOP - 8, title, 8, INK, weight="bold")]
    rows = (("loss", "loss, nats a token", *loss_range),
            ("mean", "entropy over uniform's; thin: lowest head", 0.0, 1.0),
            ("share", "share of heads below 0.05", 0.0, 1.0))
    for i, (name, label, low, high) in enumerate(rows):
        panel = Panel(x, TOP + i * (PANEL + GAP), width, n_steps, low, high)
        step = (high - low) / 4
        out.append(panel.frame([round(low + n * step, 2) for n in range(5)], with_labels))
        out.append(text(x + 3, panel.y + 8, label))
        for run, colour in zip(runs, COLOURS):
            out.append(panel.line(run[name], colour, 1.0))
            if name == "mean":
                out.append(panel.line(run["lowest"], colour, 0.4))
    out.append(alarm_marks(panel, runs))
    for n in range(0, n_steps + 1, max(1, n_steps // 4 // 50 * 50 or n_steps // 4)):
        out.append(text(panel.at(n, 0)[0], panel.y + PANEL + 9, str(n), anchor="middle"))
    return "".join(out)


def alarm_marks(panel, runs):
    """A row of marks a run: one where a step had an alarm."""
    out = []
    for i, (run, colour) in enumerate(zip(runs, COLOURS)):
        y = panel.y + PANEL + 14 + 5 * i
        steps = [step for step, kinds in enumerate(run["alarms"]) if kinds]
        path = "".join(f"M{panel.at(step, 0)[0]:.1f} {y:.1f}v4" for step in steps)
        out.append(f'<path d="{path}" stroke="{colour}" stroke-width="0.6"/>' if path else "")
    return "".join(out)


def main(out_path, arguments):
    groups, at = [], 0
    while at < len(arguments):
        end = arguments.index("--", at) if "--" in arguments[at:] else len(arguments)
        groups.append((arguments[at], [series(read(path)) for path in arguments[at + 1:end]]))
        at = end + 1
    losses = sorted(x for _, runs in groups for run in runs for x in run["loss"])
    low, high = int(losses[0]), int(losses[int(0.995 * (len(losses) - 1))]) + 1
    width = (WIDTH - LEFT - 12 - 14 * (len(groups) - 1)) / len(groups)
    height = TOP + 3 * PANEL + 2 * GAP + 46
    body = "".join(column(title, runs, LEFT + i * (width + 14), width, (low, high), i == 0)
                   for i, (title, runs) in enumerate(groups))
    n_runs = len(groups[0][1])
    legend = "".join(text(LEFT + 60 * i, height - 6, f"seed {i + 1}", colour=COLOURS[i])
                     for i in range(n_runs))
    with open(out_path, "w") as file:
        file.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" '
                   f'width="{WIDTH}pt" height="{height:.0f}pt" viewBox="0 0 {WIDTH} {height:.0f}" '
                   'font-family="Liberation Sans, Arial, Helvetica, sans-serif">\n'
                   f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>\n'
                   + text(16, 24, "A learning rate that hurts: loss, entropy and alarms by step", 12,
                          INK, weight="bold") + body +
                   legend + text(LEFT + 60 * n_runs, height - 6,
                                 "marks: steps with an alarm, a row a seed") + "</svg>\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

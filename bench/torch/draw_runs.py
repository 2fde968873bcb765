"""draw_runs.py - runs of high_rate.py side by side: what loss, entropy and alarms did, and when.

    python3 bench/torch/draw_runs.py doc/training.svg "a low rate" a1.jsonl a2.jsonl ... \
        -- "a high one" b1.jsonl b2.jsonl ... -- "with a penalty" c1.jsonl c2.jsonl ...

A column for every group of runs, a line for every run; rows are the loss, the entropy of heads over
what uniform attention would have (mean and, thin, the lowest head), and the share of heads that have
collapsed.  Marks under the axis are steps with an alarm.  All runs are shown as far as the shortest
goes.  Prints when what happened, each run beside the first group's of the same place.  Only needs
Python.
"""
import json
import sys

COLORS = ("#0f7594", "#c2571a", "#5b4a9c")
INK, GRAY, LINE = "#1c1e24", "#5c606a", "#e4e6eb"
WIDTH, PANEL, LEFT, TOP, GAP = 480, 84.0, 30.0, 62.0, 26.0
COLLAPSED = 0.05  # a head's normalized entropy, as the monitor's
BIN, WINDOW, BEHIND = 3, 20, 0.1


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def heads(line):
    return [x for layer in line["normalized"] for x in layer if x is not None]


def series(run):
    """What the rows show, a value a step."""
    per_step = [heads(line) for line in run]
    return {"loss": [line["loss"] for line in run],
            "held_out": [line.get("held_out") for line in run],
            "mean": [sum(x) / len(x) if x else None for x in per_step],
            "lowest": [min(x) if x else None for x in per_step],
            "share": [sum(h < COLLAPSED for h in x) / len(x) if x else None for x in per_step],
            "alarms": [[alarm["kind"] for alarm in line["alarms"]] for line in run]}


def in_bins(values):
    """BIN steps are one point."""
    return [(at, values[at:at + BIN]) for at in range(0, len(values) - BIN + 1, BIN)]


class Panel:
    """One picture: steps to the right, values up."""

    def __init__(self, x, y, width, n_steps, low, high):
        self.x, self.y, self.width = x, y, width
        self.n_steps, self.low, self.high = n_steps, low, high

    def at(self, step, value):
        value = min(max(value, self.low), self.high)
        return (self.x + self.width * step / max(1, self.n_steps - 1),
                self.y + PANEL * (1 - (value - self.low) / (self.high - self.low)))

    def line(self, values, color, width):
        points = [self.at(step + (BIN - 1) / 2, sum(part) / BIN)
                  for step, part in in_bins(values) if None not in part]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        return f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>'

    def frame(self, ticks, with_labels):
        out = []
        for value in ticks:
            _, y = self.at(0, value)
            out.append(f'<path d="M{self.x} {y:.1f}h{self.width}" stroke="{LINE}" stroke-width="0.5"/>')
            if with_labels:
                out.append(text(self.x - 4, y + 2.5, f"{value:g}", anchor="end"))
        return "".join(out)


def text(x, y, words, size=7, color=GRAY, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{words}</text>\n')


def column(title, runs, x, width, loss_range, with_labels):
    n_steps = max(len(run["loss"]) for run in runs)
    out = [text(x, TOP - 16, title, 8, INK, weight="bold")]
    rows = (("loss", "loss, nats a token", *loss_range),
            ("mean", "entropy over uniform's; thin: lowest head", 0.0, 1.0),
            ("share", "share of heads below 0.05", 0.0, 1.0))
    for i, (name, label, low, high) in enumerate(rows):
        panel = Panel(x, TOP + i * (PANEL + GAP), width, n_steps, low, high)
        tick = 0.5 if name == "loss" else 0.25
        out.append(panel.frame([low + n * tick for n in range(int((high - low) / tick) + 1)],
                               with_labels))
        out.append(text(x, panel.y - 5, label))
        for run, color in zip(runs, COLORS):
            out.append(panel.line(run[name], color, 1.0))
            if name == "mean":
                out.append(panel.line(run["lowest"], color, 0.4))
    out.append(alarm_marks(panel, runs))
    for n in range(0, n_steps + 1, max(1, n_steps // 4 // 50 * 50 or n_steps // 4)):
        out.append(text(panel.at(n, 0)[0], panel.y + PANEL + 9, str(n), anchor="middle"))
    return "".join(out)


def alarm_marks(panel, runs):
    """A row of marks a run: one where a step had an alarm; pale ones are of overload."""
    out = []
    for i, (run, color) in enumerate(zip(runs, COLORS)):
        y = panel.y + PANEL + 14 + 5 * i
        for kind, opacity in (("overload", 0.35), ("collapse", 1.0), ("broken", 1.0)):
            steps = [step for step, kinds in enumerate(run["alarms"]) if kind in kinds]
            path = "".join(f"M{panel.at(step, 0)[0]:.1f} {y:.1f}v4" for step in steps)
            if path:
                out.append(f'<path d="{path}" stroke="{color}" stroke-width="0.4" '
                           f'stroke-opacity="{opacity}"/>')
    return "".join(out)


# ------------------------------------------------------------------------ when


def first(flags):
    return next((step for step, flag in enumerate(flags) if flag), None)


def smooth(values):
    """Means of WINDOW steps that end at each step."""
    return [sum(values[step + 1 - WINDOW:step + 1]) / WINDOW for step in range(WINDOW - 1, len(values))]


def falls_behind(run, other):
    """The step from which on its smoothed loss stays BEHIND or more above the other's."""
    apart = [a - b >= BEHIND for a, b in zip(smooth(run["loss"]), smooth(other["loss"]))]
    n_last = next((n for n, flag in enumerate(reversed(apart)) if not flag), len(apart))
    return None if n_last == 0 else WINDOW - 1 + len(apart) - n_last


def print_events(groups):
    print(f"{'':34}{'falls behind':>14}{'head below 0.05':>17}{'collapse alarm':>16}"
          f"{'overload until':>16}{'entropy':>9}{'held-out loss':>15}")
    for title, runs in groups:
        for i, (run, other) in enumerate(zip(runs, groups[0][1])):
            collapse = first("collapse" in kinds for kinds in run["alarms"])
            overload = [step for step, kinds in enumerate(run["alarms"]) if "overload" in kinds]
            held_out = [x for x in run["held_out"] if x is not None][-1]
            shown = [falls_behind(run, other) if run is not other else None,
                     first(x > 0 for x in run["share"]), collapse, max(overload, default=None)]
            print(f"{title + f', seed {i + 1}':34}" + "".join(
                f"{'-' if x is None else x:>{width}}" for x, width in zip(shown, (14, 17, 16, 16))) +
                f"{smooth(run['mean'])[-1]:9.3f}{held_out:15.4f}")


def cut(run, n_steps):
    return {name: values[:n_steps] for name, values in run.items()}


def read_groups(arguments):
    groups, at = [], 0
    while at < len(arguments):
        end = arguments.index("--", at) if "--" in arguments[at:] else len(arguments)
        groups.append((arguments[at], [series(read(path)) for path in arguments[at + 1:end]]))
        at = end + 1
    n_steps = min(len(run["loss"]) for _, runs in groups for run in runs) // 25 * 25
    return [(title, [cut(run, n_steps) for run in runs]) for title, runs in groups]


def main(out_path, arguments):
    groups = read_groups(arguments)
    print_events(groups)
    losses = sorted(x for _, runs in groups for run in runs for x in run["loss"])
    low, high = int(2 * losses[0]) / 2, int(2 * losses[int(0.96 * len(losses))] + 1) / 2
    width = (WIDTH - LEFT - 12 - 14 * (len(groups) - 1)) / len(groups)
    height = TOP + 3 * PANEL + 2 * GAP + 46
    body = "".join(column(title, runs, LEFT + i * (width + 14), width, (low, high), i == 0)
                   for i, (title, runs) in enumerate(groups))
    n_runs = len(groups[0][1])
    legend = "".join(text(LEFT + 60 * i, height - 6, f"seed {i + 1}", color=COLORS[i])
                     for i in range(n_runs))
    with open(out_path, "w") as file:
        file.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" '
                   f'width="{WIDTH}pt" height="{height:.0f}pt" viewBox="0 0 {WIDTH} {height:.0f}" '
                   'font-family="Liberation Sans, Arial, Helvetica, sans-serif">\n'
                   f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>\n'
                   + text(16, 24, "A learning rate that hurts: loss, entropy and alarms by step", 12,
                          INK, weight="bold") + body +
                   legend + text(LEFT + 60 * n_runs, height - 6,
                                 "marks: steps with an alarm, of collapse (full) or overload (pale), a row a seed") + "</svg>\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

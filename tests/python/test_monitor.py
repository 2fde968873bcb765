"""test_monitor.py - alarms and output of the monitor of a training run's entropies."""
import json
import math
import os
import tempfile
import unittest

import numpy as np

import headlight
from headlight import monitor
from test_events import message, read


class Monitor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.fine = np.full((2, 4), 0.5)

    def alarms(self, normalized, **thresholds):
        limits = {**headlight.default_thresholds(), **thresholds}
        return monitor.find_alarms(3, normalized * 4, normalized, limits)

    def test_limits_are_the_librarys(self):
        limits = headlight.default_thresholds()
        self.assertEqual(limits["collapse-entropy"], 0.05)
        self.assertEqual(len(limits), 23)
        with self.assertRaisesRegex(headlight.Error, "no threshold 'colapse'"):
            monitor.EntropyLog(thresholds={"colapse": 1.0})

    def test_nothing_is_wrong(self):
        self.assertEqual(self.alarms(self.fine), [])

    def test_collapse(self):
        limits = {"collapse-share": 0.5}
        sharp = self.fine.copy()
        sharp[0, :3] = 0.01
        self.assertEqual(self.alarms(sharp, **limits), [])
        sharp[1, 2] = 0.01
        (alarm,) = self.alarms(sharp, **limits)
        self.assertEqual((alarm.kind, alarm.share, alarm.heads),
                         ("collapse", 0.5, [(0, 0), (0, 1), (0, 2), (1, 2)]))
        self.assertIn("step 3: collapse of 50% of the heads: L0H0", str(alarm))

    def test_overload_and_missing_heads(self):
        flat = np.array([[0.99, 0.99], [0.2, math.nan]])  # the second layer has one head
        (alarm,) = self.alarms(flat, **{"overload-share": 0.6})
        self.assertEqual((alarm.kind, alarm.heads), ("overload", [(0, 0), (0, 1)]))
        self.assertAlmostEqual(alarm.share, 2 / 3)

    def test_one_broken_head_is_enough(self):
        entropy = self.fine.copy()
        entropy[1, 1] = math.inf
        (alarm,) = monitor.find_alarms(1, entropy, self.fine, headlight.default_thresholds())
        self.assertEqual((alarm.kind, alarm.heads), ("broken", [(1, 1)]))

    def test_a_diverged_run_is_not_finite_and_nothing_else(self):
        sharp = np.full((2, 4), 0.01)
        sharp[:, 1:] = math.nan
        there = np.ones((2, 4), dtype=bool)
        (alarm,) = monitor.find_alarms(5, sharp, sharp, headlight.default_thresholds(), there)
        self.assertEqual((alarm.kind, alarm.share), ("broken", 0.75))
        self.assertIn("step 5: not finite: attention of 75% of the heads: L0H1", str(alarm))
        sharp[:, :3] = 0.01  # most heads are finite, so the rules apply to them
        alarms = monitor.find_alarms(5, sharp, sharp, headlight.default_thresholds(), there)
        self.assertEqual([(alarm.kind, alarm.share) for alarm in alarms], [("broken", 0.25), ("collapse", 1.0)])
        (alarm,) = self.alarms(np.full((2, 4), math.nan))
        self.assertEqual((alarm.kind, alarm.share), ("broken", 1.0))

    def test_a_log_knows_heads_that_were_numbers(self):
        ragged = self.fine.copy()
        ragged[1, 3] = math.nan  # the head has never existed
        with monitor.EntropyLog() as log:
            self.assertEqual(log.log(1, ragged, ragged), [])
            (alarm,) = log.log(2, ragged * math.nan, ragged * math.nan)
        self.assertEqual((alarm.kind, alarm.share, len(alarm.heads)), ("broken", 1.0, 7))

    def test_everything_is_written_and_called(self):
        lines, steps, alarms = os.path.join(self.folder.name, "a.jsonl"), [], []
        with monitor.EntropyLog(folder=self.folder.name, jsonl=lines, on_alarm=alarms.append,
                                on_step=lambda step, *_: steps.append(step)) as log:
            log.log(1, self.fine * 3, self.fine, loss=2.5)
            log.log(2, self.fine * 0, self.fine * 0, loss=2.25)
        with open(lines) as file:
            first, second = map(json.loads, file)
        self.assertEqual((steps, [alarm.kind for alarm in alarms]), ([1, 2], ["collapse"]))
        self.assertEqual((first["loss"], first["entropy"], first["alarms"]),
                         (2.5, (self.fine * 3).tolist(), []))
        self.assertEqual(second["alarms"][0]["kind"], "collapse")
        path = next(name for name in os.listdir(self.folder.name) if "tfevents" in name)
        events = read(os.path.join(self.folder.name, path))
        found = {}
        for event in events:
            for value in message(event[5][0]).get(1, []) if 5 in event else ():
                value = message(value)
                if 2 in value:
                    found[event[2][0], value[1][0].decode()] = value[2][0]
        self.assertEqual(found[1, "loss"], 2.5)
        self.assertEqual(found[1, "entropy/L1H3"], 1.5)
        self.assertEqual(found[1, "entropy/mean"], 1.5)
        self.assertEqual(found[2, "alarm/collapse"], 1.0)

    def test_shapes_are_checked(self):
        with monitor.EntropyLog() as log, self.assertRaisesRegex(headlight.Error, "wanted"):
            log.log(1, self.fine[0], self.fine[0])

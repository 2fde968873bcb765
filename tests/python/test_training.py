"""headlight.training: the Trainer's callback, QK-clip, gates, pruning in place.  Needs PyTorch and
transformers."""
import importlib.util
import json
import os
import sys
import tempfile
import unittest
import warnings

import numpy as np

import headlight

MISSING = None
try:
    import torch
    import transformers
    import classes
    import headlight.transformers as plug
    from headlight import training
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
except (ImportError, RuntimeError) as error:
    MISSING = f"PyTorch and transformers are needed: {error}"


def tiny(name, factor=1.0):
    model = classes.build(getattr(transformers, name), "eager")
    with torch.no_grad():
        for value in model.parameters():
            value *= factor if value.dim() == 2 else 1.0
    return model


@unittest.skipIf(MISSING is not None, MISSING)
class Training(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        self.ids = torch.randint(3, 90, (4, 17), generator=torch.Generator().manual_seed(1))

    def test_the_callback_in_a_loop(self):
        """The Trainer's events, in their order; evaluation is not recorded."""
        model = tiny("GPT2LMHeadModel")
        steps, alarms = [], []
        with tempfile.TemporaryDirectory() as folder:
            callback = training.HeadlightCallback(folder=folder, jsonl=folder + "/a.jsonl", on_alarm=alarms.append,
                                                  on_step=lambda *x: steps.append(x), stop_on=("overload",))
            state, control = transformers.TrainerState(), transformers.TrainerControl()
            callback.on_train_begin(None, state, control, model=model)
            for step in range(3):
                model.train()
                model(input_ids=self.ids, labels=self.ids).loss.backward()
                model.eval()
                with torch.no_grad():
                    model(input_ids=self.ids[:1, :5])
                counts = [n.tolist()[0] for _, n in callback.monitor._sums.seen.values()]
                self.assertEqual(counts, [68.0, 68.0])
                state.global_step = step + 1
                callback.on_step_end(None, state, control)
            callback.on_train_end(None, state, control)
            with open(folder + "/a.jsonl", encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
        self.assertEqual([line["step"] for line in lines], [1, 2, 3])
        self.assertEqual(np.shape(lines[0]["entropy"]), (2, 4))
        self.assertEqual(len(steps), 3)
        self.assertTrue(control.should_training_stop)  # random weights: uniform attention
        self.assertEqual(model.config._attn_implementation, "eager")

    @unittest.skipIf(importlib.util.find_spec("accelerate") is None, "the Trainer needs accelerate")
    def test_a_run_of_the_trainer(self):
        """transformers' Trainer, evaluation between its steps, TensorBoard's file, alarms, and an entropy
        penalty in compute_loss; W&B is not imported."""
        model = tiny("GPT2LMHeadModel", 3.0)

        class Regularized(transformers.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **_):
                with plug.Collector(model) as seen:
                    output = model(**inputs)
                loss = output.loss + plug.EntropyRegularizer(1.0, 1.0)(seen)
                penalties.append(loss.item() - output.loss.item())
                return (loss, output) if return_outputs else loss

        penalties, alarms = [], []
        rows = [{"input_ids": ids, "labels": ids} for ids in self.ids.repeat(4, 1)]
        with tempfile.TemporaryDirectory() as folder:
            callback = training.HeadlightCallback(every=2, folder=folder + "/events", jsonl=folder + "/a.jsonl",
                                                  on_alarm=alarms.append)
            trainer = Regularized(
                model=model, callbacks=[callback], train_dataset=rows, eval_dataset=rows[:4],
                args=transformers.TrainingArguments(
                    folder + "/out", per_device_train_batch_size=4, max_steps=6, learning_rate=1e-2,
                    eval_strategy="steps", eval_steps=3, logging_steps=1, report_to=[], use_cpu=True,
                    disable_tqdm=True, save_strategy="no"))
            trainer.train()
            with open(folder + "/a.jsonl", encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            self.assertTrue(any("tfevents" in name for name in os.listdir(folder + "/events")))
        self.assertEqual([line["step"] for line in lines], [2, 4, 6])
        self.assertLess(penalties[-1], penalties[0])
        self.assertEqual({alarm.kind for alarm in alarms}, {"overload"})  # random weights: uniform rows
        self.assertEqual(model.config._attn_implementation, "eager")
        self.assertNotIn("wandb", sys.modules)

    def test_qk_clip(self):
        for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "BertForMaskedLM"):
            with self.subTest(name):
                model = tiny(name)
                first = {"GPT2LMHeadModel": "transformer.h.0.attn.c_attn", "LlamaForCausalLM":
                         "model.layers.0.self_attn.q_proj", "BertForMaskedLM":
                         "bert.encoder.layer.0.attention.self.query"}[name]
                with torch.no_grad():
                    model.get_submodule(first).weight.mul_(60.0)
                plug.attach(model)
                clip = training.QKClip(model, limit=1.0)
                with clip.watching():
                    model(input_ids=self.ids)
                largest = clip.largest[0].clone()
                self.assertGreater(largest.max().item(), 1.5)
                scaled = clip.step()
                self.assertEqual({name for name in scaled if name.startswith("L0")},
                                 {f"L0H{head}" for head in (largest > 1.0).nonzero()[:, 0].tolist()})
                with clip.watching():
                    model(input_ids=self.ids)
                self.assertLessEqual(clip.largest[0].max().item(), 1.0 + 1e-4)

    def test_gates_are_learned_and_pruned(self):
        model = tiny("LlamaForCausalLM", 3.0)
        plug.attach(model)
        whole = model(input_ids=self.ids).logits
        gates = training.HeadGates(model)
        self.assertTrue(torch.allclose(model(input_ids=self.ids).logits, whole, atol=1e-6))
        (model(input_ids=self.ids, labels=self.ids).loss + gates.penalty(0.1)).backward()
        self.assertTrue(all(value.grad.abs().min() > 0 for value in gates.parameters()))
        with torch.no_grad():
            next(gates.parameters())[1] = 0.0
        self.assertEqual(gates.heads(), ["L0H1"])
        gated = model(input_ids=self.ids).logits
        gates.remove()
        self.assertEqual(headlight.prune(model, gates.heads()), {"model.layers.0.self_attn": [1]})
        self.assertLess((model(input_ids=self.ids).logits - gated).abs().max().item(), 1e-5)
        self.assertGreater((gated - whole).abs().max().item(), 1e-3)

    def test_pruning_repairs_and_saves(self):
        for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "BertForMaskedLM"):
            with self.subTest(name):
                errors = []
                for repair in (None, self.ids.numpy()):
                    model = tiny(name, 3.0)
                    whole = model(input_ids=self.ids).logits
                    headlight.prune(model, "L0H1,L0H3,L1H0", repair=repair)
                    found = model(input_ids=self.ids).logits
                    errors.append((found - whole).pow(2).mean().item())
                    with tempfile.TemporaryDirectory() as folder:
                        model.save_pretrained(folder)
                        loaded = type(model).from_pretrained(folder)
                    self.assertLess((loaded(input_ids=self.ids).logits - found).abs().max().item(), 1e-5)
                self.assertLess(errors[1], 0.2 * errors[0])
        with self.assertRaisesRegex(ValueError, "there is no head 'L7H0'"):
            headlight.prune(tiny("GPT2LMHeadModel"), ["L7H0"])


if __name__ == "__main__":
    unittest.main()

"""Runs the command that headlight suggests for a checkpoint that it cannot read: the result can be
opened, has the tokenizer and the output head, and computes what transformers computes with the
original.

Needs PyTorch and transformers; `make check-python` has both.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

MISSING = None
try:
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
except (ImportError, RuntimeError) as error:
    MISSING = f"PyTorch and transformers are needed: {error}"

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADLIGHT = os.path.join(ROOT, os.environ.get("HEADLIGHT", "build/headlight"))
TEXT = "He said that it was so, and that it had been so for as long as he could say."
SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, tie_word_embeddings=False)


def headlight(*arguments, good=True):
    """The standard output of a command or, if it is expected to fail, its standard error."""
    ran = subprocess.run([HEADLIGHT, *arguments], capture_output=True, text=True)
    assert (ran.returncode == 0) == good, (arguments, ran.returncode, ran.stdout, ran.stderr)
    return ran.stdout if good else ran.stderr


@unittest.skipIf(MISSING, MISSING)
class Convert(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        # The command says python3; this is the one that runs the test.
        bin_folder = os.path.join(self.folder, "bin")
        os.mkdir(bin_folder)
        with open(os.path.join(bin_folder, "python3"), "w") as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        os.chmod(file.name, 0o755)
        self.path = bin_folder + os.pathsep + os.environ["PATH"]

    def checkpoint(self, config, model_class):
        """A folder as PyTorch users have it, with a pickle; and its model."""
        old = os.path.join(self.folder, "old")
        torch.manual_seed(1)
        model = model_class(config).eval()
        with torch.no_grad():  # a head that differs from the embedding
            model.get_output_embeddings().weight.normal_(0.0, 0.3)
        config.architectures = [model_class.__name__]
        config.save_pretrained(old)
        torch.save(model.state_dict(), os.path.join(old, "pytorch_model.bin"))
        for name in ["tokenizer.json", "tokenizer_config.json"]:
            shutil.copy(os.path.join(ROOT, "models/demo", name), old)
        return old, model

    def convert(self, old):
        """Runs the command in the message; returns the new folder."""
        said = headlight("info", old, good=False)
        self.assertIn("a PyTorch checkpoint, which is not read here", said)
        command = re.search(r'python3 -c ".*"', said)
        self.assertIsNotNone(command, said)
        environment = dict(os.environ, PATH=self.path, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
        ran = subprocess.run(["/bin/sh", "-c", command[0]], capture_output=True, text=True,
                             env=environment, cwd=self.folder)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return old + "-safetensors"

    def check(self, config, model_class):
        old, model = self.checkpoint(config, model_class)
        new = self.convert(old)
        self.assertNotIn(".bin", " ".join(os.listdir(new)))

        tokenizer = transformers.AutoTokenizer.from_pretrained(old)
        ids = tokenizer(TEXT)["input_ids"]
        self.assertEqual(json.loads(headlight("tokenize", new, "--json", TEXT))["ids"], ids)

        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        wanted = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
        text = os.path.join(self.folder, "text")
        with open(text, "w") as file:
            file.write(TEXT)
        seen = json.loads(headlight("eval", new, text, "--json"))["total"]["nats_per_token"]
        self.assertAlmostEqual(seen, wanted, delta=1e-4)
        # With a tied or a newly initialized head, this number would differ.
        model.get_output_embeddings().weight.data = model.get_input_embeddings().weight.data
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        tied = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
        self.assertGreater(abs(tied - wanted), 0.05)

    def vocabulary(self):
        with open(os.path.join(ROOT, "models/demo/config.json")) as file:
            return json.load(file)["vocab_size"]

    def test_llama(self):
        config = transformers.LlamaConfig(vocab_size=self.vocabulary(), num_key_value_heads=2, **SMALL)
        self.check(config, transformers.LlamaForCausalLM)

    def test_gpt_neox(self):
        config = transformers.GPTNeoXConfig(vocab_size=self.vocabulary(), **SMALL)
        self.check(config, transformers.GPTNeoXForCausalLM)

    def test_gpt2(self):
        config = transformers.GPT2Config(vocab_size=self.vocabulary(), n_embd=32, n_layer=2, n_head=4,
                                         n_positions=64, tie_word_embeddings=False)
        self.check(config, transformers.GPT2LMHeadModel)

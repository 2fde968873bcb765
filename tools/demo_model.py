"""GPT-2 in plain PyTorch, with the attention entropy available to the loss.

The modules carry the names and layouts that Hugging Face transformers saves
(transformer.h.0.attn.c_attn.weight is [in, out]), so a state_dict needs no renaming.
Shape letters: B sequences, S positions, D d_model, H heads, d = D / H, V vocabulary.

Two attention paths give the same output up to rounding.  The plain one is PyTorch's
fused attention.  The other one builds every row, because its entropy is part of the
loss: with log-probabilities a_j of the n(i) visible keys of row i,

    H(i) = -sum_j exp(a_j) a_j          normalized:  H(i) / ln n(i),  n(i) >= 2
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


State = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """Sizes of the model, in the words of the rest of the project."""

    n_layers: int = 8
    n_heads: int = 8
    d_model: int = 256
    n_ctx: int = 512
    d_vocab: int = 4096
    dropout: float = 0.1


class Conv1D(nn.Module):
    """y = x W + b with W stored (in, out), as GPT-2 stores it."""

    def __init__(self, d_in: int, d_out: int, deviation: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_in, d_out) * deviation)
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return F.linear(x, self.weight.t(), self.bias)


def entropy_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    """Causal attention that also returns its mean normalized entropy.

    q, k, v: (B, H, S, d).  Returns the output (B, H, S, d) and a scalar: the mean of
    H(i) / ln n(i) over batch, heads and the rows with n(i) >= 2.
    """
    n_rows = q.shape[-2]
    scores = (q @ k.transpose(-2, -1)).float() * q.shape[-1] ** -0.5
    hidden = torch.ones(n_rows, n_rows, dtype=torch.bool, device=q.device).triu(1)
    log_p = scores.masked_fill(hidden, float("-inf")).log_softmax(dim=-1)
    p = log_p.exp()
    # A masked key has p = 0 and log p = -inf, and their product would be NaN.
    entropy = -(p * log_p.masked_fill(hidden, 0.0)).sum(dim=-1)
    visible = torch.arange(2, n_rows + 1, device=q.device, dtype=torch.float32)
    normalized = (entropy[..., 1:] / visible.log()).mean()
    return F.dropout(p, dropout, dropout > 0).to(v.dtype) @ v, normalized


class Attention(nn.Module):
    """Multi-head causal self-attention."""

    def __init__(self, shape: Shape, out_deviation: float) -> None:
        super().__init__()
        self.shape = shape
        self.c_attn = Conv1D(shape.d_model, 3 * shape.d_model, 0.02)
        self.c_proj = Conv1D(shape.d_model, shape.d_model, out_deviation)

    def forward(self, x: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
        """x (B, S, D) to the layer's output (B, S, D) and its mean normalized entropy."""
        n_batch, n_rows, d_model = x.shape
        d_head = d_model // self.shape.n_heads
        q, k, v = (
            part.view(n_batch, n_rows, -1, d_head).transpose(1, 2)
            for part in self.c_attn(x).split(d_model, dim=-1)
        )
        dropout = self.shape.dropout if self.training else 0.0
        if with_entropy:
            z, entropy = entropy_attention(q, k, v, dropout)
        else:
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
            entropy = x.new_zeros((), dtype=torch.float32)
        z = z.transpose(1, 2).reshape(n_batch, n_rows, d_model)
        return self.c_proj(z), entropy


class Mlp(nn.Module):
    """Two linear maps around the tanh form of GELU."""

    def __init__(self, shape: Shape, out_deviation: float) -> None:
        super().__init__()
        self.c_fc = Conv1D(shape.d_model, 4 * shape.d_model, 0.02)
        self.c_proj = Conv1D(4 * shape.d_model, shape.d_model, out_deviation)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, D) to (B, S, D)."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        out_deviation = 0.02 / (2 * shape.n_layers) ** 0.5
        self.ln_1 = nn.LayerNorm(shape.d_model, eps=1e-5)
        self.attn = Attention(shape, out_deviation)
        self.ln_2 = nn.LayerNorm(shape.d_model, eps=1e-5)
        self.mlp = Mlp(shape, out_deviation)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
        """x (B, S, D) to the residual stream after the block, and the entropy."""
        z, entropy = self.attn(self.ln_1(x), with_entropy)
        x = x + self.drop(z)
        return x + self.drop(self.mlp(self.ln_2(x))), entropy


class Trunk(nn.Module):
    """Embeddings, blocks and the final norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.wte = nn.Embedding(shape.d_vocab, shape.d_model)
        self.wpe = nn.Embedding(shape.n_ctx, shape.d_model)
        self.drop = nn.Dropout(shape.dropout)
        self.h = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.ln_f = nn.LayerNorm(shape.d_model, eps=1e-5)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)

    def forward(self, tokens: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
        """tokens (B, S) to hidden states (B, S, D) and the mean entropy over layers."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        entropies = []
        for block in self.h:
            x, entropy = block(x, with_entropy)
            entropies.append(entropy)
        return self.ln_f(x), torch.stack(entropies).mean()


class Gpt2(nn.Module):
    """The language model; the output head is the token embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.transformer = Trunk(shape)

    def logits(self, tokens: Tensor) -> Tensor:
        """tokens (B, S) to logits (B, S, V)."""
        hidden, _ = self.transformer(tokens, False)
        return F.linear(hidden, self.transformer.wte.weight)

    def forward(self, sequences: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
        """sequences (B, S + 1) to the mean loss in nats and the mean normalized entropy."""
        hidden, entropy = self.transformer(sequences[:, :-1], with_entropy)
        logits = F.linear(hidden, self.transformer.wte.weight)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), sequences[:, 1:].flatten())
        return loss, entropy


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Matrices decay; biases and norms do not."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def save_checkpoint(model: Gpt2, folder: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors in f16."""
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = model.shape
    config = GPT2Config(
        vocab_size=shape.d_vocab, n_positions=shape.n_ctx, n_embd=shape.d_model,
        n_ctx=shape.n_ctx,  # llama.cpp's converter looks for this name
        n_layer=shape.n_layers, n_head=shape.n_heads, bos_token_id=0, eos_token_id=0,
        attn_pdrop=shape.dropout, embd_pdrop=shape.dropout, resid_pdrop=shape.dropout,
    )
    state = {name: tensor.detach().float().cpu() for name, tensor in model.state_dict().items()}
    largest = max(float(tensor.abs().max()) for tensor in state.values())
    if not largest < torch.finfo(torch.float16).max:
        raise SystemExit(f"a weight of {largest} does not fit float16")
    target = GPT2LMHeadModel(config)
    missing, unexpected = target.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"names differ from transformers': {missing} {unexpected}")
    target.tie_weights()
    target.half().save_pretrained(folder)


def load_state(folder: Path) -> State:
    """The weights of a saved folder in f32, as Gpt2.load_state_dict takes them."""
    from safetensors.torch import load_file

    return {name: tensor.float() for name, tensor in
            load_file(str(folder / "model.safetensors")).items()}


def load_checkpoint(folder: Path, device: torch.device):
    """A saved folder in transformers, eager attention, computed in f32."""
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32)
    return model.eval().to(device)

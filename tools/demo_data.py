"""Text for the demo models: the archives, the held-out split, tokens and windows.

Two archives of public-domain text are read: books (one .txt a book) and speeches
(one .txt a speech, named YEAR_NAME_PARTY.txt).  The split is by whole document and
is written down here, so that the training script and the checking script cannot
disagree about it:

    held out   three books, and every speech of a year that 20 divides
    training   everything else; the tokenizer sees only this part

Shapes are written (n, S): n windows of S tokens.  Token ids are torch.int64.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Sequence

import torch
from torch import Tensor

END_OF_TEXT = "<|endoftext|>"

HELD_OUT_BOOKS = (
    "gutenberg/Carroll_Lewis_Alice_s_Adventures_in_Wonderland.txt",
    "gutenberg/Russell_Bertrand_The_Problems_of_Philosophy.txt",
    "gutenberg/Wells_H_G_Herbert_George_The_Time_Machine.txt",
)
HELD_OUT_YEARS = 20  # a speech is held out when this divides its year

# Held-out documents that travel with the models, under the name they get there.
SHIPPED_TEXTS = {
    "alice.txt": "gutenberg/Carroll_Lewis_Alice_s_Adventures_in_Wonderland.txt",
    "speech-1960.txt": "sotu/1960_dwight_d_eisenhower_r.txt",
}

# The distributor's closing line and whatever follows it is not part of a book.
CLOSING_LINE = re.compile(r"^End of (the )?Project Gutenberg.*\Z", re.M | re.S | re.I)


@dataclass(frozen=True)
class Document:
    """One book or speech: its path inside the archive and its text."""

    name: str
    text: str

    @property
    def n_bytes(self) -> int:
        """Size of the text in UTF-8."""
        return len(self.text.encode("utf-8"))


@dataclass(frozen=True)
class Corpus:
    """The two sides of the split, each in the order of the documents' names."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sha256_of_text(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def clean(text: str) -> str:
    """Drop the distributor's closing line; end with exactly one newline."""
    return CLOSING_LINE.sub("", text).rstrip() + "\n"


def read_archive(path: Path) -> list[Document]:
    """All .txt members of a tar archive, sorted by name, cleaned."""
    documents = []
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            stream = archive.extractfile(member) if member.name.endswith(".txt") else None
            if stream is not None:
                documents.append(Document(member.name, clean(stream.read().decode("utf-8"))))
    return documents


def is_held_out(name: str) -> bool:
    """Whether a document of this name stays out of tokenizer and model training."""
    if name in HELD_OUT_BOOKS:
        return True
    year = re.match(r"sotu/(\d{4})_", name)
    return year is not None and int(year.group(1)) % HELD_OUT_YEARS == 0


def load_corpus(archives: Iterable[Path]) -> Corpus:
    """Read the archives and split their documents."""
    documents = [document for path in archives for document in read_archive(path)]
    held_out = tuple(d for d in documents if is_held_out(d.name))
    missing = set(HELD_OUT_BOOKS) | set(SHIPPED_TEXTS.values())
    missing -= {d.name for d in held_out}
    if missing:
        raise SystemExit(f"the archives lack held-out documents: {sorted(missing)}")
    return Corpus(tuple(d for d in documents if not is_held_out(d.name)), held_out)


def write_shipped_texts(corpus: Corpus, folder: Path) -> None:
    """Write the held-out documents that travel with the models."""
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {document.name: document for document in corpus.held_out}
    for file_name, source in SHIPPED_TEXTS.items():
        (folder / file_name).write_bytes(by_name[source].text.encode("utf-8"))


# ---------------------------------------------------------------- tokenizer

def train_tokenizer(documents: Sequence[Document], d_vocab: int):
    """Train a byte-level BPE in GPT-2's manner; id 0 is the end of a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=d_vocab,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((d.text for d in documents), trainer)
    if tokenizer.get_vocab_size() != d_vocab:
        raise SystemExit(f"the text gave {tokenizer.get_vocab_size()} of {d_vocab} entries")
    return tokenizer


def save_tokenizer(tokenizer, folder: Path, n_ctx: int) -> None:
    """Write tokenizer.json, tokenizer_config.json, vocab.json and merges.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))
    config = {
        "add_prefix_space": False,
        "bos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TEXT,
        "model_max_length": n_ctx,
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": END_OF_TEXT,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def load_tokenizer(folder: Path):
    """Read tokenizer.json of a model folder."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def encode(tokenizer, documents: Sequence[Document]) -> list[Tensor]:
    """Token ids of every document, each (n_tokens,)."""
    encodings = tokenizer.encode_batch([document.text for document in documents])
    return [torch.tensor(encoding.ids, dtype=torch.int64) for encoding in encodings]


def token_bytes(tokenizer) -> Tensor:
    """How many bytes of text each id stands for, (d_vocab,).

    A byte-level piece spells one byte as one character, so its length is the count.
    """
    lengths = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.int64)
    for piece, index in tokenizer.get_vocab().items():
        lengths[index] = 0 if piece == END_OF_TEXT else len(piece)
    return lengths


# ------------------------------------------------------------------ windows

def training_stream(encoded: Sequence[Tensor]) -> Tensor:
    """All documents in one row, the end-of-text id after each, (n_tokens,)."""
    end = torch.zeros(1, dtype=torch.int64)
    return torch.cat([piece for ids in encoded for piece in (ids, end)])


def epoch_sequences(stream: Tensor, n_ctx: int, repeat_share: float,
                    generator: torch.Generator) -> Tensor:
    """One pass over the stream as shuffled training sequences, (n, n_ctx + 1).

    The windows tile the stream from a random offset, so every token is a target
    once a pass.  A share of the sequences is replaced by repeated spans: half of
    those repeat the window's own first `period` tokens, the other half repeat
    `period` tokens drawn independently from the stream, where nothing but copying
    predicts the second round.
    """
    device = stream.device
    span = n_ctx + 1

    def random_integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator, device=device)

    offset = int(random_integers(0, n_ctx, 1))
    n = (len(stream) - 1 - offset) // n_ctx
    starts = offset + n_ctx * torch.randperm(n, generator=generator, device=device)
    column = torch.arange(span, device=device)
    windows = stream[starts[:, None] + column]
    draws = stream[random_integers(0, len(stream), n, span)]

    kind = torch.rand(n, 1, generator=generator, device=device)
    period = random_integers(16, n_ctx // 2 + 1, n, 1)
    source = torch.where(kind < repeat_share / 2, draws, windows)
    position = torch.where(kind < repeat_share, column % period, column.expand(n, span))
    return source.gather(1, position)


def document_windows(encoded: Sequence[Tensor], n_ctx: int) -> list[Tensor]:
    """Each document cut into windows of at most n_ctx tokens, at least 2.

    Windows do not overlap and do not cross documents; the first token of a window
    is given, not predicted.
    """
    pieces = [piece for ids in encoded for piece in ids.split(n_ctx)]
    return [piece for piece in pieces if len(piece) >= 2]


def spread_windows(encoded: Sequence[Tensor], n_ctx: int, count: int) -> Tensor:
    """`count` full windows spread evenly over the documents, (count, n_ctx)."""
    full = [w for w in document_windows(encoded, n_ctx) if len(w) == n_ctx]
    chosen = [full[index * len(full) // count] for index in range(count)]
    return torch.stack(chosen)

"""Writes the tokenizer of lab/nano from the texts of the lab domains.

    python scripts/build_nano_tokenizer.py [--prompts 400]

The result is a function of the domains' texts alone, so running it twice writes the same bytes.
Every byte is a token, so any text round-trips; digits never merge, because arithmetic on merged
digits is a look-up table; the remaining room goes to the words and operators of the lab domains.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import bimetal.domains
import bimetal.trainer
from bimetal.core.types import Split

VOCABULARY = 448
SPECIAL_TOKENS = ("<|pad|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")

# A name, a digit, a sign and a space are tokens of their own, so that "cat" is the same token wherever it
# stands: a small model finds a word again by its token, and "cat " or "cat?" would be strangers to it. Only
# what never varies is longer: separators, the beginning of the answer line, and words that always follow a
# space.
PIECES = (
    r"\nAnswer: |Who is honest\?|: |\. |; "
    r"| (?:lies|honest|and|or|like|unlike|make|red|blue|green|pink|yes|no|ok)\b"
    r"|\d|[^\W\d_]+|\s|[^\w\s]|_"
)


def lab_texts(prompts: int) -> Iterator[str]:
    """The prompts' and demonstrations' texts of every lab domain, at most ``prompts`` of each domain."""
    for module in sorted(pkgutil.iter_modules(bimetal.domains.__path__), key=lambda found: found.name):
        if not module.name.startswith("lab_"):
            continue
        domain = importlib.import_module(f"bimetal.domains.{module.name}")
        for prompt, demonstrations in itertools.islice(domain.load(domain.Config(), Split.TRAIN), prompts):
            yield from (message.content for message in prompt.messages)
            yield from (demonstration.text for demonstration in demonstrations)


def train(texts: Iterable[str], *, vocabulary: int) -> Tokenizer:
    """A byte-level BPE over the texts, with the special tokens at ids 0 to 4."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=50,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    """Write ``src/bimetal/trainer/nano_tokenizer.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=400, help="prompts read from each lab domain")
    arguments = parser.parse_args()
    tokenizer = train(lab_texts(arguments.prompts), vocabulary=VOCABULARY)
    target = Path(bimetal.trainer.__path__[0]) / "nano_tokenizer.json"
    target.write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    print(f"{target}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()

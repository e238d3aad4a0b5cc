"""The renderer: messages to token ids and back, exactly as the tokenizer's own chat template writes them.

A sequence is a rendered prompt followed by response ids, concatenated and never tokenised again, so
what the policy wrote is what is trained. Control tokens come only from the template: a text that
spells one ("<|end|>" in a data row) is tokenised as the plain characters it consists of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Message

_PROBE_PROMPT = "1+1"
_PROBE_RESPONSE = "bimetal probe"
_PRIVATE_USE = range(0xE000, 0xF900)


class Renderer:
    """Renders with one tokenizer.

    Args:
        tokenizer: Any tokenizer with a chat template.
        stop_token_ids: Further ids that end a response, as those of the model's generation config.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, stop_token_ids: Iterable[int] = ()) -> None:
        self.tokenizer = tokenizer
        self._extra_stop_ids = frozenset(stop_token_ids)

    def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids of the messages and the generation prompt: those of ``apply_chat_template``.

        Where a content spells a control token the ids differ from the template's in that one
        respect: in place of the control token stand the ids of its characters. Lone surrogates
        cannot be encoded and are rendered as U+FFFD.

        Raises:
            DataError: There are no messages, or the template refuses them.
        """
        if not messages:
            raise DataError("a prompt has no messages; found an empty list; give at least one user message")
        return self._encode(*self._rendered(messages, "generation"))

    def response_ids(self, text: str) -> tuple[int, ...]:
        """The ids of a response, closed by the end-of-turn token, as the template writes an assistant's turn.

        What the template writes behind the end-of-turn token is dropped: the policy stops there.

        Raises:
            DataError: The template refuses the text.
        """
        question = Message(role="user", content=_PROBE_PROMPT)
        whole, marks = self._rendered([question, Message(role="assistant", content=text)], "whole")
        if not marks and _encodable(text).strip() not in whole:
            raise DataError(
                f"the chat template does not write the response as it stands; found {text[:80]!r} changed or "
                "cut (some templates drop what stands before </think>); use a template that keeps it"
            )
        prompt = self._probe_prompt
        prompt_ids = self._encode(prompt, {})
        ids = self._encode(whole, marks)
        if ids[: len(prompt_ids)] == prompt_ids:
            ids = ids[len(prompt_ids) :]
        else:
            # A merge across the seam ("\n" + "\n\n"): the policy continues the prompt's own ids.
            ids = self._encode(whole[len(prompt) :], marks)
        if self.end_of_turn_id not in ids:
            raise DataError(f"the chat template writes no end of turn behind the response {text[:80]!r}")
        return ids[: ids.index(self.end_of_turn_id) + 1]

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The ids as text for people and verifiers, without special tokens and without unknown ids."""
        known = [int(i) for i in token_ids if 0 <= i < self._vocabulary_size]
        # transformers types the result as a list for batches; a flat list of ids gives a string.
        text = self.tokenizer.decode(known, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    @cached_property
    def end_of_turn_id(self) -> int:
        """The token the template writes behind an assistant's turn.

        Raises:
            ConfigError: The template writes none.
        """
        question = Message(role="user", content=_PROBE_PROMPT)
        whole, _ = self._rendered([question, Message(role="assistant", content=_PROBE_RESPONSE)], "whole")
        if _PROBE_RESPONSE not in whole:
            raise ConfigError(
                "the chat template does not write an assistant's message as it stands; found "
                f"{whole[-80:]!r} for {_PROBE_RESPONSE!r}; use a template that does"
            )
        suffix = whole[whole.rindex(_PROBE_RESPONSE) + len(_PROBE_RESPONSE) :]
        closing = next((i for i in self._encode(suffix, {}) if i in self._control_ids), None)
        if closing is None:
            raise ConfigError(
                f"the chat template writes no end-of-turn token; found {suffix!r} behind the response; "
                "use an instruct model's tokenizer, or a template that ends each turn with a special token"
            )
        return closing

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The ids that end a response, in ascending order: end of text, end of turn, and those given."""
        # transformers types the id as whatever a special token may be configured as.
        eos: Any = self.tokenizer.eos_token_id
        of_text = set[int]() if eos is None else {int(eos)}
        return tuple(sorted(of_text | self._extra_stop_ids | {self.end_of_turn_id}))

    def check(self, *, roles: Iterable[str] = ("user",)) -> None:
        """Refuse a tokenizer whose sequences could not be trained on.

        Args:
            roles: The roles that the data uses, each of which the template must accept.

        Raises:
            ConfigError: There is no chat template or no end-of-text token, the template refuses a
                role, writes no end of turn, or lacks the prefix property.
        """
        name = self.tokenizer.name_or_path or "the tokenizer"
        if not self.tokenizer.chat_template:
            raise ConfigError(
                f"{name}: there is no chat template; found a tokenizer of a base model; "
                "use an instruct model, or set chat_template in its tokenizer_config.json"
            )
        if self.tokenizer.eos_token_id is None:
            raise ConfigError(
                f"{name}: there is no end-of-text token, so no response would ever end; "
                "found eos_token null; set eos_token in its tokenizer_config.json"
            )
        self._check_roles(name, roles)
        question = Message(role="user", content=_PROBE_PROMPT)
        answer = Message(role="assistant", content=_PROBE_RESPONSE)
        try:
            prompt = self.prompt_ids([question])
            whole = self._encode(*self._rendered([question, answer], "whole"))
            _ = self.end_of_turn_id
        except DataError as error:
            raise ConfigError(f"{name}: {error}") from error
        if whole[: len(prompt)] != prompt:
            raise ConfigError(
                f"{name}: the chat template lacks the prefix property; found {whole[: len(prompt)]} "
                f"where the generation prompt has {prompt}; a response could not be trained where it "
                "was sampled; use a template whose generation prompt begins the assistant's turn"
            )

    def _check_roles(self, name: str, roles: Iterable[str]) -> None:
        """Render each role the data uses once, in a conversation as templates expect it."""
        question = Message(role="user", content=_PROBE_PROMPT)
        for role in dict.fromkeys(roles):
            if role == "user":
                continue
            turn = Message(role=role, content=_PROBE_RESPONSE)
            try:
                self.prompt_ids([turn, question] if role == "system" else [question, turn, question])
            except DataError as error:
                raise ConfigError(
                    f"{name}: the chat template refuses the role {role!r}; found: {error}; "
                    "use another model, or fold that message into the user's"
                ) from error

    def _rendered(self, messages: Sequence[Message], end: str) -> tuple[str, dict[str, str]]:
        """The template's text with every spelled control token replaced by a mark, and the marks."""
        contents = [_encodable(message.content) for message in messages]
        mark = _unused_character(contents)
        marks: dict[str, str] = {}

        def hide(found: re.Match[str]) -> str:
            key = f"{mark}{len(marks)}{mark}"
            marks[key] = found.group()
            return key

        if self._control_pattern is not None:
            contents = [self._control_pattern.sub(hide, content) for content in contents]
        chat = [{"role": m.role, "content": c} for m, c in zip(messages, contents, strict=True)]
        try:
            text = self.tokenizer.apply_chat_template(
                chat, tokenize=False, add_generation_prompt=end == "generation"
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            roles = ", ".join(message.role for message in messages)
            raise DataError(f"the chat template refuses messages with roles ({roles}): {error}") from error
        return str(text), marks

    def _encode(self, text: str, marks: dict[str, str]) -> tuple[int, ...]:
        """The ids of a rendered text; each mark becomes the plain ids of what it stands for.

        A control token splits the text before any merge, and so does a mark, so the text around
        one is tokenised exactly as the template's own text would be.
        """
        if not marks:
            return self._plain(text, split_special_tokens=False)
        ids: list[int] = []
        for piece in re.split("(" + "|".join(map(re.escape, marks)) + ")", text):
            ids += self._spelled(marks[piece]) if piece in marks else self._encode(piece, {})
        return tuple(ids)

    def _spelled(self, control: str) -> tuple[int, ...]:
        """The ids of a control token's characters."""
        ids = self._plain(control, split_special_tokens=True)
        if not self._control_ids.isdisjoint(ids):
            raise DataError(
                f"the text spells the control token {control!r}, which this tokenizer cannot write "
                "as plain text; remove it from the data"
            )
        return ids

    def _plain(self, text: str, *, split_special_tokens: bool) -> tuple[int, ...]:
        if not text:
            return ()
        encoded = self.tokenizer(
            text, add_special_tokens=False, split_special_tokens=split_special_tokens, verbose=False
        )
        return tuple(encoded["input_ids"])

    @cached_property
    def _probe_prompt(self) -> str:
        text, _ = self._rendered([Message(role="user", content=_PROBE_PROMPT)], "generation")
        return text

    @cached_property
    def _vocabulary_size(self) -> int:
        return len(self.tokenizer)

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        """Tokens that only a template may write; a visible marker such as "<think>" is none of them."""
        added = self.tokenizer.added_tokens_decoder
        special = {i for i, token in added.items() if token.special}
        return frozenset(special | set(self.tokenizer.all_special_ids))

    @cached_property
    def _control_pattern(self) -> re.Pattern[str] | None:
        texts = {
            str(text) for text in self.tokenizer.convert_ids_to_tokens(sorted(self._control_ids)) if text
        }
        if not texts:
            return None
        longest_first = sorted(texts, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, longest_first)))


def _encodable(text: str) -> str:
    """The text with lone surrogates, which no encoding can carry, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unused_character(texts: Sequence[str]) -> str:
    """A private-use character that occurs in none of the texts."""
    used = set().union(*texts)
    free = next((chr(code) for code in _PRIVATE_USE if chr(code) not in used), None)
    if free is None:
        raise DataError(
            "the texts hold every private-use character of Unicode; found no free one; clean the data"
        )
    return free

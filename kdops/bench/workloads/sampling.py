"""How an engine chooses each token of a request: greedily, or drawn at a temperature; and penalties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kdops.errors import UsageError

_GREEDY_BELOW = 1e-6


@dataclass(frozen=True)
class Sampling:
    """SGLang's sampling parameters under OpenAI's names; top_k -1: the whole vocabulary.

    seed is SGLang's `sampling_seed`: an engine heeds it with --enable-deterministic-inference only.
    Source: SGLang 0.5.23, sampling/sampling_params.py.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """True if the same engine always gives the same tokens, so that two arms can be compared by them."""
        return self.temperature < _GREEDY_BELOW or self.top_k == 1

    def document(self) -> dict[str, Any]:
        """Return what differs from greedy decoding, and the temperature."""
        usual = asdict(GREEDY)
        return {k: v for k, v in asdict(self).items() if k == "temperature" or v != usual[k]}

    def parameters(self) -> dict[str, Any]:
        """Return them as a request of SGLang's /generate holds them."""
        return {"sampling_seed" if key == "seed" else key: value for key, value in self.document().items()}

    def words(self) -> str:
        """Return one line for people."""
        told = self.document()
        if self.temperature < _GREEDY_BELOW:
            del told["temperature"]
        said = (f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in told.items())
        return ", ".join(["greedy"] * self.greedy + list(said))


GREEDY = Sampling()
_ALLOWED: Mapping[str, tuple[type[int] | type[float], Callable[[float], bool], str]] = {
    "temperature": (float, lambda v: 0 <= v <= 100, "a number from 0 (greedy) to 100"),
    "top_p": (float, lambda v: 0 < v <= 1, "a number above 0, at most 1"),
    "top_k": (int, lambda v: v == -1 or 1 <= v <= 1 << 30, "a whole number: -1 (all tokens), 1 or more"),
    "min_p": (float, lambda v: 0 <= v <= 1, "a number from 0 to 1"),
    "frequency_penalty": (float, lambda v: -2 <= v <= 2, "a number from -2 to 2"),
    "presence_penalty": (float, lambda v: -2 <= v <= 2, "a number from -2 to 2"),
    "repetition_penalty": (float, lambda v: 0 < v <= 2, "a number above 0, at most 2 (1: none)"),
    "seed": (int, lambda v: -(1 << 63) <= v < 1 << 63, "a whole number of 64 bits"),
}
_NAMES = tuple(_ALLOWED)


def read(told: Mapping[str, Any], where: str) -> Sampling:
    """Return the sampling that `told` names among other things; what it leaves out, or null, is as in GREEDY.

    Raises UsageError, beginning with `where`, for a value that SGLang would not take.
    """
    given = [name for name in _NAMES if told.get(name) is not None]
    return Sampling(**{name: _value(name, told[name], where) for name in given})


def parse(text: str) -> Sampling:
    """Return the sampling in `KEY=VALUE,KEY=VALUE`. Raises UsageError for anything else."""
    pairs = [pair.partition("=")[::2] for pair in text.split(",")]
    told = {key.strip(): _number(value.strip()) for key, value in pairs}
    if unknown := [key for key in told if key not in _NAMES]:
        raise UsageError(
            f"--sampling {text!r} cannot be read",
            cause=f"{unknown[0] or 'nothing'!r} is none of {', '.join(_NAMES)}",
            remedy="for example --sampling temperature=0.6,top_p=0.95",
        )
    return read(told, "--sampling")


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _value(name: str, value: Any, where: str) -> Any:
    kind, fits, words = _ALLOWED[name]
    if isinstance(value, bool) or not isinstance(value, int | kind) or not fits(value):
        raise UsageError(
            f"{where}: {name} {value!r:.60}",
            cause=f"it must be {words}",
            remedy="correct it, or leave it out: texts are then greedy and without penalties",
        )
    return kind(value)

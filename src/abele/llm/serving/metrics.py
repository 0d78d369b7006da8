"""Figures of a server in Prometheus' text form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from abele.llm.serving.event_stream import CallFigures
from abele.llm.serving.worker import GenerationWorker

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class SecondsHistogram:
    """Counts of durations by upper bound."""

    def __init__(self) -> None:
        self.counts, self.total, self.number = [0] * len(_BOUNDS), 0.0, 0

    def add(self, seconds: float) -> None:
        """One duration."""
        self.number += 1
        self.total += seconds
        for i, bound in enumerate(_BOUNDS):
            self.counts[i] += seconds <= bound

    def lines(self, name: str) -> Iterator[str]:
        """Its lines."""
        for bound, count in zip(_BOUNDS, self.counts, strict=True):
            yield f'{name}_bucket{{le="{bound:g}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self.number}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {self.number}"


class ServingMetrics:
    """Figures since the start. They are changed and read by the event loop's thread alone."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.ends: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.first_token, self.whole = SecondsHistogram(), SecondsHistogram()

    def add(self, figures: CallFigures) -> None:
        """One call that made text."""
        self.ends[figures.end] += 1
        self.prompt_tokens += figures.prompt_tokens
        self.whole.add(figures.seconds)
        if figures.first_token_seconds is not None:
            self.first_token.add(figures.first_token_seconds)

    def text(self, worker: GenerationWorker) -> str:
        """All figures."""
        return "\n".join(self._lines(worker)) + "\n"

    def _lines(self, worker: GenerationWorker) -> Iterator[str]:
        counts, engine = worker.counts, worker.engine
        yield from _head("requests_total", "counter", "Answers by route and code.")
        for (route, code), number in sorted(self.answers.items()):
            yield f'abele_requests_total{{route="{route}",code="{code}"}} {number}'
        yield from _head("calls_total", "counter", "Calls that made text, by how they ended.")
        for end, number in sorted(self.ends.items()):
            yield f'abele_calls_total{{end="{end}"}} {number}'
        for name, kind, help_text, value in (
            ("prompt_tokens_total", "counter", "Tokens of prompts.", self.prompt_tokens),
            ("generated_tokens_total", "counter", "Tokens made.", counts.generated_tokens),
            ("steps_total", "counter", "Steps of the generator.", counts.steps),
            ("failed_steps_total", "counter", "Steps that failed.", counts.failed_steps),
            ("step_seconds_total", "counter", "Seconds of this host in steps.", round(counts.step_seconds, 6)),
            ("modelled_seconds_total", "counter", "Modelled seconds of the machine.", counts.modelled.seconds),
            ("modelled_cycles_total", "counter", "Modelled cycles of the machine.", counts.modelled.cycles),
            ("waiting_sequences", "gauge", "Continuations without a slot.", engine.num_waiting),
            ("running_sequences", "gauge", "Continuations with a slot.", engine.num_running),
            ("stopping", "gauge", "1 while the server is about to end.", int(worker.is_stopping)),
        ):
            yield from _head(name, kind, help_text)
            yield f"abele_{name} {value}"
        yield from _head("first_token_seconds", "histogram", "Seconds to the first token of a call.")
        yield from self.first_token.lines("abele_first_token_seconds")
        yield from _head("call_seconds", "histogram", "Seconds of a call.")
        yield from self.whole.lines("abele_call_seconds")


def _head(name: str, kind: str, help_text: str) -> Iterable[str]:
    return (f"# HELP abele_{name} {help_text}", f"# TYPE abele_{name} {kind}")

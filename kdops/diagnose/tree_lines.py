"""The DDTREE lines of a journal, added up one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdops.diagnose.evidence import Tree
from kdops.diagnose.failures import clean
from kdops.serving.log_lines import TreeSteps

_EXAMPLES = 3
_MOST = 1e6
_MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class TreeSums:
    """commit, depth: sums over the lines; the others as in `Tree`."""

    lines: int = 0
    inconsistent: int = 0
    flat: int = 0
    commit: float = 0.0
    depth: float = 0.0
    rows: int = 0
    examples: tuple[str, ...] = ()

    def plus(self, event: TreeSteps, line: str) -> TreeSums:
        """Return the sums with one more line; one that tells no usable commit length counts for nothing."""
        commit = event.commit
        if commit is None or not commit < _MOST:
            return self
        depth = event.depth
        if depth is None or not abs(depth) < _MOST:
            depth = commit - 1
        shown = () if event.consistent or len(self.examples) >= _EXAMPLES else (clean(line),)
        return replace(
            self,
            lines=self.lines + 1,
            inconsistent=self.inconsistent + (not event.consistent),
            flat=self.flat + (commit == 1.0),
            commit=self.commit + commit,
            depth=self.depth + depth,
            rows=max(self.rows, min(event.rows, _MOST_ROWS)),
            examples=self.examples + shown,
        )

    def means(self) -> Tree | None:
        """Return what the lines say on average, None without a line."""
        if not self.lines:
            return None
        return Tree(
            lines=self.lines,
            inconsistent=self.inconsistent,
            flat=self.flat,
            commit=self.commit / self.lines,
            depth=self.depth / self.lines,
            rows=self.rows,
            examples=self.examples,
        )

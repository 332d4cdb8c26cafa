"""Maps of parallel sentences: a plane on which like vectors lie close together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Encode, NotApplicableError, encode_checked, require

Rows = Sequence[tuple[str, ...]]

_ROWS = 150  # of a corpus: a page is looked at, and a results file is to stay small
_LONGEST = 200  # characters of a text that are kept
_PERPLEXITY = 30.0  # scikit-learn's default
_SAME = 1e-6


class SentenceMap:
    """A plane on which sentences with like vectors lie close together, by t-SNE.

    Yu et al. 2018, figure 1, has one of documents. In a space that languages share, a sentence lies
    with its translations and not with its own language.

    Args:
        rows: Sentences that translate each other, one of each language.
        languages: Their codes.
        name: What results call this evaluator.
        seed: Of the sentences drawn, and of t-SNE.

    Raises:
        UserError: There are no two different rows.
    """

    def __init__(self, rows: Rows, languages: Sequence[str], *, name: str, seed: int = 0) -> None:
        self.name = name
        self._languages = tuple(languages)
        self._rows = drawn(rows, _ROWS, seed, name)
        self._seed = seed
        self.protocol: Mapping[str, Any] = {
            "method": "t-SNE of unit vectors",
            "perplexity": _PERPLEXITY,
            "seed": seed,
            "num_rows": len(self._rows),
        }

    def __call__(self, encode: Encode) -> dict[str, Any]:
        """Lays the sentences out by the system's vectors.

        Args:
            encode: The system.

        Returns:
            "languages", and of each in "points" its "texts", "x" and "y" from 0 to 1; what has the
            same place in these lists is a translation.

        Raises:
            NotApplicableError: All vectors are the same.
            UserError: A vector is zero or not finite, or scikit-learn is not installed.
        """
        columns = list(zip(*self._rows, strict=True))
        units = np.concatenate([unit_vectors(encode, texts) for texts in columns])
        if np.ptp(units, axis=0).max() < _SAME:
            raise NotApplicableError("all its vectors are the same")
        places = _by_tsne(units, self._seed).reshape(len(columns), len(self._rows), 2)
        points = {
            language: {
                "texts": list(map(cut, texts)),
                "x": of_language[:, 0].round(4).tolist(),
                "y": of_language[:, 1].round(4).tolist(),
            }
            for language, texts, of_language in zip(self._languages, columns, places, strict=True)
        }
        return {"languages": list(self._languages), "points": points}


def drawn(rows: Rows, most: int, seed: int, name: str) -> list[tuple[str, ...]]:
    """Draws rows whatever their order: different ones in which no text is empty.

    Args:
        rows: To draw from.
        most: How many at most.
        seed: Of the drawing.
        name: Of the data, for the error.

    Raises:
        UserError: There are no two.
    """
    different = sorted({row for row in rows if all(row)})
    if len(different) < 2:
        raise UserError(
            f"{name} must have two different rows of sentences to be drawn, but has "
            f"{len(different)}; give more data"
        )
    order = np.random.default_rng(seed).permutation(len(different))[:most]
    return [different[place] for place in order]


def unit_vectors(encode: Encode, texts: Sequence[str]) -> NDArray[np.float64]:
    """Encodes texts, each different one once: unit vectors `[texts, dim]`.

    Raises:
        UserError: A vector is zero or not finite.
    """
    different = list(dict.fromkeys(texts))
    vectors = encode_checked(encode, different)
    lengths = np.linalg.norm(vectors, axis=1)
    require(lengths > 0, different, "a vector with a direction", "zero only")
    row_of = {text: row for row, text in enumerate(different)}
    return (vectors / lengths[:, np.newaxis])[[row_of[text] for text in texts]]


def _by_tsne(units: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Places from 0 to 1 on a plane: `[texts, 2]`."""
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise UserError(
            "maps of sentences are laid out by scikit-learn, but it is not installed; "
            "install the extra with: pip install 'xling_tf[evaluation]' "
            "(in a checkout: pip install -e '.[evaluation]')"
        ) from error
    perplexity = min(_PERPLEXITY, (len(units) - 1) / 3)
    # For so few points, threads wait for each other most of the time.
    with threadpool_limits(1):
        tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed)
        places: NDArray[np.float64] = tsne.fit_transform(units)
    return (places - places.min(axis=0)) / np.ptp(places, axis=0)


def cut(text: str) -> str:
    """Shortens a text to what a page has room for."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

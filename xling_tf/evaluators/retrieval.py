"""Finds translations among random sentences, all of a corpus, or many languages."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.client.neighbours import index_kind
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.encoding import Array, Encode, encode_checked, encode_in_chunks
from xling_tf.evaluators.ranking import inner_products, relevant_ranks, search
from xling_tf.evaluators.sts import find_translated_sts

_MULTILINGUAL_LAYOUT = (
    "similarity_search/<name>.tsv, a column for each language, or sts/stsb.<language>.<split>.tsv "
    "or parallel/<name>.en-<language>.tsv in two languages or more"
)


class TranslationRetrieval:
    """Precision at 1, 3 and 10 of finding a sentence's translation, in both directions.

    Each query's translation is ranked by dot product among candidates that are drawn at random from
    the other pairs (Chidambaram et al. 2019, sec. 3.4: the right one and K = 999 others).
    Candidates are the same for every encoder and order of `pairs`. Other translations of the query
    are never candidates. Ties count as errors.

    Args:
        pairs: Translations that were held out of training. At least two must differ on both sides.
        languages: Those of the first and the second texts, such as ("en", "es").
        num_candidates: Number of candidates of a query, the right one included, if there are enough
            pairs.
        max_queries: Largest number of queries in a direction; more pairs are sampled.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[Any, ...]],
        languages: Sequence[str],
        *,
        name: str,
        num_candidates: int = 1000,
        max_queries: int = 5000,
        seed: int = 0,
    ) -> None:
        self.name = name
        limits = {"num_candidates": num_candidates, "max_queries": max_queries}
        self.protocol: Mapping[str, Any] = {**limits, "seed": seed, "num_pairs": len(pairs)}
        rng = np.random.default_rng(seed)
        distinct = _distinct(pairs)
        # Candidates come from the sampled pairs, so that nothing else needs to be encoded.
        order = rng.permutation(len(distinct))[: max(max_queries, num_candidates)]
        pool = [distinct[index] for index in order]
        self.pairs = [pair[:2] for pair in pool]
        self._texts = [list(dict.fromkeys(pair[side] for pair in pool)) for side in (0, 1)]
        rows = [{text: row for row, text in enumerate(texts)} for texts in self._texts]
        self._directions = {}
        for side, direction in enumerate(map("-".join, (languages, languages[::-1]))):
            query_rows, candidate_rows = rows[side], rows[1 - side]
            translations: defaultdict[str, list[int]] = defaultdict(list)
            for pair in distinct:
                if pair[1 - side] in candidate_rows:
                    translations[pair[side]].append(candidate_rows[pair[1 - side]])
            queries = pool[:max_queries]
            num_right = max((len(translations[pair[side]]) for pair in queries), default=0)
            num_others = min(num_candidates - 1, len(candidate_rows) - num_right)
            if num_others < 1:
                raise UserError(f"{name} needs different sentences on both sides; give more")
            drawn = []
            for pair in queries:
                # Other translations are replaced by spare candidates, so that the draw stays fair.
                right, valid = candidate_rows[pair[1 - side]], translations[pair[side]]
                others = rng.choice(len(candidate_rows), num_others + len(valid), replace=False)
                drawn.append(np.append(right, others[~np.isin(others, valid)][:num_others]))
            places = np.array([query_rows[pair[side]] for pair in queries])
            self._directions[direction] = (places, np.array(drawn, np.int32))

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<query>-<candidate>/precision_at_<k>", "num_queries" and "num_candidates"."""
        vectors = [encode_checked(encode, texts) for texts in self._texts]
        scores: dict[str, float] = {}
        for side, (direction, (queries, candidates)) in enumerate(self._directions.items()):
            products = inner_products(vectors[side][queries], vectors[1 - side])
            drawn = (row[places] for row, places in zip(products, candidates, strict=True))
            ranks = np.concatenate(relevant_ranks(drawn, [[0]] * len(queries)))
            for k in (1, 3, 10):
                scores[f"{direction}/precision_at_{k}"] = float(np.mean(ranks <= k))
        shapes = [candidates.shape for _, candidates in self._directions.values()]
        counts = np.min(shapes, axis=0).astype(float).tolist()
        return scores | dict(zip(("num_queries", "num_candidates"), counts, strict=True))


def _distinct(pairs: Iterable[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Sorts distinct pairs; texts with one `normalised` form are spelt like the first."""
    spellings: tuple[dict[str, str], dict[str, str]] = ({}, {})
    spelt = (
        tuple(
            known.setdefault(normalised(text), text)
            for known, text in zip(spellings, pair, strict=False)
        )
        for pair in sorted(pairs)
    )
    return list(dict.fromkeys(spelt))


class SimilaritySearch:
    """The error rate of finding each sentence's translation, for every ordered pair of languages.

    Schwenk and Douze 2017; Yu et al. 2018, sec. 4 and Table 2, which gives the accuracy. Every
    translation of the query in the corpus is right. Within a language, a sentence finds itself
    unless another row of the corpus has the same text or vector. Ties count as errors. See `search`
    for the size of a corpus.

    Args:
        rows: Sentences that translate each other, one for each of the languages.
    """

    def __init__(self, rows: data.Rows, languages: Sequence[str], *, name: str) -> None:
        if len(languages) < 2 or not rows:
            present = f"{len(rows)} rows in {', '.join(languages) or 'no language'}"
            raise UserError(
                f"{name} must have rows of a text in two languages or more, but has {present}"
            )
        # The distinct texts of each language, and the place of each row's text among them.
        self._sides = {
            language: np.unique(np.array([row[place] for row in rows], object), return_inverse=True)
            for place, language in enumerate(languages)
        }
        self.name = name
        self.pairs = [pair for row in rows for pair in combinations(row, 2)]
        counts = {language: len(texts) for language, (texts, _) in self._sides.items()}
        index = index_kind(max(counts.values()))
        self.protocol: Mapping[str, Any] = {
            "index": index,
            "num_rows": len(rows),
            "num_candidates": counts,
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "mean/error_rate", and "<query>-<candidate language>/error_rate" for each pair.

        "all/error_rate" is the mean with the errors within languages, as in the paper's row "All".
        """
        sides = self._encoded(encode)
        errors = {f"{pair}/error_rate": 1 - share for pair, share in _precisions(sides).items()}
        within = {}
        for code, (vectors, rows) in sides.items():
            is_single = np.bincount(rows)[rows] == 1
            is_found = search(vectors, vectors, (rows, rows)).is_found[rows]
            within[f"{code}-{code}/error_rate"] = 1 - float(np.mean(is_found & is_single))
        mean, overall = (float(np.mean([*rates.values()])) for rates in (errors, errors | within))
        return {"mean/error_rate": mean, "all/error_rate": overall, **errors, **within}

    def _encoded(self, encode: Encode) -> dict[str, tuple[Array, Array]]:
        """Vectors of each language's distinct texts, and each row's place among them."""
        return {
            c: (encode_in_chunks(encode, [*texts]), rows)
            for c, (texts, rows) in self._sides.items()
        }


def _precisions(sides: Mapping[str, tuple[Array, Array]]) -> dict[str, float]:
    """The share of rows whose translation is found, by "<query language>-<candidate language>"."""
    return {
        f"{source}-{target}": float(
            np.mean(search(queries, candidates, (rows, answers)).is_found[rows])
        )
        for (source, (queries, rows)), (target, (candidates, answers)) in permutations(
            sides.items(), 2
        )
    }


class BitextRetrieval(SimilaritySearch):
    """Precision at 1 of finding each sentence's translation in a whole corpus, in both directions.

    Yang et al. 2019, sec. 5.2 and Table 5; Artetxe and Schwenk 2019 give the error rate on Tatoeba.
    See `SimilaritySearch` for the arguments and what counts as right.
    """

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<query>-<candidate>/precision_at_1" for both, and their mean "error_rate"."""
        precisions = _precisions(self._encoded(encode))
        scores = {f"{pair}/precision_at_1": value for pair, value in precisions.items()}
        return {**scores, "error_rate": 1 - float(np.mean([*precisions.values()]))}


class MixedPoolRetrieval(SimilaritySearch):
    """Recall at 1 of a translation among the other sentences of all languages at once.

    Every translation of the query in any other language is right; none is in the query's own
    language. How often the nearest candidate is in that language shows how much the vectors depend
    on the language (compare Roy et al. 2020, "LAReQA", on pools of answers). Ties count as errors.
    See `SimilaritySearch` for the arguments and the search.
    """

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "recall_at_1" and "own_language_share" of each query language.

        Their names are "<language>/..."; "mean/..." are the means over the languages, and
        "mean/own_language_share_by_chance" is the share of a random candidate.
        """
        texts, rows = zip(*self._sides.values(), strict=True)
        sizes = [len(side) for side in texts]
        vectors = encode_in_chunks(encode, [text for side in texts for text in side])
        language = np.repeat(np.arange(len(sizes)), sizes)
        places = [np.searchsorted(language, code) + side for code, side in enumerate(rows)]
        one, other = (np.concatenate(sides) for sides in zip(*permutations(places, 2), strict=True))
        found = search(vectors, vectors, (one, other), leave_out_itself=True)
        is_own = found.is_nearest & (language[found.rows] == language[:, np.newaxis])
        measures = {
            "recall_at_1": found.is_found,
            "own_language_share": is_own.sum(axis=1) / np.maximum(found.is_nearest.sum(axis=1), 1),
        }
        scores: dict[str, float] = {}
        for name, values in measures.items():
            shares = {c: float(values[language == n].mean()) for n, c in enumerate(self._sides)}
            scores[f"mean/{name}"] = float(np.mean([*shares.values()]))
            scores |= {f"{code}/{name}": share for code, share in shares.items()}
        chance = np.mean([(size - 1) / (len(vectors) - 1) for size in sizes])
        return scores | {"mean/own_language_share_by_chance": float(chance)}


def find_mixed_pools(folder: Path, languages: Sequence[str]) -> Iterator[MixedPoolRetrieval]:
    """Pools the development sets `eval/sts/stsb.<language>.dev.tsv` of a data folder."""
    for texts in find_translated_sts(folder / "eval"):
        places = [texts.languages.index(code) for code in languages if code in texts.languages]
        if texts.name == "stsb.dev" and len(places) > 1:
            codes = [texts.languages[place] for place in places]
            rows = [tuple(row[place] for place in places) for row in texts.read()]
            yield MixedPoolRetrieval(rows, codes, name=f"mixed_pool/{texts.name}")


def _find_multilingual(folder: Path) -> list[data.ParallelTexts]:
    return [*data.find_multilingual(folder), *find_translated_sts(folder)]


RETRIEVAL = data.Suite(
    name="retrieval",
    title="Translation retrieval among 999 random others",
    source="Chidambaram et al. 2019, sec. 3.4",
    layout=data.BITEXT_LAYOUT,
    find=lambda folder, seed: data.parallel_datasets(
        data.find_bitexts(folder), partial(TranslationRetrieval, seed=seed)
    ),
)
BITEXT = data.Suite(
    name="bitext",
    title="Translation retrieval from a whole corpus",
    source="Yang et al. 2019, sec. 5.2, Table 5",
    layout=data.BITEXT_LAYOUT,
    find=lambda folder, seed: data.parallel_datasets(data.find_bitexts(folder), BitextRetrieval),
)
SIMILARITY_SEARCH = data.Suite(
    name="similarity_search",
    title="Every language's sentences searched by every other's",
    source="Yu et al. 2018, sec. 4, Table 2",  # on Europarl and WMT's newstest2012
    layout=f"{_MULTILINGUAL_LAYOUT} (xling-tf prepare evaluation parallel_lines)",
    find=lambda folder, seed: data.parallel_datasets(_find_multilingual(folder), SimilaritySearch),
)
MIXED_POOL = data.Suite(
    name="mixed_pool",
    title="A translation among the sentences of all languages at once",
    # This is LAReQA, whose candidates are answers in 11 languages.
    source="compare Roy et al. 2020, sec. 2",
    layout=_MULTILINGUAL_LAYOUT,
    find=lambda folder, seed: data.parallel_datasets(
        _find_multilingual(folder), MixedPoolRetrieval
    ),
)

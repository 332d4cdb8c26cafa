"""Questions without an answer in the corpus: how many a search can refuse."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.client.match import probabilities
from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.encoding import Encode, as_embedder, encode_units
from xling_tf.evaluators.ranking import inner_products
from xling_tf.evaluators.reqa import LAYOUT, ReqaData, read_tables

_STAY = 0.95  # share of the questions with an answer that must not be refused
_FOREIGN = 500  # questions of other data sets


class NothingToFind:
    """The share of questions that a threshold refuses while 95% of those with an answer stay.

    A question is refused if the cosine, or the probability, of its nearest document is below the
    threshold. Its answer is missing because its whole paragraph was removed from the corpus
    ("removed"), or because the question is of another data set ("foreign"). Documents are sentences
    and, if they are known, paragraphs.

    Args:
        part: Questions, and sentences with their paragraphs.
        foreign: Questions of other data sets.
        name: The name of the data set, for results and errors.

    Raises:
        UserError: There are no questions.

    Examples:
        Of "q a" and "q b", the nearest sentences are their answers, and without these, a sentence
        at the cosine 0.6. Both are refused from any threshold above 0.6.

        >>> vectors = {"q a": [1, 0], "a": [1, 0], "q b": [0.6, 0.8], "b": [0.6, 0.8]}
        >>> encode = lambda texts: np.array([vectors[text] for text in texts])
        >>> part = ReqaData([("1", "q a", "a"), ("2", "q b", "b")], [("a", ""), ("b", "")])
        >>> NothingToFind(part, name="toy")(encode)["sentence/removed_refused"]
        1.0
    """

    def __init__(self, part: ReqaData, foreign: Sequence[str] = (), *, name: str) -> None:
        if not part.questions:
            raise UserError(f"{name} must have questions, but has none; correct it or remove it")
        self.name = name
        self._foreign = [*foreign]
        self.protocol: Mapping[str, Any] = {"stay": _STAY, "num_foreign": len(self._foreign)}
        groups: defaultdict[str, set[str]] = defaultdict(set)
        for sentence, paragraph in part.sentences:
            groups[sentence].add(paragraph or sentence)
        own: defaultdict[str, set[str]] = defaultdict(set)
        for _, question, answer in part.questions:
            own[question] |= groups[answer]
        self._questions = sorted(own)
        self._units = {"sentence": {text: groups[text] for text in sorted(groups)}}
        if all(paragraph for _, paragraph in part.sentences):
            paragraphs = sorted({paragraph for _, paragraph in part.sentences})
            self._units["paragraph"] = {text: {text} for text in paragraphs}
        self._own = [own[question] for question in self._questions]

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns, for each unit, "removed_refused" and "foreign_refused", see above.

        Where the embedder has the probability of answers, "kept_at_half",
        "removed_refused_at_half" and "foreign_refused_at_half" are the shares of questions that
        stay, and are refused, with `min_probability=0.5`. "found" is the share whose nearest
        document is of the right paragraph.
        """
        embedder = as_embedder(encode)
        asked = encode_units(embedder.encode_questions, self._questions + self._foreign)
        questions, foreign = np.split(asked, [len(self._questions)])
        scores: dict[str, float] = {}
        for unit, groups in self._units.items():
            texts = [*groups]
            # A search gives documents no context but themselves.
            documents = encode_units(embedder.encode_responses, texts, texts)
            rows: defaultdict[str, list[int]] = defaultdict(list)
            for index, names in enumerate(groups.values()):
                for name in names:
                    rows[name].append(index)
            nearest, removed, is_found = [], [], []
            for row, own in zip(inner_products(questions, documents), self._own, strict=True):
                right = [index for name in own for index in rows[name]]
                best, others = int(np.argmax(row)), np.delete(row, right)
                nearest.append(row[best])
                is_found.append(best in right)
                removed.append(others.max(initial=-1))
            without = {"removed": np.array(removed)}
            if len(foreign):
                without["foreign"] = np.array(
                    [row.max() for row in inner_products(foreign, documents)]
                )
            threshold = np.quantile(nearest, 1 - _STAY, method="lower")
            shares = {
                f"{kind}_refused": np.mean(values < threshold) for kind, values in without.items()
            }
            if line := embedder.match.get("answer"):
                likely = partial(probabilities, line=line, num_candidates=len(texts))
                shares["kept_at_half"] = np.mean(likely(nearest) >= 0.5)
                for kind, values in without.items():
                    shares[f"{kind}_refused_at_half"] = np.mean(likely(values) < 0.5)
            shares |= {"found": np.mean(is_found), f"num_{unit}s": len(texts)}
            scores |= {f"{unit}/{metric}": float(share) for metric, share in shares.items()}
        return scores | {"num_queries": float(len(self._questions))}


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    sets = {
        f"{name}.{code}": tables
        for name, languages in data.find_tables(folder / "reqa").items()
        for code, tables in languages.items()
        if "questions" in tables
    }

    def load(name: str) -> NothingToFind:
        others = [
            sorted({question for _, question, _ in read_tables(tables).questions})
            for other, tables in sets.items()
            # Another language's data set of the same name may have the same questions.
            if other.rpartition(".")[0] != name.rpartition(".")[0]
        ]
        each = -(-_FOREIGN // max(1, len(others)))
        foreign = [question for texts in others for question in texts[:: -(-len(texts) // each)]]
        return NothingToFind(read_tables(sets[name]), foreign, name=name)

    for name in sets:
        files = tuple(path for tables in sets.values() for path in tables.values())
        yield data.Dataset(name=name, files=files, load=partial(load, name))


SUITE = data.Suite(
    name="nothing_to_find",
    title="Questions whose answer is not in the corpus",
    source="questions of which the paragraph was removed, and questions of other data sets",
    layout=LAYOUT,
    find=_find,
)

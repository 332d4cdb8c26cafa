r"""Measures what pairs of a small language are worth: P@1 before and after fine-tuning on some.

python evaluation/benchmarks/languages.py --model exported/use-multilingual --language eu \
        --apart home-assistant

The pairs are messages of applications, from packages that are fetched into --raw. 1,000 are held
out at random, and all those of one application, `--apart`, which are of another domain.
"""

import sys
import tempfile
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "data")]  # works in a checkout without installation

import numpy as np
from absl import flags, logging

from evaluation.benchmarks.workloads import write_figures
from xling_tf.corpora.line_files import read_every_line, write_lines
from xling_tf.program import run

Pair = tuple[str, str]

_HELD_OUT = 1000
_LOCALES = {"eu": ("eu",), "ka": ("ka", "ka_GE")}
# Further packages of Debian 12, by language, whose messages are for training alone.
_MORE = "more-applications"
_PACKAGES = {
    "ka": (
        "postgresql-15 postgresql-client-15 kate5-data plasma-workspace-data plasma-desktop-data "
        "kdenlive-data plasma-nm kalzium-data kwin-data skrooge-common k3b-i18n okular kleopatra "
        "kmail plasma-discover-common konversation-data kget dolphin konsole cantor kgpg step "
        "ktorrent-data akregator korganizer gwenview kdeconnect ark kcalc krusader kdiff3 kpat "
        "libgimp2.0 gimp-data network-manager network-manager-gnome systemd sssd-common firewalld "
        "libgtk-4-common libgtk-3-common libglib2.0-data evolution-data-server-common "
        "gnome-control-center-data gnome-software-common gnome-shell-common nautilus-data"
    ).split()
}


def pairs_by_corpus(language: str, raw: Path) -> dict[str, list[Pair]]:
    """Returns the clean translations of the packages by corpus; fetches what is not in `raw`."""
    import debian
    import package_text

    package_text.LOCALES.update(_LOCALES)
    manual = partial(package_text.extract_manual, "usr/share/libreoffice/help/{locale}/text")
    readers = [(c.name, c.patterns("en", language), c.extract) for c in debian.CORPORA]
    readers = [row for row in readers if not row[0].endswith("-help")]
    readers.append(("libreoffice", (f"libreoffice-l10n-{language}",), package_text.extract_gettext))
    if language == "eu":
        readers.append(
            ("libreoffice-help", ("libreoffice-help-eu", "libreoffice-help-en-us"), manual)
        )
    readers.append((_MORE, tuple(_PACKAGES.get(language, ())), package_text.extract_gettext))
    fetched, _ = debian.fetch([pattern for _, patterns, _ in readers for pattern in patterns], raw)
    cleaner, pairs = debian.Cleaner("en", language), {}
    for name, patterns, extract in readers:
        folders = [folder for pattern in patterns for folder in fetched[pattern]]
        text = cleaner.clean(extract(folders, "en", language))
        if text.parallel:
            pairs[name] = [(pair.source, pair.target) for pair in text.parallel]
    return pairs


def read_or_fetch(language: str, raw: Path) -> dict[str, list[Pair]]:
    """Returns what `pairs_by_corpus` does, and keeps it in files beside the packages."""
    folder = raw / f"pairs.en-{language}"
    if not folder.is_dir():
        for name, pairs in pairs_by_corpus(language, raw).items():
            write_lines(folder / f"{name}.tsv", map("\t".join, pairs))
    paths = sorted(folder.glob("*.tsv"))
    return {
        path.stem: [
            (row[0], row[1]) for _, line in read_every_line(path) for row in [line.split("\t")]
        ]
        for path in paths
    }


def split(by_corpus: dict[str, list[Pair]], apart: str) -> tuple[list[Pair], dict[str, list[Pair]]]:
    """Returns pairs to train on, in random order, and the held-out ones by their kind.

    No sentence of a held-out pair is in another pair. The pairs of `_MORE` come last in training.
    """
    rng = np.random.default_rng(0)
    names = by_corpus.keys() - {apart, _MORE}
    others = [*dict.fromkeys(chain(*(p for name, p in by_corpus.items() if name in names)))]
    held = {"same": _distinct([others[n] for n in rng.permutation(len(others))])}
    held["another"] = _distinct(by_corpus[apart])
    held = {name: pairs[:_HELD_OUT] for name, pairs in held.items()}
    excluded = {text.casefold() for pair in chain(*held.values()) for text in pair}
    more = [*dict.fromkeys(by_corpus.get(_MORE, ()))]
    train = []
    for pairs in (others, more):
        kept = [p for p in pairs if excluded.isdisjoint(text.casefold() for text in p)]
        train += [kept[n] for n in rng.permutation(len(kept))]
    return train, held


def _distinct(pairs: list[Pair]) -> list[Pair]:
    """Returns the pairs that share no sentence with earlier ones."""
    seen: set[str] = set()
    kept = []
    for pair in pairs:
        texts = {text.casefold() for text in pair}
        if seen.isdisjoint(texts):
            kept.append(pair)
        seen |= texts
    return kept


def precision_at_1(model: Any, pairs: list[Pair]) -> list[float]:
    """Returns the percentages of translations that are nearest, from and to English."""
    first, second = (model.encode([pair[side] for pair in pairs]) for side in (0, 1))
    scores = first @ second.T
    right = np.arange(len(pairs))
    return [round(100 * float(np.mean(s.argmax(axis=1) == right)), 1) for s in (scores, scores.T)]


def measure() -> dict[str, Any]:
    """Returns the scores by the number of pairs, and the share of unknown pieces."""
    from xling_tf.model import Model
    from xling_tf.sentence_encoder import SentenceEncoder
    from xling_tf.tokenizers.coverage import coverage
    from xling_tf.trainer.fine_tuning import fine_tune

    values = flags.FLAGS
    train, held = split(read_or_fetch(values.language, Path(values.raw)), values.apart)
    tokenizer = Model.from_pretrained(values.model).tokenizer
    sides = zip(("en", values.language), zip(*train[:2000], strict=True), strict=True)
    figures: dict[str, Any] = {
        "coverage": {name: coverage(tokenizer, texts)._asdict() for name, texts in sides},
        "held_out": {name: len(pairs) for name, pairs in held.items()},
        "training_pairs": len(train),
        "precision_at_1": {},
    }
    for count, steps in zip(map(int, values.pairs), map(int, values.steps), strict=True):
        with tempfile.TemporaryDirectory() as work:
            if count:
                model = fine_tune(
                    values.model, train[:count], output=f"{work}/model", steps=steps,
                    languages=("en", values.language),
                )  # fmt: skip
            else:
                model = SentenceEncoder(values.model)
            scores = {name: precision_at_1(model, pairs) for name, pairs in held.items()}
        used = min(count, len(train))
        figures["precision_at_1"][f"{used}"] = {"steps": steps, **scores}
        logging.info("%s, %d pairs: %s", values.language, used, scores)
    return figures


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "The exported model to start from.", required=True)
    flags.DEFINE_string("language", "eu", "Language whose pairs with English are used.")
    flags.DEFINE_string("raw", "data/raw", "Folder for the text of the packages.")
    flags.DEFINE_string("apart", "home-assistant", "Corpus that is held out as another domain.")
    flags.DEFINE_list("pairs", ["0", "300", "3000", "30000"], "Numbers of pairs to train on.")
    flags.DEFINE_list("steps", ["0", "60", "60", "240"], "Steps on each number of pairs.")
    flags.DEFINE_string("output", "evaluation/results/languages.json", "Results file.")
    run(
        lambda: write_figures(flags.FLAGS.output, measure),
        "the same command starts again",
        extra="data",
    )

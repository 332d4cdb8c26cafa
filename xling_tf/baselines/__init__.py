"""What only a paper's baseline needs: its kinds, presets, word vectors and evaluation.

`xling_tf.config.baselines` imports this package when a name is not known without it; nothing else
does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from xling_tf.baselines import rueckle2018, yu2018


def register() -> None:
    """Registers the kinds and the presets."""
    yu2018.register()
    rueckle2018.register()


def fit_vectors(
    names: Sequence[str], translations: Mapping[str, Any], config: Any, seed: int
) -> Any:
    """Makes the word vectors of `initial.vectors` from pairs of texts in each pair of languages."""
    from xling_tf.baselines.rueckle2018 import word_vectors

    bitext = word_vectors.Bitext.read(translations, config, seed)
    return word_vectors.fit_vectors(names, bitext, config, seed)


def suites() -> list[Any]:
    """Returns the suites of `xling_tf.evaluators`."""
    from xling_tf.baselines.rueckle2018 import argument

    return [argument.SUITE]

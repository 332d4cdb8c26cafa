"""The published weights as an exported model of ours."""

from pathlib import Path

from xling_tf import __version__
from xling_tf.config import ExperimentConfig
from xling_tf.files import require_writable_folder
from xling_tf.hub.module import export, require_replaceable
from xling_tf.overrides import to_json
from xling_tf.published.package import PACKAGE, read_package
from xling_tf.published.saved_model import model_of_saved_model
from xling_tf.published.weights import NAME, make_model, published_config

_CARD = """# use-multilingual

The published {name} (Yang et al. 2019) as a model of xling_tf {version}: strings in 16 languages
({languages}) to {dim}-dimensional vectors of unit length.
Nothing was trained here.

    import tensorflow_hub as hub
    import tensorflow_text                          # the operations of SentencePiece
    encoder = hub.load(".")
    encoder(["Hola", "Hello"])                      # float32 [2, {dim}]

Signatures `serving_default` and `default` take `inputs`; `question_encoder` and `response_encoder` take
`input` and encode as these do; all give `outputs`. Needs TensorFlow and, imported before it is loaded,
tensorflow-text of the same version. Texts are cut at {max_tokens} tokens.

## Where the weights are from

{origin}

The published module is licensed under the Apache License 2.0, and so are these weights.

`config.json` holds the sizes, and `training/` what `--init` needs to train on from here.
"""

_PACKAGE_ORIGIN = f"""The data files of the Python package {PACKAGE} 0.2.1 (Apache License
2.0), which carry the published weights quantized: the embeddings to 6 bits, all else to 8. So vectors
are near those of the published module, and not equal: the first 20 numbers of one that is known have a
cosine of 0.993 to it. The package normalises the three branches of the CNN together, this model each by
itself, which is nearer to what is known of the published module; the vectors of the two have a cosine
of 0.991 on average. `evaluation/published.py` measures both."""

_FOLDER_ORIGIN = """The variables of a SavedModel, `{folder}`, as they are. Its own vectors of a few
sentences were reproduced with them to a cosine above 0.999 before they were written."""


def import_published(output: Path, source: Path | None = None) -> None:
    """Writes the published encoder as an exported model.

    Args:
        output: Folder of the exported model.
        source: Folder of the published SavedModel; None: the weights come from a Python package.

    Raises:
        UserError: The weights are not to be had, or `output` cannot be written.
    """
    require_replaceable(output)
    require_writable_folder(output.parent, "give another with --output")
    config = published_config()
    if source is None:
        model, origin = make_model(config, read_package()), _PACKAGE_ORIGIN
    else:
        model = model_of_saved_model(source, config)
        origin = _FOLDER_ORIGIN.format(folder=source.resolve().name)
    files = {"README.md": _card(config, origin), "config.json": to_json(config)}
    export(model.hub_module(), output, files)


def _card(config: ExperimentConfig, origin: str) -> str:
    return _CARD.format(
        name=NAME,
        version=__version__,
        languages=", ".join((config.data.source, *config.data.targets)),
        dim=config.encoder.hidden_dim,
        max_tokens=config.text.max_tokens,
        origin=origin,
    )

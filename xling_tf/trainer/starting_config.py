"""The settings of a training that starts from another model: its text and encoder are that model's."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from xling_tf.config import EncoderConfig, ExperimentConfig, InitialConfig, TextConfig
from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL, read_json
from xling_tf.overrides import apply_overrides, from_json

CONFIG = "config.json"
_RECORD = "start.json"
# What no weight depends on, and may be set anew.
_FREE = ("text.max_tokens", "text.max_context_tokens", "text.extra_pieces")
_FAMILY = ("encoder.kind", "text.tokenizer")


class StartRecord(NamedTuple):
    """What a run keeps of the model it was started from, which may change or go meanwhile.

    Attributes:
        model: The folder, as it was given.
        digest: Tells the files from others.
        config: The model's own.
        parents: For each piece that the run has more, the model's that spelt it.
    """

    model: str
    digest: str
    config: ExperimentConfig
    parents: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, model: str) -> Self:
        """Looks at the folder of a run or of an exported model.

        Raises:
            UserError: It is neither.
        """
        folder = Path(model)
        is_run = any(folder.glob("checkpoints/*/state.json"))
        if not (folder / CONFIG).is_file() or not (is_run or (folder / SAVED_MODEL).is_file()):
            raise UserError(
                f"--init expects the folder of a run that has a checkpoint or of a model exported by "
                f"xling_tf, but {folder} has {_found(folder)}; other SavedModels are made ones by "
                "export/import_published.py"
            )
        try:
            config = from_json(ExperimentConfig, (folder / CONFIG).read_text(encoding="utf-8"))
        except (AttributeError, RecursionError, TypeError, ValueError) as error:
            raise UserError(
                f"{folder / CONFIG} must be the settings of a model of xling_tf, but is not ({error}); bring "
                "it back from a copy, or export the model anew"
            ) from error
        return cls(model, _digest(folder), config)

    @classmethod
    def read(cls, run_dir: Path) -> "StartRecord | None":
        """Reads what a run has kept; None where it has nothing.

        Raises:
            UserError: The file is damaged.
        """
        path = run_dir / _RECORD
        if not path.is_file():
            return None
        try:
            fields = read_json(path)
            config = from_json(ExperimentConfig, json.dumps(fields.pop("config")))
            return cls(config=config, **fields)
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} must be as the run has written it, but is damaged ({error}); bring it back from a "
                "copy, or start another run with --run_dir"
            ) from error

    def file(self) -> tuple[str, str]:
        """The name and content of the file that a run keeps it in."""
        fields = {**self._asdict(), "config": dataclasses.asdict(self.config)}
        return _RECORD, json.dumps(fields, indent=2) + "\n"


@dataclasses.dataclass(frozen=True)
class _Sections:
    """What of a config the model that a training starts from decides, and which model that is."""

    text: TextConfig
    encoder: EncoderConfig
    initial: InitialConfig


def find_start(model: str, run_dir: Path) -> StartRecord:
    """Looks at what a run in `run_dir` has kept of a model, else at the model itself.

    Raises:
        UserError: The model is none.
    """
    kept = StartRecord.read(run_dir)
    return kept if kept and kept.model == model else StartRecord.of(model)


def apply_start(
    preset: ExperimentConfig, settings: Sequence[str], run_dir: Path
) -> ExperimentConfig:
    """Applies overrides to a preset; one that names a model to start from gets its text and encoder.

    So do the widths of towers and of the head for inference, unless they are set: those of the model
    can then go on.

    Args:
        preset: Says what is trained on what.
        settings: Overrides, as `apply_overrides` takes them.
        run_dir: Of the run; one that was started there has kept the settings of its model.

    Raises:
        UserError: The preset or an override asks for another text or encoder.
    """
    # These alone, which need not fit the rest of the preset: with the model's they will.
    names = [setting.partition("=")[0].strip() for setting in settings]
    own = [
        setting
        for setting, name in zip(settings, names, strict=True)
        if name.partition(".")[0] in ("text", "encoder", "initial")
    ]
    asked = apply_overrides(_Sections(preset.text, preset.encoder, preset.initial), own)
    model = asked.initial.model
    if not model:
        return apply_overrides(preset, settings)
    start = find_start(model, run_dir)
    _require_equal(start, asked, [*_FAMILY, *(name for name in names if name not in _FREE)])
    tasks = dataclasses.replace(
        preset.tasks,
        tower_dims=start.config.tasks.tower_dims,
        inference_dim=start.config.tasks.inference_dim,
    )
    adopted = dataclasses.replace(
        preset,
        text=dataclasses.replace(start.config.text, extra_pieces=0),
        encoder=start.config.encoder,
        tasks=tasks,
    )
    return apply_overrides(adopted, settings)


def require_fit(start: StartRecord, config: ExperimentConfig) -> None:
    """Makes sure that a config has the text and the encoder of the model it starts from.

    Raises:
        UserError: It has not, as where it is not from `apply_start`.
    """
    _require_equal(start, config, [name for name in _leaves(config) if name not in _FREE])


def _require_equal(
    start: StartRecord, config: ExperimentConfig | _Sections, names: Sequence[str]
) -> None:
    theirs, ours = _leaves(start.config), _leaves(config)
    for name in names:
        if name in theirs and theirs[name] != ours[name]:
            family = ", as its presets do" if name in _FAMILY else ""
            raise UserError(
                f"the preset or --set asks for {name}={_text(ours[name])}, but {start.model}, from which it "
                f"starts, has {_text(theirs[name])}: set {name}={_text(theirs[name])}{family}, or start "
                "another model with --init"
            )


def _leaves(config: ExperimentConfig | _Sections) -> Mapping[str, Any]:
    sections = {"text": config.text, "encoder": config.encoder}
    return {
        f"{section}.{name}": value
        for section, fields in sections.items()
        for name, value in vars(fields).items()
    }


def _text(value: Any) -> str:
    """As --set takes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in _weight_files(folder):
        status = path.stat()
        name = path.relative_to(folder)
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _weight_files(folder: Path) -> Iterator[Path]:
    for pattern in (CONFIG, "variables/*", "training/*", "checkpoints/**/*"):
        yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def _found(folder: Path) -> str:
    if not folder.is_dir():
        return "nothing: there is no such folder"
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:5]) or "nothing in it"

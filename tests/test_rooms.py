"""What the import of each room of the package brings into a process."""

import json
import subprocess
import sys

from programs import ROOT

# Rooms and modules that need TensorFlow; all others must do without, also those still to come.
WITH_TENSORFLOW = {
    *("baselines", "encoders", "exporters", "importers", "integrations", "layers", "losses"),
    *("model", "savedmodel", "serving", "tasks", "tokenizers", "trainer", "weights"),
}
# A fork for each room; those with TensorFlow get it from the parent, where it is imported once.
IMPORT_EACH = """
import importlib, json, os, sys
light, heavy = json.loads(sys.argv[1])
for rooms in (light, heavy):
    for room, names in rooms.items():
        if not os.fork():
            for name in names:
                try:
                    importlib.import_module(name)
                except ModuleNotFoundError as error:  # an engine of `integrations`
                    if "xling_tf" in error.name:
                        raise
            print(json.dumps([room, [*sys.modules]]), flush=True)
            os._exit(0)
        assert not os.wait()[1], room
    import keras, tensorflow
"""


def test_a_room_imports_neither_baselines_nor_without_need_tensorflow():
    rooms = dict[str, list[str]]()
    for path in sorted((ROOT / "xling_tf").rglob("*.py")):
        names = path.relative_to(ROOT).with_suffix("").parts
        rooms.setdefault(names[1], []).append(".".join(names).removesuffix(".__init__"))
    light = {room: names for room, names in rooms.items() if room not in WITH_TENSORFLOW}
    heavy = {room: names for room, names in rooms.items() if room in WITH_TENSORFLOW}
    assert {"config", "presets", "settings", "corpora", "evaluators", "search"} <= light.keys()
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, json.dumps([light, heavy])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    imported = {room: set(modules) for room, modules in map(json.loads, run.stdout.splitlines())}
    assert imported.keys() == rooms.keys()
    for room, modules in imported.items():
        assert (room == "baselines") == ("xling_tf.baselines" in modules), room
        if room in light:
            assert not {"tensorflow", "keras"} & modules, room

"""What may import what, and that everything public is documented and annotated."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import xling_tf

ROOT = Path(xling_tf.__file__).parent

# Imports point one way: a module imports from its own row (its own package) and from rows above.
ROWS = (
    {"errors", "task_config"},
    {"config", "cluster", "console", "drawing", "files", "provenance", "schedule", "signals"},
    {
        "vectors",
        "load_testing",
        "saved_models",
        "overrides",
        "presets",
        "corpora",
        "figure_tasks",
        "permutation",
    },
    {"run_folder", "evaluators", "mining", "pipelines", "averages", "tfds_source", "figure"},
    {"text", "layers", "losses", "distribution", "optimizers", "precision", "checkpoints"},
    {"text_batches", "serving"},
    {"training_log", "model_card", "workers", "systems", "reporting", "starting_config"},
    {"sentence_encoder", "serving_layout", "encoders", "corpus_mining", "hub_heads"},
    {"tasks", "hub"},
    {"conformance", "input_pipeline", "model"},
    {"examples", "training_input", "starting_point", "published"},
    {"runtimes", "development", "teacher", "taking_over"},
    {"trainer", "evaluation"},
    {"experiment"},
    {"fine_tuning"},
)
WITHOUT_TENSORFLOW = (
    *("cluster",),
    *("config", "console", "corpora", "errors", "evaluators", "files", "model_card", "overrides"),
    *("drawing", "figure", "figure_tasks", "starting_config", "task_config"),
    *("corpus_mining", "load_testing", "mining", "text_batches", "vectors"),
    *("presets", "provenance", "reporting", "run_folder", "schedule", "signals"),
)
PROGRAM_FOLDERS = {"training", "evaluation", "export", "data"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {
    module_name(path): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}
PATHS = {module_name(path): path for path in ROOT.rglob("*.py")}


def imported_by(tree: ast.AST) -> Iterator[str]:
    """Names of what a tree imports; "from a import b" counts as a.b where that is a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in TREES else str(node.module)


@cache
def imports(name: str) -> frozenset[str]:
    return frozenset(imported_by(TREES[name]))


def reached(name: str, *, through_packages: bool = True) -> set[str]:
    """All that importing a module imports, also through the packages it lies in."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        if module in TREES:
            waiting += imports(module)
        if through_packages and module.startswith("xling_tf."):
            waiting.append(module.rpartition(".")[0])
    return found


def part(name: str) -> str:
    """The module or sub-package directly in xling_tf."""
    return name.split(".")[1]


def row(name: str) -> int:
    for index, parts in enumerate(ROWS):
        if part(name) in parts:
            return index
    pytest.fail(f"give {part(name)!r} its row in ROWS")


OWN = [name for name in TREES if name != "xling_tf"]


@pytest.mark.parametrize("name", OWN)
def test_imports_point_one_way(name):
    for other in imports(name):
        if other.startswith("xling_tf."):
            assert row(other) < row(name) or part(other) == part(name), f"{name} imports {other}"


@pytest.mark.parametrize("name", OWN)
def test_modules_do_not_import_in_circles(name):
    for other in imports(name):
        assert name not in reached(other, through_packages=False), f"{other} imports {name}"


@pytest.mark.parametrize("name", [name for name in OWN if part(name) in WITHOUT_TENSORFLOW])
def test_no_tensorflow_where_none_is_needed(name):
    tops = {module.split(".")[0] for module in reached(name)}
    assert not tops & {"tensorflow", "keras", "tensorflow_text", "tensorflow_hub"}


def test_the_package_and_its_plain_modules_load_without_tensorflow():
    plain = ("config", "overrides", "presets", "schedule", "errors", "files", "corpora.default")
    code = "; ".join(f"import xling_tf.{name}" for name in plain)
    code += "; import sys; assert not {'tensorflow', 'keras'} & set(sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", [name for name in OWN if part(name) in ("layers", "losses")])
def test_bricks_use_keras_alone(name):
    with_tensorflow = any(module.split(".")[0] == "tensorflow" for module in imports(name))
    # The one switch: the sparse lookup of embedding rows.
    assert with_tensorflow == (name == "xling_tf.layers.embeddings")


def test_the_one_switch_is_under_a_condition():
    tree = TREES["xling_tf.layers.embeddings"]
    always = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("tensorflow" in name for node in always for name in imported_by(node))


@pytest.mark.parametrize("name", [name for name in OWN if part(name) in ("corpora", "evaluators")])
def test_data_and_evaluators_know_no_model(name):
    parts = {part(module) for module in reached(name) if module.startswith("xling_tf.")}
    assert not parts & {"encoders", "tasks", "trainer", "hub", "model", "layers", "text"}


@pytest.mark.parametrize("name", TREES)
def test_no_module_imports_its_own_package_inside_a_function(name):
    functions = [
        node
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    inside = [module for function in functions for module in imported_by(function)]
    assert not [module for module in inside if module.startswith("xling_tf")]


@pytest.mark.parametrize("name", TREES)
def test_nothing_imports_a_program(name):
    assert not {module.split(".")[0] for module in imports(name)} & PROGRAM_FOLDERS


def test_program_folders_are_no_packages():
    folders = [ROOT.parent / name for name in PROGRAM_FOLDERS]
    assert not [folder for folder in folders if (folder / "__init__.py").exists()]


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Public functions and classes, and the public methods of public classes."""
    waiting: list[tuple[str, ast.AST]] = [("", node) for node in tree.body]
    while waiting:
        prefix, node = waiting.pop()
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_") and node.name != "__init__":
            continue
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            waiting += [(f"{node.name}.", child) for child in node.body]


def is_annotated(function: ast.FunctionDef, *, is_method: bool) -> bool:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    is_static = any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in function.decorator_list
    )
    if is_method and not is_static:
        named = named[1:]
    named += [rest for rest in (arguments.vararg, arguments.kwarg) if rest]
    return function.returns is not None and all(argument.annotation for argument in named)


@pytest.mark.parametrize("name", TREES)
def test_everything_public_is_documented_and_annotated(name):
    tree = TREES[name]
    assert ast.get_docstring(tree), f"{name} has no docstring"
    for label, node in public_definitions(tree):
        if not label.endswith("__init__"):
            assert ast.get_docstring(node), f"{name}.{label} has no docstring"
        if isinstance(node, ast.FunctionDef):
            assert is_annotated(node, is_method="." in label), f"{name}.{label} is not annotated"


@pytest.mark.parametrize("name", TREES)
def test_files_and_functions_stay_readable(name):
    assert len(PATHS[name].read_text(encoding="utf-8").splitlines()) <= 300
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{name}.{node.name} is long"

"""Units of work: what a rerun skips, what it does again, and what a stop leaves behind."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from raw_files import report, shards

from xling_tf.errors import UserError
from xling_tf.pipelines import storage
from xling_tf.pipelines.command import beam_options
from xling_tf.pipelines.common import Account, Keyed, Preparation
from xling_tf.pipelines.jobs import prepare


def _words(path: str, account: Account, *, log: str) -> Iterator[Keyed]:
    with open(log, "a", encoding="utf-8") as file:
        file.write(Path(path).name + " ")
    text = Path(path).read_text(encoding="utf-8")
    if text == "full disk":
        raise OSError(28, "No space left on device")
    if text == "mistake":
        raise UserError("a colour is expected, got 7; name one")
    if text == "interrupt":
        raise KeyboardInterrupt
    if text == "bug":
        raise AssertionError("a bug")
    for word in text.split():
        account.counts["words"] += 1
        yield Keyed(word, Path(path).name)


def _lines(records: Iterable[Keyed], account: Account) -> Iterator[str]:
    del account
    return (f"{word} of {file}" for word, file in records)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two input files."""
    (tmp_path / "1.txt").write_text("one two three")
    (tmp_path / "2.txt").write_text("two four")
    return tmp_path


def count_words(folder: Path, *, num_shards: int = 2, corpus: str = "kind/words.en") -> Account:
    """Prepares the words of a folder's files; notes in "log" which ones are opened."""
    preparation = Preparation(
        corpus=corpus,
        suffix=".txt.gz",
        settings={"a": 1},
        extract=partial(_words, log=str(folder / "log")),
        combine=_lines,
    )
    return prepare(
        preparation,
        inputs=storage.find_inputs([f"{folder}/*.txt"]),
        output=str(folder / "out"),
        num_shards=num_shards,
        options=beam_options([]),
    )


def opened(folder: Path) -> list[str]:
    """Which inputs were opened since the last call."""
    path = folder / "log"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return names


def test_what_is_prepared_is_left_alone(folder: Path):
    first = count_words(folder)
    assert first.counts == {"words": 5, "lines written": 5}
    assert opened(folder) == ["1.txt", "2.txt"]
    assert count_words(folder) == first
    assert opened(folder) == []


def test_other_inputs_shards_or_lost_shards_are_prepared_again(folder: Path):
    count_words(folder, corpus="kind/others.en")
    count_words(folder)
    (folder / "2.txt").write_text("two four six")
    assert count_words(folder).counts["words"] == 6
    assert len(shards(folder / "out/kind")) == 4
    count_words(folder, num_shards=1)
    (folder / "out/kind/words.en-00000-of-00001.txt.gz").unlink()
    count_words(folder, num_shards=1)
    assert list(shards(folder / "out/kind")) == [
        *(f"others.en-0000{n}-of-00002.txt.gz" for n in (0, 1)),
        "words.en-00000-of-00001.txt.gz",
    ]
    assert list(report(folder / "out")) == ["kind/others.en", "kind/words.en"]


def test_a_stopped_preparation_goes_on_and_gives_the_same_bytes(folder: Path):
    count_words(folder)
    whole = {path.name: path.read_bytes() for path in (folder / "out/kind").iterdir()}
    (folder / "out/preparation.json").unlink()
    text = (folder / "2.txt").read_text()
    opened(folder)
    (folder / "2.txt").write_text("full disk")
    with pytest.raises(UserError, match="No space left on device; mend that") as caught:
        count_words(folder)
    assert "\n" not in str(caught.value)
    assert opened(folder)[0] == "1.txt"
    (folder / "2.txt").write_text(text)
    count_words(folder)
    assert opened(folder) == ["2.txt"]
    assert {path.name: path.read_bytes() for path in (folder / "out/kind").iterdir()} == whole


def test_a_publication_that_was_killed_is_finished(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "1.txt").write_text("old")
    count_words(folder)
    (folder / "1.txt").write_text("one two three")
    moves: list[str] = []

    def move_once(source: str, target: str) -> None:
        if moves:
            raise KeyboardInterrupt
        moves.append(target)
        storage_move(source, target)

    storage_move = storage.move
    monkeypatch.setattr(storage, "move", move_once)
    with pytest.raises(KeyboardInterrupt):
        count_words(folder)
    monkeypatch.undo()
    assert report(folder / "out") == {}  # nothing says that the mixture is the old corpus
    opened(folder)
    assert count_words(folder).counts["words"] == 5
    assert opened(folder) == []
    assert sorted("".join(shards(folder / "out").values()).split("\n")[:-1]) == [
        "four of 2.txt",
        "one of 1.txt",
        "three of 1.txt",
        "two of 1.txt",
        "two of 2.txt",
    ]


def test_inputs_without_use_leave_the_earlier_corpus(folder: Path):
    count_words(folder)
    for name in ("1.txt", "2.txt"):
        (folder / name).write_text(" ")
    with pytest.raises(UserError, match="nothing was kept of them: no record"):
        count_words(folder)
    assert len(shards(folder / "out/kind")) == 2


def test_an_error_in_the_code_is_not_taken_for_the_users(folder: Path):
    (folder / "1.txt").write_text("bug")
    with pytest.raises(Exception, match="a bug") as caught:
        count_words(folder)
    assert not isinstance(caught.value, UserError)


def test_a_mistake_that_a_worker_finds_is_told_as_it_is(folder: Path):
    (folder / "1.txt").write_text("mistake")
    with pytest.raises(UserError, match=r"^a colour is expected, got 7; name one$"):
        count_words(folder)


def test_an_interrupt_is_an_interrupt(folder: Path):
    (folder / "1.txt").write_text("interrupt")
    with pytest.raises(KeyboardInterrupt):
        count_words(folder)
